"""The scan: phases, fuel, sums, constraints, early ends and sizes."""

from __future__ import annotations

import pickle
import weakref
from typing import Any

import numpy as np
import pytest

from layby.expr.function import overloads
from layby.expr.scalar import Call, ColumnRef, Expr, Literal
from layby.memory.arena import Array, HeapArena
from layby.peek.fuel import Fuel, UnboundedFuel
from layby.peek.outcome import SUSPENDED, Complete, ScanFailed, ScanOutcome
from layby.peek.scan import CHUNK, PeekScan
from layby.peek.spec import PeekSpec
from layby.trace.bundle import Snapshot, TraceBundle
from layby.trace.constraints import Bound, KeyRange
from layby.trace.cursor import Cursor, Visit
from layby.trace.layout import Layout
from layby.types.column import FixedColumn
from layby.types.ordering import ASCENDING, DESCENDING
from layby.types.scalar import BIGINT, INTEGER, TEXT
from tests.peek.harness import (
    PAIR,
    Harness,
    Row,
    StandingClock,
    Update,
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

GIB = 1 << 30


def scan_of(bundle: TraceBundle, asked: PeekSpec | None = None, max_result_size: int = GIB) -> PeekScan:
    return PeekScan(asked or spec(), bundle.snapshot(), max_result_size)


def rows_in(outcome: ScanOutcome) -> list[Row]:
    assert isinstance(outcome, Complete), outcome
    return list(zip(*(c.to_list() for c in outcome.columns), strict=True)) if outcome.count else []


def call(name: str, *args: Expr) -> Call:
    types = tuple(a.type for a in args)
    return Call(next(f for f in overloads(name) if f.args == types), args)


K, V = ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)


def number(value: int) -> Literal:
    return Literal(value, BIGINT)


# S1, S2


def test_one_fuel_is_spent_across_both_phases() -> None:
    bundle = bundle_of(pairs((1, 10), (2, 20)))
    append_error(bundle, "gone", 2, 1, 3)
    append_error(bundle, "gone", 3, -1, 4)
    scan = scan_of(bundle)
    fuel = Fuel(3)
    assert scan.step(fuel) is SUSPENDED
    assert (fuel.remaining, scan.positions) == (0, 3)
    assert rows_in(scan.step(Fuel(5))) == [(1, 10), (2, 20)]
    assert scan.positions == 4


def test_a_scan_stops_between_any_two_positions_and_goes_on_without_repeating_or_skipping_one() -> None:
    bundle = bundle_of(pairs((1, 10), (2, 20), (5, 50)), pairs((2, 21), (3, 30), time=2))
    scan = scan_of(bundle)
    steps = 0
    outcome: ScanOutcome = SUSPENDED
    while outcome is SUSPENDED:
        outcome = scan.step(Fuel(1))
        steps += 1
    assert sorted(rows_in(outcome)) == [(1, 10), (2, 20), (2, 21), (3, 30), (5, 50)]
    assert scan.positions == 5
    assert steps == 5


def test_a_step_charges_what_it_visited_and_not_what_it_was_granted() -> None:
    fuel = Fuel(1_000)
    scan = scan_of(bundle_of(pairs((1, 10), (2, 20))))
    scan.step(fuel)
    assert fuel.remaining == 998


def test_a_step_without_fuel_makes_no_progress() -> None:
    scan = scan_of(bundle_of(pairs((1, 10))))
    assert scan.step(Fuel(0)) is SUSPENDED
    assert scan.positions == 0


@pytest.mark.parametrize(("rows", "visits"), [(36, [16, 2, 18]), (37, [16, 2, 16, 3])])
def test_what_little_is_left_beyond_a_chunk_is_visited_with_it(
    monkeypatch: pytest.MonkeyPatch, rows: int, visits: list[int]
) -> None:
    monkeypatch.setattr("layby.peek.scan.CHUNK", 16)
    advance, found = Cursor.advance, []

    def noted(cursor: Cursor, fuel: int, heaviest: int | None = None) -> Visit | None:
        visit = advance(cursor, fuel, heaviest)
        found.append(0 if visit is None else visit.positions)
        return visit

    monkeypatch.setattr(Cursor, "advance", noted)
    scan = scan_of(bundle_of(pairs(*((k, k) for k in range(rows)))))
    assert scan.step(Fuel(18)) is SUSPENDED
    assert len(rows_in(scan.step(Fuel(100)))) == rows
    assert found == visits


