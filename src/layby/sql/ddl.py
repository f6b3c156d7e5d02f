"""CREATE TABLE, CREATE INDEX, DROP TABLE and DROP INDEX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from postgast import pg_query_pb2 as pb

from layby.expr.fold import fold
from layby.expr.scalar import Call, ColumnRef, Expr, SessionValue, walk
from layby.sql.bind import Binder
from layby.sql.catalog import Catalog, IndexKey, Table
from layby.sql.coerce import assign
from layby.sql.context import BindContext
from layby.sql.names import free_name, index_column_name, joined_columns
from layby.sql.parse import Node
from layby.sql.plan import CreateIndexPlan, CreateTablePlan, DropPlan, UniqueConstraint
from layby.sql.relation import find_table, table_scope
from layby.sql.scope import Scope
from layby.sql.select import ordering
from layby.sql.typenames import resolve_type
from layby.types.relation import ColumnDesc, RelationDesc

_SYSTEM_SCHEMA: Final = "pg_catalog"
_COLUMN_LIMIT: Final = 1_600
_KEY_LIMIT: Final = 32


@dataclass(slots=True)
class _Key:
    """A UNIQUE or PRIMARY KEY constraint as written."""

    columns: list[str]
    primary: bool
    name: str
    location: int


@dataclass(slots=True)
class _Definition:
    """The parts of a CREATE TABLE as they are met."""

    columns: list[ColumnDesc] = field(default_factory=list)
    defaults: list[Expr | None] = field(default_factory=list)
    keys: list[_Key] = field(default_factory=list)


def plan_create_table(context: BindContext, node: Node) -> CreateTablePlan:
    """Plan a CREATE TABLE; raises 0A000 for the clauses layby has not."""
    relation = node.relation
    _refuse_table_clauses(context, node)
    schema = _schema(context, relation)
    made = _Definition()
    for element in node.table_elts:
        kind = element.WhichOneof("node")
        if kind == "column_def":
            _column(context, made, element.column_def)
        elif kind == "constraint":
            _table_constraint(context, made, element.constraint)
        else:
            raise context.unsupported("LIKE in CREATE TABLE is")
    if len(made.columns) > _COLUMN_LIMIT:
        raise context.error("54011", f"tables can have at most {_COLUMN_LIMIT} columns")
    _require_distinct(context, [c.name for c in made.columns])
    unique = _unique(context, made, relation.relname)
    return CreateTablePlan(
        schema=schema,
        name=relation.relname,
        desc=RelationDesc(tuple(_primary_not_null(made))),
        defaults=tuple(made.defaults),
        unique=unique,
        if_not_exists=node.if_not_exists,
    )


def _refuse_table_clauses(context: BindContext, node: Node) -> None:
    if node.relation.relpersistence == "t":
        raise context.unsupported("temporary tables are", node.relation.location)
    if node.inh_relations or node.HasField("partspec") or node.HasField("partbound"):
        raise context.unsupported("inheritance and partitioning are")
    if node.HasField("of_typename"):
        raise context.unsupported("typed tables are")


def _schema(context: BindContext, relation: Node) -> str:
    schema: str = relation.schemaname or "public"
    if schema == _SYSTEM_SCHEMA:
        raise context.error(
            "42501", f'permission denied to create "{schema}.{relation.relname}"', relation.location
        )
    if schema != "public":
        raise context.error("3F000", f'schema "{schema}" does not exist', relation.location)
    return schema


def _column(context: BindContext, made: _Definition, node: Node) -> None:
    if not node.HasField("type_name"):
        raise context.unsupported("columns without a type are", node.location)
    place = context.statement.position(node.type_name.location)
    type_, length = resolve_type(node.type_name, place)
    nullable = True
    default: Expr | None = None
    for item in node.constraints:
        constraint = item.constraint
        kind = constraint.contype
        if kind == pb.CONSTR_NOTNULL:
            nullable = False
        elif kind == pb.CONSTR_DEFAULT:
            if default is not None:
                raise context.error(
                    "42601",
                    f'multiple default values specified for column "{node.colname}"',
                    constraint.location,
                )
            default = _default(context, constraint.raw_expr, ColumnDesc(node.colname, type_))
        elif kind in (pb.CONSTR_PRIMARY, pb.CONSTR_UNIQUE):
            primary = kind == pb.CONSTR_PRIMARY
            made.keys.append(_Key([node.colname], primary, constraint.conname, constraint.location))
        elif kind != pb.CONSTR_NULL:
            raise _unsupported_constraint(context, constraint)
    made.columns.append(ColumnDesc(node.colname, type_, nullable, length))
    made.defaults.append(default)


def _default(context: BindContext, node: Node, column: ColumnDesc) -> Expr:
    binder = Binder(
        context,
        Scope(),
        lambda at: context.error("0A000", "cannot use column reference in DEFAULT expression", at),
    )
    return fold(assign(context, binder.bind(node), column.type, column.name, "default expression").expr)


def _table_constraint(context: BindContext, made: _Definition, node: Node) -> None:
    if node.contype not in (pb.CONSTR_PRIMARY, pb.CONSTR_UNIQUE):
        raise _unsupported_constraint(context, node)
    columns = [k.string.sval for k in node.keys]
    made.keys.append(_Key(columns, node.contype == pb.CONSTR_PRIMARY, node.conname, node.location))


def _unsupported_constraint(context: BindContext, node: Node) -> Exception:
    names = {
        pb.CONSTR_CHECK: "CHECK constraints are",
        pb.CONSTR_FOREIGN: "FOREIGN KEY constraints are",
        pb.CONSTR_EXCLUSION: "EXCLUDE constraints are",
        pb.CONSTR_IDENTITY: "identity columns are",
        pb.CONSTR_GENERATED: "generated columns are",
    }
    return context.unsupported(names.get(node.contype, "deferrable constraints are"), node.location)


def _require_distinct(context: BindContext, names: Sequence[str]) -> None:
    known: set[str] = set()
    for name in names:
        if name in known:
            raise context.error("42701", f'column "{name}" specified more than once')
        known.add(name)


def _primary_not_null(made: _Definition) -> list[ColumnDesc]:
    primary = {c for key in made.keys if key.primary for c in key.columns}
    return [
        ColumnDesc(c.name, c.type, c.nullable and c.name not in primary, c.max_length) for c in made.columns
    ]


def _unique(context: BindContext, made: _Definition, table: str) -> tuple[UniqueConstraint, ...]:
    """Name the constraints and number their columns; the primary key comes first."""
    numbers = {c.name: number for number, c in enumerate(made.columns)}
    primaries = [k for k in made.keys if k.primary]
    if len(primaries) > 1:
        raise context.error(
            "42P16", f'multiple primary keys for table "{table}" are not allowed', primaries[1].location
        )
    names = {k.name for k in made.keys if k.name}
    chosen: list[UniqueConstraint] = []
    known: set[tuple[int, ...]] = set()

    def taken(name: str) -> bool:
        return name in names or _exists(context.catalog, name)

    for key in [*primaries, *(k for k in made.keys if not k.primary)]:
        if len(key.columns) > _KEY_LIMIT:
            raise context.error("54011", f"cannot use more than {_KEY_LIMIT} columns in an index")
        for i, column in enumerate(key.columns):
            if column not in numbers:
                raise context.error("42703", f'column "{column}" named in key does not exist', key.location)
            if column in key.columns[:i]:
                what = "primary key" if key.primary else "unique"
                raise context.error(
                    "42701", f'column "{column}" appears twice in {what} constraint', key.location
                )
        columns = tuple(numbers[c] for c in key.columns)
        if columns in known and not key.name:
            continue  # PostgreSQL keeps one index for constraints on the same columns
        middle, suffix = (None, "pkey") if key.primary else (joined_columns(key.columns), "key")
        name = key.name or free_name(table, middle, suffix, taken)
        chosen.append(UniqueConstraint(name, columns, key.primary))
        names.add(name)
        known.add(columns)
    return tuple(chosen)


def _exists(catalog: Catalog, name: str) -> bool:
    return catalog.table(name, "public") is not None or catalog.index(name, "public") is not None


def plan_create_index(context: BindContext, node: Node) -> CreateIndexPlan:
    """Plan a CREATE INDEX; raises 0A000 for the clauses layby has not."""
    table = find_table(context, node.relation, write=True)
    if node.access_method not in ("", "btree"):
        raise context.unsupported(f"access method {node.access_method} is")
    if node.HasField("where_clause"):
        raise context.unsupported("partial indexes are")
    if node.index_including_params:
        raise context.error(
            "0A000",
            "INCLUDE is not supported",
            hint="An index holds all columns of its table already.",
        )
    if node.nulls_not_distinct:
        raise context.unsupported("NULLS NOT DISTINCT is")
    if len(node.index_params) > _KEY_LIMIT:
        raise context.error("54011", f"cannot use more than {_KEY_LIMIT} columns in an index")
    keys: list[IndexKey] = []
    parts: list[str] = []
    for param in node.index_params:
        element = param.index_elem
        if element.collation or element.opclass:
            _check_element(context, element)
        if element.name:
            expr: Expr = _key_column(context, table, element.name)
            parts.append(element.name)
        else:
            binder = Binder(context, table_scope(table, ""))
            expr = fold(binder.value(element.expr).expr)
            _require_immutable(context, expr)
            parts.append(index_column_name(element.expr))
        keys.append(IndexKey(expr, ordering(context, element.ordering, element.nulls_ordering)))
    name = node.idxname or free_name(
        table.name, joined_columns(parts), "idx", lambda n: _exists(context.catalog, n)
    )
    return CreateIndexPlan(name, table, tuple(keys), node.unique, node.if_not_exists)


def _check_element(context: BindContext, element: Node) -> None:
    if element.opclass:
        raise context.unsupported(f"operator class {element.opclass[-1].string.sval} is")
    collation = element.collation[-1].string.sval
    if collation not in ("C", "POSIX", "default", "ucs_basic"):
        raise context.error("0A000", f'collation "{collation}" is not supported', hint='Use "C".')


def _key_column(context: BindContext, table: Table, name: str) -> ColumnRef:
    for i, column in enumerate(table.desc.columns):
        if column.name == name:
            return ColumnRef(i, column.type)
    raise context.error("42703", f'column "{name}" does not exist')


def _require_immutable(context: BindContext, expr: Expr) -> None:
    if any(isinstance(e, SessionValue) or (isinstance(e, Call) and e.function.volatile) for e in walk(expr)):
        raise context.error("42P17", "functions in index expression must be marked IMMUTABLE")


def plan_drop(context: BindContext, node: Node) -> DropPlan:
    """Plan a DROP TABLE or DROP INDEX; whether the names exist is found out when it is executed."""
    kinds = {pb.OBJECT_TABLE: "table", pb.OBJECT_INDEX: "index"}
    kind = kinds.get(node.remove_type)
    if kind is None:
        name: str = pb.ObjectType.Name(node.remove_type)
        raise context.unsupported(f"DROP {name.removeprefix('OBJECT_').replace('_', ' ')} is")
    names: list[tuple[str | None, str]] = []
    for item in node.objects:
        path = [p.string.sval for p in item.list.items]
        names.append((path[-2] if len(path) > 1 else None, path[-1]))
    return DropPlan(kind, tuple(names), node.missing_ok)
