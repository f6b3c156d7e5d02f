"""The coordinator: sessions, catalog, timestamps, and the way of each read and write through the parts."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from layby.adapter.commit import (
    CommitDriver,
    CommitRequest,
    CommitThread,
    GroupCommit,
    Oracle,
    UniqueCheck,
    now_ms,
)
from layby.adapter.execution import Execution, Timer
from layby.adapter.introspection import active_peeks
from layby.adapter.jobs import SortWrites
from layby.adapter.locks import LockMode, LockOwner, TableLocks
from layby.adapter.own_writes import put_together
from layby.adapter.session import Session
from layby.adapter.statements import StatementCache
from layby.adapter.transaction import Transaction
from layby.adapter.unique import unique_key
from layby.compute.arrangement import ArrangementDesc, Updates
from layby.compute.maintenance import DropArrangement, TableWrite
from layby.compute.runtime import Job, MaintenanceRuntime, ThreadMaintenanceRuntime
from layby.compute.state import ServingState
from layby.compute.worker import ServingWorker
from layby.config import SystemParameters
from layby.errors import InternalError, SqlError
from layby.memory.arena import Arena
from layby.metrics import PeekMetrics
from layby.peek.answer import RowEncoder, Stashed
from layby.peek.pool import ThreadWalkPool, WalkPool
from layby.peek.stash import Stash, StashReader
from layby.persist.blob import Blob
from layby.sql.catalog import Catalog, Index, Table
from layby.sql.system import SYSTEM_TABLES
from layby.types.relation import WIDE

log = logging.getLogger("layby.coordinator")

DATABASE = "layby"
SUPERUSER = "layby"

_CLOSE_S = 5.0
"""How long the commits under way may take at the end."""

RELEASES = 64
"""Tables that are let go of in one turn."""

LARGE_WRITE = 4_096
LARGE_WRITE_BYTES = 1 << 20
"""Rows, and bytes of them, from which on a write is checked and sorted away from the loop and the commit
thread, as those of wide tables all are."""


class Loop(Protocol):
    """What is used of the event loop that serves; asyncio's is one."""

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call a function in the next turn."""

    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> object:
        """Call a function in the next turn; from any thread. Raises RuntimeError once the loop is closed."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer:
        """Call a function in `delay` seconds."""


