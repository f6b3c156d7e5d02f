"""Coercion: the types that expressions take from their place, by PostgreSQL's rules (chapter 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from layby.errors import SqlError
from layby.expr.fold import fold
from layby.expr.function import CastContext, cast_between
from layby.expr.scalar import Call, Expr, Literal, Param
from layby.sql.context import BindContext, Bound
from layby.sql.typenames import display_name
from layby.types.formats import parse
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    DOUBLE_PRECISION,
    INTEGER,
    INTEGRAL,
    SMALLINT,
    TEXT,
    TIMESTAMPTZ,
    UNKNOWN,
    SqlType,
)

PREFERRED: Final = frozenset({BOOLEAN, DOUBLE_PRECISION, TEXT, TIMESTAMPTZ})
"""The preferred type of each category: what an ambiguous choice falls to."""

_RANK: Final = {CastContext.IMPLICIT: 0, CastContext.ASSIGNMENT: 1, CastContext.EXPLICIT: 2}
_WIDTH: Final = {SMALLINT: 2, INTEGER: 4, BIGINT: 8}


def can_coerce(source: SqlType, target: SqlType, context: CastContext = CastContext.IMPLICIT) -> bool:
    """Tell whether a value of `source` may stand where `target` is wanted."""
    if source is target or source is UNKNOWN:
        return True
    found = cast_between(source, target)
    return found is not None and _RANK[found[1]] <= _RANK[context]


def coerce(
    context: BindContext, bound: Bound, target: SqlType, how: CastContext = CastContext.IMPLICIT
) -> Bound | None:
    """Make `bound` a `target`: literals are read, parameters settled, casts inserted.

    Returns None where no cast may be applied in this way. Raises what reading a literal raises, at its place.
    """
    expr, location = bound
    source = expr.type
    if source is target:
        return bound
    if source is UNKNOWN:
        return _from_unknown(context, expr, target, location)
    found = cast_between(source, target)
    if found is None or _RANK[found[1]] > _RANK[how]:
        return None
    if isinstance(expr, Literal):
        return Bound(_cast_literal(expr, target, Call(found[0], (expr,))), location)
    return Bound(Call(found[0], (expr,)), location)


def _from_unknown(context: BindContext, expr: Expr, target: SqlType, location: int) -> Bound:
    if isinstance(expr, Param):
        return context.settle(expr.number, target, location)
    if not isinstance(expr, Literal):
        raise context.error("42804", "could not determine the type of an expression", location)
    if expr.value is None or target is TEXT:
        return Bound(Literal(expr.value, target), location)
    try:
        return Bound(Literal(parse(target, str(expr.value)), target), location)
    except SqlError as error:
        if error.position is None:
            error.position = context.statement.position(location)
        raise


def _cast_literal(literal: Literal, target: SqlType, call: Call) -> Expr:
    """Cast a constant now. A cast that fails is left to fail when it is evaluated."""
    value, source = literal.value, literal.type
    if value is None:
        return Literal(None, target)
    if source in INTEGRAL:
        if target in INTEGRAL and _WIDTH[target] >= _WIDTH[source]:
            return Literal(value, target)
        if target is DOUBLE_PRECISION:
            return Literal(float(value), target)
    return fold(call)


def require(context: BindContext, bound: Bound, target: SqlType, what: str) -> Bound:
    """Coerce the argument of a clause; raises 42804 "argument of WHERE must be type boolean, ..."."""
    made = coerce(context, bound, target, CastContext.ASSIGNMENT)
    if made is None:
        raise context.error(
            "42804",
            f"argument of {what} must be type {display_name(target)}, not type {display_name(bound.type)}",
            bound.location,
        )
    return made


def assign(
    context: BindContext, bound: Bound, target: SqlType, column: str, what: str = "expression"
) -> Bound:
    """Coerce a value to the column it is stored in; raises 42804 where it has no assignment cast."""
    made = coerce(context, bound, target, CastContext.ASSIGNMENT)
    if made is None:
        raise context.error(
            "42804",
            f'column "{column}" is of type {display_name(target)} but {what} is of type '
            f"{display_name(bound.type)}",
            bound.location if what == "expression" else -1,
            hint="You will need to rewrite or cast the expression.",
        )
    return made


def resolve_unknown(context: BindContext, bound: Bound) -> Bound:
    """Make what is still unknown a text, as a result column is."""
    if bound.type is not UNKNOWN:
        return bound
    return _from_unknown(context, bound.expr, TEXT, bound.location)


def common_type(bounds: Sequence[Bound]) -> SqlType | Bound:
    """Choose the type that all of `bounds` can take; where there is none, return the first that does not fit.

    UNKNOWN ones take the type of the others, text where there are no others.
    """
    chosen = bounds[0].type
    for bound in bounds[1:]:
        type_ = bound.type
        if type_ is UNKNOWN or type_ is chosen:
            continue
        if chosen is UNKNOWN:
            chosen = type_
        elif type_.category != chosen.category:
            return bound
        elif chosen not in PREFERRED and can_coerce(chosen, type_) and not can_coerce(type_, chosen):
            chosen = type_
    return TEXT if chosen is UNKNOWN else chosen


def to_common(context: BindContext, bounds: Sequence[Bound], what: str) -> tuple[list[Bound], SqlType]:
    """Coerce all of `bounds` to their common type; raises 42804 "`what` types x and y cannot be matched"."""
    type_ = common_type(bounds)
    if isinstance(type_, Bound):
        at = bounds.index(type_)
        before = common_type(bounds[:at])
        shown = display_name(before) if isinstance(before, SqlType) else "unknown"
        raise context.error(
            "42804", f"{what} types {shown} and {display_name(type_.type)} cannot be matched", type_.location
        )
    made = []
    for bound in bounds:
        one = coerce(context, bound, type_)
        if one is None:
            raise context.error(
                "42846",
                f"{what} could not convert type {display_name(bound.type)} to {display_name(type_)}",
                bound.location,
            )
        made.append(one)
    return made, type_
