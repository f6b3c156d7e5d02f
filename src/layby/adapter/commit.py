"""The commit path: transactions that wait are committed together, at one time, and confirmed once visible.

`GroupCommit` decides; a thread (`CommitThread`) drives it. Durable storage will append each group to the
shards here, before it is applied. A large write has been checked and sorted before it comes here, so that a
group costs its small writes and no more, and nobody's INSERT waits for somebody else's bulk load to be
sorted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from layby.adapter.unique import violation
from layby.compute.arrangement import Arranged, ArrangementDesc, Updates, arrange
from layby.compute.maintenance import ApplyWrites, Message, TableWrite
from layby.compute.state import ServingState
from layby.errors import InternalError, SqlError
from layby.memory.arena import HEAP
from layby.sql.catalog import Index
from layby.trace.batch import Batch
from layby.types.column import concat

log = logging.getLogger("layby.commit")


def now_ms() -> int:
    """Return the wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class UniqueCheck:
    """A unique index that a write has to respect."""

    index: Index
    arrangement: ArrangementDesc
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """The writes of one transaction.

    `done` is called once, from any thread: with their time once readers see them, or with the error for
    which none of them was applied.
    """

    writes: tuple[TableWrite, ...]
    checks: Mapping[int, tuple[UniqueCheck, ...]]
    """The unique indexes of each table written."""
    done: Callable[[SqlError | int], None]


class Oracle:
    """Hands out commit times: wall-clock milliseconds, but always later than the last."""

    def __init__(self, last: int, clock: Callable[[], int] = now_ms) -> None:
        self._last = last
        self._clock = clock

    def next(self) -> int:
        """Return the next commit time."""
        self._last = max(self._last + 1, self._clock())
        return self._last


class GroupCommit:
    """The transactions that wait, and what commits them."""

    def __init__(self, state: ServingState, oracle: Oracle, apply: Callable[[Message], None]) -> None:
        self._state = state
        self._oracle = oracle
        self._apply = apply
        self._waiting: deque[CommitRequest] = deque()
        self._last = state.upper - 1

    @property
    def last(self) -> int:
        """The time of the last group."""
        return self._last

    def submit(self, request: CommitRequest) -> None:
        """Queue a transaction; from the serving loop."""
        self._waiting.append(request)

    @property
    def needs_applied(self) -> bool:
        """Whether the next group can only be checked once all before it has been applied."""
        return any(request.checks for request in self._waiting) and self._state.upper <= self._last

    def step(self) -> bool:
        """Commit all that waits as one group; False where nothing waits."""
        group: list[CommitRequest] = []
        while self._waiting:
            group.append(self._waiting.popleft())
        if not group:
            return False
        accepted: list[CommitRequest] = []
        keys_taken: dict[int, list[Batch]] = {}
        for request in group:
            try:
                error = self._check(request, keys_taken)
            except Exception as raised:
                log.exception("checking a write raised")
                error = InternalError(f"checking a write raised {type(raised).__name__}: {raised}")
            if error is None:
                accepted.append(request)
            else:
                request.done(error)
        if accepted:
            at = self._oracle.next()
            self._last = at

            def applied(error: SqlError | None) -> None:
                for request in accepted:
                    request.done(at if error is None else error)

            self._apply(ApplyWrites(at, _together(accepted), applied))
        return True

    def _check(self, request: CommitRequest, keys_taken: dict[int, list[Batch]]) -> SqlError | None:
        """Return the violation of a unique index, or None and take the request's keys."""
        deltas: dict[int, Batch] = {}
        for write in request.writes:
            for check in request.checks.get(write.table_id, ()):
                desc = check.arrangement
                ready = write.arranged.get(desc.id)
                if ready is None:
                    times = np.zeros(len(write.updates.diffs), np.int64)
                    ready = arrange(desc, write.updates, times, 0, 1, HEAP)
                snapshot = self._state.snapshot(desc.id)
                existing = () if snapshot is None else snapshot.oks
                taken = keys_taken.get(desc.id, [])
                error = violation(check.index, ready.oks, (*existing, *taken), check.columns)
                if error is not None:
                    return error
                deltas[desc.id] = ready.oks
        for id_, delta in deltas.items():
            keys_taken.setdefault(id_, []).append(delta)
        return None


def _together(group: list[CommitRequest]) -> tuple[TableWrite, ...]:
    """Put the small writes of a group to one table together; a write sorted beforehand stays alone."""
    writes: list[TableWrite] = []
    small: dict[int, list[Updates]] = {}
    for request in group:
        for write in request.writes:
            if write.arranged:
                writes.append(write)
            else:
                small.setdefault(write.table_id, []).append(write.updates)
    for table_id, parts in small.items():
        columns = tuple(concat(c) for c in zip(*(p.columns for p in parts), strict=True))
        writes.append(TableWrite(table_id, Updates(columns, np.concatenate([p.diffs for p in parts]))))
    return tuple(writes)


def arranged_beforehand(write: TableWrite, arrangements: tuple[ArrangementDesc, ...]) -> TableWrite:
    """Return `write` with its updates sorted for each arrangement, at a time that the commit replaces."""
    times = np.zeros(len(write.updates.diffs), np.int64)
    ready: dict[int, Arranged] = {
        desc.id: arrange(desc, write.updates, times, 0, 1, HEAP) for desc in arrangements
    }
    return TableWrite(write.table_id, write.updates, ready)


class CommitThread:
    """Drives a `GroupCommit` on a thread of its own."""

    def __init__(self, commit: GroupCommit, state: ServingState) -> None:
        self._commit = commit
        self._state = state
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="layby-commit", daemon=True)
        self._thread.start()

    def submit(self, request: CommitRequest) -> None:
        """Queue a transaction and wake the thread."""
        self._commit.submit(request)
        self._wake.set()

    def close(self) -> None:
        """Commit what waits, then end the thread."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while True:
                if self._commit.needs_applied:
                    self._state.wait_until(self._commit.last)
                if not self._commit.step():
                    break
            if self._closing:
                return
