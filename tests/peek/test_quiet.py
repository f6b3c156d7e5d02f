"""Quiet walks: a scan that stays on the loop while it is alone, and leaves it for whoever comes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pytest

from layby.errors import SqlError
from layby.expr.scalar import ColumnRef
from layby.peek.answer import EncodedRows, Rows
from layby.peek.budget import TURN_S
from layby.peek.fuel import Fuel
from layby.peek.outcome import ScanOutcome
from layby.peek.pending import PeekState
from layby.peek.quiet import QuietWalk
from layby.peek.scan import CHUNK, PeekScan
from layby.peek.spec import PeekSpec
from layby.trace.cursor import Cursor, Visit
from layby.trace.search import seek
from layby.types.column import Column
from layby.types.scalar import BIGINT
from tests.peek.harness import (
    INDEX,
    Harness,
    HarnessOn,
    bundle_of,
    error_of,
    finishing,
    keys,
    pairs,
    rows_of,
    spec,
)

HUNDRED = tuple((k, k * 10) for k in range(100))

SEEK_S = TURN_S / 128.5
"""What a seek takes: a turn has time for 128, and a little is left."""


class Counted:
    """An encoder that only tells how many rows there are."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        return EncodedRows(b"x", (), count)


def hundred_columns(*wanted: int) -> PeekSpec:
    """Return a peek of a hundred columns of some keys."""
    outputs = [ColumnRef(0, BIGINT)] * 100
    return spec(constraints=keys(*wanted), outputs=outputs, finish=finishing(100))


class Quiet(Protocol):
    """Makes harnesses whose clock moves with each seek."""

    def __call__(
        self,
        harness_on: Callable[..., Harness] = Harness,
        seek_s: Callable[[int], float] = lambda _: SEEK_S,
        **parameters: int,
    ) -> Harness:
        """`seek_s` gives the seconds of the n-th seek, from 1."""


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Quiet:
    def make(
        harness_on: Callable[..., Harness] = Harness,
        seek_s: Callable[[int], float] = lambda _: SEEK_S,
        **parameters: int,
    ) -> Harness:
        settings = {"inline_budget": 2, "quiet_budget": 20_000, "granularity": 10_000, **parameters}
        harness = harness_on(bundle_of(pairs(*HUNDRED)), **settings)
        seeks = itertools.count(1)

        def ticking(*args: Any) -> tuple[int, int]:
            harness.now += seek_s(next(seeks))
            return seek(*args)

        monkeypatch.setattr("layby.trace.cursor.seek", ticking)
        return harness

    return make


NOTHING = spec(constraints=keys(*range(200, 2_200)))
"""A peek that seeks 2,000 keys, a position each, and finds no row: 2 in its slice, 126 in what is left of the
turn."""


def go_on(harness: Harness) -> None:
    """End the turn in which a quiet walk came, and take the next, which gives it its time."""
    harness.turn()
    harness.turn()


def test_a_scan_that_is_alone_goes_on_inline_for_the_time_of_a_slice_in_each_turn(quiet: Quiet) -> None:
    harness = quiet()
    peek, response = harness.peek(NOTHING)
    assert response is None
    turns = [(peek.inline_positions, harness.now)]
    while peek not in harness.answers:
        assert peek.state is PeekState.QUIET
        before = harness.now
        assert harness.turn()
        turns.append((peek.inline_positions, harness.now - before))
    assert rows_of(harness.answers[peek]) == []
    # The activation that ends the turn in which it came gives it nothing more: that would be the same turn.
    assert [positions for positions, _ in turns] == [128, *range(128, 2_000, 128), 2_000]
    assert max(took for _, took in turns) <= TURN_S
    assert (harness.metrics.walks_inline, harness.metrics.walks_offloaded) == (1, 0)
    assert harness.metrics.row_iteration_rows.sum == 2_000
    assert harness.metrics.total_seconds.count == 1
    assert harness.metrics.total_seconds.sum == pytest.approx(2_000 * SEEK_S)


def test_a_scan_that_is_alone_ends_within_its_turn_where_there_is_time(quiet: Quiet) -> None:
    harness = quiet()
    _, response = harness.peek(spec(constraints=keys(*range(200, 320))))
    assert rows_of(response) == []
    assert harness.metrics.walks_inline == 1
    assert harness.metrics.row_iteration_rows.sum == 120


