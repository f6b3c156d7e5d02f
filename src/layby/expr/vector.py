"""Vectors: what an expression evaluates to on a chunk of rows: values, validity and errors by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layby.errors import SqlError
from layby.types.column import Column, FixedColumn, Mask, column_from_values
from layby.types.scalar import PhysicalValue, SqlType


@dataclass(slots=True)
class RowErrors:
    """Errors by row: `codes[i]` is 0 where row i has none, else 1 + its position in `errors`."""

    codes: NDArray[Any]
    errors: list[SqlError]

    def masked(self, keep: Mask) -> RowErrors | None:
        """Return the errors of the rows where `keep` is True, None if there are none.

        One code or one bit may stand for every row.
        """
        codes = np.where(keep, self.codes, np.int32(0))
        return RowErrors(codes, self.errors) if codes.any() else None

    def then(self, later: RowErrors | None) -> RowErrors:
        """Return these errors, and in the rows that have none those of `later`."""
        if later is None:
            return self
        if not self.errors:
            return later
        shifted = np.where(later.codes != 0, later.codes + np.int32(len(self.errors)), np.int32(0))
        return RowErrors(np.where(self.codes != 0, self.codes, shifted), [*self.errors, *later.errors])

    def first(self) -> tuple[int, SqlError] | None:
        """Return the first row that has an error, and its error."""
        rows = np.flatnonzero(self.codes)
        if not len(rows):
            return None
        row = int(rows[0])
        return row, self.errors[int(self.codes[row]) - 1]


@dataclass(slots=True)
class Vector:
    """Values (with their validity) and errors of an expression on a chunk.

    A constant is held once: `constant` says that `column` has one value that stands for every row (then
    `errors`, if any, has one code too). The value in a row that has an error is unspecified.
    """

    column: Column
    errors: RowErrors | None = None
    constant: bool = False

    def expanded(self, length: int) -> Column:
        """Return the column with one value a row."""
        if not self.constant or length == 1:
            return self.column
        column = self.column
        if isinstance(column, FixedColumn):
            valid = None if column.valid is None else np.repeat(column.valid, length)
            return FixedColumn(column.type, np.repeat(column.values, length), valid)
        return column.take(np.zeros(length, np.int64))

    def raises(self, error: SqlError) -> Vector:
        """Return this vector with `error` in every row."""
        return Vector(self.column, RowErrors(np.ones(len(self.column), np.int32), [error]), self.constant)


def constant(type_: SqlType, value: PhysicalValue) -> Vector:
    """Return the vector of one value."""
    return Vector(column_from_values(type_, (value,)), None, True)


def then(first: RowErrors | None, later: RowErrors | None) -> RowErrors | None:
    """Return the errors of two evaluations, the first of a row's winning."""
    return later if first is None else first.then(later)
