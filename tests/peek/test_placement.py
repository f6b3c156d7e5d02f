"""Placement: what is walked inline, what is offloaded, and that both give the same answer."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import pytest

from layby.expr.scalar import ColumnRef
from layby.peek.answer import EncodedRows, Rows, build_answer, takes_long
from layby.peek.fuel import Fuel
from layby.peek.outcome import Complete
from layby.peek.pending import PeekState
from layby.peek.pool import Work
from layby.peek.scan import PeekScan
from layby.peek.spec import PeekSpec
from layby.trace.layout import Layout
from layby.types.column import Column
from layby.types.ordering import ASCENDING, DESCENDING
from layby.types.scalar import BIGINT, TEXT
from tests.peek.harness import (
    Harness,
    HarnessOn,
    StandingClock,
    bundle_of,
    error_of,
    finishing,
    keys,
    pairs,
    rows_of,
    spec,
)

HUNDRED = tuple((k, k * 10) for k in range(100))


def walks(harness: Harness) -> tuple[int, int]:
    """Return the walks that ended inline and offloaded."""
    return harness.metrics.walks_inline, harness.metrics.walks_offloaded


def test_a_peek_that_completes_within_its_budget_is_answered_by_the_call_itself() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=101)
    _, response = harness.peek()
    assert len(rows_of(response)) == 100
    assert walks(harness) == (1, 0)
    assert not harness.pool.walks


def test_a_peek_that_outruns_its_budget_is_offloaded_and_answered_later(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=99)
    peek, response = harness.peek()
    assert response is None
    assert peek.state is PeekState.WALKING
    harness.settle()
    assert rows_of(harness.answers[peek]) == list(HUNDRED)
    assert walks(harness) == (0, 1)


def test_an_offloaded_walk_goes_on_from_where_its_inline_slice_stopped(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=60, granularity=30)
    peek, _ = harness.peek()
    walk = harness.pool.walk()
    assert walk.progress == (60, 60)
    assert not harness.pool.step()
    assert walk.progress == (90, 90)
    harness.settle()
    assert walk.scan.positions == 100
    assert rows_of(harness.answers[peek]) == list(HUNDRED)


def test_a_lookup_of_a_hot_key_enters_like_any_other_and_is_offloaded_once_it_overruns(
    harness_on: HarnessOn,
) -> None:
    hot = [(7, v) for v in range(1_000)]
    harness = harness_on(bundle_of(pairs(*HUNDRED), pairs(*hot, time=2)), inline_budget=50)
    assert rows_of(harness.ask(spec(constraints=keys(8)))) == [(8, 80)]
    assert walks(harness) == (1, 0)
    assert len(rows_of(harness.ask(spec(constraints=keys(7))))) == 1_001
    assert walks(harness) == (1, 1)


def test_a_walk_reads_its_parameters_again_at_every_granularity(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1, granularity=9)
    harness.peek()
    walk = harness.pool.walk()
    harness.pool.step()
    assert walk.progress == (10, 10)
    harness.parameters.set("compute_index_peek_yield_granularity", "40")
    harness.pool.step()
    assert walk.progress == (50, 50)


def test_a_smaller_largest_size_reaches_a_walk_under_way(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1, granularity=10)
    peek, _ = harness.peek()
    harness.pool.step()
    harness.parameters.set("max_result_size", "64B")
    harness.settle()
    assert error_of(harness.answers[peek])[0] == "54000"


class Witness:
    """An encoder that tells the process and the thread that it ran in."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        told = f"{os.getpid()} {threading.get_native_id()} {columns[1].to_list()[0]}".encode()
        return EncodedRows(told, [len(told)] * count, count)


