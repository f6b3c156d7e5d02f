"""EXPLAIN: what a plan does, in lines a person reads.

The first line names the operation and what it reads; the indented ones below it the key ranges sought, the
filter, the order and the limit, each left out where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

from layby.expr.scalar import Expr, Literal
from layby.sql.catalog import Index
from layby.sql.plan import (
    BoundTemplate,
    ColumnsSource,
    CopyPlan,
    DeletePlan,
    ExplainPlan,
    InsertPlan,
    Plan,
    RangeTemplate,
    SelectPlan,
    SeriesSource,
    TableSource,
    UpdatePlan,
    ValuesSource,
)
from layby.sql.render import ordering_text, sql_text

_ROWS_SHOWN = 10
"""Key prefixes of a multi-column IN that are written out."""


def explain(plan: Plan) -> list[str]:
    """Describe a plan, one line an item of the list."""
    match plan:
        case SelectPlan():
            return _select(plan)
        case InsertPlan(table=table, select=select):
            return [f"Insert on {table.name}", *_below(select)]
        case UpdatePlan(table=table, select=select):
            return [f"Update on {table.name}", *_below(select)]
        case DeletePlan(table=table, select=select):
            return [f"Delete on {table.name}", *_below(select)]
        case CopyPlan(select=SelectPlan() as select):
            return ["Copy", *_below(select)]
        case ExplainPlan(lines=lines) if lines is not None:
            return list(lines)
        case ExplainPlan(target=target) if target is not None:
            return explain(target)
        case _:
            return ["Utility Statement"]


def _below(select: SelectPlan) -> list[str]:
    first, *rest = _select(select)
    return [f"  ->  {first}", *(f"      {line}" for line in rest)]


def _select(plan: SelectPlan) -> list[str]:
    names = _input_names(plan)
    lines = [_operation(plan)]
    source = plan.source
    if (
        isinstance(plan.ranges, tuple)
        and plan.ranges
        and isinstance(source, TableSource)
        and source.index is not None
    ):
        lines.append(f"  Key: {_ranges_text(source.index, plan.ranges, names)}")
    if plan.mfp.filters:
        filters = [sql_text(p, names) for p in plan.mfp.predicates]
        lines.append(f"  Filter: {filters[0] if len(filters) == 1 else '(' + ' AND '.join(filters) + ')'}")
    if plan.order_by:
        lines.append(f"  Order: {_order_text(plan, names)}")
    if plan.limit is not None:
        lines.append(f"  Limit: {sql_text(plan.limit, names)}")
    if plan.offset is not None:
        lines.append(f"  Offset: {sql_text(plan.offset, names)}")
    return lines


def _operation(plan: SelectPlan) -> str:
    match plan.source:
        case TableSource(table=table, index=index):
            if index is None:
                return f"Walk of table {table.name}"
            if plan.ranges == ():
                return f"Nothing from {table.name}"
            verb = "Walk of" if plan.ranges is None else "Peek at"
            return f"{verb} index {index.name} on {table.name}"
        case ValuesSource(rows=rows, types=types):
            return f"Values: {len(rows)} rows" if types else "Result"
        case ColumnsSource(count=count):
            return f"Values: {count} rows"
        case SeriesSource(start=start, stop=stop, step=step):
            args = ", ".join(sql_text(e, ()) for e in (start, stop, step))
            return f"Series from generate_series({args})"


def _input_names(plan: SelectPlan) -> Sequence[str]:
    match plan.source:
        case TableSource(table=table, index=None):
            return table.desc.names
        case TableSource(table=table, index=Index(stored=stored)):
            return tuple(sql_text(e, table.desc.names) for e in stored)
        case ValuesSource(types=types) | ColumnsSource(types=types):
            return tuple(f"column{i + 1}" for i in range(len(types)))
        case _:
            return ("generate_series",)


def _ranges_text(index: Index, templates: tuple[RangeTemplate, ...], names: Sequence[str]) -> str:
    keys = names[: len(index.keys)]
    first = templates[0]
    if len(templates) == 1:
        parts = [_alternatives(keys[i], item) for i, item in enumerate(first.prefix)]
    else:
        width = len(first.prefix)
        rows = [", ".join(sql_text(item[0], ()) for item in t.prefix) for t in templates[:_ROWS_SHOWN]]
        more = f", ... {len(templates) - _ROWS_SHOWN} more" if len(templates) > _ROWS_SHOWN else ""
        parts = [f"(({', '.join(keys[:width])}) IN ({', '.join(f'({r})' for r in rows)}{more}))"]
    if first.lower or first.upper:
        key = keys[len(first.prefix)]
        parts += [_bound(key, ">", b) for b in first.lower]
        parts += [_bound(key, "<", b) for b in first.upper]
    return " AND ".join(parts)


def _alternatives(key: str, values: tuple[Expr, ...]) -> str:
    nulls = [v for v in values if isinstance(v, Literal) and v.value is None]
    rest = [v for v in values if v not in nulls]
    parts = []
    if len(rest) == 1:
        parts.append(f"{key} = {sql_text(rest[0], ())}")
    elif rest:
        parts.append(
            f"{key} IN ({', '.join(sql_text(v, ()) for v in rest[:20])}{', ...' * (len(rest) > 20)})"
        )
    if nulls:
        parts.append(f"{key} IS NULL")
    if not parts:
        return f"({key} = NULL)"
    return f"({' OR '.join(parts)})"


def _bound(key: str, symbol: str, bound: BoundTemplate) -> str:
    return f"({key} {symbol}{'=' * bound.inclusive} {sql_text(bound.value, ())})"


def _order_text(plan: SelectPlan, names: Sequence[str]) -> str:
    items = [ordering_text(sql_text(plan.mfp.outputs[k.column], names), k.ordering) for k in plan.order_by]
    how = {"forward": "from the index", "reverse": "from the index, walked in reverse"}
    if isinstance(plan.source, SeriesSource) and plan.order is not None:
        return f"{', '.join(items)} (as generated)"
    return f"{', '.join(items)} ({how.get(plan.order or '', 'sorted')})"
