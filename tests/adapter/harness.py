"""The harness of the adapter's tests: a real coordinator; tests move its loop, threads and clock by hand."""

from __future__ import annotations

import ast
import pickle
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from layby.adapter.commit import SteppedCommits
from layby.adapter.coordinator import Coordinator
from layby.adapter.outcome import (
    CommandOutcome,
    CopyInOutcome,
    CopyInSink,
    CopyOutOutcome,
    FailureOutcome,
    Outcome,
    ResultDesc,
    RowsOutcome,
)
from layby.adapter.session import Script, Session
from layby.compute.maintenance import ApplyWrites, CreateArrangement, Message
from layby.compute.runtime import Job, SteppedMaintenanceRuntime
from layby.config import SystemParameters
from layby.errors import SqlError
from layby.metrics import PeekMetrics
from layby.peek.answer import EncodedRows, RowEncoder
from layby.peek.pool import SteppedWalkPool
from layby.persist.blob import Blob
from layby.sql.plan import CopyOptions
from layby.types.column import Column
from layby.types.scalar import PhysicalValue

Row = tuple[PhysicalValue, ...]

START = 1_000_000
"""What the clock of a server shows, in milliseconds, and goes on showing."""


def encode(columns: Sequence[Column], count: int) -> EncodedRows:
    """Encode rows so that a test can read them again."""
    rows = list(zip(*(c.to_list() for c in columns), strict=True)) if columns else [()] * count
    return EncodedRows(repr(rows).encode(), (), count)


def decode(encoded: EncodedRows | None) -> list[Row]:
    assert encoded is not None
    rows: list[Row] = ast.literal_eval(bytes(encoded.data).decode()) if encoded.data else []
    return rows


def never_later(error: SqlError | None) -> None:
    """Stand for the callback of a call that ends before it returns."""
    raise AssertionError("called back")


def encoder_for(desc: ResultDesc, copy: CopyOptions | None = None) -> RowEncoder:
    return encode


class FakeTimer:
    """A timer that is called off by taking it off the loop's list."""

    def __init__(self, loop: FakeLoop, entry: tuple[float, Callable[[], object]]) -> None:
        self._loop, self._entry = loop, entry

    def cancel(self) -> None:
        if self._entry in self._loop.timers:
            self._loop.timers.remove(self._entry)


class FakeLoop:
    """An event loop whose turns and timers the test takes."""

    def __init__(self) -> None:
        self.turns: list[Callable[[], object]] = []
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def call_soon(self, callback: Callable[[], object], /) -> None:
        self.turns.append(callback)

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[[], object], /) -> FakeTimer:
        self.timers.append((delay, callback))
        return FakeTimer(self, self.timers[-1])

    def turn(self) -> bool:
        """Take one turn: what was scheduled before it; False where there was nothing."""
        turns, self.turns = self.turns, []
        for callback in turns:
            callback()
        return bool(turns)


class Elsewhere(SteppedMaintenanceRuntime):
    """Stepped maintenance that gets its work as another process would: as what it pickles to."""

    def submit(self, message: Message) -> None:
        if isinstance(message, CreateArrangement):
            message = replace(message, desc=pickled(message.desc), verify=pickled(message.verify))
        elif isinstance(message, ApplyWrites):
            message = replace(message, writes=pickled(message.writes))
        super().submit(message)

    def run_apart(self, job: Job, then: Callable[[object], None]) -> None:
        super().run_apart(pickled(job), lambda result: then(pickled(result)))


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


