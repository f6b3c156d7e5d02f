"""Frontend messages: from bytes, cut anywhere, to messages and their fields. No IO.

`Decoder` only finds where messages end: a message is its kind and its body as they came. The functions below
it read a body's fields. Bytes that do not follow the protocol give a `ProtocolError` and nothing else.

Cost: a Bind, Execute and Sync take about 2 µs together. A message of n bytes that arrives in pieces is put
together once, so it costs n however small the pieces are: at its end, or for a large one as they come, where
it is read away from the serving loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct, unpack_from
from struct import error as struct_error
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from layby.errors import SqlError
from layby.memory.arena import HEAP, Arena
from layby.pgwire.large_body import LargeBody
from layby.sql.statement_text import StatementText, text_of

Body = bytes | LargeBody
"""A `LargeBody` where a large message came in pieces."""

Message = tuple[int, Body]
"""The message's kind (its type byte; `STARTUP` for a packet without one) and its body."""

STARTUP: Final = 0
BIND: Final = ord("B")
CLOSE: Final = ord("C")
COPY_DATA: Final = ord("d")
COPY_DONE: Final = ord("c")
COPY_FAIL: Final = ord("f")
DESCRIBE: Final = ord("D")
EXECUTE: Final = ord("E")
FLUSH: Final = ord("H")
FUNCTION_CALL: Final = ord("F")
PARSE: Final = ord("P")
QUERY: Final = ord("Q")
SYNC: Final = ord("S")
TERMINATE: Final = ord("X")

NAMES: Final = {
    BIND: "Bind", CLOSE: "Close", COPY_DATA: "CopyData", COPY_DONE: "CopyDone", COPY_FAIL: "CopyFail",
    DESCRIBE: "Describe", EXECUTE: "Execute", FLUSH: "Flush", PARSE: "Parse", QUERY: "Query", SYNC: "Sync",
    TERMINATE: "Terminate",
}  # fmt: skip
"""What the protocol calls its messages, for log lines."""

CANCEL_REQUEST: Final = 80877102
SSL_REQUEST: Final = 80877103
GSSENC_REQUEST: Final = 80877104

STARTUP_LIMIT: Final = 10_004
SMALL_LIMIT: Final = 10_000
LARGE_LIMIT: Final = 0x3FFF_FFFE
"""The longest messages taken, in bytes with their length word: PostgreSQL's own limits."""

LARGE: Final = 1 << 18
"""Bytes of a message from which on it is put together as its pieces come."""

_LONGEST_NAMES: Final = 4_096
"""Bytes at the beginning of a large Bind or Parse in which its names have to be."""

_MANY_OIDS: Final = 128

_LIMITS: Final = [-1] * 256
for _kind in (CLOSE, COPY_DONE, COPY_FAIL, DESCRIBE, EXECUTE, FLUSH, SYNC, TERMINATE):
    _LIMITS[_kind] = SMALL_LIMIT
for _kind in (BIND, COPY_DATA, FUNCTION_CALL, PARSE, QUERY):
    _LIMITS[_kind] = LARGE_LIMIT

_header: Final = Struct(">Bi").unpack_from
_length: Final = Struct(">i").unpack_from
_count: Final = Struct(">H").unpack_from


