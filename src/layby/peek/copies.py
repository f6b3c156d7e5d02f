"""Copies of rows that stand for many: made a piece at a time, since one update may stand for millions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layby.errors import SqlError
from layby.types.column import Column


@dataclass(slots=True)
class Copies:
    """Rows, of each of which so many copies have yet to be made, and what is raised after the last."""

    columns: list[Column]
    sums: NDArray[Any]
    """At least 1 each."""
    raised: SqlError | None

    @property
    def total(self) -> int:
        """How many copies there are left."""
        return int(self.sums.sum())

    def take(self, most: int) -> tuple[list[Column], int]:
        """Return the columns of the first copies, `most` (at least 1) or all, and how many they are."""
        columns, sums = self.columns, self.sums
        ends = np.cumsum(sums)
        whole = int(ends.searchsorted(most, "right"))
        """So many rows go with all their copies, and some copies of the next."""
        self.columns = [column.slice(whole, len(sums)) for column in columns]
        self.sums = sums[whole:]
        if whole < len(sums):
            counts = sums[: whole + 1].copy()
            counts[whole] = most - (int(ends[whole - 1]) if whole else 0)
            self.sums = self.sums.copy()
            self.sums[0] -= counts[whole]
        else:
            counts = sums
        chosen = np.repeat(np.arange(len(counts)), counts)
        return [column.take(chosen) for column in columns], len(chosen)