class Server:
    """A coordinator with everything stepped."""

    def __init__(self, *, blob: Blob | None = None, **parameters: object) -> None:
        defaults = {"enable_compute_index_peek_offload": "on"}
        defaults |= {name: str(value) for name, value in parameters.items()}
        self.loop = FakeLoop()
        self.pool = SteppedWalkPool()
        self.maintenance: SteppedMaintenanceRuntime
        self.commits: SteppedCommits
        self.coordinator = Coordinator(
            SystemParameters(defaults),
            loop=self.loop,
            metrics=PeekMetrics(),
            pool=self.pool,
            maintenance=self._maintained,
            commits=self._committed,
            clock=lambda: START,
            stopwatch=lambda: 0.0,
            blob=blob,
        )

    def _maintained(self, *arguments: Any) -> SteppedMaintenanceRuntime:
        self.maintenance = Elsewhere(*arguments)
        return self.maintenance

    def _committed(self, *arguments: Any) -> SteppedCommits:
        self.commits = SteppedCommits(*arguments)
        return self.commits

    def step(self) -> bool:
        """Do one thing that waits, whoever's turn it is; False where nothing does."""
        if self.commits.step() or self.maintenance.step() or self.loop.turn():
            return True
        if self.pool.walks:
            self.pool.step()
            return True
        return False

    def settle(self) -> None:
        """Step until everything has come to rest."""
        while self.step():
            pass

    def connect(self, **parameters: str) -> Client:
        return Client(self, self.coordinator.connect("layby", "layby", parameters))

    def index_id(self, name: str) -> int:
        found = self.coordinator.catalog.index(name)
        assert found is not None
        return found[1].id

    def arrangements(self) -> set[int]:
        """Return the ids of all arrangements that maintenance keeps."""
        return set(self.maintenance.maintenance._by_id)

    def assert_nothing_leaked(self) -> None:
        """Nothing is held, waits or is kept once all transactions have ended."""
        coordinator = self.coordinator
        assert coordinator.locks.held() == 0
        assert coordinator._snapshots == {}
        assert self.loop.timers == []
        assert coordinator.reserved_names == set()
        assert coordinator.dropped_names == {}
        assert coordinator.worker.waiting == 0
        assert len(coordinator.worker.offload) == 0
        assert coordinator.worker.offload.permits.in_use == 0
        assert coordinator.worker.offload.permits.queued == 0
        assert coordinator.worker.offload.pinned.nbytes == 0
        tables = coordinator.catalog.tables.values()
        assert set(coordinator.arrangements) == {t.id for t in tables if t.rows is None}
        known = {desc.id for descs in coordinator.arrangements.values() for desc in descs}
        shards = {descs[0].id for descs in coordinator.arrangements.values()}
        assert known - shards == {i.id for t in tables for i in t.indexes}
        assert self.arrangements() == known
        assert set(coordinator.state._snapshots) == known


class Query:
    """A simple query under way: its statements' outcomes, then its Sync."""

    def __init__(self, session: Session, sql: str) -> None:
        self.outcomes: list[Outcome] = []
        self.done = False
        self.sink: CopyInSink | None = None
        self._session = session
        self._script: Script = deque()
        script = session.parse_script(sql, self._parsed)
        if script is not None:
            self._parsed(script)

    def _parsed(self, script: Script | SqlError) -> None:
        if isinstance(script, SqlError):
            self._take(FailureOutcome(script))
            return
        self._script = script
        self._next()

    def _next(self) -> None:
        if not self._script:
            self._take_sync(self._session.sync(self._take_sync))
            return
        self._take(self._session.execute_statement(self._script.popleft(), encoder_for, self._take))

    def _take(self, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        if isinstance(outcome, CopyInOutcome):
            self.sink = outcome.sink
            return
        self.outcomes.append(outcome)
        if isinstance(outcome, FailureOutcome):
            self._session.fail()
            self._script.clear()
        self._next()

    def _take_sync(self, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        assert not self.done, "answered twice"
        if isinstance(outcome, FailureOutcome):
            self.outcomes.append(outcome)
        self.done = True

    @property
    def error(self) -> SqlError | None:
        return next((o.error for o in self.outcomes if isinstance(o, FailureOutcome)), None)

    def result(self) -> Any:
        """Return the last statement's rows or tag; raises its error."""
        assert self.done, "not answered yet"
        if self.error is not None:
            raise self.error
        last = self.outcomes[-1]
        if isinstance(last, RowsOutcome):
            return decode(last.encoded)
        if isinstance(last, CopyOutOutcome):
            return decode(last.rows)
        assert isinstance(last, CommandOutcome)
        return last.tag


class Client:
    """One session, spoken to in simple queries."""

    def __init__(self, server: Server, session: Session) -> None:
        self.server = server
        self.session = session

    def send(self, sql: str) -> Query:
        """Start a query; nothing is stepped."""
        return Query(self.session, sql)

    def run(self, sql: str) -> Any:
        """See a query to its end; return rows, or a command tag."""
        query = self.send(sql)
        self.server.settle()
        return query.result()

    def fails(self, sql: str) -> tuple[str, str]:
        """See a query to its error; return SQLSTATE and message."""
        query = self.send(sql)
        self.server.settle()
        assert query.done
        assert query.error is not None, query.outcomes
        return query.error.sqlstate, query.error.message

    def copy(self, sql: str, *pieces: bytes) -> Any:
        """Run a COPY FROM STDIN with the client's data."""
        query = self.send(sql)
        sink = query.sink
        assert sink is not None, query.outcomes
        for piece in pieces:
            sink.feed(piece)
        sink.finish()
        self.server.settle()
        return query.result()
