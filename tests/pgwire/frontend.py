"""A client's side of the protocol for tests: messages out as bytes, answers in as (kind, body)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack, unpack_from


def message(kind: str, body: bytes = b"") -> bytes:
    return kind.encode() + pack(">i", len(body) + 4) + body


def startup(version: int = 196608, **parameters: str) -> bytes:
    fields = b"".join(name.encode() + b"\0" + value.encode() + b"\0" for name, value in parameters.items())
    body = pack(">i", version) + fields + b"\0"
    return pack(">i", len(body) + 4) + body


def request(code: int, rest: bytes = b"") -> bytes:
    return pack(">ii", 8 + len(rest), code) + rest


def query(sql: str) -> bytes:
    return message("Q", sql.encode() + b"\0")


def parse(name: str, sql: str, oids: Sequence[int] = ()) -> bytes:
    return message(
        "P", name.encode() + b"\0" + sql.encode() + b"\0" + pack(f">H{len(oids)}I", len(oids), *oids)
    )


def bind(
    portal: str = "",
    statement: str = "",
    values: Sequence[bytes | None] = (),
    formats: Sequence[int] = (),
    results: Sequence[int] = (),
) -> bytes:
    body = portal.encode() + b"\0" + statement.encode() + b"\0"
    body += pack(f">H{len(formats)}h", len(formats), *formats)
    body += pack(">H", len(values))
    for value in values:
        body += pack(">i", -1) if value is None else pack(">i", len(value)) + value
    return message("B", body + pack(f">H{len(results)}h", len(results), *results))


def execute(portal: str = "", limit: int = 0) -> bytes:
    return message("E", portal.encode() + b"\0" + pack(">i", limit))


def describe(kind: str, name: str = "") -> bytes:
    return message("D", kind.encode() + name.encode() + b"\0")


def close(kind: str, name: str = "") -> bytes:
    return message("C", kind.encode() + name.encode() + b"\0")


SYNC = message("S")
FLUSH = message("H")
TERMINATE = message("X")
COPY_DONE = message("c")


def split(data: bytes) -> list[tuple[str, bytes]]:
    """Cut a server's bytes into messages; they must be whole."""
    found, at = [], 0
    while at < len(data):
        (length,) = unpack_from(">i", data, at + 1)
        assert at + 1 + length <= len(data), "a message is cut"
        found.append((chr(data[at]), data[at + 5 : at + 1 + length]))
        at += 1 + length
    return found


def kinds(data: bytes) -> str:
    return "".join(kind for kind, _ in split(data))


def fields(body: bytes) -> dict[str, str]:
    """Read an ErrorResponse's or NoticeResponse's body."""
    assert body.endswith(b"\0\0")
    return {chr(field[0]): field[1:].decode() for field in body[:-2].split(b"\0")}


def errors(data: bytes) -> list[dict[str, str]]:
    return [fields(body) for kind, body in split(data) if kind == "E"]