class Broken:
    """An encoder with a bug."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        raise ZeroDivisionError("boom")


def where(_: object) -> list[int]:
    """Tell the process that a walk runs in."""
    return [os.getpid()]


def break_step(work: Work) -> None:
    work.walks[0].scan.step = None  # type: ignore[assignment, method-assign]


def test_a_large_answer_is_sorted_and_encoded_on_the_walk_pool(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=10)
    peek = harness.pending(spec(finish=finishing(2, [(1, DESCENDING)])), Witness())
    assert harness.worker.peek(peek) is None
    [process] = harness.pool.look(where)
    harness.settle()
    answer = harness.answers[peek]
    assert isinstance(answer, Rows)
    assert answer.encoded is not None
    assert answer.columns == ()
    ran_in, thread, first = map(int, bytes(answer.encoded.data).split())
    assert first == 990
    # Stepped walks run where the tests do.
    elsewhere = {"stepped": (False, False), "threads": (False, True), "processes": (True, True)}
    assert (ran_in != os.getpid(), thread != threading.get_native_id()) == elsewhere[harness.bench.kind]
    assert ran_in == process


def test_one_update_that_stands_for_many_rows_has_its_answer_built_on_the_walk_pool(
    harness_on: HarnessOn,
) -> None:
    harness = harness_on(bundle_of([((1, 1), 1, 5_000)]), inline_budget=100)
    peek, response = harness.peek()
    assert response is None
    harness.settle()
    assert rows_of(harness.answers[peek]) == [(1, 1)] * 5_000
    assert walks(harness) == (0, 1)


def test_one_update_that_stands_for_as_many_rows_as_a_slice_may_handle_is_answered_by_the_call() -> None:
    harness = Harness(bundle_of([((1, 1), 1, 100)]), inline_budget=100)
    _, response = harness.peek()
    assert rows_of(response) == [(1, 1)] * 100
    assert walks(harness) == (1, 0)


class Rendered:
    """An encoder of rows as Python shows them."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        data = repr(list(zip(*(c.to_list() for c in columns), strict=True))).encode()
        return EncodedRows(data, [len(data)] * count, count)


def hundred_columns(count: int, limit: int | None = None) -> PeekSpec:
    """Return a peek of so many rows of a hundred columns, the last row of the walk first."""
    outputs = [ColumnRef(0, BIGINT)] * 100
    return spec(
        constraints=keys(*range(count)),
        outputs=outputs,
        finish=finishing(100, [(99, DESCENDING)], limit),
    )


@pytest.mark.parametrize(("count", "limit", "moved"), [(10, None, False), (20, None, True), (19, 10, False)])
def test_an_answer_of_many_values_is_built_on_the_walk_pool(
    harness_on: HarnessOn, count: int, limit: int | None, moved: bool
) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)))
    peek = harness.pending(hundred_columns(count, limit), Rendered())
    response = harness.worker.peek(peek)
    assert (response is None) is moved
    if moved:
        assert harness.pool.walk().progress == (20, 20)
        harness.settle()
        response = harness.answers[peek]
    assert isinstance(response, Rows)
    assert response.encoded is not None
    expected = [(k,) * 100 for k in reversed(range(count))][:limit]
    assert bytes(response.encoded.data) == repr(expected).encode()
    assert walks(harness) == ((0, 1) if moved else (1, 0))


@pytest.mark.parametrize(
    ("rows", "columns", "long"),
    [
        (2, 499, False),  # 3 + 2 / 2 = 4 µs a column
        (2, 500, True),
        (16, 181, False),  # 3 + 16 / 2 = 11
        (16, 182, True),
        (17, 39, False),  # 50 + 17 / 14 = 51.2
        (17, 40, True),
    ],
)
def test_an_answer_takes_long_from_two_milliseconds_on(rows: int, columns: int, long: bool) -> None:
    asked = spec(outputs=[ColumnRef(0, BIGINT)] * columns)
    scan = PeekScan(asked, bundle_of(pairs(*HUNDRED)).snapshot(), 1 << 30)
    scan.found_rows(rows)  # and of no bytes
    assert takes_long(scan, Rendered()) is long


def test_sorting_and_encoding_are_timed_apart() -> None:
    clock = StandingClock()

    class Slow(Rendered):
        def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
            clock.now += 7.0
            return super().__call__(columns, count)

    clock.now = 100.0
    scan = PeekScan(spec(), bundle_of(pairs(*HUNDRED)).snapshot(), 1 << 30, clock)
    complete = scan.step(Fuel(1_000))
    assert isinstance(complete, Complete)
    clock.tick = 1.0
    build_answer(scan, complete, Slow(), clock)
    assert (scan.times.sort, scan.times.collection) == (1.0, 8.0)


def test_an_answer_of_many_values_that_is_not_encoded_is_built_where_its_rows_were_found() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)))
    assert len(rows_of(harness.ask(hundred_columns(100)))) == 100
    assert walks(harness) == (1, 0)


