"""Maintenance: applies committed updates to every arrangement, merges and compacts them, builds new ones.

`Maintenance` decides and does, step by step, and owns the trace bundles; a runtime (`runtime.py`) says where
and when its steps run. What it hands to the serving worker is immutable: snapshots, and the frontier that
they are complete up to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from layby.compute.arrangement import Arranged, ArrangementDesc, Updates, arrange, stamp
from layby.errors import InternalError, SqlError
from layby.memory.arena import HEAP, Arena
from layby.trace.batch import Batch
from layby.trace.bundle import Snapshot, TraceBundle
from layby.types.column import Column, concat, empty_column
from layby.types.scalar import SqlType

log = logging.getLogger("layby.maintenance")

MERGE_FUEL = 65_536
"""Positions of one step of merging, a few milliseconds: how long a commit waits behind a merge."""


@dataclass(frozen=True, slots=True)
class TableWrite:
    """Updates of one table in a transaction; `arranged` holds those sorted before the commit."""

    table_id: int
    updates: Updates
    arranged: Mapping[int, Arranged] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApplyWrites:
    """Committed updates of one time; `applied` is called with None once readers can see them.

    With an error it says that none of them is applied.
    """

    time: int
    writes: tuple[TableWrite, ...]
    applied: Callable[[SqlError | None], None]


@dataclass(frozen=True, slots=True)
class CreateArrangement:
    """A new arrangement, filled from its table's shard; the first of a table is the shard itself.

    `verify` looks at the finished batch and may refuse it. `created` is called with None once it can be
    read, or with the error that it came to; then it does not exist.
    """

    desc: ArrangementDesc
    created: Callable[[SqlError | None], None]
    verify: Callable[[Batch], SqlError | None] | None = None


@dataclass(frozen=True, slots=True)
class DropArrangement:
    """The end of an arrangement; its table's shard is dropped last. `dropped` is called once it is gone."""

    id: int
    dropped: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class _Built:
    """A new arrangement's contents up to `upper`, or the error that building it came to."""

    desc: ArrangementDesc
    arranged: Arranged | None
    upper: int
    request: CreateArrangement
    error: SqlError | None


Message = ApplyWrites | CreateArrangement | DropArrangement | _Built


@dataclass(slots=True)
class _Arrangement:
    """`bundle` is None while it is being built; then `missed` collects what was committed meanwhile."""

    desc: ArrangementDesc
    bundle: TraceBundle | None
    missed: list[tuple[int, TableWrite]] = field(default_factory=list)


class Publication(Protocol):
    """Where snapshots and their frontier go: the serving state, or the way to it."""

    @property
    def upper(self) -> int:
        """The frontier published last."""

    def publish(self, snapshots: Mapping[int, Snapshot], upper: int) -> None:
        """Make new snapshots and then their frontier known."""

    def drop(self, collection: int) -> None:
        """Forget a collection."""


