"""Functions, operators and casts: what a call evaluates, and where it is registered.

Operators are functions named by their symbol (`=`, `+`, `||`, `~~` for LIKE), as in pg_operator. A cast from
`source` to `target` is a function too, named `cast`. A function is registered once at import and pickled by
its signature, so the same object serves in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from layby.types.scalar import SqlType

if TYPE_CHECKING:
    from layby.expr.vector import Vector

Kernel = Callable[[Sequence["Vector"], int], "Vector"]
"""Evaluates a function on whole columns: argument vectors and the number of rows to the result vector."""


@dataclass(frozen=True, slots=True)
class Function:
    """One overload: argument types, result type, and the kernel that evaluates it on whole columns.

    `volatile` functions (`random`) are not folded; the others are, when all arguments are constant.
    """

    name: str
    args: tuple[SqlType, ...]
    result: SqlType
    kernel: Kernel = field(repr=False, compare=False)
    volatile: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _registered, (self.name, self.args, self.result)


class CastContext(Enum):
    """Where a cast may be applied without being written, from the freest to the strictest."""

    IMPLICIT = "implicit"
    ASSIGNMENT = "assignment"
    EXPLICIT = "explicit"


_FUNCTIONS: dict[str, list[Function]] = {}
_CASTS: dict[tuple[SqlType, SqlType], tuple[Function, CastContext]] = {}


def register(function: Function) -> None:
    """Make an overload known."""
    _FUNCTIONS.setdefault(function.name, []).append(function)


def register_cast(function: Function, context: CastContext) -> None:
    """Make a cast from `function.args[0]` to `function.result` known."""
    _CASTS[function.args[0], function.result] = (function, context)


def overloads(name: str) -> Sequence[Function]:
    """Return the overloads of a name, none if there is no such function."""
    return _FUNCTIONS.get(name, ())


def cast_between(source: SqlType, target: SqlType) -> tuple[Function, CastContext] | None:
    """Return the cast from one type to another, or None if there is none."""
    return _CASTS.get((source, target))


def _registered(name: str, args: tuple[SqlType, ...], result: SqlType) -> Function:
    if name == "cast":
        return _CASTS[args[0], result][0]
    return next(f for f in _FUNCTIONS[name] if f.args == args and f.result == result)
