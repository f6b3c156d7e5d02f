"""Packing: a plan made in another process as the bytes that it crosses in, few however long the statement is.

The reader of the bytes is the serving loop, to which a tree with a node for each value of a long VALUES list
would be a pass over them: a second for 100,000 rows of two. So the values go into columns first, which cross
beside the bytes, by reference where they lie in an arena; tables and indexes go by name, and become those of
the reader's own catalog.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from layby.expr.scalar import ColumnRef, Expr, Literal, Param, transform, walk
from layby.memory.arena import Arena
from layby.sql.catalog import Catalog, Index, Table
from layby.sql.instantiate import key_list
from layby.sql.parse import too_deep
from layby.sql.plan import (
    Cells,
    ColumnsSource,
    CopyPlan,
    DeletePlan,
    ExplainPlan,
    InsertPlan,
    MixedColumn,
    Plan,
    PlannedStatement,
    SelectPlan,
    UpdatePlan,
    ValuesSource,
)
from layby.types.column import Column, column_from_values
from layby.types.scalar import SqlType

_Group = tuple[Expr, SqlType | None, list[int], list[int]]


@dataclass(frozen=True, slots=True)
class PackedPlan:
    """A planned statement that can be pickled: all but its columns, and the columns."""

    data: bytes
    columns: tuple[Column, ...]

    def unpack(self, catalog: Catalog) -> PlannedStatement:
        """Return the plan, its tables those of the catalog that it was made under."""
        reader = _Unpickler(io.BytesIO(self.data), self.columns, catalog)
        return cast("PlannedStatement", reader.load())


def pack(planned: PlannedStatement, arena: Arena) -> PackedPlan:
    """Pack a plan that has not been executed yet; raises SqlError 54001 where it nests too deep for it."""
    planned = replace(planned, plan=_in_columns(planned.plan))
    out = io.BytesIO()
    writer = _Pickler(out, arena)
    try:
        writer.dump(planned)
    except RecursionError:
        raise too_deep() from None
    return PackedPlan(out.getvalue(), tuple(writer.columns))


def _in_columns(plan: Plan) -> Plan:
    """Return a plan with the rows of its VALUES list, or its many key ranges, in columns."""
    match plan:
        case SelectPlan(source=ValuesSource(rows=rows, types=types)) if types and rows:
            columns = tuple(_column(type_, [r[at] for r in rows]) for at, type_ in enumerate(types))
            return replace(plan, source=ColumnsSource(columns, types, len(rows)))
        case SelectPlan():
            return replace(plan, ranges=key_list(plan) or plan.ranges)
        case InsertPlan() | UpdatePlan() | DeletePlan():
            return replace(plan, select=cast("SelectPlan", _in_columns(plan.select)))
        case CopyPlan(select=SelectPlan() as select):
            return replace(plan, select=cast("SelectPlan", _in_columns(select)))
        case ExplainPlan(target=target) if not _shows_ranges(target):
            return replace(plan, target=_in_columns(plan.target))
    return plan


def _shows_ranges(plan: Plan) -> bool:
    """Return whether EXPLAIN of a plan tells its key ranges, as they stand in the statement."""
    select = plan if isinstance(plan, SelectPlan) else getattr(plan, "select", None)
    return isinstance(select, SelectPlan) and bool(select.ranges)


def _column(type_: SqlType, cells: Sequence[Expr]) -> Column | MixedColumn:
    """Return the cells as a column, those that are no constants by what they have in common."""
    values = [cell.value if isinstance(cell, Literal) else None for cell in cells]
    constants = column_from_values(type_, values)
    known: dict[str, _Group] = {}
    for row, cell in enumerate(cells):
        if not isinstance(cell, Literal):
            expr, param = _common(cell)
            # By their text: as Python has it, 0.0 equals -0.0, and 1 True.
            fresh: _Group = (expr, None if param is None else param.type, [], [])
            _, _, rows, numbers = known.setdefault(repr(expr), fresh)
            rows.append(row)
            numbers.append(0 if param is None else param.number)
    if not known:
        return constants
    groups = (
        Cells(expr, param, np.array(rows, np.int64), np.array(numbers, np.int64))
        for expr, param, rows, numbers in known.values()
    )
    return MixedColumn(constants, tuple(groups))


def _common(cell: Expr) -> tuple[Expr, Param | None]:
    """Return a cell with a column for its parameter, and that; as it is where it has none or several."""
    params = {node.number: node for node in walk(cell) if isinstance(node, Param)}
    if len(params) != 1:
        return cell, None
    ((_, param),) = params.items()
    value = ColumnRef(0, param.type)
    return transform(cell, lambda node: value if isinstance(node, Param) else node), param


class _Pickler(pickle.Pickler):
    """Writes columns, tables and indexes as references."""

    def __init__(self, out: io.BytesIO, arena: Arena) -> None:
        super().__init__(out, protocol=pickle.HIGHEST_PROTOCOL)
        self._arena = arena
        self.columns: list[Column] = []

    def persistent_id(self, obj: Any) -> Any:
        """Return the reference to an object, None for one that is written as it is."""
        if isinstance(obj, Column):
            self.columns.append(obj.place(self._arena))
            return len(self.columns) - 1
        if isinstance(obj, Table):
            return obj.schema, obj.name, None
        if isinstance(obj, Index):
            return obj.table_id, None, obj.id
        return None


class _Unpickler(pickle.Unpickler):
    """Resolves the references."""

    def __init__(self, data: io.BytesIO, columns: tuple[Column, ...], catalog: Catalog) -> None:
        super().__init__(data)
        self._columns = columns
        self._catalog = catalog

    def persistent_load(self, pid: Any) -> Any:
        """Return what a reference refers to."""
        if isinstance(pid, int):
            return self._columns[pid]
        first, name, index_id = pid
        if index_id is None:
            return self._catalog.tables[first, name]
        table = next(t for t in self._catalog.tables.values() if t.id == first)
        return next(i for i in table.indexes if i.id == index_id)
