"""Relations in FROM: tables, and functions that return rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from layby.expr.scalar import Expr, Literal
from layby.sql.bind import Binder
from layby.sql.catalog import Table
from layby.sql.coerce import coerce
from layby.sql.context import BindContext
from layby.sql.overload import ambiguous_function, no_function
from layby.sql.parse import Node
from layby.sql.plan import SeriesSource, Source, TableSource, ValuesSource
from layby.sql.scope import Scope
from layby.types.scalar import BIGINT, INTEGER, INTEGRAL, UNKNOWN


@dataclass(frozen=True, slots=True)
class Relation:
    """A source, and the names of its columns."""

    source: Source
    scope: Scope


_COLUMN_EFFORT = 32
"""What a column of a table costs a statement's planning, whether it is named or not: a statement on a table
of more than `WIDE` is planned apart."""


def find_table(context: BindContext, node: Node, *, write: bool = False) -> Table:
    """Find the table that a RangeVar names; raises 42P01, or 42501 for a system relation to be written."""
    if node.catalogname:
        path = f"{node.catalogname}.{node.schemaname}.{node.relname}"
        raise context.error(
            "0A000", f'cross-database references are not implemented: "{path}"', node.location
        )
    table = context.catalog.table(node.relname, node.schemaname or None)
    if table is None:
        shown = f"{node.schemaname}.{node.relname}" if node.schemaname else node.relname
        raise context.error("42P01", f'relation "{shown}" does not exist', node.location)
    if write and table.rows is not None:
        raise context.error("42501", f'permission denied: "{table.name}" is a system catalog')
    context.spend(_COLUMN_EFFORT * len(table.desc.columns))
    return table


def table_scope(table: Table, alias: str) -> Scope:
    """Return the scope of a table, under an alias where one is given."""
    desc = table.desc
    if alias and alias != table.name:
        return Scope(alias, desc.names, desc.types, hidden=table.name)
    return Scope(table.name, desc.names, desc.types, schema=None if alias else table.schema)


def bind_table(context: BindContext, node: Node) -> Relation:
    """Bind a RangeVar in FROM."""
    table = find_table(context, node)
    relation = Relation(TableSource(table, None), table_scope(table, ""))
    return rename(context, relation, node.alias) if node.HasField("alias") else relation


def rename(context: BindContext, relation: Relation, alias: Node) -> Relation:
    """Give a relation its alias, and its first columns theirs; raises 42P10 for too many."""
    scope = relation.scope
    given = tuple(n.string.sval for n in alias.colnames)
    name = alias.aliasname or scope.relation
    if len(given) > len(scope.names):
        raise context.error(
            "42P10",
            f'table "{name}" has {len(scope.names)} columns available but {len(given)} columns specified',
        )
    names = (*given, *scope.names[len(given) :])
    if scope.scalar and alias.aliasname and not given:
        names = (alias.aliasname,)
    hidden = scope.relation if scope.relation != name and not scope.scalar else None
    return Relation(relation.source, replace(scope, relation=name, names=names, hidden=hidden, schema=None))


def bind_function(context: BindContext, node: Node) -> Relation:
    """Bind a function in FROM: generate_series, or a scalar function as one row of one column."""
    if node.lateral or node.ordinality or node.is_rowsfrom or node.coldeflist or len(node.functions) != 1:
        raise context.unsupported("LATERAL, ROWS FROM, WITH ORDINALITY and column definitions are")
    call = node.functions[0].list.items[0]
    binder = Binder(context, Scope())
    kind = call.WhichOneof("node")
    source: Source
    if kind == "func_call" and call.func_call.funcname[-1].string.sval == "generate_series":
        name = "generate_series"
        source = _series(binder, call.func_call)
        types = (source.type,)
    else:
        name = call.func_call.funcname[-1].string.sval if kind == "func_call" else kind
        bound = binder.value(call)
        types = (bound.type,)
        source = ValuesSource(((bound.expr,),), types)
    relation = Relation(source, Scope(name, (name,), types, scalar=True))
    return rename(context, relation, node.alias) if node.HasField("alias") else relation


def _series(binder: Binder, node: Node) -> SeriesSource:
    context = binder.context
    args = [binder.bind(a) for a in node.args]
    kinds = {a.type for a in args}
    if len(args) not in (2, 3) or not kinds <= INTEGRAL | {UNKNOWN}:
        if any(t.category == "D" for t in kinds):
            raise context.unsupported("generate_series of dates and timestamps is", node.location)
        raise no_function(context, "generate_series", args, node.location)
    if kinds == {UNKNOWN}:
        raise ambiguous_function(context, "generate_series", args, node.location)
    type_ = BIGINT if BIGINT in kinds else INTEGER
    made: list[Expr] = []
    for arg in args:
        one = coerce(context, arg, type_)
        if one is None:
            raise no_function(context, "generate_series", args, node.location)
        made.append(one.expr)
    step = made[2] if len(made) == 3 else Literal(1, type_)
    return SeriesSource(made[0], made[1], step, type_)
