"""Answers of peeks: rows (as columns, or ready for the wire) or an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from layby.errors import SqlError
from layby.types.column import Column


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """`count` rows as finished wire messages, end to end; row i ends at byte `ends[i]`."""

    data: bytes
    ends: Sequence[int] | NDArray[Any]
    count: int


class RowEncoder(Protocol):
    """Turns finished columns into wire messages; a picklable value, so that it runs where the walk ran."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        """Encode `count` rows."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an answer, after finishing: `encoded` where the peek had an encoder, else `columns`."""

    count: int
    columns: tuple[Column, ...] = ()
    encoded: EncodedRows | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The peek's error."""

    error: SqlError


PeekResponse = Rows | Failed
