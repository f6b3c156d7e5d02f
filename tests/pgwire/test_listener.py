"""The listener over real sockets, with a scripted session behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from struct import pack
from typing import Any

import pytest
import uvloop

from layby.adapter.outcome import CommandOutcome, EncoderFor, OnOutcome, Outcome
from layby.pgwire.listener import Listener, listen
from tests.pgwire import frontend
from tests.pgwire.fakes import FakeCoordinator, FakeSession, IntRows, Later
from tests.pgwire.frontend import errors, kinds, query, startup

_WAIT = 20.0


class _Session(FakeSession):
    """Tells when a statement has been given to it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ran = asyncio.Event()

    def execute_statement(
        self, parsed: Any, encoder_for: EncoderFor, on_outcome: OnOutcome
    ) -> Outcome | None:
        self.ran.set()
        return super().execute_statement(parsed, encoder_for, on_outcome)


class _Sessions(FakeCoordinator):
    """Opens a new session for every client, all with the same answers."""

    def __init__(self) -> None:
        super().__init__(FakeSession())
        self.sessions: list[_Session] = []

    def connect(self, user: str, database: str, parameters: dict[str, str]) -> _Session:
        session = _Session({"a": IntRows([1]), "big": IntRows(list(range(100_000)))})
        session.answers["later"] = Later(CommandOutcome("LATER"))
        self.sessions.append(session)
        return session


Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _read_until(reader: asyncio.StreamReader, kind: str) -> bytes:
    """Read whole messages up to the first of a kind."""
    found = []
    while True:
        head = await reader.readexactly(5)
        found += [head, await reader.readexactly(int.from_bytes(head[1:], "big") - 4)]
        if chr(head[0]) == kind:
            return b"".join(found)


async def _connect(listener: Listener) -> Wire:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(startup(user="u"))
    await _read_until(reader, "Z")
    return reader, writer


Scenario = Callable[[Listener, _Sessions], Awaitable[None]]
Run = Callable[..., None]


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a scenario against a listener on each kind of loop."""

    def runner(scenario: Scenario, max_connections: int = 10) -> None:
        async def main() -> None:
            sessions = _Sessions()
            listener = await listen(sessions, "127.0.0.1", 0, max_connections=max_connections)
            try:
                await asyncio.wait_for(scenario(listener, sessions), _WAIT)
            finally:
                await asyncio.wait_for(listener.close(0.0), _WAIT)

        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as loop:
            loop.run(main())

    yield runner


def test_a_query_is_answered(run: Run) -> None:
    async def scenario(listener: Listener, sessions: _Sessions) -> None:
        reader, writer = await _connect(listener)
        writer.write(query("a"))
        assert kinds(await _read_until(reader, "Z")) == "TDCZ"
        writer.write(frontend.TERMINATE)
        assert await reader.read() == b""
        assert sessions.sessions[0].closed == 1
        writer.close()

    run(scenario)


def test_a_large_answer_to_a_slow_reader_delays_no_other(run: Run) -> None:
    async def scenario(listener: Listener, sessions: _Sessions) -> None:
        slow_reader, slow_writer = await _connect(listener)
        slow_writer.write(query("big"))
        reader, writer = await _connect(listener)
        for _ in range(50):
            writer.write(query("a"))
            assert kinds(await _read_until(reader, "Z")) == "TDCZ"
        answer = await _read_until(slow_reader, "Z")
        assert kinds(answer) == "T" + "D" * 100_000 + "CZ"
        slow_writer.close()
        writer.close()

    run(scenario)


def test_one_client_too_many_is_refused_and_there_is_room_again_after_one_leaves(run: Run) -> None:
    async def scenario(listener: Listener, sessions: _Sessions) -> None:
        first_reader, first_writer = await _connect(listener)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(startup(user="u"))
        (error,) = errors(await reader.read())
        assert (error["S"], error["C"]) == ("FATAL", "53300")
        assert error["M"] == "sorry, too many clients already"
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(frontend.request(80877102, pack(">iI", 5, 6)))
        assert await reader.read() == b""
        assert sessions.cancels == [(5, 6)]
        writer.close()
        first_writer.write(frontend.TERMINATE)
        assert await first_reader.read() == b""
        first_writer.close()
        _, writer = await _connect(listener)
        writer.close()

    run(scenario, 1)


def test_junk_ends_its_connection_and_touches_no_other(run: Run) -> None:
    async def scenario(listener: Listener, sessions: _Sessions) -> None:
        reader, writer = await _connect(listener)
        for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0", startup(user="u") + b"\xff" * 9):
            bad_reader, bad_writer = await asyncio.open_connection("127.0.0.1", listener.port)
            bad_writer.write(junk)
            answer = await bad_reader.read()
            assert errors(answer)[0]["C"] == "08P01"
            bad_writer.close()
        writer.write(query("a"))
        assert kinds(await _read_until(reader, "Z")) == "TDCZ"
        writer.close()

    run(scenario)


def test_a_half_closed_socket_ends_what_is_in_flight(run: Run) -> None:
    async def scenario(listener: Listener, sessions: _Sessions) -> None:
        reader, writer = await _connect(listener)
        writer.write(query("later"))
        writer.write_eof()
        (error,) = errors(await reader.read())
        assert (error["S"], error["C"]) == ("FATAL", "08006")
        assert sessions.sessions[0].closed == 1
        writer.close()

    run(scenario)


def test_a_listener_that_closes_ends_its_connections(run: Run) -> None:
    async def scenario(listener: Listener, sessions: _Sessions) -> None:
        idle_reader, idle_writer = await _connect(listener)
        busy_reader, busy_writer = await _connect(listener)
        busy_writer.write(query("later"))
        await sessions.sessions[1].ran.wait()
        closing = asyncio.ensure_future(listener.close(_WAIT))
        (error,) = errors(await idle_reader.read())
        assert error["C"] == "57P01"
        assert not closing.done()
        sessions.sessions[1].deliver()
        assert kinds(await busy_reader.read()) == "CZE"
        await closing
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", listener.port)
        idle_writer.close()
        busy_writer.close()

    run(scenario)


def test_a_listener_that_waits_no_longer_ends_what_is_in_flight(run: Run) -> None:
    async def scenario(listener: Listener, sessions: _Sessions) -> None:
        reader, writer = await _connect(listener)
        writer.write(query("later"))
        await sessions.sessions[0].ran.wait()
        await listener.close(0.0)
        (error,) = errors(await reader.read())
        assert error["C"] == "57P01"
        assert sessions.sessions[0].closed == 1
        writer.close()

    run(scenario)
