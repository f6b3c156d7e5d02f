"""Shared scans: the rows that each of several scans finds on the visits of one cursor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from layby.expr.comparisons import Comparison, Comparisons
from layby.expr.mfp import MfpKernel
from layby.expr.scalar import And, ColumnRef, Expr, Literal
from layby.peek.fuel import Fuel
from layby.peek.outcome import Complete, ScanFailed, ScanOutcome, Suspended
from layby.peek.scan import PeekScan
from layby.peek.shared_scan import SharedScan
from layby.peek.spec import PeekSpec
from layby.trace.bundle import TraceBundle
from layby.trace.layout import Layout
from layby.types.column import column_from_values
from layby.types.ordering import ASCENDING
from layby.types.scalar import BIGINT, DOUBLE_PRECISION, INTEGER, TEXT, PhysicalValue
from tests.expr.helpers import Raised, call, evaluated, literal
from tests.peek.harness import Row, StandingClock, append, bundle_of, pairs, spec

TYPES = (INTEGER, BIGINT, DOUBLE_PRECISION, TEXT)
N, W, F, S = (ColumnRef(at, type_) for at, type_ in enumerate(TYPES))
WIDE = Layout(TYPES, (ASCENDING,))


def outcomes(scans: Sequence[PeekScan], fuel: int) -> list[ScanOutcome]:
    """Step scans together to their ends, those alone that are not over."""
    together = SharedScan()
    found: dict[int, ScanOutcome] = {}
    while len(found) < len(scans):
        left = [at for at in range(len(scans)) if at not in found]
        together.step([scans[at] for at in left], Fuel(fuel))
        for at in left:
            outcome = scans[at].latched()
            if not isinstance(outcome, Suspended):
                found[at] = outcome
    return [found[at] for at in range(len(scans))]


def made(bundle: TraceBundle, asked: Sequence[PeekSpec]) -> list[PeekScan]:
    return [PeekScan(each, bundle.snapshot(), 1 << 30) for each in asked]


def rows_found(outcome: ScanOutcome) -> list[Row]:
    assert isinstance(outcome, Complete)
    return list(zip(*(column.to_list() for column in outcome.columns), strict=True)) if outcome.count else []


NUMBERS = st.sampled_from([-(2**31), -1, 0, 1, 2, 2**31 - 1])
WIDES = st.sampled_from([-(2**63), -1, 0, 1, 1 + (1 << 32), 1 - (1 << 32), 2**63 - 1])
FLOATS = st.sampled_from([float("-inf"), -1.5, -0.0, 0.0, 2.5, float("nan")])
TEXTS = st.sampled_from(["", "a", "ab", "abcdefgh", "abcdefghi", "abcdefghj"])
NAMES = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])

COMPARED = st.one_of(
    st.builds(lambda n, v: call(n, N, Literal(v, INTEGER)), NAMES, st.one_of(st.none(), NUMBERS)),
    st.builds(lambda n, v: call(n, Literal(v, BIGINT), N), NAMES, WIDES),
    st.builds(lambda n, v: call(n, W, Literal(v, BIGINT)), NAMES, WIDES),
    st.builds(lambda n, v: call(n, W, Literal(v, INTEGER)), NAMES, NUMBERS),
    st.builds(lambda n, v: call(n, F, Literal(v, DOUBLE_PRECISION)), NAMES, FLOATS),
    st.builds(lambda n, v: call(n, S, Literal(v, TEXT)), NAMES, TEXTS),
)
INVERSE = call("=", call("/", literal(2), N), literal(1))
"""Raises where `N` is zero."""

INVERSE_AT_25 = call(
    "=",
    call("/", Literal(1, BIGINT), call("-", ColumnRef(0, BIGINT), Literal(25, BIGINT))),
    Literal(1, BIGINT),
)

PREDICATES = st.one_of(
    COMPARED,
    st.builds(lambda a, b: And((a, b)), COMPARED, COMPARED),
    st.builds(lambda a: And((a, INVERSE)), COMPARED),
)

WIDE_ROWS = st.tuples(*(st.one_of(st.none(), values) for values in (NUMBERS, WIDES, FLOATS, TEXTS)))


def same(row: Row) -> Row:
    """Rows as they compare: NaN is itself."""
    return tuple("NaN" if value != value else value for value in row)


def passes(predicate: Expr, row: Row) -> bool | Raised:
    """Tell whether a row passes, or what it raises: part after part, by the interpreter."""
    columns = [column_from_values(type_, [value]) for type_, value in zip(TYPES, row, strict=True)]
    for part in predicate.args if isinstance(predicate, And) else (predicate,):
        (outcome,) = evaluated(part, columns, 1)
        if outcome is not True:
            return outcome if isinstance(outcome, Raised) else False
    return True


@settings(max_examples=200, deadline=None)
@given(
    updates=st.lists(st.tuples(WIDE_ROWS, st.integers(0, 3), st.integers(1, 2)), max_size=30),
    gone=st.lists(st.integers(0, 29), max_size=4, unique=True),
    asked=st.lists(st.tuples(PREDICATES, st.integers(0, 4)), min_size=1, max_size=12),
    fuel=st.sampled_from([1, 3, 1_000]),
    reverse=st.booleans(),
)
@example(
    [((1, 1 + (1 << 32), 0.0, ""), 0, 1)],
    [],
    [(call("=", W, Literal(value, BIGINT)), 0) for value in (1, 2, 3)],
    1_000,
    False,
).via("a wide number whose lower half is a constant")
def test_each_scan_finds_what_the_model_finds_alone(
    updates: list[tuple[tuple[PhysicalValue, ...], int, int]],
    gone: list[int],
    asked: list[tuple[Expr, int]],
    fuel: int,
    reverse: bool,
) -> None:
    changes = updates + [
        (row, time + 1, -count) for row, time, count in (updates[at] for at in gone if at < len(updates))
    ]
    bundle = TraceBundle(WIDE, upper=0)
    for time in range(5):
        append(bundle, [change for change in changes if change[1] == time], time + 1)
    scans = made(
        bundle,
        [spec(time, types=TYPES, predicates=[predicate], reverse=reverse) for predicate, time in asked],
    )
    for (predicate, time), outcome in zip(asked, outcomes(scans, fuel), strict=True):
        counts: Counter[Row] = Counter()
        for row, at, count in changes:
            if at <= time:
                counts[row] += count
        results = {row: passes(predicate, row) for row, count in counts.items() if count}
        raised = [result for result in results.values() if isinstance(result, Raised)]
        if raised:
            assert isinstance(outcome, ScanFailed)
            assert (outcome.error.sqlstate, outcome.error.message) in [
                (each.sqlstate, each.message) for each in raised
            ]
        else:
            expected = Counter(same(row) for row in counts.elements() if results[row])
            assert Counter(map(same, rows_found(outcome))) == expected


def equal(value: int) -> Expr:
    return call("=", ColumnRef(1, BIGINT), Literal(value, BIGINT))


class Noted:
    """Notes which scans `Comparisons.evaluate` tells to look at each chunk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[set[int]] = []
        evaluate = Comparisons.evaluate

        def noted(*args: Any) -> tuple[set[int], object]:
            found = evaluate(*args)
            self.found.append(found[0])
            return found

        monkeypatch.setattr(Comparisons, "evaluate", noted)


