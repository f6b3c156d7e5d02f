"""Placement: what is walked inline, what is offloaded, and that both give the same answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from layby.peek.answer import EncodedRows
from layby.peek.pending import PeekState
from layby.peek.pool import ThreadWalkPool
from layby.peek.walk import Walk
from layby.types.column import Column
from layby.types.ordering import ASCENDING
from tests.peek.harness import Harness, bundle_of, error_of, finishing, keys, pairs, rows_of, spec

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


def test_a_peek_that_outruns_its_budget_is_offloaded_and_answered_later() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=99)
    peek, response = harness.peek()
    assert response is None
    assert peek.state is PeekState.WALKING
    harness.settle()
    assert rows_of(harness.answers[peek]) == list(HUNDRED)
    assert walks(harness) == (0, 1)


def test_an_offloaded_walk_goes_on_from_where_its_inline_slice_stopped() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=60, granularity=30)
    peek, _ = harness.peek()
    walk = harness.pool.walk()
    assert walk.scan.positions == 60
    assert not harness.pool.step()
    assert walk.scan.positions == 90
    harness.settle()
    assert walk.scan.positions == 100
    assert rows_of(harness.answers[peek]) == list(HUNDRED)


def test_a_lookup_of_a_hot_key_enters_like_any_other_and_is_offloaded_once_it_overruns() -> None:
    hot = [(7, v) for v in range(1_000)]
    harness = Harness(bundle_of(pairs(*HUNDRED), pairs(*hot, time=2)), inline_budget=50)
    assert rows_of(harness.ask(spec(constraints=keys(8)))) == [(8, 80)]
    assert walks(harness) == (1, 0)
    assert len(rows_of(harness.ask(spec(constraints=keys(7))))) == 1_001
    assert walks(harness) == (1, 1)


def test_a_walk_reads_its_parameters_again_at_every_granularity() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=1, granularity=9)
    harness.peek()
    walk = harness.pool.walk()
    harness.pool.step()
    assert walk.scan.positions == 10
    harness.parameters.set("compute_index_peek_yield_granularity", "40")
    harness.pool.step()
    assert walk.scan.positions == 50


def test_a_smaller_largest_size_reaches_a_walk_under_way() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=1, granularity=10)
    peek, _ = harness.peek()
    harness.pool.step()
    harness.parameters.set("max_result_size", "64B")
    harness.settle()
    assert error_of(harness.answers[peek])[0] == "54000"


class _Encoder:
    """Notes the thread that it ran on."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        self.thread = threading.current_thread()
        return EncodedRows(bytes(count), np.arange(1, count + 1), count)


def test_a_large_answer_is_sorted_and_encoded_on_the_walk_pool() -> None:
    delivered: list[Callable[[], None]] = []
    ready = threading.Event()

    def deliver(done: Callable[[], None]) -> None:
        delivered.append(done)
        ready.set()

    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=10)
    pool = ThreadWalkPool(1, deliver)
    try:
        harness.worker.offload._pool = pool
        encoder = _Encoder()
        peek = harness.pending(spec(finish=finishing(2, [(1, ASCENDING)])), encoder)
        assert harness.worker.peek(peek) is None
        assert ready.wait(10)
        delivered[0]()
        harness.turn()
        assert peek in harness.answers
        assert encoder.thread in pool._threads
    finally:
        pool.close()


def test_one_update_that_stands_for_many_rows_has_its_answer_built_on_the_walk_pool() -> None:
    harness = Harness(bundle_of([((1, 1), 1, 5_000)]), inline_budget=100)
    peek, response = harness.peek()
    assert response is None
    harness.settle()
    assert rows_of(harness.answers[peek]) == [(1, 1)] * 5_000
    assert walks(harness) == (0, 1)


def test_with_the_offload_off_nothing_is_offloaded_and_no_peek_is_passed_over() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), offload="off", inline_budget=1, activation_budget=1)
    for _ in range(5):
        _, response = harness.peek()
        assert len(rows_of(response)) == 100
    assert walks(harness) == (5, 0)
    assert not harness.turns


@pytest.mark.parametrize("granularity", [1, 7, 100_000])
@pytest.mark.parametrize("budget", [1, 13, 100_000])
def test_both_placements_give_the_same_answer(budget: int, granularity: int) -> None:
    bundle = bundle_of(pairs(*HUNDRED), pairs(*HUNDRED[::3], time=2, diff=-1), pairs(*HUNDRED[::9], time=3))
    expected = [row for i, row in enumerate(HUNDRED) if i % 3 or not i % 9]
    off = Harness(bundle, offload="off")
    on = Harness(bundle, inline_budget=budget, granularity=granularity)
    assert rows_of(off.ask()) == expected
    assert rows_of(on.ask()) == expected
    assert walks(off) == (1, 0)
    assert walks(on) == ((1, 0) if budget == 100_000 else (0, 1))


def test_a_walk_that_raises_answers_its_peek_and_counts_on_neither_substrate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=10)

    def broken(columns: Sequence[Column], count: int) -> EncodedRows:
        raise ZeroDivisionError("boom")

    peek = harness.pending(encoder=broken)
    assert harness.worker.peek(peek) is None
    harness.settle()
    assert error_of(harness.answers[peek]) == ("XX000", 'the walk of "test" raised ZeroDivisionError: boom')
    assert walks(harness) == (0, 0)
    assert harness.worker.offload.permits.in_use == 0
    assert "boom" in caplog.text


def test_an_inline_slice_that_raises_answers_its_peek_and_counts_on_neither_substrate() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)))

    def broken(columns: Sequence[Column], count: int) -> EncodedRows:
        raise ZeroDivisionError("boom")

    response = harness.worker.peek(harness.pending(encoder=broken))
    assert error_of(response)[0] == "XX000"
    assert walks(harness) == (0, 0)


def test_phases_are_observed_once_a_walk_over_all_its_slices() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=10, granularity=10)
    harness.ask()
    metrics = harness.metrics
    assert metrics.row_iteration_rows.count == 1
    assert metrics.row_iteration_rows.sum == 100
    assert metrics.result_sort_rows.sum == 100
    assert metrics.row_iteration_seconds.count == 1
    assert metrics.offload_seconds.count == 1
    assert metrics.total_seconds.count == 1


def test_a_walk_never_raises() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=10)
    harness.peek()
    walk = harness.pool.walk()
    assert isinstance(walk, Walk)
    walk.scan.step = None  # type: ignore[method-assign, assignment]
    assert walk.step()
    assert walk.raised
