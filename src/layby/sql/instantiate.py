"""Instantiation: a plan and the values of one execution to a peek that is ready to be walked.

What does not depend on the values is made once a plan: the preparation is kept with the plan, and an
execution of `SELECT v FROM t WHERE k = $1` then makes one range and one tuple, in about 2 µs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from layby.errors import SqlError
from layby.expr.evaluate import evaluate
from layby.expr.finishing import Finishing, OrderKey
from layby.expr.mfp import Mfp
from layby.expr.packed import PackedMfp
from layby.expr.scalar import Expr, Literal, Param, SessionValue, walk, with_values
from layby.sql.fit import LIMITS, MISS, Miss, fit_bound, fit_equal
from layby.sql.plan import (
    BoundTemplate,
    ColumnsSource,
    MixedColumn,
    RangeTemplate,
    SelectPlan,
    SeriesSource,
    Source,
    TableSource,
    ValuesSource,
)
from layby.trace.constraints import Bound, Constraints, KeyList, KeyRange
from layby.trace.layout import Layout
from layby.types.column import Column, column_from_values
from layby.types.ordering import Ordering
from layby.types.scalar import INTEGRAL, PhysicalValue, SqlType

Params = tuple[PhysicalValue, ...]
Session = Mapping[str, PhysicalValue]
_MANY: Final = 64
"""Values of key ranges from which on they are held as columns where they cross to another process."""

_Getter = Callable[[Params, Session], PhysicalValue]


class ReadyPeek(NamedTuple):
    """A peek without its snapshot.

    `constraints` None is a walk of everything. `ordered` tells that the walk, in reverse where `reverse` is
    set, comes in the order of `finishing.order_by`.
    """

    constraints: Constraints | None
    reverse: bool
    ordered: bool
    mfp: Mfp | PackedMfp
    finishing: Finishing


class Recipe(NamedTuple):
    """What of a plan depends on an execution's values, without the relation that is read.

    `layout` is that of the index that `ranges` are of, `values` the source where that has values in it.
    """

    ranges: tuple[RangeTemplate, ...] | KeyList | None
    layout: Layout | None
    reverse: bool
    ordered: bool
    mfp: Mfp | PackedMfp
    order_by: tuple[OrderKey, ...]
    limit: Expr | None
    offset: Expr | None
    projection: tuple[int, ...]
    values: ValuesSource | ColumnsSource | SeriesSource | None


def recipe(plan: SelectPlan) -> Recipe:
    """Return what of a plan is instantiated."""
    source = plan.source
    layout = None
    if isinstance(source, TableSource):
        layout = None if source.index is None else source.index.layout
    return Recipe(
        plan.ranges,
        layout,
        plan.order == "reverse",
        plan.order is not None,
        plan.mfp,
        plan.order_by,
        plan.limit,
        plan.offset,
        plan.projection,
        None if isinstance(source, TableSource) else source,
    )


def instantiate(plan: SelectPlan, params: Params, session: Session) -> ReadyPeek:
    """Put an execution's values into a plan: `params` by position, session values by name.

    Raises what evaluating a range's value raises, and 2201W or 2201X for a negative LIMIT or OFFSET.
    """
    ready = plan.ready
    if ready is None:
        ready = prepare(recipe(plan))
        object.__setattr__(plan, "ready", ready)
    return cast("ReadyPeek", ready(params, session))


SourceValues = tuple[Column, ...] | tuple[int, int, int] | None
"""The columns of a source of rows; start, stop and step of a series; None for a relation."""


def instantiate_source(source: Source, params: Params, session: Session) -> SourceValues:
    """Evaluate what a source has of values; raises an error met."""
    match source:
        case TableSource():
            return None
        case SeriesSource():
            return instantiate_series(source, params, session)
        case ColumnsSource():
            return instantiate_columns(source, params, session)
        case ValuesSource():
            return instantiate_values(source, params, session)


def instantiate_values(source: ValuesSource, params: Params, session: Session) -> tuple[Column, ...]:
    """Evaluate a source's rows to columns, as many as it has types; raises the first error met."""
    columns = []
    for at, type_ in enumerate(source.types):
        cells = [row[at] for row in source.rows]
        values = [c.value if isinstance(c, Literal) else constant_value(c, params, session) for c in cells]
        columns.append(column_from_values(type_, values))
    return tuple(columns)


