"""Binds that are read away from the loop, as the client sees them."""

from __future__ import annotations

import pickle
from struct import pack

import numpy as np
import pytest
from numpy.typing import NDArray

from layby.adapter.outcome import CommandOutcome, CopyInOutcome
from layby.compute.runtime import run_job
from layby.errors import SqlError
from layby.memory.arena import HEAP
from layby.pgwire.codec import LARGE, ProtocolError
from layby.pgwire.parameters import LONGEST_AT_ONCE, ReadLongBind
from layby.types.scalar import INTEGER, TEXT, TIMESTAMP
from layby.types.type_list import TypeList
from tests.pgwire.fakes import (
    INT_ROWS,
    Client,
    FakeSession,
    FakeSink,
    FullArena,
    IntRows,
    command_body,
    in_pieces,
    int_row,
)
from tests.pgwire.frontend import SYNC, bind, close, errors, execute, kinds, message, parse, query, split

_LONG = b"x" * LONGEST_AT_ONCE
_LARGE = b"y" * LARGE
_READY = ("Z", b"I")


@pytest.fixture
def client() -> Client:
    session = FakeSession({"a": CommandOutcome("A"), "rows": IntRows([1, 2])}, types=(TEXT,), desc=None)
    client = Client(session)
    assert kinds(client.send(parse("", "a") + parse("rows", "rows") + SYNC)) == "11Z"
    session.calls.clear()
    return client


def read(client: Client) -> bytes:
    """Let what is read apart for longest be read; return what was written."""
    client.session.owed_binds.pop(0)()
    client.run_turns()
    return client.received()


def test_the_longest_bind_that_is_short_is_read_within_the_call(client: Client) -> None:
    short = bind("", "", [b"x" * (LONGEST_AT_ONCE - 12)])
    assert len(short) == LONGEST_AT_ONCE + 5
    assert kinds(client.send(short + execute() + SYNC)) == "2CZ"
    assert client.session.owed_binds == []


@pytest.mark.parametrize("value", [_LONG, _LARGE], ids=["long", "large"])
def test_a_pipeline_waits_for_a_bind_that_is_read_apart(client: Client, value: bytes) -> None:
    assert in_pieces(client, bind("", "", [value]) + execute() + SYNC + query("a")) == b""
    assert client.session.calls == [("bind apart", "", "")]
    assert split(read(client)) == [("2", b""), command_body("A"), _READY, command_body("A"), _READY]
    assert client.session.calls[1] == ("bind", "", "", [value.decode()])


def test_its_result_formats_are_those_of_the_portal(client: Client) -> None:
    client.session.desc = INT_ROWS
    client.send(bind("", "rows", [_LONG], results=[1]) + execute() + SYNC)
    assert split(read(client))[1] == ("D", pack(">hii", 1, 4, 1))


def test_result_formats_that_do_not_fit_are_refused(client: Client) -> None:
    client.session.desc = INT_ROWS
    client.send(bind("", "rows", [_LONG], results=[1, 1, 1]) + SYNC)
    answer = read(client)
    assert kinds(answer) == "EZ"
    assert errors(answer)[0]["C"] == "08P01"


@pytest.mark.parametrize(
    ("values", "formats", "sqlstate"),
    [
        ([_LONG, b""], [], "08P01"),
        ([b"\xff" + _LONG], [], "22021"),
        ([_LONG], [0, 1], "08P01"),
        ([b"\0" + _LARGE], [1], "22021"),
    ],
    ids=["too many", "no text", "formats", "nul"],
)
def test_what_it_is_refused_for_fails_its_pipeline(
    client: Client, values: list[bytes], formats: list[int], sqlstate: str
) -> None:
    assert in_pieces(client, bind("", "", values, formats) + execute() + SYNC + query("a")) == b""
    answer = read(client)
    assert kinds(answer) == "EZCZ"
    assert errors(answer)[0]["C"] == sqlstate
    assert [call[0] for call in client.session.calls] == [
        "bind apart",
        "fail",
        "sync",
        "script",
        "run",
        "sync",
    ]


def test_one_that_there_is_no_memory_for_ends_its_connection(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.connection._decoder, "_arena", FullArena())
    answer = in_pieces(client, bind("", "", [_LARGE]) + SYNC)
    assert [(e["S"], e["C"], e["M"]) for e in errors(answer)] == [
        ("FATAL", "53200", "out of memory for a message")
    ]
    assert client.connection.closed
    assert client.session.calls == []


