"""Batches that no trace holds: number series made as they are walked, and rows written in a statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from layby.errors import SqlError
from layby.memory.arena import Arena
from layby.trace.batch import MAX_TIME, MIN_TIME, Batch, repeated
from layby.trace.layout import Layout
from layby.trace.width import wide_rows
from layby.types.column import Array, Column, FixedColumn, Indices
from layby.types.scalar import SqlType

_LONGEST: Final = (1 << 60) - 1
"""The most values of a series; numpy describes no longer array, and no walk gets there."""


class SeriesColumn(Column):
    """`start`, `start + step`, ...: values that are computed when a slice of them is taken.

    All of them fit the type, so the arithmetic below is right modulo 2**64 wherever an intermediate is not.
    """

    __slots__ = ("length", "start", "step")

    def __init__(self, type_: SqlType, start: int, step: int, length: int) -> None:
        self.type = type_
        self.valid = None
        self.start = start
        self.step = step
        self.length = length

    def __len__(self) -> int:
        return self.length

    def slice(self, start: int, stop: int) -> FixedColumn:
        """Return the values from `start` to `stop`, computed."""
        return self._computed(np.arange(start, stop, dtype=np.int64))

    def take(self, indices: Indices | Array) -> FixedColumn:
        """Return the values at `indices`, computed."""
        return self._computed(np.asarray(indices, np.int64))

    def value(self, position: int) -> int:
        """Return one value."""
        return self.start + self.step * position

    def to_list(self) -> list[Any]:
        """Return all values."""
        return [self.value(i) for i in range(self.length)]

    def place(self, arena: Arena) -> SeriesColumn:  # noqa: ARG002 - nothing is placed
        """Return itself: there are no buffers."""
        return self

    @property
    def nbytes(self) -> int:
        """No bytes: the column has no buffers."""
        return 0

    @property
    def values(self) -> Array:
        """All values, computed: O(length) memory."""
        return self.slice(0, self.length).values

    def _computed(self, indices: Indices) -> FixedColumn:
        values = indices * np.int64(self.step)
        values += np.int64(self.start)
        return FixedColumn(self.type, values.astype(self.type.dtype, copy=False))


def series_batch(start: int, stop: int, step: int, type_: SqlType) -> Batch:
    """Return `generate_series(start, stop, step)` as a batch of one column, in O(1) memory.

    Raises 22023 where `step` is zero. Not sorted where `step` is negative, so it is walked, never sought in.
    """
    if step == 0:
        raise SqlError("22023", "step size cannot equal zero")
    length = min(max((stop - start) // step + 1, 0), _LONGEST)
    return _given((SeriesColumn(type_, start, step, length),), (type_,), length)


def constant_batch(columns: Sequence[Column], types: Sequence[SqlType], length: int | None = None) -> Batch:
    """Return rows as given, in the order given: without a key, each inserted once at the beginning of time.

    `length` is needed where there are no columns. Not sorted, so it is walked, never sought in or merged.
    """
    return _given(tuple(columns), tuple(types), len(columns[0]) if length is None else length)


def _given(columns: tuple[Column, ...], types: tuple[SqlType, ...], length: int) -> Batch:
    times, diffs = repeated(MIN_TIME, length), repeated(1, length)
    return Batch(Layout(types, ()), columns, times, diffs, MIN_TIME, MAX_TIME, MIN_TIME, wide_rows(columns))
