"""Vectors: what an expression evaluates to on a chunk of rows: values, validity and errors by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from layby.errors import SqlError
from layby.types.column import Column


@dataclass(slots=True)
class RowErrors:
    """Errors by row: `codes[i]` is 0 where row i has none, else 1 + its position in `errors`."""

    codes: NDArray[Any]
    errors: list[SqlError]


@dataclass(slots=True)
class Vector:
    """Values (with their validity) and errors of an expression on a chunk.

    A constant is held once: `constant` says that `column` has one value that stands for every row (then
    `errors`, if any, has one code too). The value in a row that has an error is unspecified.
    """

    column: Column
    errors: RowErrors | None = None
    constant: bool = False
