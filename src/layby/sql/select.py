"""SELECT and VALUES: from the parse tree to a bound select, before a way to read is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from postgast import pg_query_pb2 as pb

from layby.expr.scalar import ColumnRef, Expr
from layby.sql.bind import Binder
from layby.sql.calls import bind_signal
from layby.sql.coerce import require, resolve_unknown, to_common
from layby.sql.context import BindContext, Bound
from layby.sql.names import column_name
from layby.sql.parse import Node
from layby.sql.plan import Source, ValuesSource
from layby.sql.relation import Relation, bind_function, bind_table, rename
from layby.sql.scope import Scope
from layby.types.ordering import ASCENDING, DESCENDING, Ordering
from layby.types.scalar import BIGINT, BOOLEAN, SqlType

_TARGET_LIMIT: Final = 1_664
"""Result columns of a statement, as in PostgreSQL."""

NO_ROWS_NEEDED: Final = ValuesSource(((),), ())
"""What a SELECT without FROM reads: one row of no columns."""


@dataclass(frozen=True, slots=True)
class Target:
    """A result column. With `signal` ("cancel", "terminate") its expression is the process id to act on."""

    name: str
    bound: Bound
    signal: str | None = None

    @property
    def type(self) -> SqlType:
        """The type that the client sees."""
        return self.bound.type if self.signal is None else BOOLEAN


@dataclass(frozen=True, slots=True)
class BoundSelect:
    """A select whose expressions are bound to its source's columns."""

    source: Source
    where: Expr | None
    targets: tuple[Target, ...]
    order: tuple[tuple[Expr, Ordering], ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None


def bind_select(
    context: BindContext, node: Node, *, resolve: bool = True, signals: bool = False
) -> BoundSelect:
    """Bind a SelectStmt. With `resolve` off, result columns may be left UNKNOWN (for INSERT).

    `signals` allows pg_cancel_backend and its like as result columns.
    Raises 0A000, naming the clause, for what layby has not.
    """
    _refuse_unsupported(context, node)
    if node.values_lists:
        relation = bind_values(context, node.values_lists)
    elif not node.from_clause:
        relation = Relation(NO_ROWS_NEEDED, Scope())
    elif len(node.from_clause) > 1:
        raise context.unsupported("joins are")
    else:
        relation = _from_item(context, node.from_clause[0])
    binder = Binder(context, relation.scope)
    if node.values_lists:
        scope = relation.scope
        targets = [Target(n, Bound(ColumnRef(i, scope.types[i]), -1)) for i, n in enumerate(scope.names)]
    else:
        targets = _targets(binder, node.target_list, signals=signals)
    if len(targets) > _TARGET_LIMIT:
        raise context.error("54011", f"target lists can have at most {_TARGET_LIMIT} entries")
    where = binder.boolean(node.where_clause, "WHERE").expr if node.HasField("where_clause") else None
    order = _order(binder, node.sort_clause, targets)
    if resolve:
        targets = [replace(t, bound=resolve_unknown(context, t.bound)) for t in targets]
    limit = _count(context, node.limit_count, "LIMIT") if node.HasField("limit_count") else None
    offset = _count(context, node.limit_offset, "OFFSET") if node.HasField("limit_offset") else None
    return BoundSelect(relation.source, where, tuple(targets), order, limit, offset)


def _refuse_unsupported(context: BindContext, node: Node) -> None:
    if node.HasField("with_clause"):
        raise context.unsupported("WITH is", node.with_clause.location)
    if node.op != pb.SETOP_NONE:
        name = {pb.SETOP_UNION: "UNION", pb.SETOP_INTERSECT: "INTERSECT"}.get(node.op, "EXCEPT")
        raise context.unsupported(f"{name} is")
    if node.HasField("into_clause"):
        raise context.unsupported("SELECT INTO is")
    if node.distinct_clause:
        raise context.unsupported("DISTINCT is")
    if node.group_clause:
        raise context.unsupported("GROUP BY is")
    if node.HasField("having_clause"):
        raise context.unsupported("HAVING is")
    if node.window_clause:
        raise context.unsupported("window functions are")
    if node.locking_clause:
        raise context.unsupported("FOR UPDATE and FOR SHARE are")
    if node.limit_option == pb.LIMIT_OPTION_WITH_TIES:
        raise context.unsupported("WITH TIES is")


def _from_item(context: BindContext, node: Node) -> Relation:
    kind = node.WhichOneof("node")
    if kind == "range_var":
        return bind_table(context, node.range_var)
    if kind == "range_function":
        return bind_function(context, node.range_function)
    if kind == "range_subselect":
        inner = node.range_subselect.subquery.select_stmt
        plain = not (inner.sort_clause or inner.HasField("limit_count") or inner.HasField("limit_offset"))
        if inner.values_lists and plain and not node.range_subselect.lateral:
            relation = bind_values(context, inner.values_lists)
            return rename(context, relation, node.range_subselect.alias)
        raise context.unsupported("subqueries in FROM are")
    if kind == "join_expr":
        raise context.unsupported("joins are")
    raise context.unsupported(f"{kind.replace('_', ' ')} in FROM is")


def bind_values(context: BindContext, lists: Sequence[Node]) -> Relation:
    """Bind VALUES rows; each column's cells are brought to one type, its name is `columnN`."""
    binder = Binder(context, Scope())
    rows = [[binder.bind(n) for n in row.list.items] for row in lists]
    width = len(rows[0])
    for row in rows:
        if len(row) != width:
            at = row[0].location if row else -1
            raise context.error("42601", "VALUES lists must all be the same length", at)
    types: list[SqlType] = []
    columns: list[list[Expr]] = []
    for i in range(width):
        made, type_ = to_common(context, [row[i] for row in rows], "VALUES")
        types.append(type_)
        columns.append([b.expr for b in made])
    names = tuple(f"column{i + 1}" for i in range(width))
    source = ValuesSource(tuple(zip(*columns, strict=True)), tuple(types))
    return Relation(source, Scope("*VALUES*", names, tuple(types)))


def _targets(binder: Binder, nodes: Sequence[Node], *, signals: bool) -> list[Target]:
    targets: list[Target] = []
    for node in nodes:
        target = node.res_target
        value = target.val
        if value.WhichOneof("node") == "column_ref":
            last = value.column_ref.fields[-1]
            if last.WhichOneof("node") == "a_star":
                targets += _star(binder, value.column_ref)
                continue
        signal = bind_signal(binder, value) if signals else None
        name = target.name or column_name(value)
        targets.append(Target(name, binder.bind(value)) if signal is None else Target(name, *signal))
    return targets


def _star(binder: Binder, node: Node) -> list[Target]:
    scope, context = binder.scope, binder.context
    if len(node.fields) > 1:
        scope.check_relation(context, [f.string.sval for f in node.fields[:-1]], node.location)
    elif scope.relation is None:
        raise context.error("42601", "SELECT * with no tables specified is not valid", node.location)
    return [
        Target(name, Bound(ColumnRef(i, scope.types[i]), node.location)) for i, name in enumerate(scope.names)
    ]


def _order(binder: Binder, nodes: Sequence[Node], targets: list[Target]) -> tuple[tuple[Expr, Ordering], ...]:
    order: dict[Expr, Ordering] = {}
    places: dict[str, list[int]] = {}
    if nodes:
        for at, target in enumerate(targets):
            places.setdefault(target.name, []).append(at)
    for node in nodes:
        item = node.sort_by
        expr = _order_item(binder, item.node, targets, places)
        if expr not in order:
            order[expr] = ordering(binder.context, item.sortby_dir, item.sortby_nulls)
    return tuple(order.items())


def ordering(context: BindContext, direction: int, nulls: int) -> Ordering:
    """Return the ordering that ASC or DESC and NULLS FIRST or LAST come to."""
    if direction == pb.SORTBY_USING:
        raise context.unsupported("ORDER BY USING is")
    base = DESCENDING if direction == pb.SORTBY_DESC else ASCENDING
    if nulls == pb.SORTBY_NULLS_DEFAULT:
        return base
    return replace(base, nulls_first=nulls == pb.SORTBY_NULLS_FIRST)


def _order_item(
    binder: Binder, node: Node, targets: list[Target], places: Mapping[str, Sequence[int]]
) -> Expr:
    """Resolve one item: an output column by name or number before any expression over the input.

    `places` are those of the output columns by their names.
    """
    context = binder.context
    kind = node.WhichOneof("node")
    if kind == "a_const":
        constant = node.a_const
        if constant.WhichOneof("val") != "ival":
            raise context.error("42601", "non-integer constant in ORDER BY", constant.location)
        number = constant.ival.ival
        if not 1 <= number <= len(targets):
            raise context.error(
                "42P10", f"ORDER BY position {number} is not in select list", constant.location
            )
        return _resolved(context, targets, number - 1)
    if kind == "column_ref" and len(node.column_ref.fields) == 1:
        field = node.column_ref.fields[0]
        name = field.string.sval if field.WhichOneof("node") == "string" else ""
        found = places.get(name)
        if found:
            first = targets[found[0]].bound.expr
            if any(targets[i].bound.expr != first for i in found):
                raise context.error("42702", f'ORDER BY "{name}" is ambiguous', node.column_ref.location)
            return _resolved(context, targets, found[0])
    return binder.value(node).expr


def _resolved(context: BindContext, targets: list[Target], at: int) -> Expr:
    if targets[at].signal is not None:
        raise context.unsupported(f"ORDER BY {targets[at].name} is", targets[at].bound.location)
    targets[at] = replace(targets[at], bound=resolve_unknown(context, targets[at].bound))
    return targets[at].bound.expr


def _count(context: BindContext, node: Node, clause: str) -> Expr:
    binder = Binder(
        context,
        Scope(),
        lambda at: context.error("42P10", f"argument of {clause} must not contain variables", at),
    )
    return require(context, binder.bind(node), BIGINT, clause).expr