def instantiate_columns(source: ColumnsSource, params: Params, session: Session) -> tuple[Column, ...]:
    """Evaluate a source's cells to columns; raises an error met."""
    return tuple(
        column if isinstance(column, Column) else _mixed(type_, column, params, session)
        for type_, column in zip(source.types, source.columns, strict=True)
    )


def _mixed(type_: SqlType, column: MixedColumn, params: Params, session: Session) -> Column:
    values = column.constants.to_list()
    for cells in column.cells:
        rows = cells.rows.tolist()
        if cells.param is None:
            value = constant_value(cells.expr, params, session)
            for row in rows:
                values[row] = value
            continue
        given = column_from_values(cells.param, [params[n - 1] for n in cells.numbers.tolist()])
        vector = evaluate(with_values(cells.expr, params, session), (given,), len(rows))
        first = None if vector.errors is None else vector.errors.first()
        if first is not None:
            raise first[1]
        found = vector.column.to_list() * (len(rows) if vector.constant else 1)
        for row, value in zip(rows, found, strict=True):
            values[row] = value
    return column_from_values(type_, values)


def key_list(plan: SelectPlan) -> KeyList | None:
    """Return a plan's ranges as columns, None where they are few or not of constants alone, or raise."""
    templates, source = plan.ranges, plan.source
    if not isinstance(templates, tuple) or not isinstance(source, TableSource) or source.index is None:
        return None
    values = [e for t in templates for e in _values(t)]
    if len(values) < _MANY or any(_varies(e) for e in values):
        return None
    try:
        ranges = _Ranges(source.index.layout, templates)((), {})
    except SqlError:
        return None
    if not ranges or not ranges[0].prefix:
        return None
    return KeyList(prefix_columns(ranges, source.index.layout), ranges[0].lower, ranges[0].upper)


def prefix_columns(ranges: Sequence[KeyRange], layout: Layout) -> tuple[Column, ...]:
    """Return the prefixes of ranges, at least one, by columns of the key's types."""
    types = layout.types[: len(ranges[0].prefix)]
    return tuple(column_from_values(t, [r.prefix[at] for r in ranges]) for at, t in enumerate(types))


def instantiate_series(source: SeriesSource, params: Params, session: Session) -> tuple[int, int, int]:
    """Evaluate a series to start, stop and step; raises 22023 for a step of zero. A NULL makes it empty."""
    values = [constant_value(e, params, session) for e in (source.start, source.stop, source.step)]
    if any(v is None for v in values):
        return 1, 0, 1
    start, stop, step = cast("list[int]", values)
    if step == 0:
        raise SqlError("22023", "step size cannot equal zero")
    return start, stop, step


def constant_value(expr: Expr, params: Params, session: Session) -> PhysicalValue:
    """Evaluate an expression without columns; raises its error."""
    return _getter(expr)(params, session)


def prepare(recipe: Recipe) -> Callable[[Params, Session], ReadyPeek]:
    """Return what makes an execution's peek. The plan keeps it, so it holds parts of the plan and never the
    plan: plans would wait for the garbage collector."""
    constraints = _constraints(recipe)
    mfp = recipe.mfp
    make_mfp = mfp.with_values if mfp.varies else None
    finishing = _finishing(recipe)
    reverse, ordered = recipe.reverse, recipe.ordered
    if make_mfp is None and isinstance(finishing, Finishing):
        if constraints is None:
            always = ReadyPeek(None, reverse, ordered, mfp, finishing)
            return lambda _params, _session: always
        return lambda params, session: ReadyPeek(
            constraints(params, session), reverse, ordered, mfp, finishing
        )

    def ready(params: Params, session: Session) -> ReadyPeek:
        return ReadyPeek(
            None if constraints is None else constraints(params, session),
            reverse,
            ordered,
            mfp if make_mfp is None else make_mfp(params, session),
            finishing if isinstance(finishing, Finishing) else finishing(params, session),
        )

    return ready


def _varies(expr: Expr | None) -> bool:
    return expr is not None and any(isinstance(e, Param | SessionValue) for e in walk(expr))


