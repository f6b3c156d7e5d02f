"""INSERT, UPDATE and DELETE: selects whose columns are the rows to write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from layby.expr.fold import fold
from layby.expr.scalar import ColumnRef, Expr, Literal
from layby.sql.bind import Binder, constant
from layby.sql.catalog import Table
from layby.sql.coerce import assign
from layby.sql.context import BindContext, Bound, null
from layby.sql.lower import everything, lower
from layby.sql.parse import Node
from layby.sql.plan import DeletePlan, InsertPlan, SelectPlan, TableSource, UpdatePlan, ValuesSource
from layby.sql.relation import find_table, table_scope
from layby.sql.scope import Scope
from layby.sql.select import BoundSelect, Target, bind_select
from layby.types.relation import ColumnDesc
from layby.types.scalar import BIGINT, INTEGER, TEXT


def plan_insert(context: BindContext, node: Node) -> InsertPlan:
    """Plan an INSERT; the select puts out the table's columns, defaults filled in."""
    if node.HasField("with_clause"):
        raise context.unsupported("WITH is", node.with_clause.location)
    if node.HasField("on_conflict_clause"):
        raise context.unsupported("ON CONFLICT is", node.on_conflict_clause.location)
    _refuse_returning(context, node)
    table = find_table(context, node.relation, write=True)
    columns, places = _insert_columns(context, table, node.cols)
    if not node.HasField("select_stmt"):
        rows: tuple[tuple[Expr, ...], ...] = (
            tuple(_default(table, i) for i in range(len(table.desc.columns))),
        )
        return InsertPlan(table, _values_plan(table, rows))
    select = node.select_stmt.select_stmt
    plain = not (
        select.HasField("with_clause")
        or select.sort_clause
        or select.HasField("limit_count")
        or select.HasField("limit_offset")
    )
    explicit = bool(node.cols)
    if select.values_lists and plain:
        made = _rows(context, table, columns, places, explicit, select.values_lists)
        return InsertPlan(table, _values_plan(table, made))
    bound = bind_select(context, select, resolve=False)
    wanted = _matched(context, columns, places, explicit, [t.bound for t in bound.targets])
    targets = []
    given = dict(zip(wanted, bound.targets, strict=True))
    for i, column in enumerate(table.desc.columns):
        if i in given:
            value = assign(context, given[i].bound, column.type, column.name)
        else:
            value = Bound(_default(table, i), -1)
        targets.append(Target(column.name, value))
    return InsertPlan(table, lower(replace(bound, targets=tuple(targets))))


def _values_plan(table: Table, rows: tuple[tuple[Expr, ...], ...]) -> SelectPlan:
    return everything(ValuesSource(rows, table.desc.types), table.desc.columns)


def _refuse_returning(context: BindContext, node: Node) -> None:
    # The grammar of PostgreSQL 18 has a clause for RETURNING, those before it a list.
    clause = "returning_clause" if "returning_clause" in node.DESCRIPTOR.fields_by_name else "returning_list"
    present = node.HasField(clause) if clause == "returning_clause" else len(node.returning_list) > 0
    if present:
        raise context.unsupported("RETURNING is")


def _default(table: Table, column: int) -> Expr:
    default = table.defaults[column]
    return null(table.desc.columns[column].type) if default is None else default


class _ColumnNumbers:
    """The numbers of a table's columns by their names."""

    def __init__(self, context: BindContext, table: Table) -> None:
        self._context = context
        self._table = table.name
        self._numbers = {column.name: i for i, column in enumerate(table.desc.columns)}

    def of(self, name: str, location: int) -> int:
        """Return a column's number; raises 42703."""
        number = self._numbers.get(name)
        if number is None:
            raise self._context.error(
                "42703", f'column "{name}" of relation "{self._table}" does not exist', location
            )
        return number


def _insert_columns(context: BindContext, table: Table, nodes: Sequence[Node]) -> tuple[list[int], list[int]]:
    """Return the numbers of the columns that are given, and where they were named."""
    if not nodes:
        count = len(table.desc.columns)
        return list(range(count)), [-1] * count
    numbers = _ColumnNumbers(context, table)
    places: dict[int, int] = {}
    for node in nodes:
        target = node.res_target
        if target.indirection:
            raise context.unsupported("assignment to a part of a column is", target.location)
        number = numbers.of(target.name, target.location)
        if number in places:
            raise context.error("42701", f'column "{target.name}" specified more than once', target.location)
        places[number] = target.location
    return list(places), list(places.values())


def _matched(
    context: BindContext, columns: list[int], places: list[int], explicit: bool, values: Sequence[Bound]
) -> list[int]:
    """Return the columns that the values go to; raises 42601 where their numbers differ."""
    if len(values) > len(columns):
        raise context.error(
            "42601", "INSERT has more expressions than target columns", values[len(columns)].location
        )
    if explicit and len(values) < len(columns):
        raise context.error("42601", "INSERT has more target columns than expressions", places[len(values)])
    return columns[: len(values)]


