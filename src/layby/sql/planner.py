"""The planner: a parsed statement to its plan, its parameters' types and its result's columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from layby.sql.catalog import Catalog
from layby.sql.context import BindContext
from layby.sql.copy import plan_copy
from layby.sql.ddl import plan_create_index, plan_create_table, plan_drop
from layby.sql.dml import plan_delete, plan_insert, plan_update
from layby.sql.lower import lower
from layby.sql.parse import Node, ParsedStatement, too_deep
from layby.sql.plan import (
    ExplainPlan,
    Plan,
    PlannedStatement,
    SelectPlan,
    ShowPlan,
)
from layby.sql.select import bind_select
from layby.sql.utility import (
    plan_alter_system,
    plan_close,
    plan_deallocate,
    plan_discard,
    plan_set,
    plan_show,
    plan_transaction,
    plan_unlisten,
    plan_vacuum,
)
from layby.types.relation import ColumnDesc
from layby.types.scalar import TEXT, SqlType


def plan(
    statement: ParsedStatement,
    catalog: Catalog,
    param_types: Sequence[SqlType | None],
    effort: int | None = None,
) -> PlannedStatement:
    """Bind and plan one statement against a version of the catalog.

    `param_types` are the types a client declared, None where it left one open; the result tells all of them.
    Raises SqlError with PostgreSQL's SQLSTATE, wording and position, 0A000 for what layby has not; and
    TooLongError where it would take more than `effort` (`BindContext.spend`).
    """
    context = BindContext(statement, catalog, param_types, effort)
    context.spend(statement.node.ByteSize())
    try:
        made = _plan(context, statement.kind, statement.node)
    except RecursionError:
        raise too_deep() from None
    return PlannedStatement(made, context.finish_params(), _columns(made), catalog.version)


def _plan(context: BindContext, kind: str, node: Node) -> Plan:
    planner = _PLANNERS.get(kind)
    if planner is None:
        raise context.unsupported(f"{_statement_name(kind)} is")
    return planner(context, node)


def _select(context: BindContext, node: Node) -> SelectPlan:
    return lower(bind_select(context, node, signals=True))


def _explain(context: BindContext, node: Node) -> ExplainPlan:
    """Plan EXPLAIN; options that only change PostgreSQL's own figures are taken and left aside."""
    analyze = False
    for item in node.options:
        option = item.def_elem
        name = option.defname
        on = not option.HasField("arg") or _truth(context, option)
        if name == "analyze":
            analyze = on
        elif name == "format":
            if option.arg.string.sval.lower() != "text":
                raise context.unsupported(f"EXPLAIN format {option.arg.string.sval} is", option.location)
        elif name not in _EXPLAIN_OPTIONS:
            raise context.error("42601", f'unrecognized EXPLAIN option "{name}"', option.location)
    kind = node.query.WhichOneof("node")
    if kind not in _EXPLAINABLE:
        raise context.unsupported(f"EXPLAIN of {_statement_name(kind)} is")
    return ExplainPlan(_plan(context, kind, getattr(node.query, kind)), analyze)


def _truth(context: BindContext, option: Node) -> bool:
    kind = option.arg.WhichOneof("node")
    text = str(option.arg.integer.ival) if kind == "integer" else option.arg.string.sval.lower()
    if kind == "boolean":
        text = "true" if option.arg.boolean.boolval else "false"
    if option.defname == "format" or text in ("true", "on", "1"):
        return True
    if text in ("false", "off", "0"):
        return False
    raise context.error("42601", f"{option.defname} requires a Boolean value", option.location)


_EXPLAIN_OPTIONS: Final = frozenset(
    {"verbose", "costs", "settings", "buffers", "wal", "timing", "summary", "generic_plan", "memory"}
)
_EXPLAINABLE: Final = frozenset({"select_stmt", "insert_stmt", "update_stmt", "delete_stmt"})

_PLANNERS: Final[dict[str, Callable[[BindContext, Node], Plan]]] = {
    "select_stmt": _select,
    "insert_stmt": plan_insert,
    "update_stmt": plan_update,
    "delete_stmt": plan_delete,
    "copy_stmt": plan_copy,
    "create_stmt": plan_create_table,
    "index_stmt": plan_create_index,
    "drop_stmt": plan_drop,
    "explain_stmt": _explain,
    "variable_show_stmt": plan_show,
    "variable_set_stmt": plan_set,
    "alter_system_stmt": plan_alter_system,
    "transaction_stmt": plan_transaction,
    "discard_stmt": plan_discard,
    "deallocate_stmt": plan_deallocate,
    "close_portal_stmt": plan_close,
    "unlisten_stmt": plan_unlisten,
    "vacuum_stmt": plan_vacuum,
}

_STATEMENT_NAMES: Final = {
    "create_table_as_stmt": "CREATE TABLE AS",
    "view_stmt": "CREATE VIEW",
    "alter_table_stmt": "ALTER TABLE",
    "rename_stmt": "ALTER ... RENAME",
    "create_schema_stmt": "CREATE SCHEMA",
    "createdb_stmt": "CREATE DATABASE",
    "dropdb_stmt": "DROP DATABASE",
    "create_seq_stmt": "CREATE SEQUENCE",
    "create_function_stmt": "CREATE FUNCTION",
    "create_trig_stmt": "CREATE TRIGGER",
    "create_role_stmt": "CREATE ROLE",
    "create_extension_stmt": "CREATE EXTENSION",
    "composite_type_stmt": "CREATE TYPE",
    "create_enum_stmt": "CREATE TYPE",
    "declare_cursor_stmt": "DECLARE CURSOR",
    "fetch_stmt": "FETCH",
    "prepare_stmt": "PREPARE",
    "execute_stmt": "EXECUTE",
    "merge_stmt": "MERGE",
    "grant_stmt": "GRANT",
    "do_stmt": "DO",
    "check_point_stmt": "CHECKPOINT",
}


def _statement_name(kind: str) -> str:
    return _STATEMENT_NAMES.get(kind, kind.removesuffix("_stmt").replace("_", " ").upper())


def _columns(made: Plan) -> tuple[ColumnDesc, ...] | None:
    """Return the columns of a statement's result; None where it returns no rows."""
    match made:
        case SelectPlan(columns=columns):
            return columns
        case ExplainPlan():
            return (ColumnDesc("QUERY PLAN", TEXT),)
        case ShowPlan(name=None):
            return tuple(ColumnDesc(n, TEXT) for n in ("name", "setting", "description"))
        case ShowPlan(name=name) if name is not None:
            return (ColumnDesc(name, TEXT),)
        case _:
            return None
