"""Texts that the session does not parse within the call, as the client sees them."""

from __future__ import annotations

from typing import Any

import pytest

from layby.adapter.outcome import CommandOutcome
from layby.errors import SqlError
from layby.pgwire.codec import LARGE
from layby.sql.statement_text import EncodedText
from tests.pgwire.fakes import Client, FakeSession, FullArena, command_body, in_pieces
from tests.pgwire.frontend import SYNC, bind, errors, execute, kinds, message, parse, query, split

_READY = ("Z", b"I")
_REFUSED = SqlError("42601", 'syntax error at or near "a"', position=1)


@pytest.fixture
def client() -> Client:
    session = FakeSession({"a": CommandOutcome("A"), "b": CommandOutcome("B")})
    session.long_texts = {"a;b", ";"}
    return Client(session)


def parsed(client: Client, error: SqlError | None = None) -> bytes:
    """Let the session end what parses for longest; return what was written."""
    client.session.owed_texts.pop(0)(error)
    client.run_turns()
    return client.received()


def test_a_script_runs_once_it_is_parsed(client: Client) -> None:
    assert client.send(query("a;b")) == b""
    assert split(parsed(client)) == [command_body("A"), command_body("B"), _READY]


def test_what_follows_waits_for_a_script_that_is_being_parsed(client: Client) -> None:
    assert client.send(query("a;b") + query("b")) == b""
    assert client.session.calls == [("script", "a;b")]
    assert kinds(parsed(client)) == "CCZCZ"


def test_a_script_that_is_refused_later_is_answered_like_one_refused_at_once(client: Client) -> None:
    assert client.send(query("a;b") + query("a")) == b""
    answer = parsed(client, _REFUSED)
    assert kinds(answer) == "EZCZ"
    assert errors(answer)[0]["C"] == "42601"
    assert client.session.calls[1] == ("fail",)


def test_an_empty_script_is_told_once_it_is_parsed(client: Client) -> None:
    assert client.send(query(";")) == b""
    assert split(parsed(client)) == [("I", b""), _READY]


def test_a_pipeline_waits_for_a_statement_that_is_being_parsed(client: Client) -> None:
    client.session.answers["a;b"] = CommandOutcome("A")
    assert client.send(parse("", "a;b") + bind("") + execute("") + SYNC) == b""
    assert kinds(parsed(client)) == "12CZ"


def test_a_statement_that_is_refused_later_fails_its_pipeline(client: Client) -> None:
    assert client.send(parse("", "a;b") + bind("") + execute("") + SYNC + query("b")) == b""
    answer = parsed(client, _REFUSED)
    assert kinds(answer) == "EZCZ"
    assert [call[0] for call in client.session.calls] == ["prepare", "fail", "sync", "script", "run", "sync"]


@pytest.mark.parametrize("message", [query("a;b"), parse("", "a;b") + SYNC])
def test_a_client_that_leaves_while_its_text_is_parsed_is_told_nothing(
    client: Client, message: bytes
) -> None:
    client.send(message)
    client.connection.connection_lost()
    assert client.session.closed == 1
    assert parsed(client) == b""
    assert ("run", "a") not in client.session.calls


_TEXT = "a" * (LARGE + 1)


def test_a_large_text_is_handed_on_as_the_bytes_that_came(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Any] = []
    monkeypatch.setattr(client.session, "parse_script", lambda sql, _: handed.append(sql))
    assert in_pieces(client, query(_TEXT)) == b""
    (text,) = handed
    assert isinstance(text, EncodedText)
    assert text.data.tobytes() == _TEXT.encode()


def test_a_large_parse_is_read_to_its_types(client: Client) -> None:
    client.session.answers[_TEXT] = CommandOutcome("A")
    sent = parse("s", _TEXT, [23, 0, 25]) + bind("", "s") + execute("") + SYNC
    assert split(in_pieces(client, sent)) == [("1", b""), ("2", b""), command_body("A"), _READY]
    assert client.session.calls[0] == ("prepare", "s", _TEXT, (23, 0, 25))


_X = b"x" * LARGE


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("Q", _X, "invalid string in message"),
        ("Q", _X + b"\0x", "invalid message format"),
        ("Q", b"\0" + _X + b"\0", "invalid message format"),
        ("P", _X, "insufficient data left in message"),
        ("P", _X + b"\0", "insufficient data left in message"),
        ("P", b"\0" + _X + b"\0", "insufficient data left in message"),
        ("P", b"\0" + _X + b"\0\0\1\0\0\0", "insufficient data left in message"),
        ("P", b"\0" + _X + b"\0\0\1\0\0\0\0\0", "invalid message format"),
        ("P", b"\0" + _X + b"\0\0\0" + _X, "invalid message format"),
    ],
)
def test_a_large_text_that_breaks_the_protocol_ends_the_connection(
    client: Client, kind: str, body: bytes, said: str
) -> None:
    answer = in_pieces(client, message(kind, body) + SYNC)
    assert [(e["S"], e["C"], e["M"]) for e in errors(answer)] == [("FATAL", "08P01", said)]
    assert client.closed
    assert client.session.calls == []


def test_the_name_of_a_large_statement_is_short(client: Client) -> None:
    answer = in_pieces(client, parse("x" * LARGE, "a") + SYNC)
    assert kinds(answer) == "EZ"
    assert errors(answer)[0]["C"] == "42622"
    assert kinds(client.send(query("a"))) == "CZ"


def test_a_large_function_call_is_refused(client: Client) -> None:
    answer = in_pieces(client, message("F", _X * 2))
    assert kinds(answer) == "EZ"
    assert errors(answer)[0]["C"] == "0A000"


def test_a_large_text_is_skipped_after_an_error(client: Client) -> None:
    answer = in_pieces(client, bind("", "none") + parse("", _TEXT) + SYNC)
    assert kinds(answer) == "EZ"
    assert [call[0] for call in client.session.calls] == ["fail", "sync"]


def test_a_text_that_there_is_no_memory_for_ends_its_connection(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.connection._decoder, "_arena", FullArena())
    (error,) = errors(in_pieces(client, query(_TEXT)))
    assert (error["S"], error["C"], error["M"]) == ("FATAL", "53200", "out of memory for a message")
    assert client.connection.closed