def _finishing(recipe: Recipe) -> Finishing | Callable[[Params, Session], Finishing]:
    """Return the finishing where it is the same for every execution, else what puts values into it.

    LIMIT and OFFSET that are not literals are left to the execution, where they may raise.
    """
    order_by, projection = recipe.order_by, recipe.projection
    limit_expr, offset_expr = recipe.limit, recipe.offset

    def finished(params: Params, session: Session) -> Finishing:
        limit = _count(limit_expr, params, session)
        offset = _count(offset_expr, params, session)
        if limit is not None and limit < 0:
            raise SqlError("2201W", "LIMIT must not be negative")
        if offset is not None and offset < 0:
            raise SqlError("2201X", "OFFSET must not be negative")
        return Finishing(order_by, limit, offset or 0, projection)

    fixed = all(
        e is None or (isinstance(e, Literal) and (e.value is None or cast("int", e.value) >= 0))
        for e in (limit_expr, offset_expr)
    )
    return finished((), {}) if fixed else finished


def _count(expr: Expr | None, params: Params, session: Session) -> int | None:
    return None if expr is None else cast("int | None", constant_value(expr, params, session))


def _getter(expr: Expr) -> _Getter:
    match expr:
        case Literal(value=value):
            return lambda _params, _session: value
        case Param(number=number):
            at = number - 1
            return lambda params, _session: params[at]
        case SessionValue(name=name):
            return lambda _params, session: session[name]

    def compute(params: Params, session: Session) -> PhysicalValue:
        vector = evaluate(with_values(expr, params, session), (), 1)
        if vector.errors is not None and vector.errors.codes[0]:
            raise vector.errors.errors[vector.errors.codes[0] - 1]
        return vector.column.value(0)

    return compute


def _constraints(recipe: Recipe) -> Callable[[Params, Session], Constraints] | None:
    templates, layout = recipe.ranges, recipe.layout
    if templates is None:
        return None
    if isinstance(templates, KeyList):
        return lambda _params, _session: templates
    if not templates or layout is None:
        return lambda _params, _session: ()
    if len(templates) == 1:
        quick = _lookup(layout, templates[0])
        if quick is not None:
            return quick
    ranges = _Ranges(layout, templates)
    if not any(_varies(e) for t in templates for e in _values(t)):
        return _fixed(ranges)
    return ranges


def _values(template: RangeTemplate) -> list[Expr]:
    bounds = [b.value for b in (*template.lower, *template.upper)]
    return [*(e for item in template.prefix for e in item), *bounds]


def _lookup(layout: Layout, template: RangeTemplate) -> Callable[[Params, Session], Constraints] | None:
    """Return the short way for one prefix of parameters of the keys' own types, None where it is not one.

    Integers of another width take it too: drivers send the narrowest that holds the value.
    """
    if template.lower or template.upper:
        return None
    numbers = []
    for alternatives, type_ in zip(template.prefix, layout.types, strict=False):
        if len(alternatives) != 1:
            return None
        value = alternatives[0]
        if not isinstance(value, Param):
            return None
        if value.type is not type_:
            if len(template.prefix) == 1 and value.type in INTEGRAL and type_ in INTEGRAL:
                return _integer_lookup(value.number - 1, *LIMITS[type_])
            return None
        numbers.append(value.number - 1)
    if len(numbers) == 1:
        at = numbers[0]

        def one(params: Params, _session: Session) -> Constraints:
            value = params[at]
            return () if value is None else (KeyRange((value,)),)

        return one

    def several(params: Params, _session: Session) -> Constraints:
        prefix = tuple([params[n] for n in numbers])
        return () if None in prefix else (KeyRange(prefix),)

    return several


def _integer_lookup(at: int, low: int, high: int) -> Callable[[Params, Session], Constraints]:
    def lookup(params: Params, _session: Session) -> Constraints:
        value = cast("int | None", params[at])
        return () if value is None or not low <= value <= high else (KeyRange((value,)),)

    return lookup


def _fixed(ranges: _Ranges) -> Callable[[Params, Session], Constraints]:
    """Keep the ranges of constants once they have been made; an error is raised at every execution."""
    made: list[Constraints] = []

    def constraints(_params: Params, _session: Session) -> Constraints:
        if not made:
            made.append(ranges((), {}))
        return made[0]

    return constraints


