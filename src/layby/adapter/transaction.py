"""Transactions: what a session has read at, written and locked since its transaction began."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import numpy as np

from layby.adapter.locks import LockOwner
from layby.compute.arrangement import Updates
from layby.types.column import concat

_EPOCH_US: Final = 946_684_800_000_000
"""Microseconds from 1970 to 2000, PostgreSQL's epoch."""


class Transaction:
    """One transaction: a block (`explicit`), or what a single statement or pipeline runs in.

    Writes are kept until the commit. A block reads at one time throughout, chosen at its first read; its own
    writes are laid over what it reads. DDL takes effect at once; `undo` takes it back, `at_commit` finishes
    it.
    """

    __slots__ = (
        "at_commit",
        "explicit",
        "failed",
        "owner",
        "snapshot",
        "started_us",
        "undo",
        "writes",
    )

    def __init__(self, *, explicit: bool) -> None:
        self.explicit = explicit
        self.failed = False
        self.snapshot: int | None = None
        self.started_us = time.time_ns() // 1000 - _EPOCH_US
        """What `now()` says: microseconds since 2000-01-01 UTC."""
        self.owner = LockOwner()
        self.writes: dict[int, list[Updates]] = {}
        self.undo: list[Callable[[], None]] = []
        self.at_commit: list[Callable[[], None]] = []

    def write(self, table_id: int, updates: Updates) -> None:
        """Keep updates of a table until the commit."""
        if len(updates.diffs):
            self.writes.setdefault(table_id, []).append(updates)

    def written(self, table_id: int) -> Updates | None:
        """Return all that was written to a table so far as one run of updates."""
        parts = self.writes.get(table_id)
        if not parts:
            return None
        if len(parts) > 1:
            columns = tuple(concat(c) for c in zip(*(p.columns for p in parts), strict=True))
            parts[:] = [Updates(columns, np.concatenate([p.diffs for p in parts]))]
        return parts[0]