class Coordinator:
    """Owns what sessions share. Everything here runs on the serving loop unless it says otherwise."""

    def __init__(
        self,
        parameters: SystemParameters,
        *,
        loop: Loop,
        metrics: PeekMetrics,
        pool: WalkPool | None = None,
        maintenance: Callable[
            [ServingState, Callable[[], int]], MaintenanceRuntime
        ] = ThreadMaintenanceRuntime,
        commits: Callable[[GroupCommit, ServingState], CommitDriver] = CommitThread,
        clock: Callable[[], int] = now_ms,
        stopwatch: Callable[[], float] = time.perf_counter,
        blob: Blob | None = None,
    ) -> None:
        """Everything defaults to threads, a walk thread for each core; `clock` gives milliseconds, and
        `stopwatch` the seconds by which reads are measured.

        `blob` is where large answers go, this coordinator's alone; without one they are held in memory.
        """
        self.parameters = parameters
        self.metrics = metrics
        self.loop = loop
        self.state = ServingState(clock())
        self._compaction_frontier = self.state.upper - 1
        self.pool = pool or ThreadWalkPool(os.cpu_count() or 1, self.deliver)
        self._stash = None if blob is None else Stash(blob, self.run_apart, metrics)
        self.worker = ServingWorker(
            self.state, parameters, self.pool, metrics, self._next_turn, stopwatch, self._stash
        )
        self.maintenance = maintenance(self.state, lambda: self._compaction_frontier)
        oracle = Oracle(self.state.upper - 1, clock)
        self._commits = commits(GroupCommit(self.state, oracle, self.maintenance.submit), self.state)
        self.locks = TableLocks(self._table_name)
        system = (*SYSTEM_TABLES, active_peeks(self.worker))
        self.catalog = Catalog(1, system)
        self.statements = StatementCache()
        self.arrangements: dict[int, tuple[ArrangementDesc, ...]] = {}
        """Of each table: its shard, then its indexes, those under construction included."""
        self.last_write: dict[int, int] = {}
        """When each table was last written, for writers that read at an earlier time."""
        self.reserved_names: set[str] = set()
        """Names of relations under construction."""
        self.dropped_names: dict[str, list[LockOwner]] = {}
        """Names of what blocks have dropped, once for each drop: nobody else's until the block commits, since
        it may roll back."""
        self._released: deque[int] = deque()
        """Tables that are gone, to be let go of."""
        self._sessions: dict[int, Session] = {}
        self._snapshots: dict[Transaction, int] = {}
        self._new_indexes: deque[tuple[int, int]] = deque()
        """When indexes were built, and of which tables, as far as a snapshot in use is older than them."""
        self._old_catalogs = 0
        self._next_id = 1
        self._next_process = 1
        self._next_peek = 0
        self._closing = False

    @property
    def arena(self) -> Arena:
        """Where to put what goes into a job."""
        return self.maintenance.arena

    def start(self) -> None:
        """Accept sessions from now on."""
        log.info("coordinator started at %d", self.state.upper)

    def healthy(self) -> bool:
        """Return whether statements can be served; from any thread."""
        return not self._closing and self.maintenance.healthy and self.pool.healthy

    async def close(self) -> None:
        """End the sessions, finish the commits under way, and stop the threads."""
        self._closing = True
        for session in list(self._sessions.values()):
            session.close()
        # Commits under way may need the loop to publish what they wait for; the others only need to end.
        commits = asyncio.get_running_loop().run_in_executor(None, self._commits.close)
        if not (await asyncio.wait((commits,), timeout=_CLOSE_S))[0]:
            self.state.stop_waiting()  # what they wait for does not come: maintenance dies again and again
            await commits
        self.maintenance.close()
        self.pool.close()

    def _next_turn(self, callback: Callable[[], None]) -> None:
        self.loop.call_soon(callback)

    def deliver(self, callback: Callable[[], None]) -> None:
        """Run a function on the serving loop; from any thread."""
        try:
            self.loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop is closed: nobody waits for the answer any more
            log.debug("an answer came after the loop had closed")

    # Sessions

    def connect(self, user: str, database: str, parameters: dict[str, str]) -> Session:
        """Open a session; raises SqlError 28000 or 3D000 (FATAL) where there is no such role or database."""
        if self._closing:
            raise SqlError("57P03", "the database system is shutting down")
        if user != SUPERUSER:
            raise SqlError("28000", f'role "{user}" does not exist')
        if database not in ("", DATABASE):
            raise SqlError("3D000", f'database "{database}" does not exist')
        process_id = self._next_process
        self._next_process = self._next_process % (2**31 - 1) + 1
        session = Session(self, process_id, secrets.randbits(31), user, parameters)
        self._sessions[process_id] = session
        return session

    def forget(self, session: Session) -> None:
        """A session has ended."""
        self._sessions.pop(session.process_id, None)

    def session(self, process_id: int) -> Session | None:
        """Return the session of a process id, None where there is none."""
        return self._sessions.get(process_id)

    def new_peek_number(self) -> int:
        """Return a number for a peek that has to wait, never used before."""
        self._next_peek += 1
        return self._next_peek

    def cancel(self, process_id: int, secret_key: int) -> None:
        """Cancel what a session has in flight; a wrong key is ignored, as the protocol wants it."""
        session = self._sessions.get(process_id)
        if session is not None and secrets.compare_digest(
            session.secret_key.to_bytes(8, "big", signed=True), secret_key.to_bytes(8, "big", signed=True)
        ):
            session.cancel()

    # Catalog

    def new_id(self) -> int:
        """Return an identity for a table or an arrangement, never used before."""
        self._next_id += 1
        return self._next_id

    def change_catalog(self, put: Sequence[Table] = (), remove: Sequence[Table] = ()) -> None:
        """Put the next version of the catalog in force."""
        self.catalog = self.catalog.changed(self.catalog.version + 1, put, remove)

    def release_table(self, table_id: int) -> None:
        """Let a table go that is gone from the catalog for good, in a turn to come: a transaction may leave
        thousands, and each takes 20 µs."""
        self._released.append(table_id)
        if len(self._released) == 1:
            self.loop.call_soon(self._release_tables)

    def _release_tables(self) -> None:
        for _ in range(min(len(self._released), RELEASES)):
            table_id = self._released.popleft()
            for desc in reversed(self.arrangements.pop(table_id, ())):
                self.maintenance.submit(DropArrangement(desc.id))
            self.last_write.pop(table_id, None)
        if self._released:
            self.loop.call_soon(self._release_tables)

    def table_by_id(self, table_id: int) -> Table | None:
        """Return the table of that identity in the catalog in force."""
        return self.catalog.table_by_id(table_id)

    def _table_name(self, table_id: int) -> str:
        table = self.table_by_id(table_id)
        return str(table_id) if table is None else f'"{table.name}"'

    def arrangement(self, table: Table, index: Index | None) -> ArrangementDesc:
        """Return the arrangement that a read of the table by `index` (None: its shard) walks."""
        found = self.arrangements.get(table.id)
        if not found or not self.catalog.has_table(table.id):
            raise SqlError("42P01", f'relation "{table.name}" does not exist')
        if index is None:
            return found[0]
        for desc in found:
            if desc.id == index.id:
                return desc
        raise SqlError("57014", f'canceling statement because index "{index.name}" was dropped')

    def index_built(self, index: Index) -> None:
        """Note from when on an index can be read."""
        new, newest = self._new_indexes, self.state.upper
        oldest = min(self._snapshots.values(), default=newest)
        while new and new[0][0] <= oldest:
            new.popleft()
        new.append((newest, index.table_id))

    def catalog_for(self, transaction: Transaction | None) -> Catalog:
        """Return the catalog that a transaction's statements are planned under.

        It is the one in force, but for the indexes that were built too late for the block's snapshot.
        """
        at = None if transaction is None else transaction.snapshot
        if transaction is None or at is None or not self._new_indexes or self._new_indexes[-1][0] <= at:
            return self.catalog
        if transaction.catalog is None or transaction.catalog[0] is not self.catalog:
            late = {table_id for built, table_id in self._new_indexes if built > at}
            tables = [table for table in map(self.catalog.table_by_id, late) if table is not None]
            older = [self._as_of(table, at) for table in tables]
            made = self.catalog
            if any(a is not b for a, b in zip(older, tables, strict=True)):
                self._old_catalogs += 1
                made = made.changed(-self._old_catalogs, older)
            transaction.catalog = self.catalog, made
        return transaction.catalog[1]

    def _as_of(self, table: Table, at: int) -> Table:
        """Return a table with the indexes that can be read at a time."""
        readable = tuple(i for i in table.indexes if self._readable(i, at))
        return table if len(readable) == len(table.indexes) else replace(table, indexes=readable)

    def _readable(self, index: Index, at: int) -> bool:
        snapshot = self.state.snapshot(index.id)
        return snapshot is None or snapshot.since <= at

    # Reads

    def read_time(self, transaction: Transaction) -> int:
        """Return the time that a statement reads at: strict serializable, and always ready.

        A write is confirmed once it is visible, so whatever was confirmed lies below `state.upper`, and so
        no read ever waits for the maintenance runtime.
        """
        newest = self.state.upper - 1
        if not transaction.explicit:
            return newest
        if transaction.snapshot is None:
            transaction.snapshot = newest
            self._snapshots[transaction] = newest
        return transaction.snapshot

    def hold_reads(self, transaction: Transaction, time: int) -> None:
        """Keep what a transaction is about to read at `time` readable until it ends."""
        self._snapshots.setdefault(transaction, time)

    def end_reads(self, transaction: Transaction) -> None:
        """A transaction will read no more: history that only it needed may be compacted."""
        self._snapshots.pop(transaction, None)

    def _advance_compaction(self) -> None:
        """Move the compaction frontier; here, on the loop, since a read takes its time and its snapshot in
        one turn, so the frontier never passes a read that is about to take its snapshot."""
        newest = self.worker.oldest_wait(self.state.upper - 1)
        self._compaction_frontier = min(self._snapshots.values(), default=newest)
        self._compaction_frontier = min(self._compaction_frontier, newest)

    def open_stashed(self, stashed: Stashed, encoder: RowEncoder | None) -> StashReader:
        """Return the reader of an answer that a peek came to, encoded as the peek's rest of it is."""
        if self._stash is None:
            raise InternalError("there is no stash")
        return self._stash.open(stashed, encoder)

    # Writes

    def commit(self, transaction: Transaction, done: Callable[[SqlError | None], None]) -> None:
        """Write what a transaction has kept; `done` is called on the loop, maybe before this returns.

        The transaction's locks are kept until its owner gives them up.
        """
        tables = sorted(transaction.writes)
        if not tables:
            done(None)
            return

        def locked() -> None:
            try:
                self._prepare(transaction, tables, done)
            except Exception as error:
                log.exception("preparing a commit raised")
                done(InternalError(f"preparing a commit raised {type(error).__name__}: {error}"))

        self.lock(transaction.owner, tables, LockMode.SHARED, locked, done)

    def lock(
        self,
        owner: LockOwner,
        tables: Sequence[int],
        mode: LockMode,
        then: Callable[[], None],
        failed: Callable[[SqlError], None],
    ) -> None:
        """Lock tables one after the other, then call `then`, maybe before this returns; both callbacks may
        be called by whoever gives a lock up, so they must not raise. `failed` gets a deadlock (40P01)."""
        for at, table_id in enumerate(tables):

            def granted(rest: Sequence[int] = tables[at + 1 :]) -> None:
                self.lock(owner, rest, mode, then, failed)

            try:
                if not self.locks.acquire(owner, table_id, mode, granted):
                    return
            except SqlError as error:
                failed(error)
                return
        then()

    def _prepare(
        self, transaction: Transaction, tables: Sequence[int], done: Callable[[SqlError | None], None]
    ) -> None:
        """Sort large writes apart, then submit all to the commit thread."""
        parts: dict[int, tuple[Updates, ...]] = {}
        checks: dict[int, tuple[UniqueCheck, ...]] = {}
        for table_id in tables:
            table = self.table_by_id(table_id)
            runs = transaction.written(table_id)
            if table is None or not runs:
                done(SqlError("42P01", "a table written in this transaction no longer exists"))
                return
            parts[table_id] = tuple(run.updates for run in runs)
            found = tuple(
                UniqueCheck(unique_key(table, index), self.arrangement(table, index))
                for index in table.indexes
                if index.unique
            )
            if found:
                checks[table_id] = found

        def confirmed(result: SqlError | int) -> None:
            if isinstance(result, int):
                for table_id in tables:
                    self.last_write[table_id] = result
                self._advance_compaction()
                done(None)
            else:
                done(result)

        def submit(ready: tuple[TableWrite, ...]) -> None:
            self._commits.submit(
                CommitRequest(ready, checks, lambda result: self.deliver(lambda: confirmed(result)))
            )

        if not any(map(_is_large, parts.values())):
            submit(tuple(TableWrite(table_id, put_together(u)) for table_id, u in parts.items()))
            return
        arrangements = {table_id: self.arrangements[table_id] for table_id in tables}

        def arranged(ready: object) -> None:
            if isinstance(ready, tuple):
                submit(ready)
            else:
                log.error("sorting a write raised %r", ready)
                confirmed(InternalError(f"sorting a write raised {type(ready).__name__}: {ready}"))

        job = SortWrites(parts, arrangements)
        self.run_apart(job, arranged)

    def run_apart(self, job: Job, then: Callable[[object], None]) -> None:
        """Run a long job off the loop, then `then` on the loop with its result or the exception it raised."""
        self.maintenance.run_apart(job, lambda result: self.deliver(_Arrival(job, then, result)))

    def run_part(
        self,
        execution: Execution,
        job: Job,
        then: Callable[[Any], None],
        refused: Callable[[SqlError], None] | None = None,
    ) -> None:
        """Run a long part of a statement off the loop, then `then` with its result in an attempt of it.

        The statement fails with what the job raises, but for a SqlError where `refused` takes that. It can be
        cancelled meanwhile.
        """

        def arrived(result: object) -> None:
            execution.cancel = None
            if refused is not None and isinstance(result, SqlError):
                refused(result)
            elif isinstance(result, Exception):
                raise result
            else:
                then(result)

        execution.cancel = execution.fail
        self.run_apart(job, lambda result: execution.attempt(arrived, result))


def _is_large(parts: Sequence[Updates]) -> bool:
    """Return whether what is written to a table is large."""
    if len(parts[0].columns) > WIDE or sum(len(part.diffs) for part in parts) >= LARGE_WRITE:
        return True
    return sum(part.nbytes for part in parts) >= LARGE_WRITE_BYTES


class _Arrival:
    """Hands a job's result to who waits for it, and can say which job it was."""

    __slots__ = ("_job", "_result", "_then")

    def __init__(self, job: Job, then: Callable[[object], None], result: object) -> None:
        self._job = type(job).__name__
        self._then = then
        self._result = result

    def __call__(self) -> None:
        self._then(self._result)

    def describe(self) -> str:
        """Return whose result it is."""
        return f"after {self._job}"
