"""The three maintenance runtimes behind one face, for the conformance kit, and a naive table beside them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import uvloop

from layby.compute.arrangement import ArrangementDesc, Updates, shard
from layby.compute.maintenance import ApplyWrites, CreateArrangement, DropArrangement, TableWrite
from layby.compute.process_runtime import ProcessMaintenanceRuntime
from layby.compute.runtime import (
    Job,
    MaintenanceRuntime,
    SteppedMaintenanceRuntime,
    ThreadMaintenanceRuntime,
)
from layby.compute.state import ServingState
from layby.errors import SqlError
from layby.expr.scalar import ColumnRef
from layby.metrics import PeekMetrics
from layby.trace.batch import Batch
from layby.trace.layout import Layout
from layby.types.column import column_from_values
from layby.types.ordering import ASCENDING
from layby.types.scalar import BIGINT

KINDS: Final = ("stepped", "threads", "processes")
DEADLINE_S: Final = 20.0
_LOOK_S: Final = 0.002

SHARD = shard(10, 1, "t", (BIGINT, BIGINT))
BY_B = ArrangementDesc(
    11, 1, "t_b", (ColumnRef(1, BIGINT), ColumnRef(0, BIGINT)), Layout((BIGINT, BIGINT), (ASCENDING,))
)
OTHER = shard(20, 2, "u", (BIGINT, BIGINT))

Pair = tuple[int, int]


def write(rows: Mapping[Pair, int], table_id: int = 1) -> TableWrite:
    """Return a write of rows (a, b) with their diffs."""
    columns = tuple(column_from_values(BIGINT, [row[i] for row in rows]) for i in range(2))
    return TableWrite(table_id, Updates(columns, np.array(list(rows.values()), np.int64)))


class Maintained:
    """A runtime of some kind, the loop that its process is watched on, and what it answered."""

    def __init__(self, kind: str, upper: int = 100, **options: Any) -> None:
        self.loop = uvloop.new_event_loop()
        self.state = ServingState(upper)
        self.metrics = PeekMetrics()
        self.frontier = 0
        self.runtime: MaintenanceRuntime
        match kind:
            case "stepped":
                self.runtime = SteppedMaintenanceRuntime(self.state, lambda: self.frontier)
            case "threads":
                self.runtime = ThreadMaintenanceRuntime(self.state, lambda: self.frontier)
            case _:
                self.runtime = ProcessMaintenanceRuntime(
                    self.state, lambda: self.frontier, self.loop, metrics=self.metrics, **options
                )
        self.applied: dict[int, SqlError | None] = {}
        self.created: dict[int, SqlError | None] = {}
        self.results: list[object] = []
        self.model: dict[int, Counter[Pair]] = {}
        self.time = upper - 1

    @property
    def process(self) -> ProcessMaintenanceRuntime:
        assert isinstance(self.runtime, ProcessMaintenanceRuntime)
        return self.runtime

    def create(self, desc: ArrangementDesc, verify: Callable[[Batch], SqlError | None] | None = None) -> None:
        def created(error: SqlError | None) -> None:
            self.created[desc.id] = error

        self.model.setdefault(desc.table_id, Counter())
        self.runtime.submit(CreateArrangement(desc, created, verify))

    def apply(self, rows: Mapping[Pair, int], table_id: int = 1) -> int:
        """Write rows at the next time, which is returned."""
        self.time = at = self.time + 1

        def applied(error: SqlError | None) -> None:
            assert at not in self.applied, "answered twice"
            self.applied[at] = error

        self.model[table_id].update(rows)
        self.runtime.submit(ApplyWrites(at, (write(rows, table_id),), applied))
        return at

    def drop(self, desc: ArrangementDesc) -> None:
        self.runtime.submit(DropArrangement(desc.id))

    def run_apart(self, job: Job) -> None:
        self.runtime.run_apart(job, self.results.append)

    def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until a condition holds; fails where it takes too long."""
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end, "it did not come about"
            if isinstance(self.runtime, SteppedMaintenanceRuntime):
                self.runtime.step()
            timer = self.loop.call_later(_LOOK_S, self.loop.stop)
            self.loop.run_forever()
            timer.cancel()

    def until_applied(self) -> None:
        """Wait until every write so far is answered, and none of them with an error."""
        self.until(lambda: len(self.applied) >= self.time - 99)
        assert set(self.applied.values()) <= {None}

    def rows(self, desc: ArrangementDesc, at: int | None = None) -> dict[Pair, int]:
        """Return what can be read of an arrangement, counted; at the newest time unless told otherwise."""
        at = self.state.upper - 1 if at is None else at
        snapshot = self.state.snapshot(desc.id)
        assert snapshot is not None
        assert snapshot.since <= at < snapshot.upper
        rows: Counter[Pair] = Counter()
        for batch in snapshot.oks:
            columns = [c.to_list() for c in batch.columns]
            seen = batch.times <= at
            for row, diff, visible in zip(zip(*columns, strict=True), batch.diffs, seen, strict=True):
                if visible:
                    rows[int(str(row[0])), int(str(row[1]))] += int(diff)
        return {row: count for row, count in rows.items() if count}

    def table(self, table_id: int = 1) -> dict[Pair, int]:
        """Return what the naive table holds."""
        return {row: count for row, count in self.model[table_id].items() if count}

    def close(self) -> None:
        self.runtime.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


def turned(rows: Mapping[Pair, int]) -> dict[Pair, int]:
    """Return rows (a, b) as (b, a)."""
    return {(b, a): count for (a, b), count in rows.items()}


@contextmanager
def maintained(kind: str, **options: Any) -> Iterator[Maintained]:
    """Run a runtime for a while."""
    found = Maintained(kind, **options)
    try:
        yield found
    finally:
        found.close()
