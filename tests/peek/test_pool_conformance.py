"""What every walk pool has to do: one kit that the stepped pool, threads and processes all pass."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import pytest

from layby.errors import SqlError
from layby.expr.function import overloads
from layby.expr.scalar import Call, ColumnRef, Expr, Literal
from layby.peek.answer import EncodedRows, Rows
from layby.peek.pending import PendingPeek
from layby.peek.pool import SteppedWalkPool, ThreadWalkPool, Work
from layby.peek.spec import PeekSpec
from layby.trace.series import series_batch
from layby.types.column import Column
from layby.types.ordering import ASCENDING, DESCENDING
from layby.types.scalar import BIGINT
from tests.peek.harness import INDEX, append_error, bundle_of, error_of, finishing, pairs, rows_of, spec
from tests.peek.pools import KINDS, PoolHarness, Walks, walks_of

HUNDRED = tuple((k, k * 7 % 100) for k in range(100))

NEVER: Expr = Call(
    next(f for f in overloads("<") if f.args == (BIGINT, BIGINT)),
    (ColumnRef(0, BIGINT), Literal(0, BIGINT)),
)
ENDLESS = (series_batch(1, 10**15, 1, BIGINT),)
"""A walk over this for `NEVER` takes days."""


@pytest.fixture(scope="module", params=KINDS)
def walks(request: pytest.FixtureRequest) -> Iterator[Walks]:
    with walks_of(request.param) as found:
        yield found


@pytest.fixture
def harness(walks: Walks) -> Iterator[PoolHarness]:
    harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=10, yield_granularity=16)
    yield harness
    harness.until_idle()


def endless() -> PeekSpec:
    return spec(types=(BIGINT,), predicates=[NEVER])


def send_endless(harness: PoolHarness) -> PendingPeek:
    return harness.send(endless(), ENDLESS)


@dataclass(frozen=True)
class Doubled:
    """An encoder that a process can be sent: every row as two bytes."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        keys = [int(str(key)) for key in columns[0].to_list()]
        return EncodedRows(bytes(k for key in keys for k in (key, key)), range(2, 2 * count + 2, 2), count)


@dataclass(frozen=True)
class Long:
    """An encoder of an answer that is worth a segment of its own."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        return EncodedRows(b"0123456789abcdef" * 200_000, [32_000 * (i + 1) for i in range(count)], count)


@dataclass(frozen=True)
class Broken:
    """An encoder with a bug."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        raise ZeroDivisionError("boom")


def test_an_offloaded_walk_answers_with_its_rows(harness: PoolHarness) -> None:
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert (harness.metrics.walks_inline, harness.metrics.walks_offloaded) == (0, 1)


def test_an_offloaded_walk_sorts_and_cuts_its_answer(harness: PoolHarness) -> None:
    asked = spec(finish=finishing(2, [(1, DESCENDING)], limit=3, offset=1))
    assert [row[1] for row in rows_of(harness.ask(asked))] == [98, 97, 96]


def test_updates_of_several_batches_and_times_are_summed(walks: Walks) -> None:
    bundle = bundle_of(pairs(*HUNDRED), pairs(*HUNDRED[::2], time=2, diff=-1), pairs(*HUNDRED[:4], time=3))
    harness = PoolHarness(walks, bundle, inline_budget=5, yield_granularity=1)
    expected = sorted([*HUNDRED[1::2], *HUNDRED[:4]])
    assert sorted(rows_of(harness.ask())) == expected


def test_an_answer_is_encoded_where_the_walk_ran(harness: PoolHarness) -> None:
    answer = harness.ask(encoder=Doubled())
    assert isinstance(answer, Rows)
    assert answer.encoded is not None
    assert bytes(answer.encoded.data) == bytes(k for k in range(100) for _ in range(2))
    assert (list(answer.encoded.ends)[-1], answer.encoded.count) == (200, 100)


