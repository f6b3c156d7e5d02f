"""Visited slices: one batch's part of a visit, as the scans that take it see it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from numpy.typing import NDArray

from layby.expr.comparisons import Comparison, Comparisons
from layby.trace.batch import Batch
from layby.trace.cursor import Visit
from layby.types.column import Mask


class VisitedSlice:
    """Positions `start` to `stop` of a batch; each column is cut once for all scans of a shared walk."""

    __slots__ = ("_columns", "_ranges", "batch", "masks", "start", "stop")

    def __init__(self, batch: Batch, start: int, stop: int) -> None:
        self.batch = batch
        self.start = start
        self.stop = stop
        self._columns: list[Any] = [None] * len(batch.columns)
        self._ranges: dict[int, tuple[int, int]] = {}
        self.masks: dict[Comparison, Mask] = {}
        """Where rows pass comparisons that filters begin with, as far as that is known."""

    def columns(self, wanted: Collection[int]) -> list[Any]:
        """Return the columns' parts in this slice: those wanted, others maybe None."""
        columns = self._columns
        for i in wanted:
            if columns[i] is None:
                columns[i] = self.batch.columns[i].slice(self.start, self.stop)
        return columns

    def cut(
        self, chosen: NDArray[Any] | None, wanted: Collection[int]
    ) -> tuple[list[Any], NDArray[Any], int]:
        """Return the wanted columns (others maybe None) and the diffs at the chosen positions, and how many.

        The positions count from `start`; None is all of them.
        """
        columns = self.columns(wanted)
        diffs = self.batch.diffs[self.start : self.stop]
        if chosen is None:
            return columns, diffs, self.stop - self.start
        taken: list[Any] = [None] * len(columns)
        for i in wanted:
            taken[i] = columns[i].take(chosen)
        return taken, diffs[chosen], len(chosen)

    def range_of(self, column: int) -> tuple[int, int]:
        """Return the least and the greatest value of an integer column here (a null counts as 0).

        6 µs on 65,536 integers in the cache, once a slice.
        """
        found = self._ranges.get(column)
        if found is None:
            values = self.columns((column,))[column].values
            found = self._ranges[column] = (int(values.min()), int(values.max()))
        return found

    def may_pass(self, beginnings: Comparisons) -> set[int]:
        """Return the filters (by place) that a row may pass, by what they begin with."""
        found, self.masks = beginnings.evaluate(self.columns(beginnings.columns), self.range_of)
        return found


def visited(visit: Visit) -> list[VisitedSlice]:
    """Return the slices of a visit that are not empty."""
    return [VisitedSlice(batch, start, stop) for batch, start, stop in visit.slices if stop > start]