def test_a_turn_is_used_up_though_the_first_visit_was_slow_for_what_it_visited(quiet: Quiet) -> None:
    harness = quiet(seek_s=lambda n: 65 * SEEK_S if n == 1 else SEEK_S)
    peek, _ = harness.peek(NOTHING)
    assert peek.state is PeekState.QUIET
    assert peek.inline_positions == 64
    assert harness.now <= TURN_S


def test_where_a_chunk_fits_a_turn_goes_on_in_one_step_until_the_clock_ends_it(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layby.peek.scan.CHUNK", 16)
    # What the first visit says of the speed is too little by half.
    harness = quiet(seek_s=lambda n: 3 * SEEK_S if n == 1 else SEEK_S)
    steps: list[int] = []
    step: Callable[[PeekScan, Fuel], ScanOutcome] = PeekScan.step

    def noted(scan: PeekScan, fuel: Fuel) -> ScanOutcome:
        before = scan.positions
        outcome = step(scan, fuel)
        steps.append(scan.positions - before)
        return outcome

    monkeypatch.setattr(PeekScan, "step", noted)
    harness.now = 100.0
    peek, _ = harness.peek(NOTHING)
    assert peek.state is PeekState.QUIET
    assert steps == [2 + 7 * 16 + 12]
    assert harness.now <= 100.0 + TURN_S


def test_the_next_peek_is_answered_first_and_sends_the_scan_to_the_pool(
    quiet: Quiet, harness_on: HarnessOn
) -> None:
    harness = quiet(harness_on)
    peek, _ = harness.peek(NOTHING)
    _, response = harness.peek(spec(constraints=keys(5)))
    assert rows_of(response) == [(5, 50)]
    harness.turn()
    assert peek.state is PeekState.WALKING
    assert harness.pool.walk().scan.positions == 128
    harness.settle()
    assert rows_of(harness.answers[peek]) == []
    assert (harness.metrics.walks_inline, harness.metrics.walks_offloaded) == (1, 1)


def test_a_scan_is_not_quiet_where_others_walk_or_wait(quiet: Quiet, harness_on: HarnessOn) -> None:
    harness = quiet(harness_on)
    harness.parameters.set("compute_index_peek_quiet_budget", "0")
    other, _ = harness.peek(NOTHING)
    harness.parameters.set("compute_index_peek_quiet_budget", "20000")
    peek, _ = harness.peek(NOTHING)
    assert (other.state, peek.state) == (PeekState.WALKING, PeekState.QUEUED)


@pytest.mark.parametrize("budget", [100, 300])
def test_a_scan_whose_quiet_budget_is_spent_is_offloaded(
    quiet: Quiet, harness_on: HarnessOn, budget: int
) -> None:
    harness = quiet(harness_on, quiet_budget=budget)
    peek, _ = harness.peek(NOTHING)
    assert (peek.state is PeekState.QUIET) is (budget > 128)
    while peek.state is PeekState.QUIET:
        harness.turn()
    assert peek.state is PeekState.WALKING
    assert harness.pool.walk().scan.positions == budget
    assert peek.inline_positions == budget


def test_a_quiet_budget_takes_nothing_from_the_inline_budget(quiet: Quiet, harness_on: HarnessOn) -> None:
    harness = quiet(harness_on, inline_budget=50, quiet_budget=10)
    peek, _ = harness.peek(NOTHING)
    assert (peek.state, peek.inline_positions) == (PeekState.WALKING, 50)


def test_a_turn_begins_as_the_one_before_tells_and_what_is_offloaded_goes_on_in_chunks(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = quiet()
    fuels: list[int] = []
    advance = Cursor.advance

    def noted(cursor: Cursor, fuel: int, heaviest: int | None = None) -> Visit | None:
        fuels.append(fuel)
        return advance(cursor, fuel, heaviest)

    monkeypatch.setattr(Cursor, "advance", noted)
    peek, _ = harness.peek(NOTHING)
    assert fuels == [2, 126, 62]  # of the second 64, and of the third 62: a visit seeks no more
    go_on(harness)
    assert fuels[3] == 128
    harness.peek(spec(constraints=keys(5)))
    harness.turn()
    assert peek.state is PeekState.WALKING
    fuels.clear()
    harness.pool.step()
    assert fuels[0] == 10_000


def test_a_scan_that_has_found_many_rows_is_offloaded_so_that_its_answer_is_built_there(
    quiet: Quiet, harness_on: HarnessOn
) -> None:
    harness = quiet(harness_on)
    peek, response = harness.peek()
    assert response is None
    assert peek.state is PeekState.WALKING
    harness.settle()
    assert rows_of(harness.answers[peek]) == list(HUNDRED)
    assert harness.metrics.walks_offloaded == 1


@pytest.mark.parametrize(("found", "moved"), [(10, False), (20, True)])
def test_a_scan_that_ends_with_many_values_to_encode_is_moved_for_its_answer(
    quiet: Quiet, found: int, moved: bool
) -> None:
    harness = quiet(inline_budget=50)
    peek = harness.pending(hundred_columns(*range(-500, found)), Counted())
    assert harness.worker.peek(peek) is None
    while peek.state is PeekState.QUIET:
        harness.turn()
    assert (peek.state is PeekState.WALKING) is moved
    assert peek.inline_positions == 500 + found
    harness.settle()
    answer = harness.answers[peek]
    assert isinstance(answer, Rows)
    assert answer.encoded == EncodedRows(b"x", (), found)


def test_a_scan_that_has_found_many_values_to_encode_leaves_the_loop_for_the_rest(quiet: Quiet) -> None:
    harness = quiet(inline_budget=50)
    at_once = harness.pending(hundred_columns(*range(20), *range(200, 700)), Counted())
    assert harness.worker.peek(at_once) is None
    assert (at_once.state, at_once.inline_positions) == (PeekState.WALKING, 128)
    harness.settle()
    later = harness.pending(hundred_columns(*range(-200, 20), *range(200, 700)), Counted())
    assert harness.worker.peek(later) is None
    while later.state is PeekState.QUIET:
        harness.turn()
    assert (later.state, later.inline_positions) == (PeekState.WALKING, 256)
    harness.settle()
    assert len(harness.answers) == 2


def test_without_a_quiet_budget_a_scan_that_outruns_its_inline_budget_is_offloaded_at_once(
    quiet: Quiet, harness_on: HarnessOn
) -> None:
    harness = quiet(harness_on, quiet_budget=0)
    peek, _ = harness.peek(NOTHING)
    assert peek.state is PeekState.WALKING


def test_a_slow_visit_ends_the_quiet_walk(quiet: Quiet, harness_on: HarnessOn) -> None:
    harness = quiet(harness_on, seek_s=lambda _: 2 * TURN_S)
    peek, _ = harness.peek(NOTHING)
    assert harness.pool.walk().scan.positions == 2
    assert peek.state is PeekState.WALKING


def test_a_walk_that_becomes_slow_is_offloaded(quiet: Quiet, harness_on: HarnessOn) -> None:
    """Of 100 positions, the inline budget, a turn would have time for 42 from the 129th on."""
    harness = quiet(harness_on, seek_s=lambda n: SEEK_S if n <= 128 else 3 * SEEK_S, inline_budget=100)
    peek, _ = harness.peek(NOTHING)
    assert (peek.state, peek.inline_positions) == (PeekState.QUIET, 128)
    go_on(harness)
    assert (peek.state, peek.inline_positions) == (PeekState.WALKING, 192)


def test_a_turn_is_measured_and_the_first_visit_of_the_next_made_to_fit() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=2, quiet_budget=70_000)
    scan = PeekScan(NOTHING, harness.bundle.snapshot(), 1_000)

    def next_visit(visited: int, seconds: float) -> int | None:
        walk = QuietWalk(harness.pending(NOTHING), scan, visited, seconds)
        return walk.next_visit(harness.parameters.peek)

    assert next_visit(1_000, TURN_S) == 1_000
    assert next_visit(1_000, 2 * TURN_S) == 500
    assert next_visit(1_000, TURN_S / 100) == 1_000
    assert next_visit(1_000, 0.0) == 1_000
    assert next_visit(2, 2 * TURN_S) == 1
    assert next_visit(2, 2.01 * TURN_S) is None
    assert next_visit(100_000, TURN_S) == CHUNK
    assert next_visit(100_000, 2 * TURN_S) == 50_000
    assert next_visit(1_000, 3 * TURN_S) is None
    assert next_visit(0, 0.0) is None
    harness.parameters.set("compute_index_peek_inline_budget", "1")
    assert next_visit(1, 1.5 * TURN_S) == 1


@pytest.mark.parametrize(
    ("budget", "positions", "visit"), [(10, 10, None), (11, 10, 1_000), (100, 50, 1_000), (100, 51, None)]
)
def test_there_is_no_other_turn_once_the_quiet_budget_is_spent_or_more_is_found_than_inline(
    budget: int, positions: int, visit: int | None
) -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=50, quiet_budget=budget)
    scan = PeekScan(spec(), harness.bundle.snapshot(), 1 << 20)
    scan.step(Fuel(positions))
    walk = QuietWalk(harness.pending(), scan, 1_000, 0.0)
    assert walk.next_visit(harness.parameters.peek) == visit