def test_unbounded_fuel_cannot_be_drained() -> None:
    fuel = UnboundedFuel()
    before = fuel.remaining
    scan_of(bundle_of(pairs((1, 10)))).step(fuel)
    assert fuel.remaining == before


# S3


def test_an_error_at_the_peeks_time_is_the_answer_and_no_row_is_returned() -> None:
    bundle = bundle_of(pairs((1, 10)))
    append_error(bundle, "division by zero", 2, 1, 3)
    outcome = scan_of(bundle, spec(2)).step(Fuel(100))
    assert isinstance(outcome, ScanFailed)
    assert (outcome.error.sqlstate, outcome.error.message) == ("22012", "division by zero")


def test_an_error_later_than_the_peek_is_no_error() -> None:
    bundle = bundle_of(pairs((1, 10)))
    append_error(bundle, "division by zero", 2, 1, 3)
    assert rows_in(scan_of(bundle, spec(1)).step(Fuel(100))) == [(1, 10)]


def test_an_error_of_negative_multiplicity_fails_the_peek_and_names_the_collection() -> None:
    bundle = bundle_of(pairs((1, 10)))
    append_error(bundle, "division by zero", 2, -1, 3)
    outcome = scan_of(bundle, spec(2)).step(Fuel(100))
    assert isinstance(outcome, ScanFailed)
    assert (outcome.error.sqlstate, outcome.error.message) == (
        "XX000",
        'collection "test" has a row of negative multiplicity',
    )


def test_errors_that_cancel_out_are_no_error() -> None:
    bundle = bundle_of(pairs((1, 10)))
    append_error(bundle, "division by zero", 2, 1, 3)
    append_error(bundle, "division by zero", 3, -1, 4)
    assert rows_in(scan_of(bundle, spec(3)).step(Fuel(100))) == [(1, 10)]
    assert isinstance(scan_of(bundle, spec(2)).step(Fuel(100)), ScanFailed)


# S4


def test_each_phase_is_timed_for_itself() -> None:
    clock = StandingClock()
    clock.now, clock.tick = 100.0, 1.0
    bundle = bundle_of(pairs((1, 10), (2, 20)))
    for time in range(2, 6):
        append_error(bundle, f"error {time // 2}", time, 1 if time % 2 == 0 else -1, time + 1)
    scan = PeekScan(spec(), bundle.snapshot(), GIB, clock)
    seen = []
    while scan.step(Fuel(2)) is SUSPENDED:
        seen.append((scan.times.setup, scan.times.errors, scan.times.rows))
    # The second step reads the last errors; that there are no more is found by the third.
    assert seen == [(1.0, 1.0, 0.0), (1.0, 2.0, 0.0)]
    assert (scan.times.setup, scan.times.errors, scan.times.rows) == (1.0, 3.0, 1.0)


def test_a_scan_can_suspend_in_the_middle_of_the_error_phase() -> None:
    bundle = bundle_of(pairs((1, 10)))
    for time in range(2, 8):
        append_error(bundle, f"error {time // 2}", time, 1 if time % 2 == 0 else -1, time + 1)
    scan = scan_of(bundle)
    for _ in range(6):
        assert scan.step(Fuel(1)) is SUSPENDED
        assert scan.count == 0
    assert rows_in(scan.step(Fuel(10))) == [(1, 10)]


