"""Conditions: what a predicate says about an expression that could be an index's key.

A conjunct of WHERE is read as "key = one of these", "key lies on this side of that", or "these keys are one
of these rows"; the values are expressions without columns. Key sides lose casts that change neither the
order nor the equality of values (`int4` compared as `float8`): instantiation makes the values fit the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from layby.expr.scalar import (
    And,
    Call,
    Coalesce,
    ColumnRef,
    Expr,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    walk,
)
from layby.sql.plan import BoundTemplate
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE_PRECISION,
    INTEGER,
    INTEGRAL,
    REAL,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
)

_LOSSLESS: Final = frozenset(
    {
        (SMALLINT, INTEGER),
        (SMALLINT, BIGINT),
        (INTEGER, BIGINT),
        (SMALLINT, REAL),
        (SMALLINT, DOUBLE_PRECISION),
        (INTEGER, DOUBLE_PRECISION),
        (REAL, DOUBLE_PRECISION),
        (DATE, TIMESTAMP),
        (DATE, TIMESTAMPTZ),
        (TIMESTAMP, TIMESTAMPTZ),
        (TIMESTAMPTZ, TIMESTAMP),
    }
)
"""Casts that keep order and tell values apart. bigint to double precision does not; times are in UTC."""

_FLOATS_FOR: Final = {
    SMALLINT: (REAL, DOUBLE_PRECISION),
    INTEGER: (REAL, DOUBLE_PRECISION),
    REAL: (DOUBLE_PRECISION,),
}
_TIMES: Final = frozenset({DATE, TIMESTAMP, TIMESTAMPTZ})
_FLIPPED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

TRUE: Final = Literal(True, BOOLEAN)
FALSE: Final = Literal(False, BOOLEAN)


@dataclass(frozen=True, slots=True)
class Equals:
    """`key` equals one of `values`; a NULL literal among them stands for IS NULL."""

    key: Expr
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """`key` is not NULL and lies above (`lower`) or below a value.

    Where `exact` is False the predicate says more than that, and has to stay.
    """

    key: Expr
    lower: bool
    bound: BoundTemplate
    exact: bool = True


@dataclass(frozen=True, slots=True)
class EqualsRows:
    """The keys, taken together, equal one of `rows`."""

    keys: tuple[Expr, ...]
    rows: tuple[tuple[Expr, ...], ...]


Condition = Equals | Bounds | EqualsRows


def conjuncts(expr: Expr) -> list[Expr]:
    """Split a predicate at its ANDs."""
    if isinstance(expr, And):
        return [part for arg in expr.args for part in conjuncts(arg)]
    return [expr]


def constant(expr: Expr) -> bool:
    """Tell whether an expression has one value for all rows of an execution."""
    return not any(
        isinstance(e, ColumnRef) or (isinstance(e, Call) and e.function.volatile) for e in walk(expr)
    )


def conditions(predicate: Expr) -> list[Condition]:
    """Return what one conjunct says about possible keys; nothing where it fits none of the forms."""
    match predicate:
        case Call(function=function, args=(left, right)) if function.name in _FLIPPED:
            return _comparison(function.name, left, right)
        case Call(function=function, args=(key, Literal(value=str(pattern)))) if function.name == "~~":
            return _like(key, pattern)
        case In(arg=arg, values=values):
            key = _strip(arg)
            if constant(key) or not fits(key.type, arg.type):
                return []
            return [Equals(key, tuple(Literal(v, arg.type) for v in values if v is not None))]
        case IsNull(arg=arg) if not constant(arg):
            key = _strip(arg)
            return [Equals(key, (Literal(None, key.type),))]
        case Coalesce(args=(inner, Literal(value=False))):
            return conditions(inner)
        case Or(args=args):
            return _alternatives(args)
        case Not(arg=arg) if not constant(arg):
            return [Equals(arg, (FALSE,))]
        case _ if not constant(predicate) and not isinstance(predicate, And):
            return [Equals(predicate, (TRUE,))]
    return []


def fits(key: SqlType, value: SqlType) -> bool:
    """Tell whether values of one type can be made to fit keys of another without changing a comparison."""
    return (
        key is value
        or (key in INTEGRAL and value in INTEGRAL)
        or value in _FLOATS_FOR.get(key, ())
        or (key in _TIMES and value in _TIMES)
    )


def _strip(expr: Expr) -> Expr:
    while isinstance(expr, Call) and expr.function.name == "cast":
        inner = expr.args[0]
        if (inner.type, expr.type) not in _LOSSLESS:
            break
        expr = inner
    return expr


def _comparison(name: str, left: Expr, right: Expr) -> list[Condition]:
    if constant(left):
        left, right, name = right, left, _FLIPPED[name]
    if constant(left) or not constant(right):
        return []
    key = _strip(left)
    if not fits(key.type, right.type):
        return []
    if name == "=":
        # A NULL literal would read as IS NULL; `= NULL` is true for no row.
        never = isinstance(right, Literal) and right.value is None
        return [Equals(key, () if never else (right,))]
    return [Bounds(key, name[0] == ">", BoundTemplate(right, name[-1] == "="))]


def _like(key: Expr, pattern: str) -> list[Condition]:
    """`LIKE 'abc%'` bounds its subject from below and above; the pattern itself still has to be tested."""
    prefix = _fixed_prefix(pattern)
    if not prefix or key.type is not TEXT or constant(key):
        return []
    found: list[Condition] = [Bounds(key, True, BoundTemplate(Literal(prefix, TEXT), True), exact=False)]
    after = _after(prefix)
    if after is not None:
        found.append(Bounds(key, False, BoundTemplate(Literal(after, TEXT), False), exact=False))
    return found


def _fixed_prefix(pattern: str) -> str:
    fixed = []
    at = 0
    while at < len(pattern) and pattern[at] not in "%_":
        if pattern[at] == "\\":
            at += 1
            if at == len(pattern):
                return ""
        fixed.append(pattern[at])
        at += 1
    return "".join(fixed)


def _after(prefix: str) -> str | None:
    """Return the least text above all that begin with `prefix`, None where there is none."""
    while prefix:
        last = ord(prefix[-1])
        if last < 0x10FFFF:
            # Surrogates are no characters: U+D7FF is followed by U+E000.
            return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)
        prefix = prefix[:-1]
    return None


def _alternatives(args: Sequence[Expr]) -> list[Condition]:
    """Read an OR of equalities on one set of keys."""
    branches = [_equalities(arg) for arg in args]
    first = branches[0]
    if first is None:
        return []
    keys = tuple(first)
    rows: list[tuple[Expr, ...]] = []
    for branch in branches:
        if branch is None or set(branch) != set(keys):
            return []
        rows += _product([branch[k] for k in keys])
    if len(keys) == 1:
        return [Equals(keys[0], tuple(row[0] for row in rows))]
    return [EqualsRows(keys, tuple(rows))]


def _equalities(expr: Expr) -> dict[Expr, tuple[Expr, ...]] | None:
    """Read a conjunction of equalities as values by key; None where anything else is in it."""
    found: dict[Expr, tuple[Expr, ...]] = {}
    for part in conjuncts(expr):
        says = conditions(part)
        if len(says) != 1 or not isinstance(says[0], Equals) or says[0].key in found:
            return None
        found[says[0].key] = says[0].values
    return found


def _product(values: Sequence[tuple[Expr, ...]]) -> list[tuple[Expr, ...]]:
    rows: list[tuple[Expr, ...]] = [()]
    for alternatives in values:
        rows = [(*row, value) for row in rows for value in alternatives]
    return rows