def test_a_large_answer_comes_whole(harness: PoolHarness) -> None:
    answer = harness.ask(encoder=Long())
    assert isinstance(answer, Rows)
    assert answer.encoded is not None
    assert bytes(answer.encoded.data) == b"0123456789abcdef" * 200_000
    assert [int(end) for end in answer.encoded.ends] == [32_000 * (i + 1) for i in range(100)]


def test_an_error_of_the_collection_is_the_answer(walks: Walks) -> None:
    bundle = bundle_of(pairs(*HUNDRED))
    append_error(bundle, "cancelled out", 2, 1, 3)
    append_error(bundle, "cancelled out", 3, -1, 4)
    append_error(bundle, "division by zero", 4, 1, 5)
    harness = PoolHarness(walks, bundle, inline_budget=0, yield_granularity=1)
    assert error_of(harness.ask()) == ("22012", "division by zero")
    assert harness.metrics.walks_offloaded == 1


def test_a_negative_multiplicity_fails_the_peek(walks: Walks) -> None:
    bundle = bundle_of(pairs(*HUNDRED), pairs((5, 35), time=2, diff=-2))
    harness = PoolHarness(walks, bundle, inline_budget=1, yield_granularity=10)
    assert error_of(harness.ask())[0] == "XX000"


def test_a_walk_that_raises_costs_one_peek_and_counts_nowhere(harness: PoolHarness) -> None:
    broken = harness.send(encoder=Broken())
    beside = harness.send()
    assert error_of(harness.answer(broken)) == (
        "XX000",
        'the walk of "test" raised ZeroDivisionError: boom',
    )
    assert rows_of(harness.answer(beside)) == list(HUNDRED)
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert harness.metrics.walks_offloaded == 2


def test_a_walk_under_way_ends_when_it_is_cancelled_and_gives_back_what_it_held(harness: PoolHarness) -> None:
    peek = send_endless(harness)
    harness.until_walking(peek)
    assert harness.worker.offload.permits.in_use == 1
    harness.worker.cancel(peek)
    assert error_of(harness.answers[peek]) == ("57014", "canceling statement due to user request")
    harness.until_idle()
    assert harness.metrics.walks_offloaded == 0


def test_a_walk_is_cancelled_in_the_turn_in_which_it_was_handed_over(harness: PoolHarness) -> None:
    peeks = [send_endless(harness) for _ in range(5)]
    for peek in peeks:
        harness.worker.cancel(peek)
    harness.until_idle()
    assert [error_of(harness.answers[peek])[0] for peek in peeks] == ["57014"] * 5
    assert rows_of(harness.ask()) == list(HUNDRED)


def test_a_peek_cancelled_in_the_permit_queue_never_takes_a_permit(harness: PoolHarness) -> None:
    running = [send_endless(harness) for _ in range(2)]
    queued = send_endless(harness)
    assert harness.worker.offload.permits.queued == 1
    harness.worker.cancel(queued)
    assert harness.worker.offload.permits.queued == 0
    for peek in running:
        harness.worker.cancel(peek)
    harness.until_idle()
    assert harness.metrics.permits_granted == 2


def test_queued_walks_run_once_permits_come_back(harness: PoolHarness) -> None:
    running = [send_endless(harness) for _ in range(2)]
    queued = [harness.send() for _ in range(4)]
    assert harness.worker.offload.permits.queued == 4
    harness.worker.cancel(running[0])
    assert [rows_of(harness.answer(peek)) for peek in queued] == [list(HUNDRED)] * 4
    harness.worker.cancel(running[1])


def test_more_permits_than_places_to_walk_leave_walks_waiting_that_can_be_cancelled(walks: Walks) -> None:
    harness = PoolHarness(
        walks, bundle_of(pairs(*HUNDRED)), inline_budget=10, permit_fraction=1000.0, yield_granularity=16
    )
    peeks = [send_endless(harness) for _ in range(200)]
    assert harness.worker.offload.permits.in_use == 200
    for peek in reversed(peeks):
        harness.worker.cancel(peek)
    harness.until_idle()
    assert rows_of(harness.ask()) == list(HUNDRED)


