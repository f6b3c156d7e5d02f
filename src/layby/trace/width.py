"""Row widths: what wide rows cost a walk beside their number.

A budget counts positions, and what a position takes grows with the bytes of its row. So a row whose
variable-width values take more than `UNIT` bytes weighs one position more for each further `UNIT` begun, and
fuel bounds time on wide rows too. Found once, when a batch is sealed (1 ms for a million rows and column, a
comparison of two numbers where all texts together are short). A batch without wide rows keeps nothing and is
visited as ever: a lookup in it (2.8 µs) costs less than 0.1 µs more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from layby.memory.arena import Arena
from layby.types.column import Column, TextColumn

if TYPE_CHECKING:
    from layby.trace.batch import Batch

UNIT: Final = 1024
"""Bytes that a position stands for."""

Numbers = NDArray[np.int64]


class WideRows(NamedTuple):
    """The rows of a batch that weigh more than one position.

    `rows` are their positions, ascending; `extra` has one number more: `extra[i]` is what the first `i` of
    them weigh beyond one position each.
    """

    rows: Numbers
    extra: Numbers

    def beyond(self, start: int, stop: int) -> int:
        """Return what rows `start` to `stop` weigh beyond one position each."""
        first, last = self.rows.searchsorted((start, stop))
        return int(self.extra[last] - self.extra[first])

    def affordable(self, start: int, fuel: int) -> int:
        """Return how many rows from `start` on weigh `fuel` at most; at least one, whatever it weighs."""
        rows, extra = self.rows, self.extra
        first = int(rows.searchsorted(start))
        # What the rows up to and with each wide one weigh; the first that is too much ends the run. A wide
        # one weighs two at least, so no more of them need be looked at.
        last = min(len(rows), first + fuel // 2 + 1)
        weights = rows[first:last] - start + 1 + extra[first + 1 : last + 1] - extra[first]
        fits = int(weights.searchsorted(fuel, "right"))
        count = fuel - int(extra[first + fits] - extra[first])
        if first + fits < len(rows):
            count = min(count, int(rows[first + fits]) - start)
        return max(1, count)

    def affordable_before(self, stop: int, fuel: int) -> int:
        """Return how many rows that end before `stop` weigh `fuel` at most; at least one."""
        rows, extra = self.rows, self.extra
        last = int(rows.searchsorted(stop))
        first = max(0, last - fuel // 2 - 1)
        weights = (stop - rows[first:last] + extra[last] - extra[first:last])[::-1]
        fits = int(weights.searchsorted(fuel, "right"))
        count = fuel - int(extra[last] - extra[last - fits])
        if fits < last:
            count = min(count, stop - 1 - int(rows[last - fits - 1]))
        return max(1, count)

    def place(self, arena: Arena) -> WideRows:
        """Return the same with its buffers in `arena`."""
        return WideRows(cast("Numbers", arena.place(self.rows)), cast("Numbers", arena.place(self.extra)))


def text_bytes(slices: Iterable[tuple[Batch, int, int]], columns: Collection[int]) -> int:
    """Return the bytes of text that slices of batches have in some of their columns."""
    found = 0
    for batch, start, stop in slices:
        for at in columns:
            column = batch.columns[at]
            if isinstance(column, TextColumn):
                found += int(column.offsets[stop] - column.offsets[start])
    return found


def wide_rows(columns: Sequence[Column]) -> WideRows | None:
    """Return the wide rows of columns of one length, None where there are none."""
    texts = [c for c in columns if isinstance(c, TextColumn)]
    if sum(int(c.offsets[-1] - c.offsets[0]) for c in texts) <= UNIT:
        return None
    widths: Numbers = np.diff(texts[0].offsets)
    for column in texts[1:]:
        widths += np.diff(column.offsets)
    rows = np.flatnonzero(widths > UNIT)
    if not len(rows):
        return None
    extra = np.zeros(len(rows) + 1, np.int64)
    np.cumsum((widths[rows] - 1) // UNIT, out=extra[1:])
    return WideRows(rows, extra)
