"""Functions, operators and casts: what a call evaluates, and where it is registered.

Operators are functions named by their symbol (`=`, `+`, `||`, `~~` for LIKE), as in pg_operator. A cast from
`source` to `target` is a function too, named `cast`. A function is registered once at import and pickled by
its signature, so the same object serves in every process. Importing this module registers nothing:
`layby.expr.functions` does, and both the binder and an unpickled function import it.

What the binder has to know beyond the tables:

- `concat`, `concat_ws`, `greatest` and `least` take any number of arguments: they have no overloads, and
  `variadic(name, types)` makes the one for the given argument types. `concat` takes arguments of any types
  as they are (UNKNOWN ones become TEXT), `concat_ws` too after a separator that is TEXT. `greatest` and
  `least` take arguments that have been brought to one type, as the branches of a CASE are.
- `||` has an overload for TEXT with every other type on either side, which shows the other as a cast does.
- `nullif(a, b)` is `CASE WHEN a = b THEN NULL ELSE a END`; `x BETWEEN a AND b` is two comparisons.
- LIKE is `~~`, NOT LIKE `!~~`, ILIKE `~~*` and `!~~*`; with ESCAPE the pattern is
  `like_escape(pattern, escape)`.
- EXTRACT(field FROM x) is `extract(field, x)`; POSITION(a IN b) is `position(b, a)`; TRIM is `btrim`, `ltrim`
  or `rtrim`; SUBSTRING(s FROM a FOR b) is `substring(s, a, b)`; `!=` is `<>`.
- A timestamp without time zone is taken to be in UTC wherever it meets a timestamptz.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

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


EXPANSIVE: Final = frozenset({"repeat", "lpad", "rpad"})
"""Functions whose result may be longer than all of their arguments: the input does not tell the cost."""

_FUNCTIONS: dict[str, list[Function]] = {}
VariadicMaker = Callable[[tuple[SqlType, ...]], Function | None]
"""Makes the overload of a variadic function for the given argument types; None if it has none for them."""

_VARIADICS: dict[str, VariadicMaker] = {}
_CASTS: dict[tuple[SqlType, SqlType], tuple[Function, CastContext]] = {}


def all_functions() -> Iterator[Function]:
    """Yield every registered function, operator and cast; not the variadic ones, made on demand."""
    for known in _FUNCTIONS.values():
        yield from known
    for function, _ in _CASTS.values():
        yield function


def register(function: Function) -> None:
    """Make an overload known."""
    _FUNCTIONS.setdefault(function.name, []).append(function)


def register_cast(function: Function, context: CastContext) -> None:
    """Make a cast from `function.args[0]` to `function.result` known."""
    _CASTS[function.args[0], function.result] = (function, context)


def register_variadic(name: str, maker: VariadicMaker) -> None:
    """Make a function of any number of arguments known."""
    _VARIADICS[name] = maker


def variadic(name: str, args: tuple[SqlType, ...]) -> Function | None:
    """Return the overload of a variadic function for these argument types, None if there is none."""
    maker = _VARIADICS.get(name)
    return None if maker is None else maker(args)


def is_variadic(name: str) -> bool:
    """Tell whether a function takes any number of arguments."""
    return name in _VARIADICS


def overloads(name: str) -> Sequence[Function]:
    """Return the overloads of a name, none if there is no such function."""
    return _FUNCTIONS.get(name, ())


def cast_between(source: SqlType, target: SqlType) -> tuple[Function, CastContext] | None:
    """Return the cast from one type to another, or None if there is none."""
    return _CASTS.get((source, target))


def _registered(name: str, args: tuple[SqlType, ...], result: SqlType) -> Function:
    import layby.expr.functions  # noqa: F401 - registers every function where nothing has yet

    if name == "cast":
        return _CASTS[args[0], result][0]
    made = variadic(name, args)
    if made is not None:
        return made
    return next(f for f in _FUNCTIONS[name] if f.args == args and f.result == result)