class Maintenance:
    """Keeps the arrangements of all tables. Not thread-safe: one runtime steps it."""

    def __init__(
        self,
        published: Publication,
        build: Callable[[Callable[[], Message]], None],
        compaction_frontier: Callable[[], int],
        arena: Arena = HEAP,
    ) -> None:
        """`build` runs a job apart and hands the message that it returns back to `handle`.

        `compaction_frontier` gives the time below which no reader will ask any more.
        """
        self._published = published
        self._build = build
        self._compaction_frontier = compaction_frontier
        self._arena = arena
        self._tables: dict[int, list[_Arrangement]] = {}
        self._by_id: dict[int, _Arrangement] = {}
        self._upper = published.upper

    def adopt(self, desc: ArrangementDesc, snapshot: Snapshot) -> None:
        """Take over an arrangement from a maintenance that is gone: what it had published is committed.

        A table's shard comes before its indexes.
        """
        bundle = TraceBundle.adopt(desc.layout, snapshot, self._upper, self._arena)
        arrangement = _Arrangement(desc, bundle)
        self._tables.setdefault(desc.table_id, []).append(arrangement)
        self._by_id[desc.id] = arrangement

    def handle(self, message: Message) -> None:
        """Do what a message asks."""
        match message:
            case ApplyWrites():
                self._apply(message)
            case CreateArrangement():
                self._create(message)
            case _Built():
                self._adopt(message)
            case DropArrangement():
                self._drop(message.id)
                if message.dropped is not None:
                    message.dropped()

    def work(self, fuel: int = MERGE_FUEL) -> int:
        """Merge and compact for about `fuel` positions; 0 where nothing is left to do."""
        spent = 0
        changed: dict[int, Snapshot] = {}
        frontier = self._compaction_frontier()
        for id_, arrangement in self._by_id.items():
            bundle = arrangement.bundle
            if bundle is None or spent >= fuel:
                continue
            before = bundle.snapshot()
            bundle.allow_compaction(frontier)
            spent += bundle.work(fuel - spent)
            after = bundle.snapshot()
            # A merge may end without fuel; readers would go on holding its inputs if nobody told them.
            if after.oks is not before.oks or after.errs is not before.errs:
                changed[id_] = after
        if changed:
            self._published.publish(changed, self._upper)
        return spent

    def _apply(self, message: ApplyWrites) -> None:
        time = message.time
        ready: list[tuple[TraceBundle, Arranged]] = []
        missed: list[tuple[_Arrangement, TableWrite]] = []
        try:
            for write in message.writes:
                for arrangement in self._tables.get(write.table_id, ()):
                    bundle = arrangement.bundle
                    if bundle is None:
                        missed.append((arrangement, write))
                    else:
                        ready.append((bundle, self._arranged(arrangement.desc, bundle.upper, time, write)))
        except Exception as error:
            log.exception("arranging a write raised")
            # Nothing happened at this time, and that is final: later commits wait for it to be so. The error
            # comes first: whoever sees the frontier without it would take the write for applied.
            self._upper = time + 1
            message.applied(InternalError(f"arranging a write raised {type(error).__name__}: {error}"))
            self._published.publish({}, self._upper)
            return
        for arrangement, write in missed:
            arrangement.missed.append((time, write))
        for bundle, arranged in ready:
            bundle.append_batches(arranged.oks, arranged.errs, time + 1)
        touched = {write.table_id for write in message.writes}
        changed = {
            arrangement.desc.id: arrangement.bundle.snapshot()
            for table_id in touched
            for arrangement in self._tables.get(table_id, ())
            if arrangement.bundle is not None
        }
        self._upper = time + 1
        self._published.publish(changed, self._upper)
        message.applied(None)

    def _arranged(self, desc: ArrangementDesc, lower: int, time: int, write: TableWrite) -> Arranged:
        arranged = write.arranged.get(desc.id)
        if arranged is not None:
            return stamp(arranged, time, lower)
        times = np.full(len(write.updates.diffs), time, np.int64)
        return arrange(desc, write.updates, times, lower, time + 1, self._arena)

    def _create(self, message: CreateArrangement) -> None:
        desc = message.desc
        shard = self._tables.get(desc.table_id)
        arrangement = _Arrangement(desc, None)
        if not shard:
            arrangement.bundle = TraceBundle(desc.layout, self._arena, self._upper)
            self._tables[desc.table_id] = [arrangement]
            self._by_id[desc.id] = arrangement
            self._published.publish({desc.id: arrangement.bundle.snapshot()}, self._upper)
            message.created(None)
            return
        shard.append(arrangement)
        self._by_id[desc.id] = arrangement
        source = shard[0].bundle
        assert source is not None  # a shard is never built
        snapshot, upper, arena = source.snapshot(), self._upper, self._arena
        types = shard[0].desc.layout.types
        self._build(lambda: _built(message, snapshot, types, upper, arena))

    def _adopt(self, built: _Built) -> None:
        desc = built.desc
        arrangement = self._by_id.get(desc.id)
        if arrangement is None or arrangement.desc is not desc:  # or made again, under the same id
            built.request.created(SqlError("57014", f'"{desc.name}" was dropped while it was being built'))
            return
        if built.error is not None or built.arranged is None:
            self._drop(desc.id)
            built.request.created(built.error)
            return
        bundle = TraceBundle(desc.layout, self._arena, built.arranged.oks.lower)
        bundle.allow_compaction(built.arranged.oks.lower)  # what was before it is not in it
        bundle.append_batches(built.arranged.oks, built.arranged.errs, built.upper)
        try:
            for time, write in arrangement.missed:
                arranged = self._arranged(desc, bundle.upper, time, write)
                bundle.append_batches(arranged.oks, arranged.errs, time + 1)
        except Exception as error:
            log.exception('building "%s" raised', desc.name)
            self._drop(desc.id)
            built.request.created(InternalError(f'building "{desc.name}" raised {type(error).__name__}'))
            return
        arrangement.missed.clear()
        arrangement.bundle = bundle
        self._published.publish({desc.id: bundle.snapshot()}, self._upper)
        built.request.created(None)

    def _drop(self, id_: int) -> None:
        arrangement = self._by_id.pop(id_, None)
        if arrangement is None:
            return
        siblings = self._tables[arrangement.desc.table_id]
        siblings.remove(arrangement)
        if not siblings:
            del self._tables[arrangement.desc.table_id]
        self._published.drop(id_)


def _built(
    request: CreateArrangement, snapshot: Snapshot, types: Sequence[SqlType], upper: int, arena: Arena
) -> _Built:
    """Arrange all that a shard's snapshot holds, at times compacted to its newest."""
    desc = request.desc
    try:
        columns, diffs = _contents(snapshot, types)
        lower = max(0, upper - 1)
        times = np.full(len(diffs), lower, np.int64)
        arranged = arrange(desc, Updates(columns, diffs), times, lower, upper, arena)
        error = request.verify(arranged.oks) if request.verify is not None else None
        return _Built(desc, arranged, upper, request, error)
    except SqlError as error:
        return _Built(desc, None, upper, request, error)
    except Exception as error:
        log.exception('building "%s" raised', desc.name)
        return _Built(
            desc, None, upper, request, InternalError(f'building "{desc.name}" raised {type(error).__name__}')
        )


def _contents(snapshot: Snapshot, types: Sequence[SqlType]) -> tuple[tuple[Column, ...], NDArray[np.int64]]:
    """Return all updates of a snapshot, at whatever times, as one run of columns and diffs."""
    batches = snapshot.oks
    if not batches:
        return tuple(empty_column(t) for t in types), np.zeros(0, np.int64)
    columns = tuple(concat([b.columns[i] for b in batches]) for i in range(len(types)))
    return columns, np.concatenate([b.diffs for b in batches])
