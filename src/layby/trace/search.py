"""Seeking: where a key range, or a row of another batch, lies in a batch.

In a batch of a million rows a full key of one integer column is found in 0.9 µs, ascending, and 2 µs,
descending; a text key in 4 µs where ten share its first eight bytes, a range in 1.4 µs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign
from typing import Literal

from layby.trace.batch import Batch
from layby.trace.constraints import KeyRange
from layby.types.column import Column
from layby.types.scalar import PhysicalValue


def seek(batch: Batch, key_range: KeyRange, lo: int = 0, hi: int | None = None) -> tuple[int, int]:
    """Return `[start, stop)`, the rows of `batch` within `[lo, hi)` that lie in the range.

    Values are compared as SQL does, also where a column's type cannot hold them. Where more is sought after
    a float column, a zero has the sign that it has (`constraints.split_zeros` gives both). A part without
    rows is an empty range.
    """
    if hi is None:
        hi = len(batch)
    searches = batch.searches
    column = 0
    for value in key_range.prefix:
        lo, hi = searches[column].equal(value, lo, hi)
        column += 1
        if value == 0 and batch.splits_zeros and _sought(key_range) > column:
            lo, hi = searches[column - 1].signed(value, lo, hi)
        if lo >= hi:
            return lo, lo
    if key_range.lower is None and key_range.upper is None:
        return lo, hi
    return searches[column].between(key_range.lower, key_range.upper, lo, hi)


def row_position(
    batch: Batch,
    columns: Sequence[Column],
    row: int,
    side: Literal["left", "right"],
    lo: int = 0,
    hi: int | None = None,
) -> int:
    """Return where row `row` of `columns` lies among `[lo, hi)` of `batch`, in row order.

    "left" is before the rows equal to it (bit by bit), "right" behind them. Costs about 1 µs for each column
    that has to be looked at: those after the first only among rows that tie.
    """
    if hi is None:
        hi = len(batch)
    for search, column in zip(batch.searches, columns, strict=True):
        lo, hi = search.same(column, row, lo, hi)
        if lo >= hi:
            return lo
    return lo if side == "left" else hi


def rows_equal(left: Sequence[Column], i: int, right: Sequence[Column], j: int) -> bool:
    """Whether row `i` of `left` is row `j` of `right`, bit by bit."""
    return all(_same(a.value(i), b.value(j)) for a, b in zip(left, right, strict=True))


def _same(a: PhysicalValue, b: PhysicalValue) -> bool:
    if a != b:
        return isinstance(a, float) and isinstance(b, float) and a != a and b != b
    return a != 0 or not isinstance(a, float) or copysign(1.0, a) == copysign(1.0, b)  # type: ignore[arg-type]


def _sought(key_range: KeyRange) -> int:
    return len(key_range.prefix) + (key_range.lower is not None or key_range.upper is not None)
