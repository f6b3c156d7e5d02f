"""Overloads: which function a call by name and argument types means (PostgreSQL, chapters 10.2 and 10.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from layby.errors import SqlError
from layby.expr.function import Function, overloads
from layby.expr.scalar import Call
from layby.sql.coerce import PREFERRED, can_coerce, coerce
from layby.sql.context import BindContext, Bound
from layby.sql.typenames import display_name
from layby.types.scalar import UNKNOWN, SqlType

Types = tuple[SqlType, ...]


class Ambiguous(Exception):  # noqa: N818
    """Several overloads fit equally well."""


def operator(context: BindContext, symbol: str, args: Sequence[Bound], location: int) -> Bound:
    """Bind an operator with one or two operands; raises 42883 or 42725 at the operator."""
    types = tuple(a.type for a in args)
    shown = _show_operator(symbol, types)
    try:
        function = choose_operator(symbol, types)
    except Ambiguous:
        raise context.error(
            "42725",
            f"operator is not unique: {shown}",
            location,
            hint="Could not choose a best candidate operator. You might need to add explicit type casts.",
        ) from None
    if function is None:
        plural = (
            "argument types. You might need to add explicit type casts."
            if len(args) == 2
            else "argument type. You might need to add an explicit type cast."
        )
        raise context.error(
            "42883",
            f"operator does not exist: {shown}",
            location,
            hint=f"No operator matches the given name and {plural}",
        )
    return call(context, function, args, location)


def choose_operator(symbol: str, types: Types) -> Function | None:
    """Choose an operator's overload, None where none fits; raises `Ambiguous`."""
    found = overloads(symbol)
    if len(types) == 2 and (types[0] is UNKNOWN) != (types[1] is UNKNOWN):
        # An unknown beside a known operand is first taken to be of the same type.
        known = types[1] if types[0] is UNKNOWN else types[0]
        for function in found:
            if function.args == (known, known):
                return function
    return choose(found, types)


def choose(candidates: Sequence[Function], types: Types) -> Function | None:
    """Choose among overloads of one name, None where none fits; raises `Ambiguous`."""
    for function in candidates:
        if function.args == types:
            return function
    fitting = [
        f
        for f in candidates
        if len(f.args) == len(types) and all(can_coerce(s, t) for s, t in zip(types, f.args, strict=True))
    ]
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    return _best(fitting, types)


def _best(fitting: list[Function], types: Types) -> Function:
    known = [i for i, t in enumerate(types) if t is not UNKNOWN]
    fitting = _most(fitting, lambda f: sum(f.args[i] is types[i] for i in known))
    if len(fitting) == 1:
        return fitting[0]
    fitting = _most(fitting, lambda f: sum(_exact_or_preferred(types[i], f.args[i]) for i in known))
    if len(fitting) == 1:
        return fitting[0]
    unknown = [i for i, t in enumerate(types) if t is UNKNOWN]
    if not unknown:
        raise Ambiguous
    narrowed = _by_category(fitting, unknown)
    if narrowed:
        fitting = narrowed
        if len(fitting) == 1:
            return fitting[0]
    same = {types[i] for i in known}
    if len(same) == 1:
        only = same.pop()
        last = [f for f in fitting if all(can_coerce(only, f.args[i]) for i in unknown)]
        if len(last) == 1:
            return last[0]
    raise Ambiguous


def _most(fitting: list[Function], score: Callable[[Function], int]) -> list[Function]:
    scores = [score(f) for f in fitting]
    best = max(scores)
    return [f for f, s in zip(fitting, scores, strict=True) if s == best]


def _exact_or_preferred(given: SqlType, wanted: SqlType) -> bool:
    return given is wanted or (given.category == wanted.category and wanted in PREFERRED)


def _by_category(fitting: list[Function], unknown: list[int]) -> list[Function]:
    """Keep the overloads whose unknown arguments are of the category the candidates agree on.

    String wins where any candidate takes one; otherwise they must agree, or nothing is kept.
    """
    for i in unknown:
        categories = {f.args[i].category for f in fitting}
        if "S" in categories:
            category = "S"
        elif len(categories) == 1:
            category = categories.pop()
        else:
            return []
        in_category = [f for f in fitting if f.args[i].category == category]
        preferred = [f for f in in_category if f.args[i] in PREFERRED]
        fitting = preferred or in_category
    return fitting


def call(context: BindContext, function: Function, args: Sequence[Bound], location: int) -> Bound:
    """Apply a function, its arguments coerced implicitly."""
    made = []
    leftmost = location
    for arg, type_ in zip(args, function.args, strict=True):
        one = coerce(context, arg, type_)
        if one is None:
            raise context.error(
                "42846",
                f"cannot cast type {display_name(arg.type)} to {display_name(type_)}",
                arg.location,
            )
        made.append(one.expr)
        if 0 <= one.location < leftmost or leftmost < 0:
            leftmost = one.location
    return Bound(Call(function, tuple(made)), leftmost)


def no_function(context: BindContext, name: str, args: Sequence[Bound], location: int) -> SqlError:
    """Make the error for a call that no overload fits."""
    types = ", ".join(display_name(a.type) for a in args)
    return context.error(
        "42883",
        f"function {name}({types}) does not exist",
        location,
        hint="No function matches the given name and argument types. "
        "You might need to add explicit type casts.",
    )


def ambiguous_function(context: BindContext, name: str, args: Sequence[Bound], location: int) -> SqlError:
    """Make the error for a call that several overloads fit equally."""
    types = ", ".join(display_name(a.type) for a in args)
    return context.error(
        "42725",
        f"function {name}({types}) is not unique",
        location,
        hint="Could not choose a best candidate function. You might need to add explicit type casts.",
    )


def _show_operator(symbol: str, types: Types) -> str:
    if len(types) == 1:
        return f"{symbol} {display_name(types[0])}"
    return f"{display_name(types[0])} {symbol} {display_name(types[1])}"
