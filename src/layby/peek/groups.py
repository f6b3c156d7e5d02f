"""Groups: sums the multiplicities of equal rows over visits that may cut between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layby.trace.consolidate import consolidate
from layby.trace.layout import Layout
from layby.types.column import Column, concat


class Groups:
    """Collects survivors of visits in row order and hands out groups that are known to be whole.

    The updates of one row may lie in several batches and at several times, and a visit may end between two
    of them; the last group of such a visit is held back and summed with the next.
    """

    @dataclass(slots=True)
    class Rows:
        """Distinct rows in the order of the walk, their sums (never 0), and their error codes if any."""

        columns: list[Column]
        sums: NDArray[Any]
        codes: NDArray[Any] | None

    def __init__(self, layout: Layout, *, reverse: bool) -> None:
        self._layout = layout
        self._reverse = reverse
        self._parts: list[tuple[list[Column], NDArray[Any], NDArray[Any] | None]] = []

    def add(self, columns: list[Column], diffs: NDArray[Any], count: int, codes: NDArray[Any] | None) -> None:
        """Take `count` updates: all columns of their rows, their diffs, and their error codes (0: none)."""
        if count:
            self._parts.append((columns, diffs, codes))

    def take(self, *, held_back: bool) -> Rows | None:
        """Return the rows of the groups taken so far, but for the last one where it may go on."""
        rows = self.flush()
        if rows is None or not held_back:
            return rows
        last = len(rows.sums) - 1
        self._parts.append(
            (
                [c.slice(last, last + 1) for c in rows.columns],
                rows.sums[last:],
                None if rows.codes is None else rows.codes[last:],
            )
        )
        if not last:
            return None
        codes = None if rows.codes is None else rows.codes[:last]
        return Groups.Rows([c.slice(0, last) for c in rows.columns], rows.sums[:last], codes)

    def flush(self) -> Rows | None:
        """Return the rows of all groups; none is held back any more."""
        parts, self._parts = self._parts, []
        if not parts:
            return None
        columns = [concat(part) for part in zip(*(p[0] for p in parts), strict=True)]
        diffs = np.concatenate([p[1] for p in parts])
        codes: NDArray[Any] | None = None
        if any(p[2] is not None for p in parts):
            codes = np.concatenate([np.zeros(len(p[1]), np.int64) if p[2] is None else p[2] for p in parts])
        chosen, sums = consolidate(columns, self._layout.orderings, diffs)
        if not len(chosen):
            return None
        if self._reverse:
            chosen, sums = chosen[::-1], sums[::-1]
        return Groups.Rows([c.take(chosen) for c in columns], sums, None if codes is None else codes[chosen])
