"""Lowering: a bound select to a plan that seeks, filters, maps, projects and finishes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from layby.expr.finishing import OrderKey
from layby.expr.fold import fold
from layby.expr.mfp import Mfp
from layby.expr.scalar import ColumnRef, Expr, Literal, children, with_children
from layby.sql import access
from layby.sql.catalog import Index
from layby.sql.conditions import conjuncts, constant
from layby.sql.plan import (
    ColumnsSource,
    RangeTemplate,
    SelectPlan,
    SeriesSource,
    Signal,
    Source,
    TableSource,
    ValuesSource,
)
from layby.sql.select import BoundSelect
from layby.types.relation import ColumnDesc
from layby.types.scalar import BOOLEAN


def lower(bound: BoundSelect) -> SelectPlan:
    """Plan a select: choose the index, turn predicates into ranges, map the rest to the stored columns."""
    predicates = _predicates(bound.where)
    order = [(e, o) for e, o in ((fold(e), o) for e, o in bound.order) if not constant(e)]
    source, ranges, direction = bound.source, None, None
    place: Callable[[Expr], Expr] = _as_is
    if isinstance(source, TableSource):
        chosen = access.choose(source.table, predicates, order)
        ranges, direction = chosen.ranges, chosen.order
        predicates = [p for i, p in enumerate(predicates) if i not in chosen.used]
        if chosen.index is not None:
            source = TableSource(source.table, chosen.index)
            place = _placer(chosen.index)
            if Literal(False, BOOLEAN) in predicates or Literal(None, BOOLEAN) in predicates:
                ranges, predicates = (), []
    elif isinstance(source, SeriesSource) and order and _climbs(source):
        first = order[0]
        direction = "forward" if first[0] == ColumnRef(0, source.type) and not first[1].descending else None
    outputs = _Outputs()
    projection = tuple(outputs.add(place(fold(t.bound.expr))) for t in bound.targets)
    order_by = tuple(OrderKey(outputs.find(place(e)), o) for e, o in order)
    mfp = Mfp(_arity(source), tuple(place(p) for p in predicates), tuple(outputs.exprs))
    return SelectPlan(
        source=source,
        ranges=ranges,
        mfp=mfp,
        order_by=order_by,
        order=direction,
        limit=None if bound.limit is None else fold(bound.limit),
        offset=None if bound.offset is None else fold(bound.offset),
        projection=projection,
        columns=tuple(
            ColumnDesc(t.name, t.type, _nullable(bound.source, t.bound.expr)) for t in bound.targets
        ),
        signals=tuple(Signal(i, t.signal) for i, t in enumerate(bound.targets) if t.signal is not None),
    )


def _predicates(where: Expr | None) -> list[Expr]:
    if where is None:
        return []
    true = Literal(True, BOOLEAN)
    return [p for p in conjuncts(fold(where)) if p != true]


def _as_is(expr: Expr) -> Expr:
    return expr


def _placer(index: Index) -> Callable[[Expr], Expr]:
    """Return what rewrites an expression over the table's columns to one over the index's stored columns.

    An expression that is a key is read where the index holds its value.
    """
    return partial(_placed, {e: i for i, e in reversed(list(enumerate(index.stored)))})


def _placed(positions: dict[Expr, int], expr: Expr) -> Expr:
    at = positions.get(expr)
    if at is not None:
        return ColumnRef(at, expr.type)
    below = children(expr)
    return with_children(expr, tuple(_placed(positions, c) for c in below)) if below else expr


class _Outputs:
    """The output columns of a read; one that is a column as it is stands there once."""

    def __init__(self) -> None:
        self.exprs: list[Expr] = []
        self._places: dict[Expr, int] = {}

    def add(self, expr: Expr) -> int:
        """Return where the column of a result stands."""
        return self.find(expr) if isinstance(expr, ColumnRef) else self._put(expr)

    def find(self, expr: Expr) -> int:
        """Return where a column stands, put there unless it is known."""
        at = self._places.get(expr)
        return self._put(expr) if at is None else at

    def _put(self, expr: Expr) -> int:
        self.exprs.append(expr)
        at = len(self.exprs) - 1
        self._places.setdefault(expr, at)
        return at


def _arity(source: Source) -> int:
    match source:
        case TableSource(table=table, index=None):
            return len(table.desc.columns)
        case TableSource(index=Index(stored=stored)):
            return len(stored)
        case ValuesSource(types=types) | ColumnsSource(types=types):
            return len(types)
        case _:
            return 1


def _climbs(source: SeriesSource) -> bool:
    step = source.step
    return isinstance(step, Literal) and isinstance(step.value, int) and step.value > 0


def _nullable(source: Source, expr: Expr) -> bool:
    if isinstance(source, TableSource) and isinstance(expr, ColumnRef):
        return source.table.desc.columns[expr.index].nullable
    return True


def everything(source: Source, columns: tuple[ColumnDesc, ...]) -> SelectPlan:
    """Return the plan that reads all of a source as it is."""
    arity = len(columns)
    outputs = tuple(ColumnRef(i, c.type) for i, c in enumerate(columns))
    ranges: tuple[RangeTemplate, ...] | None = None
    return SelectPlan(
        source, ranges, Mfp(arity, (), outputs), (), None, None, None, tuple(range(arity)), columns
    )
