"""A transaction's own writes to one table: put together as they grow, and each run arranged once.

Thousands of statements of a row each would be thousands of parts for the read that comes after them. So the
parts are put together into runs of growing size, as a log-structured merge tree does: among n rows there are
about log n runs, and no row is copied more often than that. A read lays each run over what it reads, sorted
once for each index; a run of more than `LARGEST` bytes, or of a wide table, is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from layby.compute.arrangement import Arranged, ArrangementDesc, Updates
from layby.trace.bundle import Snapshot
from layby.types.column import concat
from layby.types.relation import WIDE

FRESH: Final = 16
"""Parts that wait to be put together: for a few columns a call costs 10 µs, and 1 µs more for each part."""

LARGEST: Final = 1 << 20
"""Bytes that two runs put together may have: 0.1 ms of copying."""


class Run:
    """Updates that stay together, and what they come to in each arrangement that was read."""

    __slots__ = ("arranged", "nbytes", "updates")

    def __init__(self, updates: Updates) -> None:
        self.updates = updates
        self.nbytes = updates.nbytes + updates.diffs.nbytes
        self.arranged: dict[int, Arranged] = {}
        """By arrangement; at time 0, so that they are visible at whatever time is read."""

    def __len__(self) -> int:
        return len(self.updates.diffs)

    @property
    def is_large(self) -> bool:
        """Whether the run is left as it is."""
        return self.nbytes > LARGEST or len(self.updates.columns) > WIDE


class OwnWrites:
    """The updates of one table that a transaction has written."""

    __slots__ = ("_fresh", "_fresh_bytes", "_runs")

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        self._runs = list(runs)
        self._fresh: list[Run] = []
        self._fresh_bytes = 0

    def add(self, updates: Updates) -> None:
        """Take the updates of a statement."""
        run = Run(updates)
        self._fresh.append(run)
        self._fresh_bytes += run.nbytes
        if len(self._fresh) == FRESH or self._fresh_bytes > LARGEST:
            self.runs()

    def runs(self) -> tuple[Run, ...]:
        """Return the updates in few runs."""
        runs = self._runs
        fresh, self._fresh, self._fresh_bytes = self._fresh, [], 0
        small = [run for run in fresh if not run.is_large]
        if small:
            run = _together(small)
            while runs and len(runs[-1]) <= len(run) and runs[-1].nbytes + run.nbytes <= LARGEST:
                run = _together([runs.pop(), run])
            runs.append(run)
        runs.extend(run for run in fresh if run.is_large)
        return tuple(runs)


def put_together(parts: Sequence[Updates]) -> Updates:
    """Return updates of one table (at least one part) end to end."""
    if len(parts) == 1:
        return parts[0]
    columns = tuple(concat(c) for c in zip(*(p.columns for p in parts), strict=True))
    return Updates(columns, np.concatenate([p.diffs for p in parts]))


def _together(runs: Sequence[Run]) -> Run:
    return runs[0] if len(runs) == 1 else Run(put_together([run.updates for run in runs]))


def overlay(runs: Sequence[Run], desc: ArrangementDesc) -> Snapshot:
    """Return runs that were all sorted for an arrangement as what to lay over it."""
    arranged = [run.arranged[desc.id] for run in runs]
    oks = tuple(a.oks for a in arranged if len(a.oks))
    return Snapshot(oks, tuple(a.errs for a in arranged if len(a.errs)), 0, 1)
