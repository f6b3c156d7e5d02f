"""What binding one statement shares: the statement, the catalog, the parameters' types, and its errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from layby.errors import SqlError
from layby.expr.scalar import Expr, Literal, Param
from layby.sql.catalog import Catalog
from layby.sql.parse import ParsedStatement, too_deep
from layby.sql.typenames import display_name
from layby.types.scalar import UNKNOWN, SqlType

MAX_DEPTH = 200
"""Levels that an expression may nest: evaluation recurses a few Python frames a level."""


_TAKES_PARAMS = frozenset({"select_stmt", "insert_stmt", "update_stmt", "delete_stmt", "explain_stmt"})


class TooLongError(Exception):
    """Planning a statement would take longer than was allowed; nothing has come of it."""


class Bound(NamedTuple):
    """A bound expression, and the byte location of its leftmost part (-1: unknown)."""

    expr: Expr
    location: int

    @property
    def type(self) -> SqlType:
        """The expression's type."""
        return self.expr.type


class BindContext:
    """The state of binding one statement.

    `params` grows as `$n` are met. An entry is None until `$n` is met, then UNKNOWN until the place it stands
    in settles its type. `_open` holds the `$n` met while unknown that nothing has settled, by location.
    """

    def __init__(
        self,
        statement: ParsedStatement,
        catalog: Catalog,
        param_types: Sequence[SqlType | None],
        effort: int | None = None,
    ) -> None:
        """`effort` is what may be spent on planning, None for any amount."""
        self.statement = statement
        self.catalog = catalog
        self.params: list[SqlType | None] = [None if t is UNKNOWN else t for t in param_types]
        self._open: dict[int, int] = {}
        self._depth = 0
        self._effort = effort

    def error(
        self,
        sqlstate: str,
        message: str,
        location: int = -1,
        *,
        hint: str | None = None,
        detail: str | None = None,
    ) -> SqlError:
        """Make an error at a byte location of the statement."""
        return SqlError(
            sqlstate, message, hint=hint, detail=detail, position=self.statement.position(location)
        )

    def unsupported(self, what: str, location: int = -1) -> SqlError:
        """Make the error for what PostgreSQL has and layby has not."""
        return self.error("0A000", f"{what} not supported", location)

    def spend(self, effort: int) -> None:
        """Account for work that is about to be done; raises TooLongError where it is more than may be spent.

        The unit is what planning takes for a byte of the parse tree: 0.3 to 0.6 µs.
        """
        if self._effort is not None:
            self._effort -= effort
            if self._effort < 0:
                raise TooLongError

    def enter(self) -> None:
        """Go one level down an expression; raises 54001 past `MAX_DEPTH`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise too_deep()

    def leave(self) -> None:
        """Come back from `enter`."""
        self._depth -= 1

    def param(self, number: int, location: int) -> Bound:
        """Bind a reference to `$number`; raises 42P02 where a statement takes no parameters."""
        if not 1 <= number <= 65_535 or self.statement.kind not in _TAKES_PARAMS:
            raise self.error("42P02", f"there is no parameter ${number}", location)
        while len(self.params) < number:
            self.params.append(None)
        known = self.params[number - 1]
        if known is None or known is UNKNOWN:
            self.params[number - 1] = known = UNKNOWN
            self._open[location] = number
        return Bound(Param(number, known), location)

    def settle(self, number: int, type_: SqlType, location: int) -> Bound:
        """Give a parameter that was met as unknown its type; raises 42P08 where it already has another."""
        known = self.params[number - 1]
        if known is not UNKNOWN and known is not type_:
            first = display_name(known) if known is not None else "unknown"
            raise self.error(
                "42P08",
                f"inconsistent types deduced for parameter ${number}",
                location,
                detail=f"{first} versus {display_name(type_)}",
            )
        self.params[number - 1] = type_
        self._open.pop(location, None)
        return Bound(Param(number, type_), location)

    def finish_params(self) -> tuple[SqlType, ...]:
        """Return the parameters' types; raises where one could not be determined."""
        for location, number in self._open.items():
            if self.params[number - 1] is not UNKNOWN:
                raise self.error("42P08", f"could not determine data type of parameter ${number}", location)
        types: list[SqlType] = []
        for number, type_ in enumerate(self.params, 1):
            if type_ is None or type_ is UNKNOWN:
                raise self.error("42P18", f"could not determine data type of parameter ${number}")
            types.append(type_)
        return tuple(types)


def null(type_: SqlType) -> Literal:
    """Return the NULL of a type."""
    return Literal(None, type_)