def test_an_answer_of_many_bytes_is_built_on_the_walk_pool() -> None:
    layout = Layout((BIGINT, TEXT), (ASCENDING,))
    rows = [((k, "x" * 700_000), 1, 1) for k in range(3)]
    harness = Harness(bundle_of(rows, layout=layout), inline_budget=100_000)
    for count, moved in ((2, False), (3, True)):
        asked = spec(types=layout.types, constraints=keys(*range(count)))
        response = harness.worker.peek(harness.pending(asked, Rendered()))
        assert (response is None) is moved
    harness.settle()


def test_a_slice_that_finds_many_bytes_ends_early_and_leaves_the_rest_to_the_walk_pool(
    harness_on: HarnessOn,
) -> None:
    layout = Layout((BIGINT, TEXT), (ASCENDING,))
    rows = [((k, "x" * 1_000), 1, 1) for k in range(1_000)]
    harness = harness_on(bundle_of(rows, layout=layout), inline_budget=100_000, granularity=100_000)
    limited = finishing(2, limit=900)
    peek = harness.pending(spec(types=layout.types, constraints=keys(*range(1_000)), finish=limited))
    assert harness.worker.peek(peek) is None
    assert harness.pool.walk().progress == (320, 320)
    harness.settle()
    assert rows_of(harness.answers[peek]) == [(k, "x" * 1_000) for k in range(900)]


def test_with_the_offload_off_an_answer_of_many_values_is_built_inline() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), offload="off")
    assert harness.worker.peek(harness.pending(hundred_columns(100), Rendered())) is not None


def test_with_the_offload_off_nothing_is_offloaded_and_no_peek_is_passed_over() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), offload="off", inline_budget=1, activation_budget=1)
    for _ in range(5):
        _, response = harness.peek()
        assert len(rows_of(response)) == 100
    assert walks(harness) == (5, 0)
    assert not harness.turns


@pytest.mark.parametrize("granularity", [1, 7, 100_000])
@pytest.mark.parametrize("budget", [1, 13, 100_000])
def test_both_placements_give_the_same_answer(harness_on: HarnessOn, budget: int, granularity: int) -> None:
    bundle = bundle_of(pairs(*HUNDRED), pairs(*HUNDRED[::3], time=2, diff=-1), pairs(*HUNDRED[::9], time=3))
    expected = [row for i, row in enumerate(HUNDRED) if i % 3 or not i % 9]
    off = harness_on(bundle, offload="off")
    on = harness_on(bundle, inline_budget=budget, granularity=granularity)
    assert rows_of(off.ask()) == expected
    assert rows_of(on.ask()) == expected
    assert walks(off) == (1, 0)
    assert walks(on) == ((1, 0) if budget == 100_000 else (0, 1))


def test_a_walk_that_raises_answers_its_peek_and_counts_on_neither_substrate(
    harness_on: HarnessOn,
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=10)
    peek = harness.pending(encoder=Broken())
    assert harness.worker.peek(peek) is None
    harness.settle()
    assert error_of(harness.answers[peek]) == ("XX000", 'the walk of "test" raised ZeroDivisionError: boom')
    assert walks(harness) == (0, 0)
    assert harness.worker.offload.permits.in_use == 0
    # A process logs to its own standard error.
    assert ("boom" in caplog.text) is (harness.bench.kind != "processes")


def test_an_inline_slice_that_raises_answers_its_peek_and_counts_on_neither_substrate() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)))
    response = harness.worker.peek(harness.pending(encoder=Broken()))
    assert error_of(response)[0] == "XX000"
    assert walks(harness) == (0, 0)


def test_phases_are_observed_once_a_walk_over_all_its_slices(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=10, granularity=10)
    harness.ask()
    metrics = harness.metrics
    assert metrics.row_iteration_rows.count == 1
    assert metrics.row_iteration_rows.sum == 100
    assert metrics.result_sort_rows.sum == 100
    assert metrics.row_iteration_seconds.count == 1
    assert metrics.offload_seconds.count == 1
    assert metrics.total_seconds.count == 1


def test_a_walk_never_raises(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=10)
    harness.peek()
    walk = harness.pool.walk()
    harness.pool.look(break_step)
    assert harness.pool.step()
    assert walk.raised
