"""Names that PostgreSQL chooses: of result columns, of constraints and of indexes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from postgast import pg_query_pb2 as pb

from layby.sql.parse import Node

NAME_LIMIT: Final = 63
"""Bytes that an identifier may take; the grammar cuts longer ones."""

_PLAIN: Final = re.compile("[a-z_][a-z0-9_]*")

_VALUE_NAMES: Final[dict[int, str]] = {
    pb.SVFOP_CURRENT_DATE: "current_date",
    pb.SVFOP_CURRENT_TIME: "current_time",
    pb.SVFOP_CURRENT_TIME_N: "current_time",
    pb.SVFOP_CURRENT_TIMESTAMP: "current_timestamp",
    pb.SVFOP_CURRENT_TIMESTAMP_N: "current_timestamp",
    pb.SVFOP_LOCALTIME: "localtime",
    pb.SVFOP_LOCALTIME_N: "localtime",
    pb.SVFOP_LOCALTIMESTAMP: "localtimestamp",
    pb.SVFOP_LOCALTIMESTAMP_N: "localtimestamp",
    pb.SVFOP_CURRENT_ROLE: "current_role",
    pb.SVFOP_CURRENT_USER: "current_user",
    pb.SVFOP_USER: "user",
    pb.SVFOP_SESSION_USER: "session_user",
    pb.SVFOP_CURRENT_CATALOG: "current_catalog",
    pb.SVFOP_CURRENT_SCHEMA: "current_schema",
}


def column_name(node: Node) -> str:
    """Return the name of a result column that has no alias."""
    return _strong_or_weak(node)[0] or "?column?"


def quoted(name: str) -> str:
    """Return an identifier as SQL text, in double quotes where it is no plain lowercase word."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def index_column_name(node: Node) -> str:
    """Return what an expression contributes to an index's name."""
    return _strong_or_weak(node)[0] or "expr"


def _strong_or_weak(node: Node) -> tuple[str | None, bool]:
    """Return a name and whether it outdoes the name of a type that the expression is cast to."""
    kind = node.WhichOneof("node")
    inner = getattr(node, kind)
    if kind == "column_ref":
        last = inner.fields[-1]
        return (last.string.sval, True) if last.WhichOneof("node") == "string" else (None, False)
    if kind == "func_call":
        return inner.funcname[-1].string.sval, True
    if kind == "a_expr" and inner.kind == pb.AEXPR_NULLIF:
        return "nullif", True
    if kind == "type_cast":
        name, strong = _strong_or_weak(inner.arg)
        return (name, True) if strong else (inner.type_name.names[-1].string.sval, False)
    if kind == "collate_clause":
        return _strong_or_weak(inner.arg)
    if kind == "case_expr":
        name, strong = _strong_or_weak(inner.defresult) if inner.HasField("defresult") else (None, False)
        return (name, True) if strong else ("case", False)
    if kind == "sqlvalue_function":
        return _VALUE_NAMES[inner.op], True
    if kind == "min_max_expr":
        return ("greatest" if inner.op == pb.IS_GREATEST else "least"), True
    fixed = {"coalesce_expr": "coalesce", "row_expr": "row", "a_array_expr": "array"}.get(kind)
    return (fixed, True) if fixed is not None else (None, False)


def object_name(table: str, middle: str | None, suffix: str) -> str:
    """Join `table_middle_suffix`, cutting the longer of the first two until it fits an identifier."""
    first, second = table.encode(), (middle or "").encode()
    overhead = len(suffix.encode()) + 1 + (1 if middle is not None else 0)
    while len(first) + len(second) + overhead > NAME_LIMIT:
        if len(first) > len(second):
            first = first[:-1]
        else:
            second = second[:-1]
    parts = [first.decode(errors="ignore")]
    if middle is not None:
        parts.append(second.decode(errors="ignore"))
    return "_".join((*parts, suffix))


def free_name(table: str, middle: str | None, suffix: str, taken: Callable[[str], bool]) -> str:
    """Return the first of `t_a_key`, `t_a_key1`, `t_a_key2`, ... that is not taken."""
    name = object_name(table, middle, suffix)
    count = 0
    while taken(name):
        count += 1
        name = object_name(table, middle, f"{suffix}{count}")
    return name


def joined_columns(columns: Sequence[str]) -> str:
    """Join column names for the middle of an index's name, each made different from those before it."""
    chosen: list[str] = []
    for column in columns:
        name, count = column, 0
        while name in chosen:
            count += 1
            name = f"{column}{count}"
        chosen.append(name)
    return "_".join(chosen)
