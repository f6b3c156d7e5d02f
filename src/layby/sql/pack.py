"""Packing: a plan made in another process as the bytes that it crosses in, few however long the statement is.

The reader of the bytes is the serving loop, to which a tree with a node for each value of a long VALUES list
would be a pass over them: a second for 100,000 rows of two. So the values go into columns first, which cross
beside the bytes, by reference where they lie in an arena; expressions that are not evaluated on the loop stay
packed there; tables and indexes go by name, and become those of the reader's own catalog.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np

from layby.errors import SqlError
from layby.expr.mfp import Mfp
from layby.expr.packed import pack as pack_mfp
from layby.expr.scalar import ColumnRef, Expr, Literal, Param, transform, walk
from layby.memory.arena import Arena
from layby.sql.apart import pack_recipe
from layby.sql.catalog import Catalog, Index, Table
from layby.sql.explain import explain
from layby.sql.instantiate import key_list, recipe
from layby.sql.params import MANY
from layby.sql.parse import too_deep
from layby.sql.plan import (
    Cells,
    ColumnsSource,
    CopyPlan,
    DeletePlan,
    ExplainPlan,
    InsertPlan,
    MixedColumn,
    PackedRecipe,
    Plan,
    PlannedStatement,
    SelectPlan,
    SeriesSource,
    UpdatePlan,
    ValuesSource,
    is_wide,
)
from layby.types.column import Column, column_from_values
from layby.types.relation import WIDE, ColumnDesc
from layby.types.scalar import SqlType
from layby.types.type_list import TypeList

_LARGE: Final = 1 << 15
"""Bytes of an MFP from which on it stays packed: an IN list of some 8,000 numbers takes 1 ms to compile."""

_LARGE_PLAN: Final = 1 << 18
"""Bytes of a plan from which on all that depends on values stays packed: some constant of it is large."""

_LARGEST_PLAN: Final = 1 << 20
"""Bytes that a plan may have apart from that: 0.5 ms and more to unpack on the serving loop."""

_LONGEST_LINE: Final = 1 << 15
"""Characters that are shown of a line of EXPLAIN, where the plan is packed."""

_RESULT: Final = -1
"""The reference to the columns of the result; others count from 0."""

_Group = tuple[Expr, SqlType | None, list[int], list[int]]


@dataclass(frozen=True, slots=True)
class PackedPlan:
    """A planned statement that can be pickled: all but its columns, its recipe and its result, and these.

    Of the result's columns there are the names, the types and so on, each together: to take as many objects
    out of a pickle costs four times as much as to make them.
    """

    data: bytes
    columns: tuple[Column | PackedRecipe, ...]
    result: tuple[tuple[Any, ...], ...]

    def unpack(self, catalog: Catalog) -> PlannedStatement:
        """Return the plan, its tables those of the catalog that it was made under."""
        result = tuple(map(ColumnDesc, *self.result)) if self.result else ()
        reader = _Unpickler(io.BytesIO(self.data), self.columns, result, catalog)
        return cast("PlannedStatement", reader.load())


def pack(planned: PlannedStatement, arena: Arena) -> PackedPlan:
    """Pack a plan that has not been executed yet.

    Raises SqlError 54001 where it nests too deep for it, and 54000 where it is DDL or a setting that is too
    large for the serving loop to hold.
    """
    columns = planned.columns or ()
    many = len(planned.params) > MANY
    if many:
        planned = replace(planned, params=TypeList.of(planned.params))
    try:
        data, apart = _packed(planned, columns, arena, many=many)
        if len(data) > _LARGE_PLAN and not many:
            data, apart = _packed(planned, columns, arena, many=True)
    except RecursionError:
        raise too_deep() from None
    if len(data) > _LARGEST_PLAN:
        detail = f"Its plan has {len(data)} bytes, and {_LARGEST_PLAN} are the most."
        raise SqlError("54000", "statement is too large", detail=detail)
    result = tuple(zip(*((c.name, c.type, c.nullable, c.max_length) for c in columns), strict=True))
    return PackedPlan(data, apart, result)


def _packed(
    planned: PlannedStatement, columns: tuple[ColumnDesc, ...], arena: Arena, *, many: bool
) -> tuple[bytes, tuple[Column | PackedRecipe, ...]]:
    out = io.BytesIO()
    writer = _Pickler(out, arena, columns)
    writer.dump(replace(planned, plan=_Compactor(arena, many=many).compact(planned.plan)))
    return out.getvalue(), tuple(writer.columns)


class _Compactor:
    """Makes plans as the loop can hold them: many values in columns, many expressions as bytes.

    Where there are `many` parameters, or large constants, or cells of a VALUES list to be evaluated, or many
    columns of it, all that depends on values becomes bytes.
    """

    def __init__(self, arena: Arena, *, many: bool) -> None:
        self._arena = arena
        self._many = many

    def compact(self, plan: Plan) -> Plan:
        match plan:
            case SelectPlan():
                return self._select(plan, encoded=True)
            case InsertPlan() | UpdatePlan() | DeletePlan():
                return replace(plan, select=replace(self._select(plan.select, encoded=False), columns=()))
            case CopyPlan(select=SelectPlan() as select):
                return replace(plan, select=self._select(select, encoded=True))
            case ExplainPlan(target=target) if target is not None:
                lines = tuple(_line(line) for line in explain(target))
                return replace(plan, target=self.compact(target) if plan.analyze else None, lines=lines)
        return plan

    def _select(self, plan: SelectPlan, *, encoded: bool) -> SelectPlan:
        source, packs = plan.source, plan.is_heavy or is_wide(plan, encoded=encoded)
        varies = self._many
        if isinstance(source, ValuesSource) and source.types and source.rows:
            columns = [_column(type_, [r[at] for r in source.rows]) for at, type_ in enumerate(source.types)]
            varies = varies or len(columns) > WIDE or any(isinstance(c, MixedColumn) for c in columns)
            plan = replace(plan, source=ColumnsSource(tuple(columns), source.types, len(source.rows)))
        else:
            plan = replace(plan, ranges=key_list(plan) or plan.ranges)
        if varies:
            return self._without_values(plan, packs=packs)
        if isinstance(plan.mfp, Mfp):
            packed = pack_mfp(plan.mfp)
            if packs or len(packed.data) > _LARGE:
                return replace(plan, mfp=packed)
        return plan

    def _without_values(self, plan: SelectPlan, *, packs: bool) -> SelectPlan:
        """Return a plan that has what depends on values as bytes."""
        source = plan.source
        if isinstance(source, ColumnsSource):
            source = replace(source, columns=())
        elif isinstance(source, SeriesSource):
            nothing = Literal(None, source.type)
            source = SeriesSource(nothing, nothing, nothing, source.type)
        return replace(
            plan,
            source=source,
            ranges=None,
            mfp=Mfp(0, (), ()),
            limit=None,
            offset=None,
            recipe=pack_recipe(recipe(plan), self._arena, packs=packs),
        )


def _line(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..."


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
    """Writes columns, recipes, the result's columns, tables and indexes as references."""

    def __init__(self, out: io.BytesIO, arena: Arena, result: tuple[ColumnDesc, ...]) -> None:
        super().__init__(out, protocol=pickle.HIGHEST_PROTOCOL)
        self._arena = arena
        self._result = result
        self.columns: list[Column | PackedRecipe] = []

    def persistent_id(self, obj: Any) -> Any:
        """Return the reference to an object, None for one that is written as it is."""
        if obj is self._result:
            return _RESULT
        if isinstance(obj, Column | PackedRecipe):
            self.columns.append(obj.place(self._arena) if isinstance(obj, Column) else obj)
            return len(self.columns) - 1
        if isinstance(obj, Table):
            return obj.schema, obj.name, None
        if isinstance(obj, Index):
            return obj.table_id, None, obj.id
        return None


class _Unpickler(pickle.Unpickler):
    """Resolves the references."""

    def __init__(
        self,
        data: io.BytesIO,
        columns: tuple[Column | PackedRecipe, ...],
        result: tuple[ColumnDesc, ...],
        catalog: Catalog,
    ) -> None:
        super().__init__(data)
        self._columns = columns
        self._result = result
        self._catalog = catalog

    def persistent_load(self, pid: Any) -> Any:
        """Return what a reference refers to."""
        if isinstance(pid, int):
            return self._result if pid == _RESULT else self._columns[pid]
        first, name, index_id = pid
        if index_id is None:
            return self._catalog.table(name, first)
        table = self._catalog.table_by_id(first)
        assert table is not None
        return next(i for i in table.indexes if i.id == index_id)