def _rows(
    context: BindContext,
    table: Table,
    columns: list[int],
    places: list[int],
    explicit: bool,
    lists: Sequence[Node],
) -> tuple[tuple[Expr, ...], ...]:
    """Bind rows of VALUES, each cell to the type of its column; about 1.5 µs a literal."""
    binder = Binder(context, Scope())
    desc = table.desc.columns
    width = len(lists[0].list.items)
    defaults = [_default(table, i) for i in range(len(desc))]
    rows: list[tuple[Expr, ...]] = []
    for row in lists:
        items = row.list.items
        if len(items) != width:
            at = _location(items[0]) if items else -1
            raise context.error("42601", "VALUES lists must all be the same length", at)
        if len(items) != len(columns):
            places_of = [Bound(null(desc[0].type), _location(i)) for i in items]
            _matched(context, columns, places, explicit, places_of)
        cells = list(defaults)
        for number, item in zip(columns, items, strict=False):
            column = desc[number]
            kind = item.WhichOneof("node")
            if kind == "a_const":
                cells[number] = _literal(context, item.a_const, column)
            elif kind != "set_to_default":
                bound = assign(context, binder.bind(item), column.type, column.name)
                cells[number] = bound.expr if isinstance(bound.expr, Literal) else fold(bound.expr)
        rows.append(tuple(cells))
    return tuple(rows)


def _literal(context: BindContext, node: Node, column: ColumnDesc) -> Expr:
    """Bind a constant to a column; the two commonest kinds take the short way."""
    kind = node.WhichOneof("val")
    type_ = column.type
    if kind == "ival" and (type_ is INTEGER or type_ is BIGINT):
        return Literal(node.ival.ival, type_)
    if kind == "sval" and type_ is TEXT:
        return Literal(node.sval.sval, type_)
    return assign(context, Bound(constant(context, node), node.location), type_, column.name).expr


def _location(node: Node) -> int:
    kind = node.WhichOneof("node")
    location: int = getattr(getattr(node, kind), "location", -1)
    return location


def plan_delete(context: BindContext, node: Node) -> DeletePlan:
    """Plan a DELETE; the select puts out the rows that go."""
    if node.HasField("with_clause"):
        raise context.unsupported("WITH is", node.with_clause.location)
    if node.using_clause:
        raise context.unsupported("USING is")
    _refuse_returning(context, node)
    table, scope = _written(context, node)
    binder = Binder(context, scope)
    return DeletePlan(
        table, lower(BoundSelect(TableSource(table, None), _where(binder, node), _stored(table)))
    )


def _written(context: BindContext, node: Node) -> tuple[Table, Scope]:
    table = find_table(context, node.relation, write=True)
    alias = node.relation.alias.aliasname if node.relation.HasField("alias") else ""
    return table, table_scope(table, alias)


def _where(binder: Binder, node: Node) -> Expr | None:
    return binder.boolean(node.where_clause, "WHERE").expr if node.HasField("where_clause") else None


def _stored(table: Table) -> tuple[Target, ...]:
    return tuple(Target(c.name, Bound(ColumnRef(i, c.type), -1)) for i, c in enumerate(table.desc.columns))


def plan_update(context: BindContext, node: Node) -> UpdatePlan:
    """Plan an UPDATE; the select puts out the rows as they are, then as they will be."""
    if node.HasField("with_clause"):
        raise context.unsupported("WITH is", node.with_clause.location)
    if node.from_clause:
        raise context.unsupported("UPDATE FROM is")
    _refuse_returning(context, node)
    table, scope = _written(context, node)
    binder = Binder(context, scope)
    desc = table.desc.columns
    numbers = _ColumnNumbers(context, table)
    values: dict[int, Expr] = {}
    for item in node.target_list:
        target = item.res_target
        if target.indirection:
            raise context.unsupported("assignment to a part of a column is", target.location)
        number = numbers.of(target.name, target.location)
        if number in values:
            raise context.error("42601", f'multiple assignments to same column "{target.name}"')
        source = _assigned(context, target.val)
        if source.WhichOneof("node") == "set_to_default":
            values[number] = _default(table, number)
        else:
            made = assign(context, binder.bind(source), desc[number].type, target.name)
            values[number] = made.expr
    new = tuple(Target(c.name, Bound(values.get(i, ColumnRef(i, c.type)), -1)) for i, c in enumerate(desc))
    bound = BoundSelect(TableSource(table, None), _where(binder, node), (*_stored(table), *new))
    return UpdatePlan(table, lower(bound))


def _assigned(context: BindContext, node: Node) -> Node:
    """Return the expression that one column of `(a, b) = (1, 2)` is set to."""
    if node.WhichOneof("node") != "multi_assign_ref":
        return node
    reference = node.multi_assign_ref
    source = reference.source
    if source.WhichOneof("node") != "row_expr":
        raise context.unsupported("multiple assignment from a subquery is")
    items = source.row_expr.args
    if len(items) != reference.ncolumns:
        raise context.error(
            "42601", "number of columns does not match number of values", source.row_expr.location
        )
    return items[reference.colno - 1]


def select_of_table(table: Table, columns: Sequence[int]) -> SelectPlan:
    """Plan the read of a table's columns, in the order given."""
    desc = table.desc.columns
    targets = tuple(Target(desc[i].name, Bound(ColumnRef(i, desc[i].type), -1)) for i in columns)
    return lower(BoundSelect(TableSource(table, None), None, targets))
