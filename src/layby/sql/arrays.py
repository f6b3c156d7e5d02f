"""Constant arrays, which stand only on the right of ANY and ALL: `ARRAY[1, 2]` and `'{1,2}'::int[]`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from layby.errors import SqlError
from layby.expr.function import CastContext
from layby.expr.scalar import Literal
from layby.sql.coerce import coerce
from layby.sql.context import BindContext, Bound, null
from layby.sql.parse import Node
from layby.sql.typenames import display_name, resolve_type
from layby.types.scalar import UNKNOWN, SqlType

if TYPE_CHECKING:
    from layby.sql.bind import Binder

_ELEMENT: Final = re.compile(
    r'\s*(?:"((?:[^"\\]|\\.)*)"|((?:[^",{}\\\s]|\\.)(?:(?:[^",{}\\]|\\.)*(?:[^",{}\\\s]|\\.))?))\s*',
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


def array_items(binder: Binder, node: Node) -> list[Bound]:
    """Return the elements of an array that is written out; raises 0A000 for any other array."""
    context = binder.context
    kind = node.WhichOneof("node")
    if kind == "a_array_expr":
        return [binder.bind(n) for n in node.a_array_expr.elements]
    if kind == "type_cast" and node.type_cast.type_name.array_bounds:
        cast = node.type_cast
        type_ = _element_type(context, cast.type_name)
        inner = cast.arg.WhichOneof("node")
        if inner == "a_array_expr":
            items = [binder.bind(n) for n in cast.arg.a_array_expr.elements]
        elif inner == "a_const" and cast.arg.a_const.WhichOneof("val") == "sval":
            items = _read(context, cast.arg.a_const.sval.sval, cast.arg.a_const.location)
        else:
            raise context.unsupported("arrays that are not constant are", cast.location)
        return [_as_element(context, item, type_) for item in items]
    if kind == "a_const" and node.a_const.WhichOneof("val") == "sval":
        return _read(context, node.a_const.sval.sval, node.a_const.location)
    if kind == "sub_link":
        raise context.unsupported("subqueries are", node.sub_link.location)
    raise context.unsupported(
        "arrays that are not constant are", getattr(getattr(node, kind), "location", -1)
    )


def _element_type(context: BindContext, type_name: Node) -> SqlType:
    scalar = type(type_name)()
    scalar.CopyFrom(type_name)
    scalar.ClearField("array_bounds")
    return resolve_type(scalar, context.statement.position(type_name.location))[0]


def _as_element(context: BindContext, item: Bound, type_: SqlType) -> Bound:
    made = coerce(context, item, type_, CastContext.EXPLICIT)
    if made is None:
        raise context.error(
            "42846",
            f"cannot cast type {display_name(item.type)} to {display_name(type_)}",
            item.location,
        )
    return made


def _read(context: BindContext, text: str, location: int) -> list[Bound]:
    """Split the text form of a one-dimensional array into unknown literals."""
    context.spend(3 * len(text))  # for a byte of the tree it is worth many
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}")):
        raise _malformed(context, text, location)
    body = body[1:-1]
    if not body.strip():
        return []
    items: list[Bound] = []
    at = 0
    while True:
        found = _ELEMENT.match(body, at)
        if found is None:
            raise _malformed(context, text, location)
        quoted, bare = found.groups()
        if quoted is None and bare.upper() == "NULL":
            items.append(Bound(null(UNKNOWN), location))
        else:
            value = _ESCAPE.sub(r"\1", bare if quoted is None else quoted)
            items.append(Bound(Literal(value, UNKNOWN), location))
        at = found.end()
        if at == len(body):
            return items
        if body[at] != ",":
            raise _malformed(context, text, location)
        at += 1


def _malformed(context: BindContext, text: str, location: int) -> SqlError:
    return context.error("22P02", f'malformed array literal: "{text}"', location)
