"""Rendering: expressions back to SQL text, for people to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from layby.expr.scalar import (
    And,
    Call,
    Case,
    Coalesce,
    ColumnRef,
    Expr,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Param,
    SessionValue,
)
from layby.sql.typenames import display_name
from layby.types.formats import render
from layby.types.ordering import Ordering
from layby.types.scalar import BOOLEAN, INTEGRAL, TEXT, UNKNOWN, PhysicalValue, SqlType

_VALUES_SHOWN: Final = 20
"""Items of a list of constants that are written out."""


def sql_text(expr: Expr, names: Sequence[str]) -> str:
    """Return an expression over columns called `names` as SQL text, compound parts in parentheses."""
    match expr:
        case ColumnRef(index=index):
            return names[index]
        case Literal(value=value, type=type_):
            return literal_text(value, type_)
        case Param(number=number):
            return f"${number}"
        case SessionValue(name=name):
            return f"current_setting('{name[8:]}')" if name.startswith("setting:") else name
        case Call():
            return _call(expr, names)
        case And(args=args):
            return _joined(" AND ", args, names)
        case Or(args=args):
            return _joined(" OR ", args, names)
        case Not(arg=IsNull(arg=arg)):
            return f"({sql_text(arg, names)} IS NOT NULL)"
        case Not(arg=arg):
            return f"(NOT {sql_text(arg, names)})"
        case IsNull(arg=arg):
            return f"({sql_text(arg, names)} IS NULL)"
        case In(arg=arg, values=values):
            return f"({sql_text(arg, names)} IN ({_listed(values, arg.type)}))"
        case Case(branches=branches, otherwise=otherwise):
            whens = "".join(f" WHEN {sql_text(c, names)} THEN {sql_text(r, names)}" for c, r in branches)
            return f"CASE{whens} ELSE {sql_text(otherwise, names)} END"
        case Coalesce(args=args):
            return f"COALESCE({', '.join(sql_text(a, names) for a in args)})"


def literal_text(value: PhysicalValue, type_: SqlType) -> str:
    """Return a constant as SQL text."""
    if value is None:
        return "NULL"
    if type_ is BOOLEAN:
        return "true" if value else "false"
    text = value if isinstance(value, str) else render(type_, value)
    if type_ in INTEGRAL:
        return text
    if type_.category == "N":
        return text if text[-1].isdigit() else f"'{text}'::{display_name(type_)}"
    quoted = "'" + text.replace("'", "''") + "'"
    return quoted if type_ in (TEXT, UNKNOWN) else f"{quoted}::{display_name(type_)}"


def ordering_text(text: str, ordering: Ordering) -> str:
    """Return one item of ORDER BY, with what differs from the default."""
    if ordering.descending:
        return f"{text} DESC" if ordering.nulls_first else f"{text} DESC NULLS LAST"
    return f"{text} NULLS FIRST" if ordering.nulls_first else text


def _call(expr: Call, names: Sequence[str]) -> str:
    name = expr.function.name
    args = [sql_text(a, names) for a in expr.args]
    if name == "cast":
        return f"{args[0]}::{display_name(expr.type)}"
    if name[0].isalpha() or name[0] == "_":
        return f"{name}({', '.join(args)})"
    symbol = _LIKE.get(name, name)
    return f"({args[0]} {symbol} {args[1]})" if len(args) == 2 else f"({symbol} {args[0]})"


_LIKE: Final = {"~~": "LIKE", "!~~": "NOT LIKE", "~~*": "ILIKE", "!~~*": "NOT ILIKE"}


def _joined(word: str, args: Sequence[Expr], names: Sequence[str]) -> str:
    return f"({word.join(sql_text(a, names) for a in args)})"


def _listed(values: Sequence[PhysicalValue], type_: SqlType) -> str:
    shown = ", ".join(literal_text(v, type_) for v in values[:_VALUES_SHOWN])
    rest = len(values) - _VALUES_SHOWN
    return f"{shown}, ... {rest} more" if rest > 0 else shown
