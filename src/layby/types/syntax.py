"""What the text formats of all types share: whitespace, and PostgreSQL's wording of bad input."""

from __future__ import annotations

from typing import Final

from layby.errors import SqlError
from layby.types.scalar import TIMESTAMP, TIMESTAMPTZ, SqlType

WHITESPACE: Final = " \t\n\v\f\r"
"""What PostgreSQL's `isspace` takes for white space; Python's `str.strip()` would take more."""

_LONG_NAMES: Final = {TIMESTAMP: "timestamp", TIMESTAMPTZ: "timestamp with time zone"}


def name_in_messages(type_: SqlType) -> str:
    """Return the type's name as PostgreSQL's input functions write it."""
    return _LONG_NAMES.get(type_, type_.name)


def invalid_syntax(type_: SqlType, text: str, sqlstate: str = "22P02") -> SqlError:
    """Return the error of a text that is no value of the type at all."""
    return SqlError(sqlstate, f'invalid input syntax for type {name_in_messages(type_)}: "{text}"')


def insufficient_data() -> SqlError:
    """Return the error of a binary value that is too short for its type."""
    return SqlError("08P01", "insufficient data left in message")


def incorrect_binary() -> SqlError:
    """Return the error of a binary value that is longer than its type."""
    return SqlError("22P03", "incorrect binary data format")
