"""Scalar expressions: typed, bound, immutable trees.

A tree is plain data, so that it can be pickled to the process that evaluates it; `evaluate` interprets it on
whole columns. Binding (names to positions, overloads to functions, implicit casts made explicit) has been
done by the SQL front end: every node has its type, and the arguments of a call have the types of its
function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from layby.pickling import pickled_as_call
from layby.types.scalar import BOOLEAN, PhysicalValue, SqlType

if TYPE_CHECKING:
    from layby.expr.function import Function


@pickled_as_call
@dataclass(frozen=True, slots=True)
class ColumnRef:
    """Column `index` of the input."""

    index: int
    type: SqlType


@pickled_as_call
@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: PhysicalValue
    type: SqlType


@pickled_as_call
@dataclass(frozen=True, slots=True)
class Param:
    """Parameter `$number` (from 1) of a prepared statement; replaced by a literal before evaluation."""

    number: int
    type: SqlType


@pickled_as_call
@dataclass(frozen=True, slots=True)
class SessionValue:
    """A value that the session supplies at each execution: `now`, `current_user`, `pg_backend_pid`, ..."""

    name: str
    type: SqlType


@pickled_as_call
@dataclass(frozen=True, slots=True)
class Call:
    """A function, operator or cast applied to its arguments."""

    function: Function
    args: tuple[Expr, ...]

    @property
    def type(self) -> SqlType:
        """The function's result type."""
        return self.function.result


@pickled_as_call
@dataclass(frozen=True, slots=True)
class And:
    """Three-valued AND. An argument's error counts only where no argument before it is false."""

    args: tuple[Expr, ...]
    type: SqlType = BOOLEAN


@pickled_as_call
@dataclass(frozen=True, slots=True)
class Or:
    """Three-valued OR. An argument's error counts only where no argument before it is true."""

    args: tuple[Expr, ...]
    type: SqlType = BOOLEAN


@pickled_as_call
@dataclass(frozen=True, slots=True)
class Not:
    """Three-valued NOT."""

    arg: Expr
    type: SqlType = BOOLEAN


@pickled_as_call
@dataclass(frozen=True, slots=True)
class IsNull:
    """`arg IS NULL`; never null itself."""

    arg: Expr
    type: SqlType = BOOLEAN


@pickled_as_call
@dataclass(frozen=True, slots=True)
class In:
    """`arg IN (values)` over constants of the argument's type; a None among them is NULL."""

    arg: Expr
    values: tuple[PhysicalValue, ...]
    type: SqlType = BOOLEAN


@pickled_as_call
@dataclass(frozen=True, slots=True)
class Case:
    """`CASE WHEN condition THEN result ... ELSE otherwise END`; only the branch taken can raise."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr
    type: SqlType


@pickled_as_call
@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first argument that is not null; those after it cannot raise."""

    args: tuple[Expr, ...]
    type: SqlType


Expr = ColumnRef | Literal | Param | SessionValue | Call | And | Or | Not | IsNull | In | Case | Coalesce


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct subexpressions, in order of evaluation."""
    match expr:
        case Call(args=args) | And(args=args) | Or(args=args) | Coalesce(args=args):
            return args
        case Not(arg=arg) | IsNull(arg=arg) | In(arg=arg):
            return (arg,)
        case Case(branches=branches, otherwise=otherwise):
            return (*(e for branch in branches for e in branch), otherwise)
        case _:
            return ()


def with_children(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """Return `expr` over other subexpressions (as many, of the same types)."""
    match expr:
        case Call() | And() | Or() | Coalesce():
            return replace(expr, args=new)
        case Not() | IsNull() | In():
            return replace(expr, arg=new[0])
        case Case():
            pairs = tuple((new[i], new[i + 1]) for i in range(0, len(new) - 1, 2))
            return replace(expr, branches=pairs, otherwise=new[-1])
        case _:
            return expr


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield `expr` and everything below it."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def transform(expr: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """Return `expr` with `leaf` applied to every node, children first."""
    below = children(expr)
    if below:
        new = tuple(transform(child, leaf) for child in below)
        if any(a is not b for a, b in zip(new, below, strict=True)):
            expr = with_children(expr, new)
    return leaf(expr)


@lru_cache(64)
def plain_columns(types: tuple[SqlType, ...]) -> tuple[ColumnRef, ...]:
    """Return all columns of an input: a table's shard and its indexes are made of the same."""
    return tuple([ColumnRef(at, type_) for at, type_ in enumerate(types)])


def compact(exprs: Sequence[Expr]) -> tuple[int | Expr, ...]:
    """Return expressions for a pickle, plain columns by their numbers; `expanded` makes them again."""
    return tuple([e.index if isinstance(e, ColumnRef) else e for e in exprs])


def expanded(items: Sequence[int | Expr], types: Sequence[SqlType]) -> tuple[Expr, ...]:
    """Return the expressions, `types` being those of their values."""
    pairs = zip(items, types, strict=True)
    return tuple([ColumnRef(item, type_) if isinstance(item, int) else item for item, type_ in pairs])


def columns_used(expr: Expr) -> frozenset[int]:
    """Return the input columns that `expr` reads."""
    return frozenset(node.index for node in walk(expr) if isinstance(node, ColumnRef))


def remap(expr: Expr, position: Callable[[int], int]) -> Expr:
    """Return `expr` over an input in which column `i` stands at `position(i)`."""

    def leaf(node: Expr) -> Expr:
        return ColumnRef(position(node.index), node.type) if isinstance(node, ColumnRef) else node

    return transform(expr, leaf)


Params = Sequence[PhysicalValue] | Mapping[int, PhysicalValue]
"""Values of parameters; that of `$n` is item n - 1."""


def with_values(expr: Expr, params: Params, session: Mapping[str, PhysicalValue]) -> Expr:
    """Return `expr` with every parameter and session value replaced by a literal."""

    def leaf(node: Expr) -> Expr:
        if isinstance(node, Param):
            return Literal(params[node.number - 1], node.type)
        if isinstance(node, SessionValue):
            return Literal(session[node.name], node.type)
        return node

    return transform(expr, leaf)
