"""Quiet walks: a scan that stays on the loop while it is alone, and leaves it for whoever comes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from layby.errors import SqlError
from layby.peek.fuel import Fuel
from layby.peek.pending import PeekState
from layby.peek.quiet import SLICE_S, next_slice
from layby.peek.scan import PeekScan, ScanOutcome
from tests.peek.harness import INDEX, Harness, HarnessOn, bundle_of, error_of, keys, pairs, rows_of, spec

HUNDRED = tuple((k, k * 10) for k in range(100))


def quiet(harness_on: Callable[..., Harness] = Harness, **parameters: int) -> Harness:
    """Return a harness in which a clock that stands makes every slice 64 times the one before."""
    settings = {"inline_budget": 2, "quiet_budget": 20_000, "granularity": 10_000, **parameters}
    harness = harness_on(bundle_of(pairs(*HUNDRED)))
    for name, value in settings.items():
        full = {
            "inline_budget": "compute_index_peek_inline_budget",
            "quiet_budget": "compute_index_peek_quiet_budget",
            "granularity": "compute_index_peek_yield_granularity",
        }[name]
        harness.parameters.set(full, str(value))
    return harness


NOTHING = spec(constraints=keys(*range(200, 2_200)))
"""A peek that visits 2,000 positions and finds no row: 2 in its slice, 128 in what is left of the turn."""


def test_a_scan_that_is_alone_goes_on_inline_one_slice_a_turn() -> None:
    harness = quiet()
    peek, response = harness.peek(NOTHING)
    assert response is None
    turns = 0
    while peek not in harness.answers:
        assert peek.state is PeekState.QUIET
        assert harness.turn()
        turns += 1
    assert rows_of(harness.answers[peek]) == []
    assert turns == 1
    assert (harness.metrics.walks_inline, harness.metrics.walks_offloaded) == (1, 0)
    assert harness.metrics.row_iteration_rows.sum == 2_000
    assert harness.metrics.total_seconds.count == 1
    assert peek.inline_positions == 2_000


def test_a_scan_that_is_alone_ends_within_its_turn_where_there_is_time() -> None:
    harness = quiet()
    _, response = harness.peek(spec(constraints=keys(*range(200, 320))))
    assert rows_of(response) == []
    assert harness.metrics.walks_inline == 1
    assert harness.metrics.row_iteration_rows.sum == 120


def test_the_next_peek_is_answered_first_and_sends_the_scan_to_the_pool(harness_on: HarnessOn) -> None:
    harness = quiet(harness_on)
    peek, _ = harness.peek(NOTHING)
    _, response = harness.peek(spec(constraints=keys(5)))
    assert rows_of(response) == [(5, 50)]
    harness.turn()
    assert peek.state is PeekState.WALKING
    assert harness.pool.walk().scan.positions == 130
    harness.settle()
    assert rows_of(harness.answers[peek]) == []
    assert (harness.metrics.walks_inline, harness.metrics.walks_offloaded) == (1, 1)


def test_a_scan_is_not_quiet_where_others_walk_or_wait(harness_on: HarnessOn) -> None:
    harness = quiet(harness_on)
    harness.parameters.set("compute_index_peek_quiet_budget", "0")
    other, _ = harness.peek(NOTHING)
    harness.parameters.set("compute_index_peek_quiet_budget", "20000")
    peek, _ = harness.peek(NOTHING)
    assert (other.state, peek.state) == (PeekState.WALKING, PeekState.QUEUED)


def test_a_scan_whose_quiet_budget_is_spent_is_offloaded(harness_on: HarnessOn) -> None:
    harness = quiet(harness_on, quiet_budget=300)
    peek, _ = harness.peek(NOTHING)
    while peek.state is PeekState.QUIET:
        harness.turn()
    assert peek.state is PeekState.WALKING
    assert harness.pool.walk().scan.positions == 300
    assert peek.inline_positions == 300


def test_a_scan_that_has_found_many_rows_is_offloaded_so_that_its_answer_is_built_there(
    harness_on: HarnessOn,
) -> None:
    harness = quiet(harness_on)
    peek, response = harness.peek()
    assert response is None
    assert peek.state is PeekState.WALKING
    harness.settle()
    assert rows_of(harness.answers[peek]) == list(HUNDRED)
    assert harness.metrics.walks_offloaded == 1


def test_without_a_quiet_budget_a_scan_that_outruns_its_inline_budget_is_offloaded_at_once(
    harness_on: HarnessOn,
) -> None:
    harness = quiet(harness_on, quiet_budget=0)
    peek, _ = harness.peek(NOTHING)
    assert peek.state is PeekState.WALKING


def test_a_slow_slice_ends_the_quiet_walk(harness_on: HarnessOn, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = quiet(harness_on)
    step: Callable[[PeekScan, Fuel], ScanOutcome] = PeekScan.step

    def slow(scan: PeekScan, fuel: Fuel) -> ScanOutcome:
        harness.now += 10 * SLICE_S
        return step(scan, fuel)

    monkeypatch.setattr(PeekScan, "step", slow)
    peek, _ = harness.peek(NOTHING)
    assert harness.pool.walk().scan.positions == 2
    assert peek.state is PeekState.WALKING


def test_a_slice_is_measured_and_the_next_one_made_to_fit() -> None:
    assert next_slice(1_000, SLICE_S) == 1_000
    assert next_slice(1_000, 2 * SLICE_S) == 500
    assert next_slice(1_000, SLICE_S / 2, SLICE_S / 2) == 1_000
    assert next_slice(1_000, SLICE_S / 100) == 64_000
    assert next_slice(1_000, 3 * SLICE_S) is None
    assert next_slice(1_000, SLICE_S, SLICE_S) is None
    assert next_slice(0, 0.0) is None


def test_a_lower_limit_reaches_a_quiet_walk_at_its_next_slice() -> None:
    harness = quiet()
    peek, _ = harness.peek(NOTHING)
    assert peek.state is PeekState.QUIET
    harness.parameters.set("compute_peek_row_iteration_limit", "200")
    harness.turn()
    assert error_of(harness.answers[peek]) == (
        "54000",
        'peek of "test" exceeds the row iteration limit of 200',
    )


def test_a_smaller_largest_size_reaches_a_quiet_walk_at_its_next_slice() -> None:
    harness = quiet()
    harness.parameters.set("max_result_size", "1MB")
    peek, _ = harness.peek(spec(constraints=keys(*range(200, 400), 5)))
    assert peek.state is PeekState.QUIET
    harness.parameters.set("max_result_size", "10B")
    harness.turn()
    assert error_of(harness.answers[peek]) == ("54000", "result exceeds max size of 10 bytes")


def test_a_quiet_walk_that_is_cancelled_stops_and_is_answered() -> None:
    harness = quiet()
    peek, _ = harness.peek(NOTHING)
    harness.worker.cancel(peek)
    assert error_of(harness.answers[peek])[0] == "57014"
    harness.settle()
    assert len(harness.answers) == 1
    assert harness.metrics.walks_inline == 0


def test_dropping_its_index_cancels_a_quiet_walk() -> None:
    harness = quiet()
    peek, _ = harness.peek(NOTHING)
    harness.worker.cancel_reads_of(INDEX, SqlError("57014", "dropped"))
    assert error_of(harness.answers[peek])[1] == "dropped"


def test_a_quiet_walk_is_among_the_active_peeks() -> None:
    harness = quiet()
    peek, _ = harness.peek(NOTHING)
    [active] = harness.worker.active()
    assert (active.pending, active.offloaded, active.positions) == (peek, False, 130)


def test_a_quiet_walk_that_raises_costs_its_peek_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = quiet()
    peek, _ = harness.peek(NOTHING)

    def burst(*_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(PeekScan, "step", burst)
    harness.turn()
    assert error_of(harness.answers[peek])[0] == "XX000"
    monkeypatch.undo()
    assert rows_of(harness.ask(spec(constraints=keys(5)))) == [(5, 50)]
