"""Errors that a client sees, and the one class for our own bugs.

Every error that reaches a client carries a SQLSTATE of PostgreSQL (its appendix A), a message in
PostgreSQL's style (lowercase, no full stop), and where there is one a detail, a hint and the position in
the statement's text.
"""

from __future__ import annotations

from typing import Any, Final


class SqlError(Exception):
    """An error to be told to the client; it leaves the server as it was.

    `position` counts characters of the statement's text from 1, as the protocol does. `context` says where
    in the input the error lies ("COPY t, line 3, column a"). `schema`, `table`, `column` and `constraint`
    name what refused a value, for programs to read.
    """

    def __init__(
        self,
        sqlstate: str,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: int | None = None,
        context: str | None = None,
        schema: str | None = None,
        table: str | None = None,
        column: str | None = None,
        constraint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message
        self.detail = detail
        self.hint = hint
        self.position = position
        self.context = context
        self.schema = schema
        self.table = table
        self.column = column
        self.constraint = constraint

    def forget_frames(self) -> None:
        """Let go of where it was raised: frames hold whatever was at work there, and an error that has become
        an answer would keep that, in a cycle, until the garbage collector comes by."""
        self.__traceback__ = self.__context__ = self.__cause__ = None

    def shortened(self) -> SqlError:
        """Return the error with a message that the serving loop passes on in no time: it may tell a value of
        many megabytes, of which this is the beginning."""
        if len(self.message) <= _MOST_TOLD:
            return self
        return _rebuild(self.sqlstate, f"{self.message[:_MOST_TOLD]}...", self._given())

    def _given(self) -> dict[str, Any]:
        return {name: value for name in _FIELDS if (value := getattr(self, name)) is not None}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the keyword fields, so that an error crosses to another process whole."""
        return (_rebuild, (self.sqlstate, self.message, self._given()))

    def __repr__(self) -> str:
        return f"SqlError({self.sqlstate!r}, {self.message!r})"


_MOST_TOLD: Final = 1_024
"""Characters of a message, where it is shortened."""

_FIELDS: Final = ("detail", "hint", "position", "context", "schema", "table", "column", "constraint")


def _rebuild(sqlstate: str, message: str, fields: dict[str, Any]) -> SqlError:
    return SqlError(sqlstate, message, **fields)


class InternalError(SqlError):
    """A bug of ours (SQLSTATE XX000): an invariant that did not hold. Logged where it is made."""

    def __init__(self, message: str, *, detail: str | None = None) -> None:
        super().__init__("XX000", message, detail=detail)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as itself."""
        return (_rebuild_internal, (self.message, self.detail))


def _rebuild_internal(message: str, detail: str | None) -> InternalError:
    return InternalError(message, detail=detail)
