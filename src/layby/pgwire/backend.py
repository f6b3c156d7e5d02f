"""Backend messages as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import pack
from typing import Final

from layby.errors import SqlError
from layby.types.relation import ColumnDesc
from layby.types.scalar import TEXT, UNKNOWN, SqlType
from layby.types.type_list import TypeList

AUTHENTICATION_OK: Final = b"R\0\0\0\x08\0\0\0\0"
PARSE_COMPLETE: Final = b"1\0\0\0\x04"
BIND_COMPLETE: Final = b"2\0\0\0\x04"
CLOSE_COMPLETE: Final = b"3\0\0\0\x04"
NO_DATA: Final = b"n\0\0\0\x04"
PORTAL_SUSPENDED: Final = b"s\0\0\0\x04"
EMPTY_QUERY: Final = b"I\0\0\0\x04"
COPY_DONE: Final = b"c\0\0\0\x04"
REFUSED: Final = b"N"
"""The answer to a request for encryption: go on without."""
READY: Final = {status: b"Z\0\0\0\x05" + status for status in (b"I", b"T", b"E")}
"""ReadyForQuery by the session's status."""

_VARCHAR_OID: Final = 1043


def message(kind: bytes, body: bytes) -> bytes:
    """Return one message: its kind, its length, its body."""
    return kind + pack(">i", len(body) + 4) + body


@lru_cache(1024)
def command_complete(tag: str) -> bytes:
    """Return the CommandComplete of a tag such as `INSERT 0 3`."""
    return message(b"C", tag.encode() + b"\0")


def parameter_status(name: str, value: str) -> bytes:
    """Return the report of a session parameter's value."""
    return message(b"S", name.encode() + b"\0" + value.encode() + b"\0")


def backend_key_data(process_id: int, secret_key: int) -> bytes:
    """Return what a client must show to cancel; both are 32-bit."""
    return pack(">ciiI", b"K", 12, process_id, secret_key & 0xFFFF_FFFF)


def negotiate_protocol_version(minor: int, unrecognized: Sequence[str]) -> bytes:
    """Return the newest minor version served, and the protocol options that are not known."""
    options = b"".join(name.encode() + b"\0" for name in unrecognized)
    return message(b"v", pack(">ii", minor, len(unrecognized)) + options)


def error_response(error: SqlError, severity: str = "ERROR") -> bytes:
    """Return the error with all its fields; `severity` is ERROR, FATAL or PANIC."""
    return _fields(b"E", severity, error)


def notice_response(notice: SqlError, severity: str) -> bytes:
    """Return a notice; `severity` is WARNING, NOTICE, DEBUG, INFO or LOG."""
    return _fields(b"N", severity, notice)


def _fields(kind: bytes, severity: str, error: SqlError) -> bytes:
    fields = [f"S{severity}", f"V{severity}", f"C{error.sqlstate}", f"M{error.message}"]
    optional = (
        *(("D", error.detail), ("H", error.hint), ("P", error.position), ("W", error.context)),
        *(("s", error.schema), ("t", error.table), ("c", error.column), ("n", error.constraint)),
    )
    fields += [f"{field}{value}" for field, value in optional if value is not None]
    # A message may quote what a client sent: a NUL would end the field, a lone surrogate has no UTF-8.
    body = b"".join(f.replace("\0", "").encode("utf-8", "backslashreplace") + b"\0" for f in fields)
    return message(kind, body + b"\0")


def parameter_description(types: Sequence[SqlType]) -> bytes:
    """Return the types of a statement's parameters."""
    if isinstance(types, TypeList):
        return message(b"t", pack(">H", len(types)) + types.oids.tobytes())
    return message(b"t", pack(f">H{len(types)}I", len(types), *(_oid(t) for t in types)))


def row_description(columns: Sequence[ColumnDesc], formats: Sequence[int]) -> bytes:
    """Return the description of a result's columns; `formats` has 0 (text) or 1 (binary) for each."""
    parts = [pack(">H", len(columns))]
    for column, code in zip(columns, formats, strict=True):
        parts.append(column.name.encode("utf-8", "backslashreplace"))
        parts.append(_column_kind(column.type, column.max_length, code))
    return message(b"T", b"".join(parts))


@lru_cache(1024)
def _column_kind(type_: SqlType, max_length: int | None, code: int) -> bytes:
    """Return what a description says of a column after its name."""
    oid, modifier = _oid(type_), -1
    if max_length is not None:
        oid, modifier = _VARCHAR_OID, max_length + 4
    return b"\0" + pack(">IhIhih", 0, 0, oid, type_.size, modifier, code)


def copy_response(kind: bytes, column_count: int) -> bytes:
    """Return a CopyInResponse (`kind` b"G") or CopyOutResponse (b"H") of the text format."""
    return message(kind, pack(f">bH{column_count}h", 0, column_count, *(0,) * column_count))


def _oid(type_: SqlType) -> int:
    return TEXT.oid if type_ is UNKNOWN else type_.oid
