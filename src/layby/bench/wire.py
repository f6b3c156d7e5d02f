"""A small PostgreSQL client: only what a load generator needs, in plain bytes.

A general driver adapts types, keeps notices and takes 50 to 100 µs a query doing so, which would be the
larger part of the latencies measured here. This one frames messages and looks at their type byte.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self

_HEADER: Final = struct.Struct("!cI")
_PROTOCOL: Final = 3 << 16
_RECEIVE: Final = 1 << 16
_DESCRIBE_PORTAL: Final = b"D\x00\x00\x00\x06P\x00"
_EXECUTE_PORTAL: Final = b"E\x00\x00\x00\x09\x00\x00\x00\x00\x00"
_SYNC: Final = b"S\x00\x00\x00\x04"

_LAST: Final = 2048
"""Bytes at the end of an answer that hold its last messages whole, an error among them."""

_READY: Final = re.compile(rb"Z\0\0\0\x05[ITE]\Z")
_SELECTED: Final = re.compile(rb"C\0\0\0.SELECT (\d+)\0Z\0\0\0\x05[ITE]\Z", re.DOTALL)

Message = tuple[bytes, bytes]
Row = tuple[str | None, ...]


class ServerError(Exception):
    """What the server answered with an ErrorResponse: its SQLSTATE and its primary message."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(f"{message} ({sqlstate})")
        self.sqlstate = sqlstate
        self.message = message


class LostConnectionError(Exception):
    """The server closed the connection, or sent what is no message of the protocol."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one simple query: the rows of its last result in text form, and the last tag."""

    rows: list[Row]
    tag: str


class Framer:
    """Cuts a byte stream into messages; does no IO."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[Message]:
        """Take the next bytes, cut anywhere; give the `(type, body)` of each message that they complete."""
        if self._pending:
            data = self._pending + data
        messages: list[Message] = []
        at, end = 0, len(data)
        while end - at >= 5:
            kind, length = _HEADER.unpack_from(data, at)
            if length < 4:
                raise LostConnectionError(f"message of type {kind!r} with length {length}")
            if at + 1 + length > end:
                break
            messages.append((kind, data[at + 5 : at + 1 + length]))
            at += 1 + length
        self._pending = data[at:]
        return messages


class AnswerEnd:
    """Finds the end of an answer to one query in its last bytes, without framing its rows.

    For answers without text: a value could look like the message that ends an answer. `rows` is what the tag
    of the last answer says, `error` what the server answered instead.
    """

    __slots__ = ("_last", "error", "rows")

    def __init__(self) -> None:
        self._last = b""
        self.rows = 0
        self.error: ServerError | None = None

    def feed(self, data: bytes) -> bool:
        """Take the next bytes, cut anywhere; True when they complete the answer."""
        last = self._last + data[-_LAST:] if len(data) < _LAST else data[-_LAST:]
        self._last = last[-_LAST:]
        if not _READY.search(last):
            return False
        self._last = b""
        done = _SELECTED.search(last)
        self.rows = int(done[1]) if done else 0
        refused = last.rfind(b"SERROR\0")
        self.error = error_of(last[refused:]) if refused >= 0 and not done else None
        return True


def message(kind: bytes, body: bytes) -> bytes:
    """One message of the protocol: its type byte, its length, its body."""
    return _HEADER.pack(kind, len(body) + 4) + body


def query_message(sql: str) -> bytes:
    """A simple query."""
    return message(b"Q", sql.encode() + b"\0")


def parse_message(name: str, sql: str) -> bytes:
    """Prepare `sql` under `name`, parameter types left to the server; to be followed by a Sync."""
    return message(b"P", name.encode() + b"\0" + sql.encode() + b"\0\0\0") + _SYNC


def execute_message(name: str, parameters: Iterable[str] = ()) -> bytes:
    """Bind, Describe, Execute and Sync of the statement prepared as `name`, everything in text form."""
    values = [value.encode() for value in parameters]
    body = b"\0" + name.encode() + b"\0\0\0" + struct.pack("!H", len(values))
    body += b"".join(struct.pack("!I", len(value)) + value for value in values) + b"\0\0"
    return message(b"B", body) + _DESCRIBE_PORTAL + _EXECUTE_PORTAL + _SYNC


def error_of(body: bytes) -> ServerError:
    """The error that an ErrorResponse's body states."""
    fields = {field[:1]: field[1:].decode("utf-8", "replace") for field in body.split(b"\0") if field}
    return ServerError(fields.get(b"C", "XX000"), fields.get(b"M", ""))