def test_a_lower_limit_reaches_a_quiet_walk_at_its_next_slice(quiet: Quiet) -> None:
    harness = quiet()
    peek, _ = harness.peek(NOTHING)
    assert peek.state is PeekState.QUIET
    harness.parameters.set("compute_peek_row_iteration_limit", "200")
    go_on(harness)
    assert error_of(harness.answers[peek]) == (
        "54000",
        'peek of "test" exceeds the row iteration limit of 200',
    )


def test_a_smaller_largest_size_reaches_a_quiet_walk_at_its_next_slice(quiet: Quiet) -> None:
    harness = quiet()
    harness.parameters.set("max_result_size", "1MB")
    peek, _ = harness.peek(spec(constraints=keys(*range(200, 400), 5)))
    assert peek.state is PeekState.QUIET
    harness.parameters.set("max_result_size", "10B")
    go_on(harness)
    assert error_of(harness.answers[peek]) == ("54000", "result exceeds max size of 10 bytes")


def test_a_quiet_walk_that_is_cancelled_stops_and_is_answered(quiet: Quiet) -> None:
    harness = quiet()
    peek, _ = harness.peek(NOTHING)
    harness.worker.cancel(peek)
    assert error_of(harness.answers[peek])[0] == "57014"
    harness.settle()
    assert len(harness.answers) == 1
    assert harness.metrics.walks_inline == 0


