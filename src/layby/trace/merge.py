"""A merge of adjacent batches into one, under fuel."""

from __future__ import annotations

import numpy as np

from layby.memory.arena import Arena
from layby.trace.batch import Batch, seal_batch
from layby.trace.consolidate import consolidate_updates
from layby.trace.cursor import Cursor, Slice
from layby.trace.search import row_position
from layby.types.column import Column, concat

Piece = tuple[
    list[Column], np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]
]


class Merge:
    """Merges `inputs`, which lie side by side in time, and advances times below `since` to it.

    It goes on where it stopped: positions of a cursor, the pieces finished so far, and the slices of the last
    row where that may go on. Pieces are put together at the end, in one placement: 10 ms for a million rows
    of five fixed columns. A million rows of three columns from four batches take 85 ms in all.
    """

    def __init__(self, inputs: tuple[Batch, ...], since: int, arena: Arena) -> None:
        self.inputs = inputs
        self.result: Batch | None = None
        """The merged batch once `step` has reached the end; it may be empty."""
        # Not the inputs' own: a new batch may say that it starts at its lower bound, while somebody still
        # reads an older one before that.
        self._since = since
        self._arena = arena
        self._cursor = Cursor(inputs, exact_groups=True)
        self._pieces: list[Piece] = []
        self._pending: list[Slice] = []

    def step(self, fuel: int) -> int:
        """Visit at most `fuel` positions and return how many were."""
        visit = self._cursor.advance(fuel)
        if visit is None:
            self._emit(self._pending or [(self.inputs[0], 0, 0)])
            self._finish()
            return 0
        if visit.last is None:
            self._emit(self._pending + visit.slices)
            self._pending = []
            return visit.positions
        # The last row's group goes on: its updates wait until all of them are here. Each is visited once
        # however many they are, so a row with a long history costs no more than many rows.
        last, position = visit.last
        closed: list[Slice] = []
        opened: list[Slice] = []
        for batch, start, stop in visit.slices:
            cut = row_position(batch, last.columns, position, "left", start, stop)
            if start < cut:
                closed.append((batch, start, cut))
            if cut < stop:
                opened.append((batch, cut, stop))
        if closed:
            self._emit(self._pending + closed)
            self._pending = opened
        else:
            self._pending += opened
        return visit.positions

    def _emit(self, slices: list[Slice]) -> None:
        """Finish the updates of `slices`, which hold whole groups, as the next piece."""
        first = slices[0][0]
        columns = [
            concat([batch.columns[c].slice(start, stop) for batch, start, stop in slices])
            for c in range(len(first.columns))
        ]
        times = np.concatenate([batch.times[start:stop] for batch, start, stop in slices])
        diffs = np.concatenate([batch.diffs[start:stop] for batch, start, stop in slices])
        np.maximum(times, self._since, out=times)
        self._pieces.append(consolidate_updates(columns, first.layout.orderings, times, diffs))

    def _finish(self) -> None:
        first, last = self.inputs[0], self.inputs[-1]
        pieces = self._pieces
        columns = [concat(parts) for parts in zip(*(piece[0] for piece in pieces), strict=True)]
        times = np.concatenate([piece[1] for piece in pieces])
        diffs = np.concatenate([piece[2] for piece in pieces])
        self.result = seal_batch(
            first.layout, columns, times, diffs, first.lower, last.upper, self._since, self._arena
        )