def row_of(body: bytes) -> Row:
    """The values of a DataRow's body, in text form; NULL is None."""
    (count,) = struct.unpack_from("!H", body)
    values: list[str | None] = []
    at = 2
    for _ in range(count):
        (length,) = struct.unpack_from("!i", body, at)
        at += 4
        if length < 0:
            values.append(None)
        else:
            values.append(body[at : at + length].decode())
            at += length
    return tuple(values)


class Connection:
    """A blocking connection, without a password and without TLS.

    `socket` is open to a caller that multiplexes many connections; it then owns the framing as well.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        user: str = "layby",
        database: str = "layby",
        timeout: float | None = 60.0,
    ) -> None:
        """Connect and start a session; `timeout` in seconds bounds every wait for the server.

        Raises OSError where nobody listens, ServerError where the server refuses the session.
        """
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._framer = Framer()
        self._messages: Iterator[Message] = iter(())
        body = struct.pack("!I", _PROTOCOL) + f"user\0{user}\0database\0{database}\0\0".encode()
        try:
            self.socket.sendall(struct.pack("!I", len(body) + 4) + body)
            self._finish()
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Say goodbye and close; a connection already lost is closed all the same."""
        try:
            self.socket.sendall(b"X\x00\x00\x00\x04")
        except OSError:
            pass
        finally:
            self.socket.close()

    def query(self, sql: str) -> Reply:
        """Run one simple query. Raises ServerError; the session can be used on after it."""
        self.socket.sendall(query_message(sql))
        return self._finish()

    def prepare(self, name: str, sql: str) -> None:
        """Prepare a statement for `execute_message`."""
        self.socket.sendall(parse_message(name, sql))
        self._finish()

    def copy_in(self, sql: str, chunks: Iterable[bytes]) -> Reply:
        """Run `COPY … FROM STDIN` with the given data, cut anywhere."""
        self.socket.sendall(query_message(sql))
        kind = b""
        while kind != b"G":
            kind, body = self._next()
            if kind == b"E":
                error = error_of(body)
                self._finish(error)
        for chunk in chunks:
            self.socket.sendall(message(b"d", chunk))
        self.socket.sendall(message(b"c", b""))
        return self._finish()

    def _next(self) -> Message:
        """The next message of the server."""
        while True:
            for found in self._messages:
                return found
            data = self.socket.recv(_RECEIVE)
            if not data:
                raise LostConnectionError("server closed the connection unexpectedly")
            self._messages = iter(self._framer.feed(data))

    def _finish(self, error: ServerError | None = None) -> Reply:
        """Read up to ReadyForQuery; the first error, one handed in included, is raised then."""
        rows: list[Row] = []
        tag = ""
        while True:
            kind, body = self._next()
            if kind == b"D":
                rows.append(row_of(body))
            elif kind == b"T":
                rows = []
            elif kind == b"C":
                tag = body[:-1].decode()
            elif kind == b"E":
                error = error or error_of(body)
                if error.sqlstate.startswith("28") or body.startswith(b"SFATAL"):
                    raise error
            elif kind == b"R" and body[:4] != b"\0\0\0\0":
                raise LostConnectionError("server asks for a password, which this client cannot give")
            elif kind == b"Z":
                if error is not None:
                    raise error
                return Reply(rows, tag)