def test_a_statement_that_there_is_not_is_told_at_once(client: Client) -> None:
    answer = in_pieces(client, bind("", "none", [_LARGE]) + execute() + SYNC)
    assert kinds(answer) == "EZ"
    assert errors(answer)[0]["C"] == "26000"
    assert client.session.owed_binds == []


@pytest.mark.parametrize("length", [LONGEST_AT_ONCE, LARGE], ids=["long", "large"])
def test_one_that_breaks_the_protocol_ends_the_connection(client: Client, length: int) -> None:
    broken = message("B", b"\0\0" + pack(">HHi", 0, 1, length + 1) + b"x" * length)
    assert in_pieces(client, broken + SYNC) == b""
    answer = read(client)
    assert kinds(answer) == "E"
    assert (errors(answer)[0]["S"], errors(answer)[0]["C"]) == ("FATAL", "08P01")
    assert client.closed


@pytest.mark.parametrize(
    ("body", "sqlstate", "ends"),
    [(b"x" * LARGE, "42622", False), (b"\0" + b"x" * LONGEST_AT_ONCE, "42622", False)],
)
def test_names_without_an_end_are_refused(client: Client, body: bytes, sqlstate: str, ends: bool) -> None:
    answer = in_pieces(client, message("B", body) + SYNC)
    assert kinds(answer) == "EZ"
    assert errors(answer)[0]["C"] == sqlstate
    assert client.closed == ends


def test_a_large_one_is_skipped_after_an_error(client: Client) -> None:
    answer = in_pieces(client, bind("", "none") + bind("", "", [_LARGE]) + SYNC)
    assert kinds(answer) == "EZ"
    assert client.session.owed_binds == []


def test_a_large_one_ends_a_copy(client: Client) -> None:
    sink = FakeSink(client.session)
    client.session.answers["copy"] = CopyInOutcome(1, sink)
    assert kinds(client.send(query("copy"))) == "G"
    in_pieces(client, bind("", "", [_LARGE]))
    assert sink.aborted is not None
    assert sink.aborted.sqlstate == "08P01"


def test_a_portal_of_its_name_is_replaced_once_it_is_read(client: Client) -> None:
    client.session.desc = INT_ROWS
    client.session.status = b"T"
    sent = bind("", "rows", [b"x"]) + execute("", 1) + bind("", "rows", [_LONG]) + execute("", 1) + SYNC
    assert client.send(sent) == b""
    fetched = [("2", b""), int_row(1), ("s", b"")]
    assert split(read(client)) == [*fetched, *fetched, ("Z", b"T")]


def test_a_client_that_leaves_meanwhile_is_told_nothing(client: Client) -> None:
    client.send(bind("", "", [_LONG]) + execute() + SYNC)
    client.connection.connection_lost()
    assert client.session.closed == 1
    assert read(client) == b""
    assert ("execute", "") not in client.session.calls


def test_two_are_read_one_after_the_other(client: Client) -> None:
    sent = bind("p", "", [_LONG]) + bind("q", "", [_LONG + b"q"]) + execute("q") + close("P", "p") + SYNC
    assert client.send(sent) == b""
    assert len(client.session.owed_binds) == 1
    assert read(client) == b""
    assert len(client.session.owed_binds) == 1
    assert kinds(read(client)) == "22C3Z"


def read_apart(body: bytes | NDArray[np.uint8], types: TypeList, width: int | None = None) -> object:
    return run_job(ReadLongBind(body, types, width), HEAP)


def test_a_message_tells_the_beginning_of_a_large_value() -> None:
    body = bind("", "", [b"1" * 5_000])[5:]
    error = read_apart(np.frombuffer(body, np.uint8), TypeList.of([INTEGER]))
    assert isinstance(error, SqlError)
    assert (error.sqlstate, len(error.message)) == ("22003", 1_027)
    assert error.message.startswith('value "111')
    assert error.message.endswith("11...")
    short = read_apart(bind("", "", [b"x"])[5:], TypeList.of([TIMESTAMP]))
    assert isinstance(short, SqlError)
    assert (short.sqlstate, short.message) == ("22007", 'invalid input syntax for type timestamp: "x"')


def test_a_protocol_error_stays_one_on_its_way() -> None:
    error = pickle.loads(pickle.dumps(ProtocolError("invalid message format", detail="x")))
    assert isinstance(error, ProtocolError)
    assert (error.message, error.detail) == ("invalid message format", "x")
