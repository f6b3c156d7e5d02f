"""The listener: sockets in, connections out. Too thin to be wrong; what decides is in `connection`."""

from __future__ import annotations

import asyncio
import socket
from typing import Final, cast

from layby.errors import SqlError
from layby.metrics import PeekMetrics
from layby.pgwire.connection import Connection, shutting_down
from layby.pgwire.output import SLICE
from layby.pgwire.session import Coordinator
from layby.turns import Timer, Turns

CONNECTIONS: Final = 1_000
"""Sessions served at once, unless the caller says otherwise."""

_UNSTARTED: Final = 100
"""Sockets beyond the sessions: cancel requests, and those still to be told that there are too many."""

_STARTUP_SECONDS: Final = 60.0
"""What a client has to send its startup packet, as PostgreSQL's authentication_timeout."""

_LINGER_SECONDS: Final = 10.0
"""What a closed connection has to take the bytes it is still owed."""


class _Driver(asyncio.Protocol):
    """Hands a transport's events to a connection, each as a part of the loop's turn."""

    __slots__ = ("_enter", "_listener", "_spent", "_timer", "_transport", "connection")

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._enter = listener.turns.enter
        self._spent = listener.turns.spent
        self._transport: asyncio.Transport
        self._timer: Timer
        self.connection = Connection(
            listener.coordinator, listener.turns.call_soon, listener.admit, self._closed
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=SLICE)
        connection = cast("socket.socket", transport.get_extra_info("socket"))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timer = self._listener.turns.call_later(_STARTUP_SECONDS, self._startup_timed_out)
        self.connection.connected(self._transport)
        self._listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._enter()
        self.connection.connection_lost()
        self._timer.cancel()
        self._listener.lost(self)
        self._spent(self.connection)

    def data_received(self, data: bytes) -> None:
        self._enter()
        self.connection.data_received(data)
        self._spent(self.connection)

    def eof_received(self) -> bool:
        self._enter()
        self.connection.eof_received()
        self._spent(self.connection)
        return True

    def pause_writing(self) -> None:
        self.connection.pause_writing()

    def resume_writing(self) -> None:
        self._enter()
        self.connection.resume_writing()
        self._spent(self.connection)

    def abort(self) -> None:
        """Close without sending anything more."""
        self._transport.abort()

    def _startup_timed_out(self) -> None:
        if not self.connection.started:
            self.connection.end_with(SqlError("57014", "canceling authentication due to timeout"))

    def _closed(self, connection: Connection) -> None:
        self._listener.left(connection)
        self._timer.cancel()
        self._timer = self._listener.turns.call_later(_LINGER_SECONDS, self._transport.abort)


class Listener:
    """A listening socket and the connections that came by it."""

    def __init__(self, coordinator: Coordinator, turns: Turns, max_connections: int) -> None:
        self.coordinator = coordinator
        self.turns = turns
        self.port = 0
        self._server: asyncio.Server
        self._max = max_connections
        self._drivers: set[_Driver] = set()
        self._sessions: set[Connection] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    async def bind(self, host: str, port: int) -> None:
        """Listen; a port of 0 lets the system choose one, told by `port`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Driver(self), host, port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self, seconds: float = 5.0) -> None:
        """Stop accepting, end idle connections (57P01), and after `seconds` the others too."""
        self._server.close()
        for driver in list(self._drivers):
            driver.connection.shut_down()
        if not await self._emptied(seconds):
            for driver in list(self._drivers):
                driver.connection.end_with(shutting_down())
            if not await self._emptied(1.0):
                for driver in list(self._drivers):
                    driver.abort()
                await self._emptied(1.0)
        await self._server.wait_closed()

    async def _emptied(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._empty.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def opened(self, driver: _Driver) -> None:
        """Count a socket; refuse it where there are far too many."""
        self._drivers.add(driver)
        self._empty.clear()
        if len(self._drivers) > self._max + _UNSTARTED:
            driver.connection.end_with(_too_many())

    def admit(self, connection: Connection) -> None:
        """Count a session that is about to open; raises `SqlError` (53300) where there are too many."""
        if len(self._sessions) >= self._max:
            raise _too_many()
        self._sessions.add(connection)

    def left(self, connection: Connection) -> None:
        """Forget a session."""
        self._sessions.discard(connection)

    def lost(self, driver: _Driver) -> None:
        """Forget a socket."""
        self._drivers.discard(driver)
        if not self._drivers:
            self._empty.set()


def _too_many() -> SqlError:
    return SqlError("53300", "sorry, too many clients already")


async def listen(
    coordinator: Coordinator,
    host: str,
    port: int,
    *,
    turns: Turns | None = None,
    max_connections: int = CONNECTIONS,
) -> Listener:
    """Serve `coordinator` at `host`:`port` on the running loop; `OSError` where it is not to be had.

    `turns` measures the loop's turns, where somebody wants to know.
    """
    if turns is None:
        turns = Turns(asyncio.get_running_loop(), PeekMetrics().turn_seconds)
    listener = Listener(coordinator, turns, max_connections)
    await listener.bind(host, port)
    return listener
