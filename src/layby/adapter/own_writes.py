"""A transaction's own writes to one table: put together as they grow, and each run arranged once.

Thousands of statements of a row each would be thousands of parts for the read that comes after them. So the
parts are put together into runs of growing size, as a log-structured merge tree does: among n rows there are
about log n runs, and no row is copied more often than that. A read lays each run over what it reads, sorted
once for each index; a run of more than `LARGEST` bytes is left as it is.

The columns of a wide table are too many for the serving loop to look at. There the runs are put together by
jobs that run anyway: by every `FRESH`th statement that writes, with what it writes (`due`), and by each read,
which leaves runs of which each has twice the rows of the next, so that there are few batches to hand on.
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

LARGEST_APART: Final = 1 << 26
"""Bytes of a wide table's run from which on it is left as it is."""


class Run:
    """Updates that stay together, and what they come to in each arrangement that was read."""

    __slots__ = ("arranged", "level", "nbytes", "updates")

    def __init__(self, updates: Updates, level: int = 0) -> None:
        self.updates = updates
        self.level = level
        """How often statements have put it together with others, where its table is wide."""
        self.nbytes = updates.nbytes + updates.diffs.nbytes
        self.arranged: dict[int, Arranged] = {}
        """By arrangement; at time 0, so that they are visible at whatever time is read."""

    def __len__(self) -> int:
        return len(self.updates.diffs)

    @property
    def is_large(self) -> bool:
        """Whether the run is left as it is."""
        return self.nbytes > (LARGEST_APART if self.is_wide else LARGEST)

    @property
    def is_wide(self) -> bool:
        """Whether its columns are not for the loop."""
        return len(self.updates.columns) > WIDE


class OwnWrites:
    """The updates of one table that a transaction has written."""

    __slots__ = ("_fresh", "_fresh_bytes", "_runs")

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        self._runs = list(runs)
        self._fresh: list[Run] = []
        self._fresh_bytes = 0

    def add(self, updates: Updates, due: Sequence[Run] = ()) -> None:
        """Take the updates of a statement, in which those of the runs that were `due` are too."""
        if due:
            self._replace(due, Run(updates, max(run.level for run in due) + 1))
            return
        run = Run(updates)
        self._fresh.append(run)
        self._fresh_bytes += run.nbytes
        if len(self._fresh) == FRESH or self._fresh_bytes > LARGEST:
            self.runs()

    def runs(self) -> tuple[Run, ...]:
        """Return the updates in few runs."""
        runs = self._runs
        fresh, self._fresh, self._fresh_bytes = self._fresh, [], 0
        small = [run for run in fresh if not (run.is_large or run.is_wide)]
        if small:
            run = _together(small)
            while runs and len(runs[-1]) <= len(run) and runs[-1].nbytes + run.nbytes <= LARGEST:
                run = _together([runs.pop(), run])
            runs.append(run)
        runs.extend(run for run in fresh if run.is_large or run.is_wide)
        return tuple(runs)

    def due(self) -> tuple[Run, ...]:
        """Return the runs to put together with the next statement's updates, apart; mostly none."""
        if not any(run.is_wide for run in (*self._runs[-1:], *self._fresh[-1:])):
            return ()
        runs = [run for run in self.runs() if not run.is_large]
        at, level = len(runs), 0
        while (start := at - (FRESH - 1)) >= 0 and all(run.level <= level for run in runs[start:at]):
            at, level = start, level + 1
        return tuple(runs[at:])

    def to_arrange(self, id_: int) -> list[tuple[Run, ...]]:
        """Return groups of runs, each of which is to be put together and arranged for a read."""
        runs = self.runs()
        new = [run for run in runs if id_ not in run.arranged]
        alone = [(run,) for run in new if run.is_large or not run.is_wide]
        group = [run for run in new if run.is_wide and not run.is_large]
        if not group:
            return [*alone]
        rows = sum(map(len, group))
        for run in sorted((run for run in runs if id_ in run.arranged and not run.is_large), key=len):
            if len(run) >= 2 * rows:
                break
            group.append(run)
            rows += len(run)
        return [*alone, tuple(group)]

    def arranged(self, group: Sequence[Run], updates: Updates | None, id_: int, arranged: Arranged) -> None:
        """Keep what a group was put together to (None: it is one run) and arranged to."""
        run = group[0]
        if updates is not None:
            run = Run(updates, max(run.level for run in group))
            self._replace(group, run)
        run.arranged[id_] = arranged

    def _replace(self, runs: Sequence[Run], run: Run) -> None:
        gone = set(runs)
        self._runs = [kept for kept in self._runs if kept not in gone] + [run]


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