class _Ranges:
    """Makes the ranges of any templates; all have one length of prefix and the same bounds."""

    def __init__(self, layout: Layout, templates: tuple[RangeTemplate, ...]) -> None:
        self._types = layout.types
        self._orderings = layout.key
        first = templates[0]
        self._lower = [(b, _getter(b.value)) for b in first.lower]
        self._upper = [(b, _getter(b.value)) for b in first.upper]
        self._prefixes = [
            [[(e, _getter(e)) for e in alternatives] for alternatives in t.prefix] for t in templates
        ]
        self._length = len(first.prefix)

    def __call__(self, params: Params, session: Session) -> Constraints:
        bounds = self._bounds(params, session)
        if bounds is MISS:
            return ()
        lower, upper = bounds
        prefixes: dict[tuple[Any, ...], tuple[PhysicalValue, ...]] = {}
        for items in self._prefixes:
            for prefix in self._product(items, params, session):
                prefixes.setdefault(tuple(map(_rank, prefix)), prefix)
        ordered = _sorted(list(prefixes.values()), self._orderings[: self._length])
        return tuple([KeyRange(p, lower, upper) for p in ordered])

    def _product(
        self, items: Sequence[Sequence[tuple[Expr, _Getter]]], params: Params, session: Session
    ) -> list[tuple[PhysicalValue, ...]]:
        found: list[tuple[PhysicalValue, ...]] = [()]
        for type_, alternatives in zip(self._types, items, strict=False):
            values: list[PhysicalValue] = []
            for expr, get in alternatives:
                if isinstance(expr, Literal) and expr.value is None:
                    values.append(None)
                    continue
                value = get(params, session)
                fitted = MISS if value is None else fit_equal(type_, expr.type, value)
                if not isinstance(fitted, Miss):
                    values.append(fitted)
            found = [(*p, v) for p in found for v in values]
        return found

    def _bounds(self, params: Params, session: Session) -> tuple[Bound | None, Bound | None] | Miss:
        if not self._lower and not self._upper:
            return None, None
        type_ = self._types[self._length]
        lower = _tightest(type_, self._lower, params, session, lower=True)
        upper = _tightest(type_, self._upper, params, session, lower=False)
        if isinstance(lower, Miss) or isinstance(upper, Miss):
            return MISS
        if lower is not None and upper is not None:
            low, high = _rank(lower.value), _rank(upper.value)
            if low > high or (low == high and not (lower.inclusive and upper.inclusive)):
                return MISS
        return lower, upper


def _tightest(
    type_: SqlType,
    bounds: Sequence[tuple[BoundTemplate, _Getter]],
    params: Params,
    session: Session,
    *,
    lower: bool,
) -> Bound | Miss | None:
    """Return the bound that holds where all of `bounds` hold; MISS where one is NULL or leaves nothing."""
    tightest: Bound | None = None
    for template, get in bounds:
        value = get(params, session)
        if value is None:
            return MISS
        bound = fit_bound(type_, template.value.type, value, template.inclusive, lower)
        if isinstance(bound, Miss):
            return MISS
        if tightest is None:
            tightest = bound
            continue
        new, old = _rank(bound.value), _rank(tightest.value)
        if new == old:
            tightest = Bound(tightest.value, tightest.inclusive and bound.inclusive)
        elif (new > old) == lower:
            tightest = bound
    return tightest


_NULL_RANK: Final = (2, 0)


def _rank(value: PhysicalValue) -> tuple[int, Any]:
    """Return a sort key in SQL order: NaN above all numbers, NULL apart."""
    if value is None:
        return _NULL_RANK
    return (1, 0.0) if value != value else (0, value)


def _sorted(
    prefixes: list[tuple[PhysicalValue, ...]], orderings: Sequence[Ordering]
) -> list[tuple[PhysicalValue, ...]]:
    if len(prefixes) < 2:
        return prefixes
    for at in range(len(orderings) - 1, -1, -1):
        ordering = orderings[at]
        nulls = [p for p in prefixes if p[at] is None]
        rest = [p for p in prefixes if p[at] is not None]
        rest.sort(key=lambda p: _rank(p[at]), reverse=ordering.descending)
        prefixes = [*nulls, *rest] if ordering.nulls_first else [*rest, *nulls]
    return prefixes
