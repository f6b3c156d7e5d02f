"""Scans over any split into batches, times, budgets and granularities equal a naive model.

The model keeps updates in a Python list and answers a peek by summing, filtering, sorting and cutting
tuples, one at a time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from layby.expr.function import overloads
from layby.expr.scalar import Call, ColumnRef, Expr, Literal
from layby.peek.spec import PeekSpec
from layby.trace.bundle import TraceBundle
from layby.trace.constraints import Bound, Constraints, KeyRange
from layby.trace.layout import Layout
from layby.types.ordering import ASCENDING, DESCENDING, Ordering
from layby.types.scalar import BIGINT, TEXT, PhysicalValue, SqlType
from tests.peek.harness import Harness, Row, append, finishing, rows_of, spec

Update = tuple[Row, int, int]

_VALUES: dict[SqlType, st.SearchStrategy[PhysicalValue]] = {
    BIGINT: st.one_of(st.none(), st.integers(-2, 3)),
    TEXT: st.one_of(st.none(), st.sampled_from(["", "a", "ab", "abcdefgh", "abcdefghi", "abcdefghj", "ü"])),
}
_ORDERINGS = st.sampled_from([ASCENDING, DESCENDING, Ordering(nulls_first=True), Ordering(descending=True)])


@dataclass
class Case:
    """One random history and question."""

    layout: Layout
    batches: list[list[Update]]
    compacted: int
    asked: PeekSpec
    least: int | None
    """The predicate `c0 > least`, where there is one."""


def _sort_key(value: PhysicalValue, ordering: Ordering) -> tuple[int, object]:
    if value is None:
        return (0 if ordering.nulls_first else 2, 0)
    if ordering.descending:
        plain = (*(-b for b in value.encode()), 1) if isinstance(value, str) else -value
        return (1, plain)
    return (1, value.encode() if isinstance(value, str) else value)


def _matches(row: Row, wanted: KeyRange) -> bool:
    for value, key in zip(row, wanted.prefix, strict=False):
        if value != key or (value is None) is not (key is None):
            return False
    if wanted.lower is None and wanted.upper is None:
        return True
    value = row[len(wanted.prefix)]
    if value is None:
        return False

    def plain(v: PhysicalValue) -> object:
        return v.encode() if isinstance(v, str) else v

    if wanted.lower is not None:
        low = plain(wanted.lower.value)
        if plain(value) < low or (plain(value) == low and not wanted.lower.inclusive):  # type: ignore[operator]
            return False
    if wanted.upper is not None:
        high = plain(wanted.upper.value)
        if plain(value) > high or (plain(value) == high and not wanted.upper.inclusive):  # type: ignore[operator]
            return False
    return True


def naive(case: Case) -> tuple[list[Row], bool]:
    """Return the rows in order of ORDER BY, and whether any cut of equal rows would do."""
    counts: Counter[Row] = Counter()
    for row, time, diff in (u for batch in case.batches for u in batch):
        if time <= case.asked.timestamp:
            counts[row] += diff
    rows = [row for row, count in counts.items() for _ in range(count)]
    if case.asked.constraints is not None:
        rows = [r for r in rows if any(_matches(r, c) for c in case.asked.constraints)]
    if case.least is not None:
        rows = [r for r in rows if isinstance(r[0], int) and r[0] > case.least]
    order = case.asked.finishing.order_by
    rows.sort(key=lambda r: [_sort_key(r[k.column], k.ordering) for k in order])
    return rows, not order


@st.composite
def cases(draw: st.DrawFn) -> Case:
    types = tuple(draw(st.lists(st.sampled_from([BIGINT, TEXT]), min_size=1, max_size=3)))
    arity = draw(st.integers(0, len(types)))
    layout = Layout(types, tuple(draw(_ORDERINGS) for _ in range(arity)))
    row = st.tuples(*(_VALUES[t] for t in types))
    live: Counter[Row] = Counter()
    batches: list[list[Update]] = []
    time = 0
    for _ in range(draw(st.integers(0, 5))):
        updates: list[Update] = []
        for _ in range(draw(st.integers(0, 6))):
            time += draw(st.integers(0, 1))
            remove = draw(st.booleans())
            if live and remove:
                choices: list[Row] = sorted(live, key=repr)
                gone = draw(st.sampled_from(choices))
                updates.append((gone, time, -1))
                live[gone] -= 1
                if not live[gone]:
                    del live[gone]
            else:
                new, count = draw(row), draw(st.integers(1, 2))
                updates.append((new, time, count))
                live[new] += count
        batches.append(updates)
        time += 1
    timestamp = draw(st.integers(0, time))
    constraints: Constraints | None = None
    if arity and draw(st.booleans()):
        prefix_length = draw(st.integers(0, arity))
        prefix = tuple(draw(_VALUES[t]) for t in types[:prefix_length])
        lower = upper = None
        if prefix_length < arity:
            bound = _VALUES[types[prefix_length]].filter(lambda v: v is not None)
            lower = draw(st.one_of(st.none(), st.builds(Bound, bound, st.booleans())))
            upper = draw(st.one_of(st.none(), st.builds(Bound, bound, st.booleans())))
        constraints = (KeyRange(prefix, lower, upper),)
    reverse = draw(st.booleans())
    ordered = arity > 0 and draw(st.booleans())
    order: list[tuple[int, Ordering]] = []
    if ordered:
        order = [
            (i, Ordering(o.descending ^ reverse, o.nulls_first ^ reverse)) for i, o in enumerate(layout.key)
        ]
    elif draw(st.booleans()):
        order = [(draw(st.integers(0, len(types) - 1)), draw(_ORDERINGS))]
    limit = draw(st.one_of(st.none(), st.integers(0, 5)))
    offset = draw(st.integers(0, 3)) if limit is not None else 0
    least = draw(st.integers(-2, 2)) if types[0] is BIGINT and draw(st.booleans()) else None
    predicates: list[Expr] = []
    if least is not None:
        greater = next(f for f in overloads(">") if f.args == (BIGINT, BIGINT))
        predicates.append(Call(greater, (ColumnRef(0, BIGINT), Literal(least, BIGINT))))
    asked = spec(
        timestamp,
        types=types,
        constraints=constraints,
        predicates=predicates,
        finish=finishing(len(types), order, limit, offset),
        reverse=reverse,
        ordered=ordered,
    )
    return Case(layout, batches, draw(st.integers(0, timestamp)), asked, least)


@settings(max_examples=400, deadline=None)
@given(
    case=cases(),
    budget=st.sampled_from([1, 2, 5, 1_000]),
    granularity=st.sampled_from([1, 3, 1_000]),
    offload=st.booleans(),
    merged=st.integers(0, 200),
)
def test_any_history_cut_anywhere_answers_as_the_naive_model_does(
    case: Case, budget: int, granularity: int, offload: bool, merged: int
) -> None:
    bundle = TraceBundle(case.layout, upper=0)
    for updates in case.batches:
        upper = max([bundle.upper, *(time for _, time, _ in updates)]) + 1
        append(bundle, updates, upper)
    bundle.allow_compaction(case.compacted)
    bundle.work(merged)
    harness = Harness(
        bundle,
        upper=1_000,
        offload="on" if offload else "off",
        inline_budget=budget,
        granularity=granularity,
    )
    found = rows_of(harness.ask(case.asked))
    expected, any_order = naive(case)
    finish = case.asked.finishing
    if finish.limit is None:
        assert Counter(found) == Counter(expected)
    else:
        assert len(found) == max(0, min(len(expected) - finish.offset, finish.limit))
        assert not Counter(found) - Counter(expected)
    if not any_order:
        # Rows that tie in the order may come in any order, so the sort keys are compared.
        wanted = expected if finish.limit is None else expected[finish.offset : finish.offset + finish.limit]

        def keys_of(rows: list[Row]) -> list[list[PhysicalValue]]:
            return [[row[k.column] for k in finish.order_by] for row in rows]

        assert keys_of(found) == keys_of(wanted)
    assert harness.worker.offload.permits.in_use == 0
    assert harness.metrics.pinned_bytes == 0
