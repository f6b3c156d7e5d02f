"""A transport, a coordinator and a session that do what a test tells them."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from errno import ENOMEM
from struct import pack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layby.adapter.outcome import (
    CommandOutcome,
    CopyInOutcome,
    EncoderFor,
    FailureOutcome,
    Notice,
    OnOutcome,
    Outcome,
    ResultDesc,
    RowsOutcome,
)
from layby.adapter.prepared import ReadBind
from layby.compute.runtime import Job, run_job
from layby.errors import SqlError
from layby.memory.arena import HEAP, Arena, Array, HeapArena
from layby.pgwire.connection import Connection
from layby.pgwire.session import Script
from layby.sql.statement_text import StatementText, decoded
from layby.types.column import Column, column_from_values
from layby.types.relation import ColumnDesc
from layby.types.scalar import INTEGER, PhysicalValue, SqlType
from tests.pgwire.frontend import kinds, startup

INT_ROWS: ResultDesc = (ColumnDesc("n", INTEGER),)


@dataclass
class Later:
    """An outcome that comes by the callback, when the test says so."""

    outcome: Outcome


@dataclass
class IntRows:
    """An answer of one integer column, encoded as the connection asks."""

    values: list[int]
    tag: str = ""

    def outcome(self, encoder_for: EncoderFor, desc: ResultDesc = INT_ROWS) -> Outcome:
        count = len(self.values)
        columns: tuple[Column, ...] = (column_from_values(INTEGER, self.values),)
        encoded = encoder_for(desc)(columns, count)
        return RowsOutcome(desc, self.tag or f"SELECT {count}", count, encoded)


Answer = Outcome | IntRows | Later | SqlError


class FakeSink:
    def __init__(self, session: FakeSession, accept: int = 1 << 60) -> None:
        self.session = session
        self.accept = accept
        self.data = b""
        self.aborted: SqlError | None = None
        self.finished = False
        self.on_ready: Callable[[], None] | None = None
        self.callback: OnOutcome

    def feed(self, data: bytes) -> bool:
        self.data += data
        return len(self.data) < self.accept

    def finish(self) -> None:
        self.finished = True
        self.callback(CommandOutcome(f"COPY {self.data.count(10)}"))

    def abort(self, error: SqlError) -> None:
        self.aborted = error
        self.callback(FailureOutcome(error))


@dataclass
class FakeSession:
    """Answers statements by their text from `answers`; keeps what was asked of it in `calls`."""

    answers: dict[str, Answer] = field(default_factory=dict)
    types: tuple[SqlType, ...] = ()
    desc: ResultDesc | None = INT_ROWS
    process_id: int = 7
    secret_key: int = 0xF000_0001
    status: bytes = b"I"
    sync_answer: Answer = field(default_factory=lambda: CommandOutcome(""))

    def __post_init__(self) -> None:
        self.calls: list[Any] = []
        self.owed: list[tuple[OnOutcome, Outcome]] = []
        self.long_texts: set[str] = set()
        """Texts that are not parsed within the call."""
        self.owed_texts: list[Callable[[SqlError | None], None]] = []
        """What ends the parsing of those that are under way, with the error if any."""
        self.owed_binds: list[Callable[[], None]] = []
        """What reads the Binds that are read apart, and takes what comes of it."""
        self.notices: list[Notice] = []
        self.changes: list[tuple[str, str]] = []
        self.statements: dict[str, str] = {}
        self.portals: dict[str, str] = {}
        self.sink: FakeSink | None = None
        self.on_terminated: Callable[[SqlError], None] | None = None
        self.sync_answers: list[Answer] = []
        """Answers to the next syncs, before `sync_answer` is that to all."""
        self.closed = 0

    def _answer(self, text: str, encoder_for: EncoderFor, on_outcome: OnOutcome) -> Outcome | None:
        answer = self.answers[text]
        if isinstance(answer, SqlError):
            raise answer
        if isinstance(answer, Later):
            self.owed.append((on_outcome, answer.outcome))
            return None
        if isinstance(answer, IntRows):
            return answer.outcome(encoder_for)
        if isinstance(answer, CopyInOutcome):
            self.sink = answer.sink  # type: ignore[assignment]
            assert self.sink is not None
            self.sink.callback = on_outcome
        return answer

    def deliver(self) -> None:
        """Give the outcome owed for longest."""
        on_outcome, outcome = self.owed.pop(0)
        on_outcome(outcome)

    @property
    def prepared(self) -> FakeSession:
        return self

    def reported_parameters(self) -> dict[str, str]:
        return {"server_version": "15.0 (layby)", "client_encoding": "UTF8"}

    def parse_script(
        self, sql: StatementText, on_parsed: Callable[[Script | SqlError], None]
    ) -> Script | None:
        sql = decoded(sql)
        self.calls.append(("script", sql))
        if sql == "syntax error":
            raise SqlError("42601", 'syntax error at or near "syntax"', position=1)
        script = deque(part.strip() for part in sql.split(";") if part.strip())
        if sql in self.long_texts:
            self.owed_texts.append(lambda error: on_parsed(error or script))
            return None
        return script

    def execute_statement(
        self, parsed: Any, encoder_for: EncoderFor, on_outcome: OnOutcome
    ) -> Outcome | None:
        self.calls.append(("run", parsed))
        return self._answer(parsed, encoder_for, on_outcome)

    def prepare(
        self,
        name: str,
        sql: StatementText,
        param_oids: Sequence[int] | NDArray[np.uint32],
        on_prepared: Callable[[SqlError | None], None],
    ) -> bool:
        sql = decoded(sql)
        self.calls.append(("prepare", name, sql, tuple(param_oids)))
        if sql == "syntax error":
            raise SqlError("42601", 'syntax error at or near "syntax"', position=1)
        self.statements[name] = sql
        if sql in self.long_texts:
            self.owed_texts.append(on_prepared)
            return False
        return True

    def describe_statement(self, name: str) -> tuple[tuple[SqlType, ...], ResultDesc | None]:
        if name not in self.statements:
            raise SqlError("26000", f'prepared statement "{name}" does not exist')
        return self.types, self.desc

    def bind(self, portal: str, statement: str, params: tuple[PhysicalValue, ...]) -> None:
        self.calls.append(("bind", portal, statement, list(params)))
        self.portals[portal] = self.statements[statement]

    def bind_apart(
        self, portal: str, statement: str, job: Job, on_bound: Callable[[tuple[int, ...] | SqlError], None]
    ) -> None:
        self.calls.append(("bind apart", portal, statement))

        def read() -> None:
            result = run_job(pickle.loads(pickle.dumps(job)), HEAP)
            if isinstance(result, ReadBind):
                self.bind(portal, statement, result.params.unpack())
                on_bound(result.formats)
            else:
                assert isinstance(result, SqlError)
                on_bound(pickle.loads(pickle.dumps(result)))

        self.owed_binds.append(read)

    def describe_portal(self, portal: str) -> ResultDesc | None:
        if portal not in self.portals:
            raise SqlError("34000", f'portal "{portal}" does not exist')
        return self.desc

    def execute_portal(self, portal: str, encoder_for: EncoderFor, on_outcome: OnOutcome) -> Outcome | None:
        self.describe_portal(portal)
        self.calls.append(("execute", portal))
        return self._answer(self.portals[portal], encoder_for, on_outcome)

    def close_statement(self, name: str) -> None:
        self.statements.pop(name, None)

    def close_portal(self, name: str) -> None:
        self.portals.pop(name, None)

    def sync(self, on_outcome: OnOutcome) -> Outcome | None:
        self.calls.append(("sync",))
        answer = self.sync_answers.pop(0) if self.sync_answers else self.sync_answer
        assert not isinstance(answer, IntRows | SqlError)
        if isinstance(answer, Later):
            self.owed.append((on_outcome, answer.outcome))
            return None
        return answer

    def fail(self) -> None:
        self.calls.append(("fail",))

    def cancel(self) -> None:
        self.calls.append(("cancel",))

    def close(self) -> None:
        self.closed += 1

    def take_notices(self) -> list[Notice]:
        notices, self.notices = self.notices, []
        return notices

    def take_parameter_changes(self) -> list[tuple[str, str]]:
        changes, self.changes = self.changes, []
        return changes


class FakeCoordinator:
    def __init__(self, session: FakeSession) -> None:
        self.session = session
        self.connects: list[tuple[str, str, dict[str, str]]] = []
        self.cancels: list[tuple[int, int]] = []
        self.refusal: SqlError | None = None
        self.arena: Arena = HEAP

    def connect(self, user: str, database: str, parameters: dict[str, str]) -> FakeSession:
        if self.refusal is not None:
            raise self.refusal
        self.connects.append((user, database, parameters))
        return self.session

    def cancel(self, process_id: int, secret_key: int) -> None:
        self.cancels.append((process_id, secret_key))


class Client:
    """A connection with a transport in memory; `turns` are what it has asked for in later turns."""

    def __init__(self, session: FakeSession | None = None, *, started: bool = True) -> None:
        self.session = session or FakeSession()
        self.coordinator = FakeCoordinator(self.session)
        self.turns: list[Callable[[], None]] = []
        self.writes: list[bytes] = []
        self.taken = 0
        self.closed = False
        self._reading = True
        self.room: int | None = None
        """Bytes that the transport takes before it asks to pause; None: any number."""
        self.ended = 0
        self.now = 0.0
        """What the clock shows, in seconds."""
        self.connection = Connection(
            self.coordinator, self.turns.append, self.on_started, self.on_closed, lambda: self.now
        )
        self.connection.connected(self)
        if started:
            assert kinds(self.send(startup(user="layby", database="layby"))).endswith("KZ")

    def on_started(self, connection: Connection) -> None:
        assert connection is self.connection

    def on_closed(self, connection: Connection) -> None:
        self.ended += 1

    # the transport

    def write(self, data: bytes | memoryview) -> None:
        assert not self.closed
        self.writes.append(bytes(data))
        if self.room is not None:
            self.room -= len(data)
            if self.room <= 0:
                self.connection.pause_writing()

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        assert self._reading
        self._reading = False

    def resume_reading(self) -> None:
        assert not self._reading
        self._reading = True

    # the test's side

    def is_reading(self) -> bool:
        return self._reading

    def received(self) -> bytes:
        """Return what was written since the last call."""
        new = self.writes[self.taken :]
        self.taken = len(self.writes)
        return b"".join(new)

    def send(self, data: bytes) -> bytes:
        """Send, and return what was written in answer, in this turn and all that follow."""
        self.connection.data_received(data)
        self.run_turns()
        return self.received()

    def run_turns(self) -> None:
        while self.turns:
            self.turns.pop(0)()

    def deliver(self) -> bytes:
        """Let the session give an outcome that it owes; return what was written."""
        self.session.deliver()
        self.run_turns()
        return self.received()


def command_body(tag: str) -> tuple[str, bytes]:
    return "C", tag.encode() + b"\0"


def int_row(value: int) -> tuple[str, bytes]:
    text = str(value).encode()
    return "D", pack(">hi", 1, len(text)) + text


def in_pieces(client: Client, data: bytes) -> bytes:
    """Send bytes as the transport reads them."""
    for at in range(0, len(data), 65_536):
        client.connection.data_received(data[at : at + 65_536])
        client.run_turns()
    return client.received()


class FullArena(HeapArena):
    """An arena for which there is no memory."""

    def empty(self, length: int, dtype: np.dtype[Any]) -> Array:
        raise OSError(ENOMEM, "Cannot allocate memory")