def test_a_smaller_iteration_limit_reaches_a_walk_under_way(harness: PoolHarness) -> None:
    peek = send_endless(harness)
    harness.until_walking(peek)
    harness.parameters.set("compute_peek_row_iteration_limit", "11")
    assert error_of(harness.answer(peek))[0] == "54000"


def test_a_smaller_largest_size_reaches_a_walk_under_way(walks: Walks) -> None:
    harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=10, yield_granularity=1)
    everything = spec(types=(BIGINT,), finish=finishing(1, [(0, ASCENDING)]))
    peek = harness.send(everything, ENDLESS)
    harness.until_walking(peek)
    harness.parameters.set("max_result_size", "64B")
    assert error_of(harness.answer(peek))[0] == "54000"
    harness.until_idle()


def test_switching_the_offload_off_leaves_walks_under_way_to_their_end(harness: PoolHarness) -> None:
    peek = harness.send()
    harness.parameters.set("enable_compute_index_peek_offload", "off")
    assert rows_of(harness.answer(peek)) == list(HUNDRED)
    assert harness.metrics.walks_offloaded == 1


def test_dropping_an_index_ends_its_walks(walks: Walks) -> None:
    harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=1, yield_granularity=1)
    peeks = [harness.send() for _ in range(4)]
    harness.worker.cancel_reads_of(INDEX, SqlError("57014", "dropped"))
    assert [error_of(harness.answers[peek]) for peek in peeks] == [("57014", "dropped")] * 4
    harness.until_idle()


@pytest.mark.parametrize("granularity", [1, 7, 100_000])
def test_answers_are_the_same_at_every_granularity(walks: Walks, granularity: int) -> None:
    bundle = bundle_of(pairs(*HUNDRED), pairs(*HUNDRED[::3], time=2, diff=-1), pairs(*HUNDRED[::9], time=3))
    harness = PoolHarness(walks, bundle, inline_budget=3, yield_granularity=granularity)
    expected = [row for i, row in enumerate(HUNDRED) if i % 3 or not i % 9]
    assert rows_of(harness.ask()) == expected


def test_phases_are_observed_once_a_walk(harness: PoolHarness) -> None:
    harness.ask()
    metrics = harness.metrics
    assert metrics.row_iteration_rows.count == 1
    assert metrics.row_iteration_rows.sum == 100
    assert metrics.result_sort_rows.sum == 100
    assert metrics.offload_seconds.count == 1


def test_a_pool_says_its_size_and_that_it_is_well(walks: Walks) -> None:
    assert walks.pool.size == 2
    assert walks.pool.healthy


class Held:
    """Work that ends once it may."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.over = False

    def step(self) -> bool:
        self.may_end.wait()
        self.over = True
        return True


def test_a_pool_of_threads_is_closed_once_its_walks_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    held, join = Held(), threading.Thread.join

    def joined(thread: threading.Thread) -> None:
        held.may_end.set()
        join(thread)

    monkeypatch.setattr(threading.Thread, "join", joined)
    pool = ThreadWalkPool(1, lambda deliver: deliver())
    pool.submit(cast("Work", held), lambda: None)
    pool.close()
    assert held.over
    assert not pool.healthy


class Steps:
    """Work of so many steps."""

    def __init__(self, left: int) -> None:
        self.left = left

    @property
    def over(self) -> bool:
        return not self.left

    def step(self) -> bool:
        self.left -= 1
        return self.over


def test_a_stepped_pool_runs_each_walk_to_its_end_in_the_order_of_their_coming() -> None:
    pool = SteppedWalkPool()
    ended: list[int] = []
    for steps in (3, 1):
        pool.submit(cast("Work", Steps(steps)), partial(ended.append, steps))
    pool.run()
    assert ended == [3, 1]
