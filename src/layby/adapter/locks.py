"""Table locks: what keeps a read-then-write statement and other writes of the same table apart.

UPDATE and DELETE read rows and write their successors, so nothing else may write the table between the two:
they hold it exclusively until their transaction ends. A write that read nothing (INSERT, COPY) holds it
shared from its commit until readers can see it. Reads take no lock at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from layby.errors import SqlError


class LockMode(Enum):
    """How a table is held, by the names that PostgreSQL has for it."""

    SHARED = "ShareLock"
    EXCLUSIVE = "ExclusiveLock"


class LockOwner:
    """A transaction, as far as locks know it; `process_id` is its session's, for a deadlock's detail."""

    __slots__ = ("held", "process_id", "waits_for")

    def __init__(self, process_id: int = 0) -> None:
        self.process_id = process_id
        self.held: dict[int, LockMode] = {}
        self.waits_for: int | None = None


@dataclass(slots=True)
class _Waiter:
    owner: LockOwner
    mode: LockMode
    granted: Callable[[], None]


class _Wait(NamedTuple):
    """Who waits, for what."""

    owner: LockOwner
    mode: LockMode
    table_id: int


@dataclass(slots=True)
class _Lock:
    holders: dict[LockOwner, LockMode] = field(default_factory=dict)
    queue: list[_Waiter] = field(default_factory=list)


class TableLocks:
    """All table locks; first come, first served; a cycle of waiters is refused (40P01)."""

    def __init__(self, name_of: Callable[[int], str] = str) -> None:
        """`name_of` says what a deadlock's detail calls a table."""
        self._name_of = name_of
        self._locks: dict[int, _Lock] = {}

    def acquire(self, owner: LockOwner, table_id: int, mode: LockMode, granted: Callable[[], None]) -> bool:
        """Take the lock now (True), or have `granted` called when it is taken.

        What is already held in the same or a stronger mode is taken at once; nobody asks for more than he
        holds. Raises SqlError 40P01 where waiting would close a cycle; then nothing has changed. An owner
        waits for one table at a time.
        """
        lock = self._locks.setdefault(table_id, _Lock())
        held = owner.held.get(table_id)
        if held is LockMode.EXCLUSIVE or held is mode:
            return True
        if not lock.queue and self._compatible(lock, owner, mode):
            self._hold(lock, owner, table_id, mode)
            return True
        self._refuse_cycle(_Wait(owner, mode, table_id))
        owner.waits_for = table_id
        lock.queue.append(_Waiter(owner, mode, granted))
        return False

    def withdraw(self, owner: LockOwner) -> None:
        """Wait no more; what is held stays held. Whoever waited behind may come in."""
        waited = self._leave_queue(owner)
        self._admit(() if waited is None else (waited,))

    def release_all(self, owner: LockOwner) -> None:
        """Give up all that `owner` holds or waits for, and let in whoever comes next."""
        self.release_but(owner, frozenset())

    def release_but(self, owner: LockOwner, kept: frozenset[int]) -> None:
        """Give up what `owner` waits for and all that it holds but some tables; let in whoever comes next."""
        tables = set(owner.held) - kept
        for table_id in tables:
            del owner.held[table_id]
            del self._locks[table_id].holders[owner]
        waited = self._leave_queue(owner)
        if waited is not None:
            tables.add(waited)
        self._admit(sorted(tables))

    def _leave_queue(self, owner: LockOwner) -> int | None:
        waited, owner.waits_for = owner.waits_for, None
        if waited is not None:
            lock = self._locks[waited]
            lock.queue = [w for w in lock.queue if w.owner is not owner]
        return waited

    def _admit(self, tables: Iterable[int]) -> None:
        """Let in whoever is next at some tables; they are told once all is as it should be."""
        admitted: list[_Waiter] = []
        for table_id in tables:
            lock = self._locks[table_id]
            while lock.queue and self._compatible(lock, lock.queue[0].owner, lock.queue[0].mode):
                waiter = lock.queue.pop(0)
                waiter.owner.waits_for = None
                self._hold(lock, waiter.owner, table_id, waiter.mode)
                admitted.append(waiter)
            if not lock.holders and not lock.queue:
                del self._locks[table_id]
        for waiter in admitted:
            waiter.granted()

    def held(self) -> int:
        """Return how many tables are locked."""
        return len(self._locks)

    @staticmethod
    def _compatible(lock: _Lock, owner: LockOwner, mode: LockMode) -> bool:
        others = [m for o, m in lock.holders.items() if o is not owner]
        return not others or (mode is LockMode.SHARED and LockMode.EXCLUSIVE not in others)

    @staticmethod
    def _hold(lock: _Lock, owner: LockOwner, table_id: int, mode: LockMode) -> None:
        lock.holders[owner] = mode
        owner.held[table_id] = mode

    def _refuse_cycle(self, wait: _Wait) -> None:
        """Raise 40P01 where whoever is before the one who is to wait waits, however indirectly, for him."""
        chains: list[tuple[_Wait, ...]] = [(wait,)]
        seen = {wait.table_id}
        while chains:
            chain = chains.pop()
            lock = self._locks[chain[-1].table_id]
            for other in (*lock.holders, *(waiter.owner for waiter in lock.queue)):
                wanted = other.waits_for
                if wanted is None or wanted in seen:
                    continue
                before = self._locks[wanted]
                mode = next(waiter.mode for waiter in before.queue if waiter.owner is other)
                longer = (*chain, _Wait(other, mode, wanted))
                if wait.owner in before.holders:
                    raise self._deadlock(longer)
                seen.add(wanted)
                chains.append(longer)

    def _deadlock(self, cycle: Sequence[_Wait]) -> SqlError:
        """Return the error of a cycle, of which each waits for the next and the last for the first."""
        lines = (
            f"Process {wait.owner.process_id} waits for {wait.mode.value} on relation "
            f"{self._name_of(wait.table_id)}; blocked by process {blocker.owner.process_id}."
            for wait, blocker in zip(cycle, (*cycle[1:], cycle[0]), strict=True)
        )
        return SqlError("40P01", "deadlock detected", detail="\n".join(lines))