class ProtocolError(SqlError):
    """The client does not speak the protocol: its connection ends with this error (08P01)."""

    def __init__(self, message: str, *, detail: str | None = None) -> None:
        super().__init__("08P01", message, detail=detail)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as itself."""
        return _rebuild_error, (self.message, self.detail)


def _rebuild_error(message: str, detail: str | None) -> ProtocolError:
    return ProtocolError(message, detail=detail)


class Decoder:
    """Cuts a client's bytes into messages.

    `error` is set once the bytes break the protocol; nothing is decoded from there on, and the messages
    before it remain good. A CopyData message that is not all there yet is passed on in pieces, each as a
    CopyData message of its own, so that no more of it is held than what one read brought.
    """

    __slots__ = (
        "_arena",
        "_copy_left",
        "_ended",
        "_kept",
        "_kept_size",
        "_large",
        "_large_kind",
        "_startup",
        "_wanted",
        "error",
    )

    def __init__(self, arena: Arena = HEAP) -> None:
        """Large messages are put together in `arena`."""
        self.error: ProtocolError | None = None
        self._arena = arena
        self._large: LargeBody | None = None
        """The body of a large message that is not complete."""
        self._large_kind = 0
        self._startup = True
        self._ended = False
        self._kept: list[bytes] = []
        """The bytes of a message that is not complete, in the order they came; `_wanted` tells how many
        are needed before anything more can be decoded."""
        self._kept_size = 0
        self._wanted = 0
        self._copy_left = 0
        """Bytes that the CopyData message under way still lacks; `_kept` is empty where it is not zero."""

    @property
    def partial(self) -> bool:
        """Whether the bytes so far end within a message."""
        return self._kept_size > 0 or self._copy_left > 0 or self._large is not None

    def feed(self, data: bytes) -> list[Message]:
        """Take the next bytes; return the messages that they complete, in order."""
        messages: list[Message] = []
        if self._ended:
            return messages
        if self._copy_left:
            left = self._copy_left
            if len(data) <= left:
                self._copy_left = left - len(data)
                return [(COPY_DATA, data)]
            self._copy_left = 0
            messages.append((COPY_DATA, data[:left]))
            data = data[left:]
        elif self._large is not None:
            body = self._large
            data = data[body.fill(data) :]
            if not body.complete:
                return messages
            self._large = None
            messages.append((self._large_kind, body))
        elif self._kept_size:
            self._kept.append(data)
            self._kept_size += len(data)
            if self._kept_size < self._wanted:
                return messages
            data = b"".join(self._kept)
            self._kept.clear()
            self._kept_size = 0
        at = self._startup_packets(data, messages) if self._startup else 0
        if not self._startup and not self._ended:
            at = self._typed(data, at, messages)
        if at < len(data) and not self._ended and not self._copy_left and self._large is None:
            self._kept.append(data[at:])
            self._kept_size = len(data) - at
        return messages

    def close(self) -> None:
        """Let go of what has come; nothing more is decoded."""
        self._ended = True
        self._large = None
        self._kept.clear()
        self._kept_size = 0

    def _startup_packets(self, data: bytes, messages: list[Message]) -> int:
        """Cut packets off until one begins the session; return where the rest begins."""
        at, end = 0, len(data)
        while self._startup:
            if end - at < 4:
                self._wanted = 4
                break
            length = _length(data, at)[0]
            if length < 8 or length > STARTUP_LIMIT:
                self._fail(ProtocolError("invalid length of startup packet"))
                break
            if end - at < length:
                self._wanted = length
                break
            messages.append((STARTUP, data[at + 4 : at + length]))
            code = _length(data, at + 4)[0]
            at += length
            if code == CANCEL_REQUEST:
                self._startup = False
                self._ended = True
            elif code not in (SSL_REQUEST, GSSENC_REQUEST):
                self._startup = False
        return at

    def _typed(self, data: bytes, at: int, messages: list[Message]) -> int:
        """Cut messages off `data` from `at`; return where the incomplete one begins."""
        end, limits = len(data), _LIMITS
        while end - at >= 5:
            kind, length = _header(data, at)
            if length < 4 or length > limits[kind]:
                self._fail(_bad_header(kind))
                return at
            stop = at + 1 + length
            if stop > end:
                if kind == COPY_DATA:
                    if at + 5 < end:
                        messages.append((COPY_DATA, data[at + 5 :]))
                    self._copy_left = stop - end
                elif length > LARGE:
                    self._large, self._large_kind = LargeBody(length - 4, self._arena), kind
                    self._large.fill(data, at + 5)
                self._wanted = stop - at
                return at
            messages.append((kind, data[at + 5 : stop]))
            at = stop
        self._wanted = 5
        if at < end and _LIMITS[data[at]] < 0:
            self._fail(_bad_header(data[at]))
        return at

    def _fail(self, error: ProtocolError) -> None:
        self.error = error
        self._ended = True


def _bad_header(kind: int) -> ProtocolError:
    if _LIMITS[kind] < 0:
        return ProtocolError(f"invalid frontend message type {kind}")
    return ProtocolError("invalid message length")


@dataclass(frozen=True, slots=True)
class StartupPacket:
    """A session's first packet: the protocol version asked for, and parameters in the order sent."""

    major: int
    minor: int
    parameters: dict[str, str]


def startup_code(body: bytes) -> int:
    """Return what a startup packet asks for: a protocol version, or one of the request codes."""
    return int(_length(body)[0])


def read_startup(body: bytes) -> StartupPacket:
    """Read the version and, for the version 3 that defines them, the parameters."""
    code = startup_code(body) & 0xFFFF_FFFF
    major, minor = code >> 16, code & 0xFFFF
    if major != 3:
        return StartupPacket(major, minor, {})
    fields = body[4:].split(b"\0")
    if len(fields) < 2 or fields[-1] != b"" or fields[-2] != b"" or len(fields) % 2:
        raise ProtocolError("invalid startup packet layout: expected terminator as last byte")
    names, values = fields[:-2:2], fields[1:-2:2]
    if b"" in names:
        raise ProtocolError("invalid startup packet layout: expected terminator as last byte")
    return StartupPacket(
        major, minor, {utf8(name): utf8(value) for name, value in zip(names, values, strict=True)}
    )


def read_cancel(body: bytes) -> tuple[int, int] | None:
    """Return a cancel request's process id and secret key; None where its length is not that of one."""
    if len(body) != 12:
        return None
    _, process_id, secret_key = unpack_from(">iiI", body)
    return process_id, secret_key


def read_string(body: bytes) -> str:
    """Return the one string that is the whole body: a CopyFail's reason."""
    end = body.find(0)
    if end != len(body) - 1:
        raise _invalid_string(end)
    return utf8(body[:end])