def test_a_quiet_walk_that_ends_with_as_many_rows_as_its_inline_budget_stays_inline(quiet: Quiet) -> None:
    harness = quiet()
    peek, _ = harness.peek(spec(constraints=keys(*range(-1_000, 2))))
    assert peek.state is PeekState.QUIET
    harness.settle()
    assert rows_of(harness.answers[peek]) == [(0, 0), (1, 10)]
    assert (harness.metrics.walks_inline, harness.metrics.walks_offloaded) == (1, 0)


def test_a_quiet_walk_is_cancelled_once(quiet: Quiet) -> None:
    harness = quiet()
    peek, _ = harness.peek(NOTHING)
    harness.worker.cancel(peek)
    harness.worker.cancel(peek)  # `answers` takes one


def test_dropping_its_index_cancels_a_quiet_walk(quiet: Quiet) -> None:
    harness = quiet()
    peek, _ = harness.peek(NOTHING)
    harness.worker.cancel_reads_of(INDEX, SqlError("57014", "dropped"))
    assert error_of(harness.answers[peek])[1] == "dropped"


def test_a_quiet_walk_is_among_the_active_peeks(quiet: Quiet) -> None:
    harness = quiet()
    harness.now = 5.0
    peek, _ = harness.peek(NOTHING)
    harness.now = 7.0
    [active] = harness.worker.active()
    assert (active.pending, active.offloaded, active.positions, active.age) == (peek, False, 128, 2.0)


def test_a_quiet_walk_that_raises_costs_its_peek_alone(quiet: Quiet, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = quiet()
    peek, _ = harness.peek(NOTHING)

    def burst(*_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(PeekScan, "step", burst)
    go_on(harness)
    assert error_of(harness.answers[peek])[0] == "XX000"
    monkeypatch.undo()
    assert rows_of(harness.ask(spec(constraints=keys(5)))) == [(5, 50)]
