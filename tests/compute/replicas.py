"""A replica of stepped parts, and the commands that tests send it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from layby.compute.arrangement import ArrangementDesc, Updates, shard
from layby.compute.maintenance import ApplyWrites, CreateArrangement, Message, TableWrite
from layby.compute.protocol import Answer, CreateDataflow, Frontiers, Peek, PeekResponse, Status
from layby.compute.replica import Replica
from layby.compute.runtime import SteppedMaintenanceRuntime
from layby.compute.state import ServingState
from layby.compute.worker import ServingWorker
from layby.config import SystemParameters
from layby.expr.scalar import ColumnRef
from layby.metrics import PeekMetrics
from layby.peek.pool import SteppedWalkPool
from layby.trace.layout import Layout
from layby.types.column import column_from_values
from layby.types.ordering import ASCENDING
from layby.types.scalar import BIGINT
from tests.peek.harness import spec

START = 100
"""The first time at which nothing is known yet."""


def table(id_: int, table_id: int) -> CreateDataflow:
    """Return the command that makes the shard of a table of two bigints."""
    return CreateDataflow(shard(id_, table_id, f"t{table_id}", (BIGINT, BIGINT)))


def index(id_: int, table_id: int, column: int = 0) -> CreateDataflow:
    """Return the command that makes an index on one of its columns."""
    stored = (ColumnRef(column, BIGINT), ColumnRef(1 - column, BIGINT))
    layout = Layout((BIGINT, BIGINT), (ASCENDING,))
    return CreateDataflow(ArrangementDesc(id_, table_id, f"i{id_}", stored, layout))


def peek(number: int, collection: int, timestamp: int = START - 1) -> Peek:
    """Return the command that reads all of a collection."""
    return Peek(number, collection, spec(timestamp))


class _Counted(SteppedMaintenanceRuntime):
    """Notes what it was asked to build."""

    created: list[int]

    def submit(self, message: Message) -> None:
        if isinstance(message, CreateArrangement):
            self.created.append(message.desc.id)
        super().submit(message)


class Site:
    """One replica with everything stepped. `told` are the answers that its links brought."""

    def __init__(self, *, upper: int = START, inline_budget: int = 5) -> None:
        self.parameters = SystemParameters(
            {
                "enable_compute_index_peek_offload": "on",
                "compute_index_peek_inline_budget": str(inline_budget),
                "compute_index_peek_yield_granularity": "10",
            }
        )
        self.metrics = PeekMetrics()
        self.state = ServingState(upper)
        self.pool = SteppedWalkPool()
        self.turns: list[Callable[[], None]] = []
        self.runtime: _Counted
        self.told: list[Answer] = []
        self.worker = ServingWorker(
            self.state, self.parameters, self.pool, self.metrics, self.turns.append, lambda: 0.0
        )
        self.replica = Replica(
            self.state, self.worker, self._maintained, self.parameters, lambda callback: callback()
        )

    def _maintained(self, frontier: Callable[[], int]) -> _Counted:
        self.runtime = _Counted(self.state, frontier)
        self.runtime.created = []
        return self.runtime

    def turn(self) -> bool:
        """Take one turn of the loop."""
        turns, self.turns[:] = list(self.turns), []
        for callback in turns:
            callback()
        return bool(turns)

    def settle(self) -> None:
        """Take turns, build and walk until nothing is left to do."""
        while self.turn() or self.runtime.step() or self.pool.walks:
            self.pool.run()

    def write(self, table_id: int, *rows: tuple[int, int]) -> None:
        """Commit rows of a table at the next time; whoever waits for that is woken."""
        columns = tuple(column_from_values(BIGINT, [row[i] for row in rows]) for i in range(2))
        updates = Updates(columns, np.ones(len(rows), np.int64))
        self.runtime.submit(ApplyWrites(self.state.upper, (TableWrite(table_id, updates),), lambda _: None))
        self.runtime.run()
        self.worker.request_activation()

    def answers(self) -> dict[int, PeekResponse]:
        """Return the peeks' answers, each of which came once."""
        found = [a for a in self.told if isinstance(a, PeekResponse)]
        assert len({a.number for a in found}) == len(found), "answered twice"
        return {a.number: a for a in found}

    def statuses(self) -> list[tuple[int, str | None]]:
        """Return the statuses told, with the SQLSTATE of their errors."""
        return [
            (a.collection, None if a.error is None else a.error.sqlstate)
            for a in self.told
            if isinstance(a, Status)
        ]

    def frontiers(self) -> list[tuple[int, int]]:
        """Return the frontiers told."""
        return [(a.upper, a.since) for a in self.told if isinstance(a, Frontiers)]
