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
from typing import Protocol

import numpy as np

from layby.adapter.own_writes import put_together
from layby.adapter.unique import UniqueKey, violation
from layby.compute.arrangement import ArrangementDesc, Updates, arrange
from layby.compute.maintenance import ApplyWrites, Message, TableWrite
from layby.compute.state import ServingState
from layby.errors import InternalError, SqlError
from layby.memory.arena import HEAP
from layby.trace.batch import Batch

log = logging.getLogger("layby.commit")


def now_ms() -> int:
    """Return the wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class UniqueCheck:
    """A unique index that a write has to respect."""

    key: UniqueKey
    arrangement: ArrangementDesc


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
        self._group: list[CommitRequest] = []
        self._last = state.upper - 1

    @property
    def last(self) -> int:
        """The time of the last commit."""
        return self._last

    def submit(self, request: CommitRequest) -> None:
        """Queue a transaction; from any thread."""
        self._waiting.append(request)

    def gather(self) -> bool:
        """Take all that waits into the next group; False where there is nothing to commit.

        This and the rest belong to one thread: only `submit` touches what waits beside it.
        """
        while self._waiting:
            self._group.append(self._waiting.popleft())
        return bool(self._group)

    @property
    def ready(self) -> bool:
        """Whether the group can be checked: what was committed before it can be read, or no matter."""
        return self._state.upper > self._last or not any(request.checks for request in self._group)

    def commit(self) -> None:
        """Commit the group: its small transactions at one time, each large one at a time of its own.

        A bundle takes one batch a time, and putting sorted writes together would cost as much as the load.
        """
        group, self._group = self._group, []
        small: list[CommitRequest] = []
        large: list[CommitRequest] = []
        keys_taken: dict[int, list[Batch]] = {}
        for request in group:
            try:
                error = self._check(request, keys_taken)
            except Exception as raised:
                log.exception("checking a write raised")
                error = InternalError(f"checking a write raised {type(raised).__name__}: {raised}")
            if error is not None:
                request.done(error)
            elif any(write.arranged for write in request.writes):
                large.append(request)
            else:
                small.append(request)
        if small:
            self._commit_together(small)
        for request in large:
            self._commit_together([request])

    def give_up(self) -> None:
        """Refuse the group: what it has to be checked against will not be known any more."""
        group, self._group = self._group, []
        for request in group:
            request.done(SqlError("57P01", "terminating connection due to administrator command"))

    def _commit_together(self, requests: list[CommitRequest]) -> None:
        try:
            writes = requests[0].writes if len(requests) == 1 else _together(requests)
        except Exception as raised:
            log.exception("putting writes together raised")
            error = InternalError(f"putting writes together raised {type(raised).__name__}: {raised}")
            for request in requests:
                request.done(error)
            return
        # A time once handed out has to be applied: later groups wait for it.
        self._last = at = self._oracle.next()

        def applied(error: SqlError | None) -> None:
            for request in requests:
                request.done(at if error is None else error)

        self._apply(ApplyWrites(at, writes, applied))

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
                error = violation(check.key, ready.oks, (*existing, *taken))
                if error is not None:
                    return error
                deltas[desc.id] = ready.oks
        for id_, delta in deltas.items():
            keys_taken.setdefault(id_, []).append(delta)
        return None


def _together(group: list[CommitRequest]) -> tuple[TableWrite, ...]:
    """Put the writes of a group to one table together."""
    by_table: dict[int, list[Updates]] = {}
    for request in group:
        for write in request.writes:
            by_table.setdefault(write.table_id, []).append(write.updates)
    return tuple(TableWrite(table_id, put_together(parts)) for table_id, parts in by_table.items())


class CommitDriver(Protocol):
    """Says where and when a `GroupCommit` commits."""

    def submit(self, request: CommitRequest) -> None:
        """Queue a transaction; from any thread."""

    def close(self) -> None:
        """Commit what waits, then stop."""


class SteppedCommits:
    """Commits one group when told to: what tests of interleavings drive."""

    def __init__(self, commit: GroupCommit, _state: ServingState) -> None:
        self._commit = commit
        self.submit = commit.submit

    def step(self) -> bool:
        """Commit what waits as one group; False where nothing waits, or cannot be checked yet."""
        if not self._commit.gather() or not self._commit.ready:
            return False
        self._commit.commit()
        return True

    def close(self) -> None:
        """Do nothing: there is nothing to stop."""


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
            while self._commit.gather():
                if not self._commit.ready and not self._state.wait_until(self._commit.last):
                    self._commit.give_up()
                    return
                self._commit.commit()
            if self._closing:
                return
