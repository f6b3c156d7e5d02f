"""regtype: types by name and number, as far as clients ask for them when they connect.

There is no type regtype: a number cast to it becomes the type's name, a name cast to it the type's number.
"""

from __future__ import annotations

from layby.expr.fold import fold
from layby.expr.scalar import Case, Expr, Literal
from layby.sql.coerce import coerce, resolve_unknown
from layby.sql.context import BindContext, Bound, null
from layby.sql.overload import operator
from layby.sql.parse import Node
from layby.sql.typenames import BY_NAME, display_name, type_by_name
from layby.types.scalar import ALL, BIGINT, INTEGRAL, TEXT, UNKNOWN


def names_regtype(type_name: Node) -> bool:
    """Tell whether a TypeName node is regtype."""
    return type_name.names[-1].string.sval == "regtype" and not type_name.array_bounds


def bind_cast(context: BindContext, arg: Bound) -> Bound:
    """Bind `arg::regtype`: a text constant to the type's oid, an oid to the type's name."""
    if arg.type in INTEGRAL:
        return format_type(context, arg)
    text = resolve_unknown(context, arg)
    if text.type is TEXT and isinstance(text.expr, Literal) and isinstance(text.expr.value, str):
        found = type_by_name(text.expr.value)
        if found is None:
            raise context.error("42704", f'type "{text.expr.value}" does not exist', arg.location)
        return Bound(Literal(found.oid, BIGINT), arg.location)
    if text.type is TEXT:
        return to_regtype(context, text)
    raise context.error("42846", f"cannot cast type {display_name(arg.type)} to regtype", arg.location)


def format_type(context: BindContext, oid: Bound) -> Bound:
    """Bind the name of the type with a number: the number itself as text where there is no such type."""
    branches = []
    for type_ in ALL:
        if type_ is not UNKNOWN:
            number = Bound(Literal(type_.oid, BIGINT), -1)
            test = operator(context, "=", (oid, number), oid.location).expr
            branches.append((test, Literal(display_name(type_), TEXT)))
    return Bound(fold(Case(tuple(branches), null(TEXT), TEXT)), oid.location)


def to_regtype(context: BindContext, name: Bound) -> Bound:
    """Bind `to_regtype(name)`: the type's oid, or NULL where there is no such type."""
    text = coerce(context, name, TEXT)
    if text is None:
        raise context.error("42883", f"function to_regtype({display_name(name.type)}) does not exist")
    branches: list[tuple[Expr, Expr]] = []
    for known, type_ in BY_NAME.items():
        spelled = Bound(Literal(known, TEXT), -1)
        test = operator(context, "=", (text, spelled), name.location).expr
        branches.append((test, Literal(type_.oid, BIGINT)))
    return Bound(fold(Case(tuple(branches), null(BIGINT), BIGINT)), name.location)
