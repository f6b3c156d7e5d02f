"""COPY: the table or query, and the options in their old and new spelling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from layby.sql.context import BindContext
from layby.sql.dml import select_of_table
from layby.sql.lower import lower
from layby.sql.parse import Node
from layby.sql.plan import CopyOptions, CopyPlan
from layby.sql.relation import find_table
from layby.sql.select import bind_select

_UNSUPPORTED: Final = frozenset(
    {"force_quote", "force_not_null", "force_null", "on_error", "log_verbosity", "reject_limit", "default"}
)


def plan_copy(context: BindContext, node: Node) -> CopyPlan:
    """Plan COPY table FROM STDIN, COPY table TO STDOUT and COPY (query) TO STDOUT."""
    if node.is_program or node.filename:
        raise context.error(
            "0A000",
            "COPY to or from a file or program is not supported",
            hint="Use COPY FROM STDIN or COPY TO STDOUT, or the client's \\copy.",
        )
    if node.HasField("where_clause"):
        raise context.unsupported("COPY FROM with WHERE is")
    options = _options(context, node.options)
    if node.HasField("query"):
        kind = node.query.WhichOneof("node")
        if kind != "select_stmt":
            raise context.unsupported("COPY of a query other than SELECT is")
        return CopyPlan(None, (), lower(bind_select(context, node.query.select_stmt)), options)
    table = find_table(context, node.relation, write=node.is_from)
    columns = _columns(context, node.attlist, table.desc.names, table.name)
    select = None if node.is_from else select_of_table(table, columns)
    return CopyPlan(table, columns, select, options)


def _columns(
    context: BindContext, nodes: Sequence[Node], names: tuple[str, ...], table: str
) -> tuple[int, ...]:
    if not nodes:
        return tuple(range(len(names)))
    numbers = {name: number for number, name in enumerate(names)}
    columns: dict[int, None] = {}
    for node in nodes:
        name = node.string.sval
        number = numbers.get(name)
        if number is None:
            raise context.error("42703", f'column "{name}" of relation "{table}" does not exist')
        if number in columns:
            raise context.error("42701", f'column "{name}" specified more than once')
        columns[number] = None
    return tuple(columns)


def _options(context: BindContext, nodes: Sequence[Node]) -> CopyOptions:
    """Resolve the options and check them as PostgreSQL does, in its order."""
    given: dict[str, str | bool] = {}
    for node in nodes:
        option = node.def_elem
        name = option.defname
        if name in given:
            raise context.error("42601", "conflicting or redundant options", option.location)
        reader = _READERS.get(name)
        if reader is None:
            if name in _UNSUPPORTED:
                raise context.unsupported(f"COPY option {name.upper()} is", option.location)
            raise context.error("42601", f'option "{name}" not recognized', option.location)
        given[name] = reader(context, option)
    csv = given.get("format", "text") == "csv"
    quote = str(given.get("quote", '"'))
    options = CopyOptions(
        format="csv" if csv else "text",
        delimiter=str(given.get("delimiter", "," if csv else "\t")),
        null=str(given.get("null", "" if csv else "\\N")),
        header=bool(given.get("header", False)),
        quote=quote,
        escape=str(given.get("escape", quote)),
    )
    _check(context, options, given)
    return options


def _check(context: BindContext, options: CopyOptions, given: dict[str, str | bool]) -> None:
    csv = options.format == "csv"
    delimiter, null = options.delimiter, options.null
    if len(delimiter.encode()) != 1:
        raise context.error("0A000", "COPY delimiter must be a single one-byte character")
    if delimiter in "\r\n":
        raise context.error("22023", "COPY delimiter cannot be newline or carriage return")
    if "\r" in null or "\n" in null:
        raise context.error("22023", "COPY null representation cannot use newline or carriage return")
    if not csv and delimiter in "\\.abcdefghijklmnopqrstuvwxyz0123456789":
        raise context.error("22023", f'COPY delimiter cannot be "{delimiter}"')
    for name in ("quote", "escape"):
        if name in given and not csv:
            raise context.error("0A000", f"COPY {name} available only in CSV mode")
        if csv and len(getattr(options, name).encode()) != 1:
            raise context.error("0A000", f"COPY {name} must be a single one-byte character")
    if csv and delimiter == options.quote:
        raise context.error("22023", "COPY delimiter and quote must be different")
    if delimiter in null:
        raise context.error("0A000", "COPY delimiter must not appear in the NULL specification")
    if csv and options.quote in null:
        raise context.error("0A000", "CSV quote character must not appear in the NULL specification")


def _text(context: BindContext, option: Node) -> str:
    if not option.HasField("arg"):
        raise context.error("42601", f"{option.defname} requires a parameter", option.location)
    kind = option.arg.WhichOneof("node")
    if kind == "string":
        value: str = option.arg.string.sval
        return value
    if kind == "integer":
        return str(option.arg.integer.ival)
    if kind == "boolean":
        return "true" if option.arg.boolean.boolval else "false"
    raise context.error("42601", f"{option.defname} requires a string value", option.location)


def _format(context: BindContext, option: Node) -> str:
    value = _text(context, option)
    if value == "binary":
        raise context.unsupported("COPY format binary is", option.location)
    if value not in ("text", "csv"):
        raise context.error("22023", f'COPY format "{value}" not recognized', option.location)
    return value


def _flag(context: BindContext, option: Node) -> bool:
    if not option.HasField("arg"):
        return True
    value = _text(context, option).lower()
    if value in ("true", "on", "1"):
        return True
    if value in ("false", "off", "0"):
        return False
    if option.defname == "header" and value == "match":
        raise context.unsupported("COPY option HEADER MATCH is", option.location)
    if option.defname == "header":
        raise context.error("42601", 'header requires a Boolean value or "match"', option.location)
    raise context.error("42601", f"{option.defname} requires a Boolean value", option.location)


def _encoding(context: BindContext, option: Node) -> str:
    value = _text(context, option)
    if value.lower().replace("-", "").replace("_", "") not in ("utf8", "unicode"):
        raise context.error(
            "0A000", f'COPY encoding "{value}" is not supported', option.location, hint="Use UTF8."
        )
    return value


_READERS: Final[dict[str, Callable[[BindContext, Node], str | bool]]] = {
    "format": _format,
    "delimiter": _text,
    "null": _text,
    "quote": _text,
    "escape": _text,
    "header": _flag,
    "freeze": _flag,
    "encoding": _encoding,
}