@pytest.mark.parametrize(
    ("seconds", "stops"), [(3.5, [3, 6, 9, 12, 15]), (4.0, [4, 8, 12, 16]), (4.5, [4, 8, 12, 16])]
)
def test_a_step_ends_before_a_visit_that_would_outlast_its_time_in_both_phases(
    monkeypatch: pytest.MonkeyPatch, seconds: float, stops: list[int]
) -> None:
    """Each visit is of one position and takes one second, as its charge moves the clock."""
    now = 0.0

    class Slow(Fuel):
        def charge(self, positions: int) -> None:
            nonlocal now
            now += positions
            super().charge(positions)

    monkeypatch.setattr("layby.peek.scan.CHUNK", 1)
    bundle = bundle_of(pairs(*((k, k) for k in range(9))))
    for time in range(2, 10):
        append_error(bundle, f"error {time // 2}", time, 1 if time % 2 == 0 else -1, time + 1)
    scan = PeekScan(spec(), bundle.snapshot(), GIB, lambda: now)
    scan.step_seconds = seconds
    visited = []
    while scan.step(Slow(100)) is SUSPENDED:
        visited.append(scan.positions)
    assert visited == stops
    assert scan.positions == 17


FIRST = ColumnRef(0, BIGINT)
ALL = KeyRange((), Bound(0, inclusive=True), None)
EACH = [*range(100, 3_001, 100)]


@pytest.mark.parametrize(
    ("peek", "looks"),
    [
        pytest.param(spec(outputs=[FIRST]), [100, 1_700, 2_400, 2_800, 3_000], id="numbers"),
        pytest.param(spec(outputs=[FIRST], constraints=(ALL,)), EACH, id="constraints"),
        pytest.param(spec(), EACH, id="more-of-them"),
        pytest.param(spec(outputs=[call("-", FIRST)]), EACH, id="computed"),
        pytest.param(spec(outputs=[FIRST], ordered=True), EACH, id="in-order"),
        pytest.param(
            spec(
                outputs=[FIRST],
                predicates=[call("<", FIRST, Literal(0, BIGINT))],
                finish=finishing(1, limit=3),
            ),
            [64, *range(164, 2_965, 100)],
            id="limited",
        ),
    ],
)
def test_a_full_walk_of_few_numbers_looks_at_the_clock_after_half_the_visits_that_fit(
    monkeypatch: pytest.MonkeyPatch, peek: PeekSpec, looks: list[int]
) -> None:
    """Each position takes a second; but for the first, after fifteen visits where they fit."""
    monkeypatch.setattr("layby.peek.scan.CHUNK", 100)
    bundle = bundle_of(pairs(*((k, k) for k in range(4_000))))
    looked: list[int] = []

    def clock() -> float:
        looked.append(scan.positions)
        return float(scan.positions)

    scan = PeekScan(peek, bundle.snapshot(), GIB, lambda: 0.0)
    scan._clock = clock
    scan.step_seconds, scan.heaviest = 3_000.0, 1 << 10
    assert scan.step(Fuel(10_000)) is SUSPENDED
    assert looked == [0, *looks, looks[-1]]


def test_a_walk_whose_filter_takes_longer_on_some_rows_looks_at_the_clock_after_each_visit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("layby.peek.scan.CHUNK", 100)
    looked: list[int] = []

    def clock() -> float:
        looked.append(scan.positions)
        return 0.0

    k = ColumnRef(0, BIGINT)
    uneven = call("<", call("/", Literal(1, BIGINT), call("+", k, Literal(1, BIGINT))), k)
    peek = spec(predicates=[uneven], outputs=[k])
    scan = PeekScan(peek, bundle_of(pairs(*((k, k) for k in range(500)))).snapshot(), GIB, lambda: 0.0)
    scan._clock = clock
    scan.step_seconds, scan.heaviest = 300.0, 1 << 10
    assert isinstance(scan.step(Fuel(1_000)), Complete)
    assert looked == [0, 100, 200, 300, 400, 500]


