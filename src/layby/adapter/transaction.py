"""Transactions: what a session has read at, written and locked since its transaction began."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from layby.adapter.catalog_change import Undo
from layby.adapter.locks import LockOwner
from layby.adapter.own_writes import OwnWrites, Run
from layby.compute.arrangement import Updates
from layby.errors import SqlError
from layby.sql.catalog import Catalog

_EPOCH_US: Final = 946_684_800_000_000
"""Microseconds from 1970 to 2000, PostgreSQL's epoch."""


def now_us() -> int:
    """Return microseconds since 2000-01-01 UTC."""
    return time.time_ns() // 1000 - _EPOCH_US


def in_failed_block() -> SqlError:
    """Return the error for a statement in a block that has failed."""
    return SqlError(
        "25P02", "current transaction is aborted, commands ignored until end of transaction block"
    )


@dataclass(frozen=True, slots=True)
class Savepoint:
    """Where a transaction stood: its writes, how many steps of DDL it had taken, the tables it held."""

    name: str
    writes: Mapping[int, tuple[Run, ...]]
    undo_count: int
    at_commit_count: int
    held: frozenset[int]


class Transaction:
    """One transaction: a block (`explicit`), or what a single statement or pipeline runs in.

    Writes are kept until the commit. A block reads at one time throughout, chosen at its first read; its own
    writes are laid over what it reads. DDL takes effect at once; `undo` takes it back, `at_commit` finishes
    it.
    """

    __slots__ = (
        "at_commit",
        "catalog",
        "explicit",
        "failed",
        "owner",
        "savepoints",
        "snapshot",
        "started_us",
        "undo",
        "writes",
    )

    def __init__(self, process_id: int, *, explicit: bool) -> None:
        """Begin a transaction of the session `process_id`."""
        self.explicit = explicit
        self.failed = False
        self.snapshot: int | None = None
        self.catalog: tuple[Catalog, Catalog] | None = None
        """A catalog that was in force, and what it is for this transaction."""
        self.started_us = now_us()
        """What `now()` says: microseconds since 2000-01-01 UTC."""
        self.owner = LockOwner(process_id)
        self.writes: dict[int, OwnWrites] = {}
        """By table; one that is there has some."""
        self.undo: list[Undo] = []
        self.at_commit: list[Callable[[], None]] = []
        self.savepoints: list[Savepoint] = []

    def set_savepoint(self, name: str) -> None:
        """Remember where the transaction stands; a name may be set again, and hides the one before."""
        writes = {table_id: own.runs() for table_id, own in self.writes.items()}
        held = frozenset(self.owner.held)
        self.savepoints.append(Savepoint(name, writes, len(self.undo), len(self.at_commit), held))

    def release_savepoint(self, name: str) -> None:
        """Forget a savepoint and those after it; raises SqlError 3B001 where there is none of that name."""
        del self.savepoints[self._savepoint(name) :]

    def roll_back_to(self, name: str) -> tuple[Savepoint, list[Undo]]:
        """Go back to where a savepoint was set, which stays; raises SqlError 3B001.

        The DDL done since is the caller's to take back, and the locks to give up.
        """
        at = self._savepoint(name)
        savepoint = self.savepoints[at]
        del self.savepoints[at + 1 :]
        undo, self.undo = self.undo[savepoint.undo_count :], self.undo[: savepoint.undo_count]
        del self.at_commit[savepoint.at_commit_count :]
        self.writes = {table_id: OwnWrites(runs) for table_id, runs in savepoint.writes.items()}
        self.failed = False
        return savepoint, undo

    def _savepoint(self, name: str) -> int:
        for at in range(len(self.savepoints) - 1, -1, -1):
            if self.savepoints[at].name == name:
                return at
        raise SqlError("3B001", f'savepoint "{name}" does not exist')

    def due(self, table_id: int) -> tuple[Run, ...]:
        """Return the runs that the next updates of a table are to be put together with; mostly none."""
        own = self.writes.get(table_id)
        return () if own is None else own.due()

    def write(self, table_id: int, updates: Updates, due: Sequence[Run] = ()) -> None:
        """Keep updates of a table until the commit; those of the runs that were `due` are among them."""
        if len(updates.diffs):
            own = self.writes.get(table_id)
            if own is None:
                own = self.writes[table_id] = OwnWrites()
            own.add(updates, due)

    def written(self, table_id: int) -> tuple[Run, ...]:
        """Return all that was written to a table so far, in few runs; none where nothing was."""
        own = self.writes.get(table_id)
        return () if own is None else own.runs()