def read_query(body: Body) -> StatementText:
    """Return a Query's text."""
    if isinstance(body, bytes):
        return read_string(body)
    if body.zeros != [len(body) - 1]:
        raise _invalid_string(body.zeros[0] if body.zeros else -1)
    return text_of(body.data[:-1])


def _invalid_string(end: int) -> ProtocolError:
    return ProtocolError("invalid string in message" if end < 0 else "invalid message format")


def read_parse(body: Body) -> tuple[str, StatementText, tuple[int, ...] | NDArray[np.uint32]]:
    """Return a Parse's statement name, text and parameter type oids (0: to be inferred; many: an array).

    Raises 42622 for a name that is too long in a large one.
    """
    text: StatementText
    if isinstance(body, bytes):
        name_end = body.find(0)
        text_end = body.find(0, name_end + 1)
        if name_end < 0 or text_end < 0:
            raise _insufficient()
        oids = _oids(memoryview(body)[text_end + 1 :])
        text = utf8(body[name_end + 1 : text_end])
        return utf8(body[:name_end]), text, oids
    if len(body.zeros) < 2:
        raise _insufficient()
    name_end, text_end = body.zeros
    if name_end > _LONGEST_NAMES:
        raise _long_name()
    oids = _oids(body.data[text_end + 1 :].data)
    return utf8(body.data[:name_end].tobytes()), text_of(body.data[name_end + 1 : text_end]), oids


def _oids(data: memoryview) -> tuple[int, ...] | NDArray[np.uint32]:
    """Return the types that are declared at the end of a Parse."""
    if len(data) < 2:
        raise _insufficient()
    count = _count(data)[0]
    if len(data) != 2 + 4 * count:
        raise _insufficient() if len(data) < 2 + 4 * count else ProtocolError("invalid message format")
    return unpack_from(f">{count}I", data, 2) if count <= _MANY_OIDS else np.frombuffer(data, ">u4", count, 2)


def _insufficient() -> ProtocolError:
    return ProtocolError("insufficient data left in message")


def _long_name() -> SqlError:
    return SqlError("42622", "the name of a portal or prepared statement is too long")


def read_bind_target(body: Body) -> tuple[str, str]:
    """Return a Bind's portal and statement, without looking further; raises 42622 for names that are too long
    for that."""
    head = body[:_LONGEST_NAMES] if isinstance(body, bytes) else body.data[:_LONGEST_NAMES].tobytes()
    parts = head.split(b"\0", 2)
    if len(parts) < 3:
        raise _long_name() if len(body) > _LONGEST_NAMES else _insufficient()
    return utf8(parts[0]), utf8(parts[1])


def read_bind(body: bytes) -> tuple[str, str, tuple[int, ...], list[bytes | None], tuple[int, ...]]:
    """Return a Bind's portal, statement, parameter formats, parameters (None: null) and result formats.

    Formats are as sent: none for all text, one for all, or one each.
    """
    try:
        at = body.index(0)
        portal = body[:at]
        start = at + 1
        at = body.index(0, start)
        statement = body[start:at]
        count = _count(body, at + 1)[0]
        at += 3
        formats: tuple[int, ...] = ()
        if count:
            formats = unpack_from(f">{count}h", body, at)
            at += 2 * count
        count = _count(body, at)[0]
        at += 2
        values: list[bytes | None] = []
        for _ in range(count):
            length = _length(body, at)[0]
            at += 4
            if length < 0:
                if length != -1:
                    raise ProtocolError("invalid message format")
                values.append(None)
            else:
                stop = at + length
                values.append(body[at:stop])
                at = stop
        count = _count(body, at)[0]
        at += 2
        results: tuple[int, ...] = ()
        if count:
            results = unpack_from(f">{count}h", body, at)
            at += 2 * count
    except (ValueError, struct_error):
        raise _insufficient() from None
    if at != len(body):
        raise ProtocolError("invalid message format")
    return utf8(portal), utf8(statement), formats, values, results


def read_execute(body: bytes) -> tuple[str, int]:
    """Return an Execute's portal and row limit (0: none)."""
    end = body.find(0)
    if end < 0 or len(body) != end + 5:
        raise ProtocolError("invalid message format")
    limit = _length(body, end + 1)[0]
    return utf8(body[:end]), max(0, limit)


def read_target(body: bytes) -> tuple[int, str]:
    """Return what a Describe or Close names: `ord("S")` and a statement, or `ord("P")` and a portal."""
    if len(body) < 2 or body.find(0, 1) != len(body) - 1:
        raise ProtocolError("invalid message format")
    if body[0] not in b"SP":
        raise ProtocolError(f"invalid message subtype {body[0]}")
    return body[0], utf8(body[1:-1])


def utf8(data: bytes) -> str:
    """Return the text of a client's bytes; bytes that are no UTF-8 are an error (22021)."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        lead = data[error.start]
        width = 1 if lead < 0xC0 or lead >= 0xF8 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        shown = " ".join(f"0x{byte:02x}" for byte in data[error.start : error.start + width])
        raise SqlError("22021", f'invalid byte sequence for encoding "UTF8": {shown}') from None
