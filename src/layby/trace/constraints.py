"""Literal constraints: the keys, key prefixes and key ranges that a peek seeks to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import overload

import numpy as np

from layby.trace.layout import Layout
from layby.types.column import Column, FixedColumn
from layby.types.scalar import FLOATING, PhysicalValue


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range of the column after the prefix; the value is not NULL."""

    value: PhysicalValue
    inclusive: bool


@dataclass(frozen=True, slots=True, eq=False)
class BoundColumn:
    """A bound whose value is large: a column of it alone, taken out where it is sought."""

    column: Column
    inclusive: bool

    def bound(self) -> Bound:
        """Return the bound itself."""
        return Bound(self.column.value(0), self.inclusive)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows whose first key columns equal `prefix` and whose next one lies between the bounds.

    A None in the prefix seeks the NULLs (IS NULL). `lower` and `upper` are in SQL order of the values,
    whatever the direction of the index; a range with either bound leaves NULLs out, one with neither takes
    every row of the prefix. A full key is a prefix as long as the key.
    """

    prefix: tuple[PhysicalValue, ...]
    lower: Bound | None = None
    upper: Bound | None = None


@dataclass(frozen=True, slots=True, eq=False)
class KeyList(Sequence[KeyRange]):
    """Ranges of many prefixes, held as columns, all with the same bounds; each is made as it is looked at.

    Without columns it is the one range of the bounds alone.
    """

    columns: tuple[Column, ...]
    lower: Bound | BoundColumn | None = None
    upper: Bound | BoundColumn | None = None

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 1

    @overload
    def __getitem__(self, at: int) -> KeyRange: ...
    @overload
    def __getitem__(self, at: slice) -> KeyList: ...
    def __getitem__(self, at: int | slice) -> KeyRange | KeyList:
        """Return one range, or those of a slice in its order."""
        if isinstance(at, slice):
            if not self.columns:
                return self
            places = np.arange(len(self))[at]
            return KeyList(tuple(c.take(places) for c in self.columns), self.lower, self.upper)
        if not self.columns and at:
            raise IndexError(at)
        lower, upper = self.lower, self.upper
        return KeyRange(
            tuple([c.value(at) for c in self.columns]),
            lower.bound() if isinstance(lower, BoundColumn) else lower,
            upper.bound() if isinstance(upper, BoundColumn) else upper,
        )


Constraints = Sequence[KeyRange]
"""Disjoint ranges in the order of the index; empty: nothing matches. No constraints at all is None."""


def split_zeros(constraints: Constraints, layout: Layout) -> Constraints:
    """Return the constraints with a zero of a float column that is not the last one sought given both signs.

    -0.0 and 0.0 are equal, but the rows of one lie before all rows of the other: `(0.0, 5)` is two ranges.
    The last column sought needs no such care, as its zeros lie side by side.
    """
    if isinstance(constraints, KeyList) and not any(map(_has_zero, constraints.columns)):
        return constraints
    ranges = list(constraints)
    for column in reversed(range(len(layout.key))):
        if layout.types[column] not in FLOATING:
            continue
        signs = (0.0, -0.0) if layout.key[column].descending else (-0.0, 0.0)
        split: list[KeyRange] = []
        for _, group in groupby(ranges, lambda r, end=column + 1: r.prefix[:end]):  # type: ignore[misc]
            alike = list(group)
            if any(_goes_on(r, column) for r in alike) and alike[0].prefix[column] == 0:
                for sign in signs:
                    for r in alike:
                        prefix = (*r.prefix[:column], sign, *r.prefix[column + 1 :])
                        split.append(replace(r, prefix=prefix))
            else:
                split.extend(alike)
        ranges = split
    return tuple(ranges)


def _has_zero(column: Column) -> bool:
    """Whether a zero is among a column of floats."""
    return isinstance(column, FixedColumn) and column.type in FLOATING and not column.values.all()


def _goes_on(key_range: KeyRange, column: int) -> bool:
    """Whether the range has `column` in its prefix and seeks something after it."""
    sought = len(key_range.prefix) + (key_range.lower is not None or key_range.upper is not None)
    return len(key_range.prefix) > column and sought > column + 1
