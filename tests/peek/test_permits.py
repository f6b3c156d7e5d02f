"""Permits: the bound, the queue, and that a permit comes back on every way out."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from layby.errors import SqlError
from layby.peek.pending import PeekState
from layby.peek.permits import PeekPermits, permit_bound
from tests.peek.harness import Harness, HarnessOn, append_error, bundle_of, error_of, pairs, rows_of

HUNDRED = tuple((k, k) for k in range(100))


@pytest.mark.parametrize(
    ("fraction", "size", "bound"),
    [
        (1.0, 4, 4),
        (0.5, 5, 2),
        (0.0001, 8, 1),
        (0.0, 8, 1),
        (-1.0, 8, 1),
        (math.nan, 8, 1),
        (1000.0, 2, 2000),
        (math.inf, 2, 2**31),
    ],
)
def test_the_bound_is_a_fraction_of_the_pool_rounded_down_and_at_least_one(
    fraction: float, size: int, bound: int
) -> None:
    assert permit_bound(fraction, size) == bound


def test_at_most_as_many_walks_run_at_once_as_there_are_permits(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1, pool_size=2)
    peeks = [harness.peek()[0] for _ in range(5)]
    assert len(harness.pool.walks) == 2
    assert [p.state for p in peeks] == [PeekState.WALKING] * 2 + [PeekState.QUEUED] * 3
    assert (harness.metrics.permits_in_use, harness.metrics.permits_queued) == (2, 3)


def test_waiting_scans_are_admitted_first_come_first_served(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1, granularity=1_000)
    peeks = [harness.peek()[0] for _ in range(4)]
    for number in range(4):
        assert [p.state for p in peeks[number:]].count(PeekState.WALKING) == 1
        assert peeks[number].state is PeekState.WALKING
        harness.pool.step()
        harness.turn()
        assert peeks[number] in harness.answers


def test_a_walk_that_answers_returns_its_permit(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1)
    harness.ask()
    assert harness.worker.offload.permits.in_use == 0
    assert harness.metrics.permits_in_use == 0
    assert harness.metrics.permits_granted == 1


def test_a_walk_that_fails_returns_its_permit(harness_on: HarnessOn) -> None:
    bundle = bundle_of(pairs(*HUNDRED))
    append_error(bundle, "x", 2, 1, 3)
    append_error(bundle, "x", 3, -1, 4)
    append_error(bundle, "y", 4, 1, 5)
    harness = harness_on(bundle, inline_budget=1)
    assert error_of(harness.ask())[0] == "22012"
    assert harness.metrics.walks_offloaded == 1
    assert harness.worker.offload.permits.in_use == 0


def test_a_walk_that_is_cancelled_returns_its_permit(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1, granularity=10)
    peek, _ = harness.peek()
    waiting, _ = harness.peek()
    harness.worker.cancel(peek)
    assert harness.worker.offload.permits.in_use == 1
    assert harness.pool.step()
    assert waiting.state is PeekState.WALKING
    harness.settle()
    assert len(rows_of(harness.answers[waiting])) == 100
    assert harness.worker.offload.permits.in_use == 0


def test_a_walk_that_ends_before_it_has_its_ticket_returns_its_permit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=1)
    monkeypatch.setattr(harness.pool, "submit", lambda walk, done: (walk.step(), done()))
    harness.ask()
    assert harness.worker.offload.permits.in_use == 0
    assert (harness.metrics.permits_in_use, harness.metrics.permits_granted) == (0, 1)


def test_a_scan_that_is_cancelled_before_admission_leaves_the_queue_and_takes_no_permit(
    harness_on: HarnessOn,
) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1)
    first, _ = harness.peek()
    second, _ = harness.peek()
    third, _ = harness.peek()
    harness.worker.cancel(second)
    assert harness.metrics.permits_queued == 1
    harness.settle()
    assert harness.metrics.permits_granted == 2
    assert error_of(harness.answers[second])[0] == "57014"
    assert len(rows_of(harness.answers[first])) == len(rows_of(harness.answers[third])) == 100


def test_queued_and_running_walks_pin_each_batch_once(harness_on: HarnessOn) -> None:
    bundle = bundle_of(pairs(*HUNDRED), pairs(*HUNDRED, time=2))
    size = sum(batch.nbytes for batch in bundle.snapshot().oks)
    harness = harness_on(bundle, inline_budget=1)
    peeks = [harness.peek()[0] for _ in range(3)]
    assert harness.metrics.pinned_bytes == size
    harness.worker.cancel(peeks[1])
    assert harness.metrics.pinned_bytes == size
    harness.settle()
    assert harness.metrics.pinned_bytes == 0


def test_the_rows_that_queued_walks_have_found_are_counted_until_they_have_a_permit(
    harness_on: HarnessOn,
) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=10)
    row = 2 * 8
    for queued in range(4):
        peek, _ = harness.peek()
        assert harness.metrics.queued_rows_bytes == queued * 10 * row
    harness.worker.cancel(peek)
    assert harness.metrics.queued_rows_bytes == 2 * 10 * row
    while not harness.pool.step():
        pass
    assert harness.metrics.queued_rows_bytes == 10 * row
    harness.settle()
    assert harness.metrics.queued_rows_bytes == 0


def test_a_peek_past_the_longest_queue_is_refused_at_once_and_holds_nothing(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1, max_queued=1)
    harness.peek()
    harness.peek()
    pinned = harness.metrics.pinned_bytes
    refused, response = harness.peek()
    assert refused.state is PeekState.ANSWERED
    assert error_of(response) == (
        "53400",
        "too many index peeks wait for a permit (compute_index_peek_max_queued = 1)",
    )
    assert len(harness.worker.offload) == 2
    assert harness.metrics.pinned_bytes == pinned


def test_a_raise_admits_waiters_at_once(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1, pool_size=1)
    peeks = [harness.peek()[0] for _ in range(3)]
    harness.parameters.set("compute_index_peek_permit_fraction", "3")
    assert [p.state for p in peeks] == [PeekState.WALKING] * 3


def test_a_shrink_absorbs_permits_as_they_come_back_even_with_waiters() -> None:
    started: list[int] = []
    permits = PeekPermits(3)

    def waiter(number: int) -> Callable[[], None]:
        return lambda: started.append(number)

    tickets = [permits.acquire(waiter(number), 0) for number in range(5)]
    assert started == [0, 1, 2]
    permits.resize(1)
    tickets[0].release()
    tickets[1].release()
    assert (started, permits.in_use) == ([0, 1, 2], 1)
    tickets[2].release()
    assert started == [0, 1, 2, 3]


def test_releasing_twice_gives_one_permit_back() -> None:
    permits = PeekPermits(1)
    first = permits.acquire(lambda: None, 0)
    first.release()
    first.release()
    permits.acquire(lambda: None, 0)
    assert permits.in_use == 1
    with pytest.raises(SqlError, match="too many index peeks"):
        permits.acquire(lambda: None, 1)
        permits.acquire(lambda: None, 1)
