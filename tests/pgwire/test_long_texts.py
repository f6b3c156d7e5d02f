"""Texts that the session does not parse within the call, as the client sees them."""

from __future__ import annotations

import pytest

from layby.adapter.outcome import CommandOutcome
from layby.errors import SqlError
from tests.pgwire.fakes import Client, FakeSession, command_body
from tests.pgwire.frontend import SYNC, bind, errors, execute, kinds, parse, query, split

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