def test_what_scans_begin_with_is_evaluated_once_a_chunk_for_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted = Noted(monkeypatch)
    scans = made(
        bundle_of(pairs(*((k, k // 10) for k in range(40)))),
        [spec(predicates=[equal(value)]) for value in (0, 1, 1, 7)],
    )
    found = [rows_found(outcome) for outcome in outcomes(scans, 10)]
    assert found == [[(k, v) for k in range(10 * v, 10 * v + 10)] for v in (0, 1, 1)] + [[]]
    assert noted.found == [{0}, {1, 2}, set(), set()]


def test_a_scan_that_has_left_is_no_longer_evaluated_for(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted(monkeypatch)
    scans = made(
        bundle_of(pairs(*((k, 2) for k in range(40)))),
        [spec(predicates=[equal(value)]) for value in (1, 2)],
    )
    together = SharedScan()
    together.step(scans, Fuel(10))
    together.step(scans[1:], Fuel(10))
    assert noted.found == [{1}, {0}]
    assert [scan.positions for scan in scans] == [10, 20]


def test_what_has_been_evaluated_for_all_is_not_evaluated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[bool]] = []
    filter_ = MfpKernel.filter

    def noted(self: MfpKernel, columns: Any, length: int, known: Any) -> Any:
        begun.append(known.tolist())
        return filter_(self, columns, length, known)

    monkeypatch.setattr(MfpKernel, "filter", noted)
    rows = [(k, k % 2) for k in range(6)]
    scans = made(bundle_of(pairs(*rows)), [spec(predicates=[equal(value)]) for value in (0, 1)])
    assert [rows_found(outcome) for outcome in outcomes(scans, 4)] == [rows[::2], rows[1::2]]
    assert begun == [[True, False] * 2, [False, True] * 2, [True, False], [False, True]]


def test_only_scans_that_may_find_a_row_look_at_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[PeekScan] = []
    filter_ = PeekScan._filter

    def noted(self: PeekScan, *args: object) -> object:
        looked.append(self)
        return filter_(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(PeekScan, "_filter", noted)
    rows = [(k, 3 if k == 17 else 5) for k in range(40)]
    scans = made(bundle_of(pairs(*rows)), [spec(predicates=[equal(value)]) for value in (3, 4, 5)])
    found = [rows_found(outcome) for outcome in outcomes(scans, 10)]
    assert found == [[(17, 3)], [], [row for row in rows if row[1] == 5]]
    assert looked == [scans[2], scans[0], scans[2], scans[2], scans[2]]


def test_a_row_held_back_is_found_though_no_row_passes_after_it() -> None:
    # The first visit ends within the group of (2, 1). It does not pass, so the row before it is held back.
    bundle = bundle_of([*pairs((1, 5), (2, 1)), ((2, 1), 2, 1), ((3, 1), 1, 2)])
    scans = made(bundle, [spec(predicates=[equal(value)]) for value in (5, 9)])
    assert [rows_found(outcome) for outcome in outcomes(scans, 2)] == [[(1, 5)], []]


def test_the_time_of_a_step_is_shared_by_its_scans() -> None:
    clock = StandingClock()
    clock.now, clock.tick = 100.0, 3.0
    scans = made(bundle_of(pairs(*((k, 1) for k in range(40)))), [spec(), spec(predicates=[equal(2)])])
    together = SharedScan(clock)
    together.step(scans, Fuel(10))
    together.step(scans, Fuel(10))
    assert [scan.times.rows for scan in scans] == [3.0, 3.0]


@pytest.mark.parametrize(("batch_bytes", "positions"), [(None, 40), (10 * 16, 20), (10 * 16 - 1, 10)])
def test_a_step_ends_as_soon_as_one_of_its_scans_holds_a_full_batch(
    monkeypatch: pytest.MonkeyPatch, batch_bytes: int | None, positions: int
) -> None:
    monkeypatch.setattr("layby.peek.shared_scan.CHUNK", 10)
    scans = made(bundle_of(pairs(*((k, 1) for k in range(40)))), [spec(), spec(predicates=[equal(2)])])
    scans[0].batch_bytes = batch_bytes
    SharedScan().step(scans, Fuel(100))
    assert [scan.positions for scan in scans] == [positions] * 2


def test_positions_are_charged_to_scans_that_find_nothing() -> None:
    scans = made(
        bundle_of(pairs(*((k, 1) for k in range(40)))), [spec(predicates=[equal(v)]) for v in (8, 9)]
    )
    for scan in scans:
        scan.position_limit = 25
    found = outcomes(scans, 10)
    assert [type(outcome) for outcome in found] == [ScanFailed, ScanFailed]
    assert [scan.positions for scan in scans] == [26, 26]


def test_what_filters_begin_with_is_put_together_once_for_as_long_as_all_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("layby.peek.shared_scan.CHUNK", 10)
    made_of: list[int] = []

    class Noting(Comparisons):
        def __init__(self, beginnings: Sequence[Comparison | None]) -> None:
            made_of.append(len(beginnings))
            super().__init__(beginnings)

    monkeypatch.setattr("layby.peek.shared_scan.Comparisons", Noting)
    asked = [spec(), spec(predicates=[equal(1)]), spec(predicates=[INVERSE_AT_25])]
    scans = made(bundle_of(pairs(*((k, 1) for k in range(40)))), asked)
    SharedScan().step(scans, Fuel(100))
    assert made_of == [3, 2]
