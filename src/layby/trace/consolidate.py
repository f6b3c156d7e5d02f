"""Consolidation: equal rows put together, their diffs summed, zeros dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layby.types.column import Column, FixedColumn, Indices
from layby.types.ordering import ASCENDING, Ordering, sort_groups
from layby.types.scalar import BIGINT


def consolidate(
    columns: Sequence[Column],
    orderings: Sequence[Ordering],
    diffs: NDArray[Any],
    times: NDArray[np.int64] | None = None,
) -> tuple[Indices, NDArray[np.int64]]:
    """Sum the diffs of equal rows (and of equal times, where given) and drop those that come to zero.

    Two rows are equal where all columns are, bit by bit, a null equal to a null; without columns all rows
    are equal. Returns the index of one update of each group, and the group's sum, in row order and then in
    that of time.
    """
    indices, sums = _consolidate(columns, orderings, diffs, times)
    return np.arange(len(diffs)) if indices is None else indices, sums


def consolidate_updates(
    columns: Sequence[Column], orderings: Sequence[Ordering], times: NDArray[np.int64], diffs: NDArray[Any]
) -> tuple[list[Column], NDArray[np.int64], NDArray[np.int64]]:
    """Return updates sorted by row and time with the diffs of equal ones summed and zeros dropped.

    What is in that form already is returned as it is, without a copy.
    """
    indices, sums = _consolidate(columns, orderings, diffs, times)
    if indices is None:
        return list(columns), times, sums
    return [column.take(indices) for column in columns], times[indices], sums


def is_constant(values: NDArray[Any]) -> bool:
    """Whether all values are one; cheap where the first and last differ, or where only one is stored."""
    if values.strides == (0,) or len(values) < 2:
        return True
    return bool(values[0] == values[-1] and (values == values[0]).all())


def _consolidate(
    columns: Sequence[Column],
    orderings: Sequence[Ordering],
    diffs: NDArray[Any],
    times: NDArray[np.int64] | None,
) -> tuple[Indices | None, NDArray[np.int64]]:
    """Return indices (None: all, as they are) and sums."""
    length = len(diffs)
    if length < 2:
        return (None, diffs) if length == 0 or diffs[0] else (np.zeros(0, np.int64), diffs[:0])
    if times is not None and not is_constant(times):
        columns = [*columns, FixedColumn(BIGINT, times)]
        orderings = [*orderings, ASCENDING]
    order, starts = sort_groups(columns, orderings, length)
    if starts.all():
        sums = diffs if order is None else diffs[order]
        representatives = order
    else:
        first = np.flatnonzero(starts)
        sums = np.add.reduceat(diffs if order is None else diffs[order], first)
        representatives = first if order is None else order[first]
    kept = np.flatnonzero(sums)
    if len(kept) == len(sums):
        return representatives, sums
    return (kept if representatives is None else representatives[kept]), sums[kept]