def test_a_step_with_a_pace_makes_its_visits_as_long_as_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each position takes a second; of 100 one is left at the end, less than a sixteenth."""
    monkeypatch.setattr("layby.peek.scan.CHUNK", 32)
    looked: list[int] = []

    def clock() -> float:
        looked.append(scan.positions)
        return float(scan.positions)

    scan = PeekScan(spec(), bundle_of(pairs(*((k, k) for k in range(400)))).snapshot(), GIB, lambda: 0.0)
    scan._clock = clock
    scan.step_seconds, scan.pace = 100.0, 3
    assert scan.step(Fuel(1_000)) is SUSPENDED
    # What fits is 97 positions, in chunks: one without a look, and one that leaves one position.
    assert looked == [0, 3, 67, 99, 99]


def test_a_limit_of_zero_does_not_hide_an_error_that_is_read_after_a_suspension() -> None:
    bundle = bundle_of(pairs((1, 10)))
    append_error(bundle, "gone", 2, 1, 3)
    append_error(bundle, "gone", 3, -1, 4)
    append_error(bundle, "here", 4, 1, 5)
    scan = scan_of(bundle, spec(finish=finishing(2, limit=0)))
    assert scan.step(Fuel(1)) is SUSPENDED
    outcome = scan.step(Fuel(10))
    assert isinstance(outcome, ScanFailed)
    assert outcome.error.message == "here"


def test_a_scan_that_would_complete_before_its_errors_were_read_fails_instead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scan = scan_of(bundle_of(pairs((1, 10))))
    scan._errors_left = True
    scan._complete()
    outcome = scan.step(Fuel(10))
    assert isinstance(outcome, ScanFailed)
    assert outcome.error.sqlstate == "XX000"
    assert "before its error trace had been read" in caplog.text


# S5


def test_a_completed_scan_repeats_its_outcome_and_walks_nothing() -> None:
    scan = scan_of(bundle_of(pairs((1, 10))))
    first = scan.step(Fuel(10))
    fuel = Fuel(10)
    assert scan.step(fuel) is first
    assert (fuel.remaining, scan.positions) == (10, 1)


def test_a_failed_scan_repeats_its_error_and_walks_nothing() -> None:
    bundle = bundle_of(pairs((1, 10)))
    append_error(bundle, "x", 2, 1, 3)
    scan = scan_of(bundle)
    first = scan.step(Fuel(10))
    assert isinstance(first, ScanFailed)
    fuel = Fuel(10)
    assert scan.step(fuel) is first
    assert fuel.remaining == 10


# S6


def test_multiplicities_are_summed_at_the_peeks_time_over_all_batches() -> None:
    bundle = bundle_of(
        pairs((1, 10), (2, 20)),
        pairs((1, 10), time=2),
        pairs((2, 20), time=3, diff=-1),
    )
    assert rows_in(scan_of(bundle, spec(1)).step(Fuel(100))) == [(1, 10), (2, 20)]
    assert rows_in(scan_of(bundle, spec(2)).step(Fuel(100))) == [(1, 10), (1, 10), (2, 20)]
    assert rows_in(scan_of(bundle, spec(3)).step(Fuel(100))) == [(1, 10), (1, 10)]


def test_a_negative_sum_fails_the_peek_and_names_the_collection(caplog: pytest.LogCaptureFixture) -> None:
    outcome = scan_of(bundle_of(pairs((1, 10), diff=-1))).step(Fuel(100))
    assert isinstance(outcome, ScanFailed)
    assert outcome.error.sqlstate == "XX000"
    assert outcome.error.message == 'collection "test" has a row of negative multiplicity'
    assert 'collection "test" has a row of negative multiplicity' in caplog.text


def test_a_row_whose_updates_a_cut_separates_is_summed_all_the_same() -> None:
    bundle = bundle_of(pairs((1, 10), (2, 20)), pairs((1, 10), time=2, diff=-1), pairs((1, 10), time=3))
    for size in (1, 2, 3):
        scan = scan_of(bundle)
        outcome: ScanOutcome = SUSPENDED
        while outcome is SUSPENDED:
            outcome = scan.step(Fuel(size))
        assert rows_in(outcome) == [(1, 10), (2, 20)]


def test_an_error_of_a_filter_counts_only_where_the_row_is_there() -> None:
    divides = call("=", call("/", number(10), V), number(1))
    gone = bundle_of(pairs((1, 0), (2, 10)), pairs((1, 0), time=2, diff=-1))
    assert rows_in(scan_of(gone, spec(predicates=[divides])).step(Fuel(100))) == [(2, 10)]
    outcome = scan_of(gone, spec(1, predicates=[divides])).step(Fuel(100))
    assert isinstance(outcome, ScanFailed)
    assert outcome.error.sqlstate == "22012"


def test_the_error_is_that_of_the_first_row_that_raises_whichever_batch_it_is_in() -> None:
    layout = Layout((INTEGER,), (ASCENDING,))
    n = ColumnRef(0, INTEGER)
    date = call("make_date", n, n, n)
    asked = spec(types=(INTEGER,), predicates=[call("=", date, date)])
    # The batch that is looked at last has a row that passes before the one that raises first of all.
    bundle = bundle_of([((50,), 1, 2), ((60,), 1, 1)], [((1,), 2, 1), ((40,), 2, 1)], layout=layout)
    outcome = scan_of(bundle, asked).step(Fuel(100))
    assert isinstance(outcome, ScanFailed)
    assert outcome.error.message == "date field value out of range: 40-40-40"


# S7


def test_full_keys_seek_and_visit_their_rows_alone() -> None:
    bundle = bundle_of(pairs(*((k, k * 10) for k in range(100))), pairs((7, 71), time=2))
    scan = scan_of(bundle, spec(constraints=keys(7, 50)))
    assert sorted(rows_in(scan.step(Fuel(100)))) == [(7, 70), (7, 71), (50, 500)]
    assert scan.positions == 3


def test_a_miss_costs_one_position() -> None:
    bundle = bundle_of(pairs((1, 10), (3, 30)))
    scan = scan_of(bundle, spec(constraints=keys(2, 3, 4)))
    assert rows_in(scan.step(Fuel(100))) == [(3, 30)]
    assert scan.positions == 3


def test_a_range_after_a_prefix_seeks() -> None:
    layout = type(PAIR)((BIGINT, BIGINT), (ASCENDING, ASCENDING))
    bundle = bundle_of(pairs(*((k, v) for k in range(10) for v in range(10))), layout=layout)
    wanted = KeyRange((4,), Bound(3, inclusive=False), Bound(5, inclusive=True))
    scan = scan_of(bundle, spec(constraints=(wanted,)))
    assert rows_in(scan.step(Fuel(100))) == [(4, 4), (4, 5)]
    assert scan.positions == 2


# S8


def test_a_limit_without_order_ends_the_walk_as_soon_as_the_rows_are_there() -> None:
    bundle = bundle_of(pairs(*((k, k) for k in range(10_000))))
    scan = scan_of(bundle, spec(finish=finishing(2, limit=3, offset=2)))
    outcome = scan.step(Fuel(100_000))
    assert isinstance(outcome, Complete)
    assert scan.positions == 5


PLAIN = [pairs(*((k, k - 20) for k in range(40)))]
INTERLEAVED = [pairs(*((k, k - 20) for k in range(n, 40, 2))) for n in (0, 1)]
SUMMED = [*PLAIN, pairs((0, -20), time=2, diff=-1)]
DIVIDES = call("<>", call("/", number(10), V), number(77))
"""True, but for row 20, in which it divides by zero."""


@pytest.mark.parametrize("fuel", [1, 7, 1_000])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("batches", [PLAIN, INTERLEAVED, SUMMED])
def test_an_error_behind_the_rows_of_a_limit_is_none_however_far_a_visit_goes(
    batches: list[list[Update]], reverse: bool, fuel: int
) -> None:
    order = [(0, DESCENDING if reverse else ASCENDING)]

    def outcome_of(limit: int) -> ScanOutcome:
        finish = finishing(2, order, limit)
        asked = spec(predicates=[DIVIDES], finish=finish, reverse=reverse, ordered=True)
        return ended(scan_of(bundle_of(*batches), asked), fuel)

    first = range(39, 20, -1) if reverse else range(1 if batches is SUMMED else 0, 20)
    assert rows_in(outcome_of(len(first))) == [(k, k - 20) for k in first]
    failed = outcome_of(len(first) + 1)
    assert isinstance(failed, ScanFailed)
    assert failed.error.sqlstate == "22012"


@pytest.mark.parametrize("fuel", [1, 7, 1_000])
@pytest.mark.parametrize("batches", [PLAIN, SUMMED])
def test_an_error_of_an_output_behind_the_rows_of_a_limit_is_none(
    batches: list[list[Update]], fuel: int
) -> None:
    def outcome_of(limit: int) -> ScanOutcome:
        predicates = [call(">", K, number(17))]
        asked = spec(
            predicates=predicates, outputs=[call("/", number(10), V)], finish=finishing(1, [], limit)
        )
        return ended(scan_of(bundle_of(*batches), asked), fuel)

    assert rows_in(outcome_of(2)) == [(-5,), (-10,)]
    assert isinstance(outcome_of(3), ScanFailed)


def ended(scan: PeekScan, fuel: int) -> ScanOutcome:
    """Step a scan to its outcome."""
    while (outcome := scan.step(Fuel(fuel))) is SUSPENDED:
        pass
    return outcome


def test_rows_of_high_multiplicity_count_only_as_far_as_a_limit_needs_them() -> None:
    bundle = bundle_of([((k, k), 1, 1_000) for k in range(50)])
    scan = scan_of(bundle, spec(finish=finishing(2, limit=1_001)), max_result_size=20_000)
    assert rows_in(scan.step(Fuel(100))) == [(0, 0)] * 1_000 + [(1, 1)]


class Noted(Fuel):
    """Fuel that notes what each visit costs."""

    def __init__(self, positions: int) -> None:
        super().__init__(positions)
        self.charged: list[int] = []

    def charge(self, positions: int) -> None:
        self.charged.append(positions)
        super().charge(positions)


FIVE_HUNDRED = [pairs(*((k, k) for k in range(500)))]
WITH_A_PAIR = [[*FIVE_HUNDRED[0], ((500, 500), 1, 2)]]


@pytest.mark.parametrize(
    ("batches", "predicates", "charged"),
    [
        (FIVE_HUNDRED, [], [3]),
        (FIVE_HUNDRED, [call("<", V, number(0))], [64, 128, 256, 52]),
        (WITH_A_PAIR, [], [64]),
    ],
)
def test_a_walk_that_a_limit_may_end_begins_with_few_positions_where_not_each_is_a_row(
    batches: list[list[Update]], predicates: list[Expr], charged: list[int]
) -> None:
    fuel = Noted(1_000)
    scan_of(bundle_of(*batches), spec(predicates=predicates, finish=finishing(2, limit=3))).step(fuel)
    assert fuel.charged == charged


def test_a_walk_whose_limit_cannot_end_it_early_takes_as_much_at_once_as_any() -> None:
    fuel = Noted(1_000)
    scan_of(bundle_of(*FIVE_HUNDRED), spec(finish=finishing(2, [(1, ASCENDING)], limit=3))).step(fuel)
    assert fuel.charged == [500]


def test_a_limit_of_zero_visits_nothing() -> None:
    scan = scan_of(bundle_of(pairs((1, 1))), spec(finish=finishing(2, limit=0)))
    assert rows_in(scan.step(Fuel(10))) == []
    assert scan.positions == 0


def test_an_accumulation_under_order_and_limit_is_thinned_at_twice_the_wanted_rows() -> None:
    bundle = bundle_of(pairs(*((k, (k * 7919) % 10_007) for k in range(10_000))))
    asked = spec(finish=finishing(2, [(1, ASCENDING)], limit=2, offset=1))
    scan = scan_of(bundle, asked)
    most = 0
    outcome: ScanOutcome = SUSPENDED
    while outcome is SUSPENDED:
        outcome = scan.step(Fuel(4))
        most = max(most, scan.count)
    assert most < 2 * 3 + 4
    scan = scan_of(bundle, asked)
    found = []
    for _ in range(6):
        scan.step(Fuel(1))
        found.append(scan.count)
    assert found == [1, 2, 3, 4, 5, 3]
    assert (
        rows_of(Harness(bundle).ask(asked))
        == sorted(((k, (k * 7919) % 10_007) for k in range(10_000)), key=lambda row: row[1])[1:3]
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_a_walk_in_index_order_ends_early_in_either_direction(reverse: bool) -> None:
    bundle = bundle_of(
        pairs(*((k, k) for k in range(0, 10_000, 2))), pairs(*((k, k) for k in range(1, 10_000, 2)), time=2)
    )
    order = DESCENDING if reverse else ASCENDING
    asked = spec(finish=finishing(2, [(0, order)], limit=4, offset=1), reverse=reverse, ordered=True)
    scan = scan_of(bundle, asked)
    scan.step(Fuel(100_000))
    assert scan.positions < 200
    expected = [9_998, 9_997, 9_996, 9_995] if reverse else [1, 2, 3, 4]
    assert [row[0] for row in rows_of(Harness(bundle).ask(asked))] == expected


def test_a_walk_in_reverse_sums_multiplicities_too() -> None:
    bundle = bundle_of(pairs((1, 1), (2, 2), (3, 3)), pairs((3, 3), time=2, diff=-1), pairs((2, 2), time=3))
    asked = spec(finish=finishing(2, [(0, DESCENDING)], limit=3), reverse=True, ordered=True)
    for granularity in (1, 2, 100):
        harness = Harness(bundle, inline_budget=1, granularity=granularity)
        assert rows_of(harness.ask(asked)) == [(2, 2), (2, 2), (1, 1)]


# S9


def test_what_an_answer_is_computed_from_does_not_count_against_its_largest_size() -> None:
    layout = Layout((BIGINT, TEXT), (ASCENDING,))
    rows = [((k, "x" * 1_000), 1, 1) for k in range(2)]
    bundle = bundle_of(rows, [((2, ""), 2, 1)], [((2, ""), 3, -1)], layout=layout)
    asked = spec(types=layout.types, outputs=[call("length", ColumnRef(1, TEXT))])
    assert rows_in(scan_of(bundle, asked, max_result_size=100).step(Fuel(100))) == [(1_000,), (1_000,)]


def test_an_answer_over_the_largest_size_fails_before_the_memory_is_spent() -> None:
    bundle = bundle_of(pairs(*((k, k) for k in range(3 * CHUNK))))
    scan = scan_of(bundle, max_result_size=64 * 1024)
    outcome = scan.step(Fuel(10 * CHUNK))
    assert isinstance(outcome, ScanFailed)
    assert (outcome.error.sqlstate, outcome.error.message) == ("54000", "result exceeds max size of 64 KiB")
    assert scan.positions == CHUNK
    assert scan.nbytes == 0


def test_an_answer_of_exactly_the_largest_size_is_given_and_what_passes_it_is_not_copied_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied: list[object] = []

    def repeat(*args: Any) -> Array:
        copied.append(args)
        return repeated(*args)

    repeated = np.repeat
    monkeypatch.setattr(np, "repeat", repeat)
    bundle = bundle_of([*pairs(*((k, k) for k in range(10))), ((10, 10), 1, 5)])
    for size in (240, 239):
        scan = scan_of(bundle, max_result_size=size)
        scan.step(Fuel(4))
        scan.take_found()
        scan.step(Fuel(6))
        outcome = scan.step(Fuel(100))
        assert isinstance(outcome, Complete if size == 240 else ScanFailed)
        assert len(copied) == 1


@pytest.mark.parametrize(
    ("size", "shown"), [(1 << 20, "1 MiB"), (1_024, "1 KiB"), (1_025, "1025 bytes"), (3_072, "3 KiB")]
)
def test_the_largest_size_is_told_in_its_unit(size: int, shown: str) -> None:
    bundle = bundle_of([((1, 1), 1, 1_000_000)])
    outcome = scan_of(bundle, max_result_size=size).step(Fuel(10))
    assert isinstance(outcome, ScanFailed)
    assert outcome.error.message == f"result exceeds max size of {shown}"


def test_a_row_of_huge_multiplicity_fails_before_it_is_copied_out() -> None:
    outcome = scan_of(bundle_of([((1, 1), 1, 10**12)])).step(Fuel(10))
    assert isinstance(outcome, ScanFailed)
    assert outcome.error.sqlstate == "54000"


def test_a_limit_makes_a_row_of_huge_multiplicity_harmless() -> None:
    bundle = bundle_of([((1, 1), 1, 10**12)])
    assert rows_of(Harness(bundle).ask(spec(finish=finishing(2, limit=2)))) == [(1, 1), (1, 1)]


# S11


def test_a_suspended_scan_goes_on_after_it_was_pickled() -> None:
    bundle = bundle_of(
        pairs((1, 10), (2, 20), (3, 30)), pairs((2, 20), time=2, diff=-1), pairs((4, 40), time=3)
    )
    append_error(bundle, "x", 4, 1, 5)
    append_error(bundle, "x", 5, -1, 6)
    scan = scan_of(bundle, spec(predicates=[call(">", K, number(1)), call("<", K, V)]))
    outcome: ScanOutcome = SUSPENDED
    while outcome == SUSPENDED:
        scan = pickle.loads(pickle.dumps(scan))
        outcome = scan.step(Fuel(1))
    assert rows_in(outcome) == [(3, 30), (4, 40)]
    assert scan.positions == 7


def test_rows_found_before_a_scan_crosses_to_another_process_are_put_into_the_arena_for_it() -> None:
    class Noting(HeapArena):
        def place(self, array: Array) -> Array:
            given.append(np.array(array))
            return given[-1]

    given: list[Array] = []
    scan = scan_of(bundle_of(pairs((1, 10), (2, 20), (3, 30))))
    scan.step(Fuel(2))
    scan.place_found(Noting())
    found = scan.take_found()
    assert isinstance(found, Complete)
    assert rows_in(found) == [(1, 10), (2, 20)]
    assert [id(c.values) for c in found.columns if isinstance(c, FixedColumn)] == [id(a) for a in given]


def test_a_scan_that_is_complete_holds_its_rows_once() -> None:
    class Noting(HeapArena):
        def place(self, array: Array) -> Array:
            placed = np.array(array)
            given.append(weakref.ref(placed))
            return placed

    given: list[weakref.ref[Array]] = []
    scan = scan_of(bundle_of(pairs(*((k, k) for k in range(9)))))
    scan.step(Fuel(3))
    scan.place_found(Noting())
    assert [array() is None for array in given] == [False, False]
    assert len(rows_in(scan.step(Fuel(100)))) == 9
    assert [array() is None for array in given] == [True, True]


def test_rows_that_nobody_wants_any_more_still_count() -> None:
    scan = scan_of(bundle_of(pairs(*((k, k) for k in range(9)))))
    scan.step(Fuel(3))
    scan.take_found()
    scan.step(Fuel(4))
    scan.found_rows(scan.count)
    assert (scan.count, scan.nbytes) == (7, 0)


def test_what_a_scan_holds_is_not_changed_by_what_comes_later() -> None:
    bundle = bundle_of(pairs((1, 10), (2, 20)))
    scan = scan_of(bundle)
    scan.step(Fuel(1))
    append(bundle, pairs((1, 10), time=50, diff=-1), 51)
    while bundle.work(1_000):
        pass
    assert rows_in(scan.step(Fuel(10))) == [(1, 10), (2, 20)]


def test_an_empty_collection_answers_with_no_rows() -> None:
    assert rows_of(Harness(TraceBundle(PAIR, upper=0)).ask()) == []


def test_a_read_below_since_is_refused() -> None:
    bundle = bundle_of(pairs((1, 10)))
    bundle.allow_compaction(5)
    assert error_of(Harness(bundle).ask(spec(4)))[0] == "22023"


def test_a_snapshot_without_batches_has_nothing_to_visit() -> None:
    scan = PeekScan(spec(), Snapshot((), (), 0, 10), GIB)
    assert rows_in(scan.step(Fuel(1))) == []
