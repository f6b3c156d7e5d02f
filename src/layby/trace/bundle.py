"""Trace bundles: the two traces of one index, `oks` (rows) and `errs` (errors), under one frontier."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from layby.errors import InternalError, SqlError
from layby.memory.arena import HEAP, Arena
from layby.trace.batch import MIN_TIME, Batch, build_batch
from layby.trace.layout import Layout
from layby.trace.spine import Spine
from layby.types.column import Column, column_from_values
from layby.types.scalar import TEXT

ERRS_LAYOUT: Final = Layout((TEXT, TEXT), ())
"""The rows of an error trace: SQLSTATE and message."""


class ErrorUpdate(NamedTuple):
    """One update of an error trace."""

    sqlstate: str
    message: str
    time: int
    diff: int


class Snapshot(NamedTuple):
    """What a reader takes: all batches at one moment, to be read at `t` where `since <= t < upper`."""

    oks: tuple[Batch, ...]
    errs: tuple[Batch, ...]
    since: int
    upper: int


class ReadHold:
    """Keeps a bundle readable at `time` until it is released, by any thread, once or more often."""

    __slots__ = ("_bundle", "_held", "time")

    def __init__(self, bundle: TraceBundle, time: int) -> None:
        self.time = time
        self._bundle = bundle
        self._held = True

    def release(self) -> None:
        """Give the hold up; does nothing the second time."""
        bundle = self._bundle
        with bundle._lock:
            if self._held:
                self._held = False
                bundle._drop_hold(self.time)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class TraceBundle:
    """The spines of one index and its read holds.

    One thread appends, works and compacts (maintenance). Any thread takes snapshots, which needs no lock, and
    takes and releases holds, which takes a short one.
    """

    def __init__(self, layout: Layout, arena: Arena = HEAP, upper: int = MIN_TIME) -> None:
        self.layout = layout
        self._arena = arena
        self._oks = Spine(layout, arena, upper)
        self._errs = Spine(ERRS_LAYOUT, arena, upper)
        self._lock = threading.Lock()
        # Guarded by the lock: how many holds there are at each time, how far compaction is allowed, and
        # `_snapshot.since`, which is the lesser of that and the smallest hold, and never moves back.
        self._holds: dict[int, int] = {}
        self._allowed = MIN_TIME
        self._snapshot = Snapshot((), (), MIN_TIME, upper)

    @classmethod
    def adopt(cls, layout: Layout, snapshot: Snapshot, upper: int, arena: Arena = HEAP) -> TraceBundle:
        """Go on from a snapshot of another bundle, with nothing after it up to `upper`."""
        bundle = cls(layout, arena, upper)
        bundle._oks.adopt(snapshot.oks, upper)
        bundle._errs.adopt(snapshot.errs, upper)
        bundle._publish()
        bundle.allow_compaction(snapshot.since)
        return bundle

    @property
    def since(self) -> int:
        """The first time at which the bundle can be read."""
        return self._snapshot.since

    @property
    def upper(self) -> int:
        """The first time at which it cannot be read yet."""
        return self._snapshot.upper

    @property
    def nbytes(self) -> int:
        """The bytes of all batches."""
        snapshot = self._snapshot
        return sum(batch.nbytes for batch in (*snapshot.oks, *snapshot.errs))

    def snapshot(self) -> Snapshot:
        """Return what there is to read; complete at every moment, and never changed afterwards."""
        return self._snapshot

    def append(
        self,
        columns: Sequence[Column],
        times: NDArray[np.int64] | int,
        diffs: NDArray[np.int64] | int,
        upper: int,
        errors: Sequence[ErrorUpdate] = (),
        *,
        length: int | None = None,
    ) -> None:
        """Add updates (in any order, at times from the present `upper` on) and move `upper`.

        One number for times or diffs stands for all rows; `length` is needed where there are no columns.
        """
        lower, since, arena = self._oks.upper, self.since, self._arena
        oks = build_batch(self.layout, columns, times, diffs, lower, upper, since, arena, length=length)
        errs = build_errors(errors, lower, upper, since, arena) if errors else None
        self.append_batches(oks, errs, upper)

    def append_batches(self, oks: Batch | None, errs: Batch | None, upper: int) -> None:
        """Add sealed batches, each from the present `upper` to `upper` (None: nothing happened)."""
        for batch in (oks, errs):
            if batch is not None and (batch.lower, batch.upper) != (self._oks.upper, upper):
                raise InternalError(
                    f"a batch of [{batch.lower}, {batch.upper}) does not fit [{self._oks.upper}, {upper})"
                )
        if upper < self._oks.upper:
            raise InternalError(f"upper moves back from {self._oks.upper} to {upper}")
        for spine, batch in ((self._oks, oks), (self._errs, errs)):
            if batch is None:
                spine.upper = upper
            else:
                spine.append(batch)
        self._publish()

    def work(self, fuel: int) -> int:
        """Merge for at most `fuel` positions, rows before errors; return how many were spent."""
        since = self.since
        self._oks.advance_since(since)
        self._errs.advance_since(since)
        spent = self._oks.work(fuel)
        if spent < fuel:
            spent += self._errs.work(fuel - spent)
        self._publish()
        return spent

    @property
    def idle(self) -> bool:
        """Whether there is nothing to merge; asked by the thread that works."""
        since = self.since
        self._oks.advance_since(since)
        self._errs.advance_since(since)
        return self._oks.idle and self._errs.idle

    def allow_compaction(self, frontier: int) -> None:
        """Allow times below `frontier` to be told apart no more, as far as no hold needs them."""
        with self._lock:
            self._allowed = max(self._allowed, frontier)
            self._advance_since()

    def hold(self, time: int) -> ReadHold:
        """Keep the bundle readable at `time`. Raises 55000 where it is not so any more.

        Take the snapshot to be read after the hold, not before.
        """
        with self._lock:
            since = self._snapshot.since
            if time < since:
                raise SqlError(
                    "55000",
                    f"timestamp {time} is no longer readable",
                    detail=f"The earliest readable timestamp is {since}.",
                )
            self._holds[time] = self._holds.get(time, 0) + 1
            return ReadHold(self, time)

    def _drop_hold(self, time: int) -> None:
        """Forget one hold; the lock is held."""
        count = self._holds[time] - 1
        if count:
            self._holds[time] = count
        else:
            del self._holds[time]
            self._advance_since()

    def _advance_since(self) -> None:
        """Move `since` as far as is allowed; the lock is held."""
        since = min(self._allowed, min(self._holds)) if self._holds else self._allowed
        if since > self._snapshot.since:
            self._snapshot = self._snapshot._replace(since=since)

    def _publish(self) -> None:
        """Show readers what the spines hold, at once for both; called by the thread that appends."""
        oks, errs, upper = self._oks.batches, self._errs.batches, self._oks.upper
        with self._lock:
            self._snapshot = Snapshot(oks, errs, self._snapshot.since, upper)


def build_errors(errors: Sequence[ErrorUpdate], lower: int, upper: int, since: int, arena: Arena) -> Batch:
    """Return a batch of an error trace."""
    columns = [
        column_from_values(TEXT, [e.sqlstate for e in errors]),
        column_from_values(TEXT, [e.message for e in errors]),
    ]
    times = np.array([e.time for e in errors], np.int64)
    diffs = np.array([e.diff for e in errors], np.int64)
    return build_batch(ERRS_LAYOUT, columns, times, diffs, lower, upper, since, arena)
