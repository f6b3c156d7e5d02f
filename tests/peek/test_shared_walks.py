"""Shared walks: which walks go together, and that each keeps its answer, its end and its accounting."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.expr.comparisons import Comparison, Comparisons
from layby.expr.function import overloads
from layby.expr.scalar import Call, ColumnRef, Expr, Literal
from layby.peek.answer import EncodedRows
from layby.peek.pending import PeekState
from layby.peek.pool import Work
from layby.peek.scan import CHUNK, PeekScan
from layby.peek.shared_walk import MOST_TOGETHER, SharedWalk
from layby.peek.walk import Walk, WalkLimits
from layby.trace.bundle import TraceBundle
from layby.types.column import Column
from layby.types.ordering import ASCENDING, DESCENDING
from layby.types.scalar import BIGINT
from tests.peek.benches import GatedProcesses
from tests.peek.gates import Bench
from tests.peek.harness import (
    INDEX,
    PAIR,
    Harness,
    HarnessOn,
    Row,
    StandingClock,
    append,
    append_error,
    bundle_of,
    error_of,
    finishing,
    keys,
    pairs,
    rows_of,
    spec,
)

HUNDRED = tuple((k, k % 7) for k in range(100))
K, V = ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)


def call(name: str, *args: Expr) -> Call:
    types = tuple(a.type for a in args)
    return Call(next(f for f in overloads(name) if f.args == types), args)


def number(value: int) -> Literal:
    return Literal(value, BIGINT)


def equal(value: int) -> Expr:
    return call("=", V, number(value))


def divides_by_zero_at(k: int) -> Expr:
    return call("=", call("/", number(1), call("-", K, number(k))), V)


def burst(*_: object, **__: object) -> None:
    raise ZeroDivisionError("boom")


def break_the_first(work: Work) -> None:
    work.walks[0].scan._take = burst  # type: ignore[method-assign]


def bytes_held(work: Work) -> list[int]:
    return [walk.scan.nbytes for walk in work.walks]


def sharing(harness_on: HarnessOn, bundle: TraceBundle | None = None) -> Harness:
    """Return a harness whose only permit is taken by a walk that shares nothing, so that others wait."""
    bundle = bundle or bundle_of(pairs(*HUNDRED))
    harness = harness_on(bundle, inline_budget=10, granularity=20, shared="on")
    blocker, _ = harness.peek(spec(constraints=keys(*range(60))))
    assert blocker.state is PeekState.WALKING
    return harness


def test_walks_that_wait_on_one_index_go_in_one_pass_with_one_permit(harness_on: HarnessOn) -> None:
    harness = sharing(harness_on)
    waiting = [harness.peek(spec(predicates=[equal(v)]))[0] for v in range(5)]
    assert harness.metrics.permits_queued == 5
    while not harness.pool.step():
        pass
    assert [p.state for p in waiting] == [PeekState.WALKING] * 5
    assert (harness.metrics.permits_in_use, harness.metrics.permits_queued) == (1, 0)
    work = harness.pool.walks[0].work
    assert isinstance(work, SharedWalk)
    harness.settle()
    for value, peek in enumerate(waiting):
        assert rows_of(harness.answers[peek]) == [row for row in HUNDRED if row[1] == value]
    assert harness.metrics.shared_walks == 5
    assert harness.metrics.permits_granted == 2
    assert harness.metrics.permits_in_use == 0
    assert harness.metrics.pinned_bytes == 0


def test_no_more_than_sixty_walks_go_together(harness_on: HarnessOn) -> None:
    harness = sharing(harness_on)
    waiting = [harness.peek(spec(predicates=[equal(v)]))[0] for v in range(MOST_TOGETHER + 1)]
    while not harness.pool.step():
        pass
    assert len(harness.pool.walks[0].work.walks) == 60
    assert (harness.metrics.shared_walks, harness.metrics.permits_queued) == (60, 1)
    harness.settle()
    assert [len(rows_of(harness.answers[p])) for p in waiting] == [15, 15, 14, 14, 14, 14, 14, *[0] * 54]


def test_each_walk_is_accounted_for_as_if_it_had_gone_alone(harness_on: HarnessOn) -> None:
    harness = sharing(harness_on)
    for value in range(3):
        harness.peek(spec(predicates=[equal(value)]))
    harness.settle()
    metrics = harness.metrics
    assert metrics.walks_offloaded == 4
    assert metrics.row_iteration_rows.count == 4
    assert metrics.row_iteration_rows.sum == 60 + 3 * 100
    assert metrics.permit_wait_seconds.count == 4
    assert metrics.offload_seconds.count == 4


def test_each_walk_keeps_its_own_finishing_and_time(harness_on: HarnessOn) -> None:
    bundle = bundle_of(pairs(*HUNDRED), pairs((200, 3), time=2))
    harness = sharing(harness_on, bundle)
    first, _ = harness.peek(spec(finish=finishing(2, [(0, DESCENDING)], limit=2)))
    early, _ = harness.peek(spec(1, predicates=[equal(3)], outputs=[K]))
    harness.settle()
    assert rows_of(harness.answers[first]) == [(200, 3), (99, 1)]
    assert rows_of(harness.answers[early]) == [(k,) for k, v in HUNDRED if v == 3]
    assert harness.metrics.shared_walks == 2


@pytest.mark.parametrize(
    ("name", "value"), [("compute_peek_row_iteration_limit", "35"), ("max_result_size", "64B")]
)
def test_a_lower_limit_reaches_the_walks_of_a_pass_at_its_next_slice(
    harness_on: HarnessOn, name: str, value: str
) -> None:
    harness = sharing(harness_on)
    waiting = [harness.peek(spec(predicates=[equal(v)]))[0] for v in range(2)]
    while not harness.pool.step():
        pass
    harness.pool.step()
    harness.parameters.set(name, value)
    harness.settle()
    assert [error_of(harness.answers[peek])[0] for peek in waiting] == ["54000"] * 2


def test_with_the_parameter_off_every_walk_goes_alone(harness_on: HarnessOn) -> None:
    harness = sharing(harness_on)
    harness.parameters.set("enable_compute_index_peek_shared_walks", "off")
    waiting = [harness.peek(spec(predicates=[equal(v)]))[0] for v in range(3)]
    harness.settle()
    assert harness.metrics.shared_walks == 0
    assert harness.metrics.permits_granted == 4
    assert [len(rows_of(harness.answers[p])) for p in waiting] == [15, 15, 14]


@pytest.mark.parametrize("order", [1, -1])
def test_walks_that_may_end_early_seek_or_go_the_other_way_are_not_shared(
    harness_on: HarnessOn, order: int
) -> None:
    harness = sharing(harness_on)
    asked = [
        spec(finish=finishing(2, limit=50)),
        spec(constraints=keys(*range(30, 90))),
        spec(reverse=True, ordered=True, finish=finishing(2, [(0, DESCENDING)])),
        spec(),
    ]
    alone = [harness.peek(each)[0] for each in asked[::order]]
    harness.settle()
    assert [len(rows_of(harness.answers[p])) for p in alone[::order]] == [50, 60, 100, 100]
    assert harness.metrics.shared_walks == 0


def test_walks_that_go_opposite_ways_from_their_start_are_not_shared(harness_on: HarnessOn) -> None:
    harness = sharing(harness_on)
    opposite = [
        harness.pending(spec(reverse=reverse, ordered=True, finish=finishing(2, [(0, order)])))
        for reverse, order in ((False, ASCENDING), (True, DESCENDING))
    ]
    for peek in opposite:
        peek.inline = False
        assert harness.worker.peek(peek) is None
    harness.settle()
    assert [rows_of(harness.answers[p])[0][0] for p in opposite] == [0, 99]
    assert harness.metrics.shared_walks == 0


def test_walks_of_different_snapshots_are_not_shared(harness_on: HarnessOn) -> None:
    bundle = bundle_of(pairs(*HUNDRED))
    harness = sharing(harness_on, bundle)
    before, _ = harness.peek(spec(5))
    append(bundle, pairs((500, 1), time=6), 7)
    harness.state.publish({INDEX: bundle.snapshot()}, harness.state.upper)
    after, _ = harness.peek(spec(6))
    harness.settle()
    assert len(rows_of(harness.answers[before])) == 100
    assert len(rows_of(harness.answers[after])) == 101
    assert harness.metrics.shared_walks == 0


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_walk_cancelled_in_a_pass_stops_and_the_others_go_on(harness_on: HarnessOn, gone: int) -> None:
    harness = sharing(harness_on)
    waiting = [harness.peek(spec(predicates=[equal(v)]))[0] for v in range(3)]
    while not harness.pool.step():
        pass
    work = harness.pool.walks[0].work
    harness.pool.step()
    harness.worker.cancel(waiting[gone])
    assert error_of(harness.answers[waiting[gone]])[0] == "57014"
    harness.settle()
    assert [walk.scan.positions for walk in work.walks] == [30 if at == gone else 100 for at in range(3)]
    for at, peek in enumerate(waiting):
        if at != gone:
            assert rows_of(harness.answers[peek]) == [row for row in HUNDRED if row[1] == at]
    assert harness.metrics.permits_in_use == 0
    assert harness.metrics.pinned_bytes == 0


def test_a_walk_cancelled_in_a_pass_keeps_no_rows_while_the_others_go_on(harness_on: HarnessOn) -> None:
    harness = sharing(harness_on)
    gone, _ = harness.peek(spec(predicates=[equal(1)]))
    other, _ = harness.peek(spec(predicates=[equal(2)]))
    while not harness.pool.step():
        pass
    harness.pool.step()
    assert harness.pool.look(bytes_held) == [5 * 16, 4 * 16]
    harness.worker.cancel(gone)
    harness.pool.step()
    assert harness.pool.look(bytes_held)[0] == 0
    harness.settle()
    assert len(rows_of(harness.answers[other])) == 14


def test_a_pass_whose_walks_are_all_cancelled_ends_within_one_granularity(harness_on: HarnessOn) -> None:
    harness = sharing(harness_on)
    waiting = [harness.peek(spec(predicates=[equal(v)]))[0] for v in range(3)]
    while not harness.pool.step():
        pass
    for peek in waiting:
        harness.worker.cancel(peek)
    assert harness.pool.step()
    assert harness.metrics.permits_in_use == 0


def test_a_step_of_a_pass_tells_whether_a_walk_ended_in_it() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=10, granularity=20, shared="on")
    harness.peek(spec(constraints=keys(*range(60))))
    for value in range(2):
        harness.peek(spec(predicates=[equal(value)]))
    while not harness.pool.step():
        pass
    work = harness.pool.walks[0].work
    ended = [work.step()]
    while not work.over:
        ended.append(work.step())
    assert ended == [False, False, False, False, True]


def test_walks_that_are_over_do_not_wait_for_the_long_answers_of_others() -> None:
    clock = StandingClock()

    def encoding(columns: Sequence[Column], count: int) -> EncodedRows:
        clock.now += 0.0006
        return EncodedRows(b"x", (), count)

    snapshot = bundle_of(pairs(*HUNDRED)).snapshot()
    limits = WalkLimits(1_000, 1 << 20, 0, -1)
    walks = [
        Walk(
            PeekScan(spec(predicates=[equal(value)]), snapshot, 1 << 20),
            encoding,
            lambda: limits,
            clock=clock,
        )
        for value in range(5)
    ]
    work = SharedWalk(walks, lambda: limits, clock=clock)
    assert work.step()
    assert [walk.over for walk in walks] == [True, True, False, False, False]
    walks[3].cancelled = True
    assert work.step()
    assert [walk.over for walk in walks] == [True] * 5
    assert [walk.response is None for walk in walks] == [False, False, False, True, False]
    assert [walk.scan.positions for walk in walks] == [100] * 5


def test_a_walk_that_is_over_is_visited_for_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def noted(beginnings: Sequence[Comparison | None]) -> Comparisons:
        compared.append(len(beginnings))
        return Comparisons(beginnings)

    monkeypatch.setattr("layby.peek.shared_scan.Comparisons", noted)
    snapshot = bundle_of(pairs(*HUNDRED)).snapshot()
    limits = WalkLimits(20, 1 << 20, 0, -1)
    asked = [spec(predicates=[divides_by_zero_at(30)]), spec(predicates=[equal(1)])]
    walks = [Walk(PeekScan(each, snapshot, 1 << 20), None, lambda: limits) for each in asked]
    work = SharedWalk(walks, lambda: limits)
    assert [work.step() for _ in range(6)] == [False, True, False, False, False, True]
    assert [walk.scan.positions for walk in walks] == [40, 100]
    assert compared == [2, 1]


def test_an_error_of_one_walk_is_its_own(harness_on: HarnessOn) -> None:
    harness = sharing(harness_on)
    broken, _ = harness.peek(spec(predicates=[divides_by_zero_at(50)]))
    fine, _ = harness.peek(spec(predicates=[equal(1)]))
    harness.settle()
    assert error_of(harness.answers[broken])[0] == "22012"
    assert len(rows_of(harness.answers[fine])) == 15


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_walk_that_fails_in_a_pass_is_answered_at_once_and_the_others_keep_the_permit(
    harness_on: HarnessOn, at: int
) -> None:
    harness = sharing(harness_on)
    asked = [spec(predicates=[equal(v)]) for v in range(2)]
    asked.insert(at, spec(predicates=[divides_by_zero_at(50)]))
    fine = [harness.peek(each)[0] for each in asked]
    broken = fine.pop(at)
    later, _ = harness.peek(spec(constraints=keys(*range(40))))
    while not harness.pool.step():
        pass
    for _ in range(3):  # up to position 70
        assert not harness.pool.step(), "the pass goes on"

    def answered() -> bool:
        harness.turn()
        return broken in harness.answers

    harness.bench.until(answered)
    assert error_of(harness.answers[broken])[0] == "22012"
    work = harness.pool.walks[0].work
    assert [walk.over for walk in work.walks] == [i == at for i in range(3)]
    assert not any(peek in harness.answers for peek in fine)
    metrics = harness.metrics
    assert (metrics.permits_in_use, metrics.permits_queued, later.state) == (1, 1, PeekState.QUEUED)
    harness.settle()
    assert [len(rows_of(harness.answers[peek])) for peek in (*fine, later)] == [15, 15, 40]
    assert (metrics.permits_in_use, metrics.pinned_bytes, metrics.permits_granted) == (0, 0, 3)


@pytest.mark.parametrize("bench", ["processes"], indirect=True)
def test_a_process_that_dies_in_a_pass_fails_the_walks_that_are_not_answered_yet(
    harness_on: HarnessOn,
) -> None:
    harness = sharing(harness_on)
    peeks = [
        harness.peek(spec(predicates=[each]))[0] for each in (equal(1), divides_by_zero_at(20), equal(2))
    ]
    while not harness.pool.step():
        pass
    harness.pool.step()
    pool = harness.pool
    assert isinstance(pool, GatedProcesses)
    harness.bench.until(lambda: pool.walks[0].work.walks[1].over)
    os.kill(pool.process_id(), signal.SIGKILL)
    harness.bench.until(lambda: not pool.walks)
    harness.settle()
    assert [error_of(harness.answers[peek])[0] for peek in peeks] == ["XX000", "22012", "XX000"]
    assert (harness.metrics.permits_in_use, harness.metrics.pinned_bytes) == (0, 0)


def test_a_scan_that_raises_in_a_pass_costs_itself_alone(
    harness_on: HarnessOn, caplog: pytest.LogCaptureFixture
) -> None:
    harness = sharing(harness_on)
    broken, _ = harness.peek(spec(predicates=[equal(1)]))
    fine, _ = harness.peek(spec(predicates=[equal(2)]))
    while not harness.pool.step():
        pass
    harness.pool.look(break_the_first)
    harness.settle()
    # Once, and not at each step that the other takes. A process logs to its own standard error.
    raised = [record for record in caplog.records if record.message.endswith("raised")]
    assert len(raised) == (0 if harness.bench.kind == "processes" else 1)
    assert error_of(harness.answers[broken])[0] == "XX000"
    assert len(rows_of(harness.answers[fine])) == 14
    assert harness.metrics.permits_in_use == 0


def test_a_cursor_that_raises_in_a_pass_costs_its_walks_and_nothing_else(
    harness_on: HarnessOn,
) -> None:
    harness = sharing(harness_on)
    waiting = [harness.peek(spec(predicates=[equal(v)]))[0] for v in range(2)]
    while not harness.pool.step():
        pass

    harness.pool.patches["layby.trace.cursor.Cursor.advance"] = burst
    harness.settle()
    assert [error_of(harness.answers[peek])[0] for peek in waiting] == ["XX000", "XX000"]
    assert (harness.metrics.permits_in_use, harness.metrics.pinned_bytes) == (0, 0)
    assert harness.metrics.walks_offloaded == 1


def test_a_walk_still_in_its_error_phase_goes_alone(harness_on: HarnessOn) -> None:
    bundle = bundle_of(pairs(*HUNDRED))
    for time in range(2, 30):
        append_error(bundle, f"error {time // 2}", time, 1 if time % 2 == 0 else -1, time + 1)
    harness = sharing(harness_on, bundle)
    waiting = [harness.peek(spec(predicates=[equal(v)]))[0] for v in range(2)]
    harness.settle()
    assert harness.metrics.shared_walks == 0
    assert [len(rows_of(harness.answers[p])) for p in waiting] == [15, 15]


@cache
def three_chunks() -> TraceBundle:
    rows = [(k, 5 if k <= CHUNK else 1) for k in range(3 * CHUNK)]
    return bundle_of(pairs(*rows), pairs((CHUNK, 5), time=2, diff=-1))


def test_chunks_that_cannot_pass_are_skipped_without_losing_what_is_held_back(harness_on: HarnessOn) -> None:
    # The sums go over a cut between chunks of which the second cannot pass the filter.
    bundle = three_chunks()
    harness = harness_on(
        bundle, inline_budget=CHUNK, activation_budget=10 * CHUNK, granularity=10 * CHUNK, shared="on"
    )
    harness.peek(spec(finish=finishing(2, limit=2 * CHUNK)))
    waiting = [harness.peek(spec(predicates=[equal(5), call(">=", K, number(low))]))[0] for low in (0, 9)]
    harness.settle()
    assert harness.metrics.shared_walks == 2
    assert [len(rows_of(harness.answers[p])) for p in waiting] == [CHUNK, CHUNK - 9]


@settings(max_examples=150, deadline=None)
@given(
    updates=st.lists(
        st.tuples(st.integers(0, 8), st.integers(-2, 2), st.integers(0, 3), st.integers(1, 2)), max_size=40
    ),
    filters=st.lists(
        st.tuples(st.sampled_from(["=", "<", "<=", ">", ">="]), st.integers(-3, 3)), min_size=2, max_size=5
    ),
    budget=st.integers(1, 5),
    granularity=st.sampled_from([1, 2, 7, 1_000]),
    shared=st.booleans(),
)
def test_shared_or_not_the_answers_are_those_of_a_naive_model(
    bench: Bench,
    updates: list[tuple[int, int, int, int]],
    filters: list[tuple[str, int]],
    budget: int,
    granularity: int,
    shared: bool,
) -> None:
    bundle = TraceBundle(PAIR, upper=0)
    counts: Counter[Row] = Counter()
    for time in range(4):
        append(bundle, [((k, v), time, n) for k, v, t, n in updates if t == time], time + 1)
    for k, v, _, n in updates:
        counts[k, v] += n
    switch = "on" if shared else "off"
    harness = Harness(bundle, bench=bench, inline_budget=budget, granularity=granularity, shared=switch)
    compare = {"=": int.__eq__, "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__}
    asked = []
    for name, value in filters:
        peek, response = harness.peek(spec(predicates=[call(name, V, number(value))]))
        asked.append((peek, response, name, value))
    harness.settle()
    for peek, response, name, value in asked:
        expected = sorted(r for r in counts.elements() if compare[name](int(r[1] or 0), value))
        assert sorted(rows_of(response or harness.answers[peek])) == expected
    assert harness.metrics.permits_in_use == 0
