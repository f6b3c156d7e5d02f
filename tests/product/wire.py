"""A client's connection to the stepped server of the adapter's tests, byte for byte, without a socket."""

from __future__ import annotations

from struct import pack

from layby.pgwire import codec
from layby.pgwire.connection import Connection
from tests.adapter.harness import Server
from tests.pgwire import frontend


class Wire:
    """A connection and its transport. What the server has to do for it is stepped by the test."""

    def __init__(self, server: Server, *, started: bool = True) -> None:
        self.server = server
        self.closed = False
        self._written = bytearray()
        self.connection = Connection(
            server.coordinator, server.loop.call_soon, lambda _: None, lambda _: None, lambda: 0.0
        )
        self.connection.connected(self)
        self.process_id = 0
        self._secret_key = 0
        if started:
            for kind, body in frontend.split(self.send(frontend.startup(user="layby", database="layby"))):
                if kind == "K":
                    self.process_id = int.from_bytes(body[:4], "big")
                    self._secret_key = int.from_bytes(body[4:], "big")

    # the transport

    def write(self, data: bytes | memoryview) -> None:
        self._written += data

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        """Nothing reads on its own here."""

    def resume_reading(self) -> None:
        """Nothing reads on its own here."""

    # the client's side

    def send(self, data: bytes) -> bytes:
        """Send bytes; return what is written in answer at once."""
        self.connection.data_received(data)
        return self.received()

    def query(self, sql: str) -> bytes:
        """Send a simple query; return what is written in answer at once."""
        return self.send(frontend.query(sql))

    def run(self, sql: str) -> bytes:
        """See a simple query to its end."""
        written = self.query(sql)
        self.server.settle()
        written += self.received()
        assert not frontend.errors(written), frontend.errors(written)
        return written

    def received(self) -> bytes:
        """Return what was written since the last call."""
        written = bytes(self._written)
        self._written.clear()
        return written

    def request_cancel(self) -> None:
        """Send a CancelRequest on a connection of its own, as clients do."""
        key = pack(">II", self.process_id, self._secret_key)
        other = Wire(self.server, started=False)
        assert other.send(frontend.request(codec.CANCEL_REQUEST, key)) == b""
        assert other.closed
        other.connection.connection_lost()

    def vanish(self) -> None:
        """Let the client's machine be gone."""
        self.connection.connection_lost()
