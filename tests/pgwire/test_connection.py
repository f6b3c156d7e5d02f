"""Startup, order, flow control and the ends of connections."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from layby.adapter.outcome import CommandOutcome, Outcome
from layby.errors import SqlError
from layby.pgwire import codec, connection
from tests.pgwire import frontend
from tests.pgwire.fakes import Client, FakeSession, IntRows, Later, command_body, int_row
from tests.pgwire.frontend import SYNC, TERMINATE, errors, kinds, query, split, startup


def test_startup_is_greeted_with_parameters_and_the_key() -> None:
    client = Client(started=False)
    assert split(client.send(startup(user="layby", database="db", application_name="x"))) == [
        ("R", b"\0\0\0\0"),
        ("S", b"server_version\x0015.0 (layby)\0"),
        ("S", b"client_encoding\0UTF8\0"),
        ("K", pack(">iI", 7, 0xF000_0001)),
        ("Z", b"I"),
    ]
    assert client.coordinator.connects == [("layby", "db", {"application_name": "x"})]


def test_the_database_is_by_default_that_of_the_users_name() -> None:
    client = Client(started=False)
    client.send(startup(user="layby"))
    assert client.coordinator.connects == [("layby", "layby", {})]


def test_options_of_the_command_line_become_parameters() -> None:
    client = Client(started=False)
    client.send(startup(user="u", options=r"-c statement_timeout=5s --search-path=a\ b -cDateStyle=ISO"))
    assert client.coordinator.connects == [
        ("u", "u", {"statement_timeout": "5s", "search_path": "a b", "DateStyle": "ISO"})
    ]


def test_options_that_set_nothing_are_refused() -> None:
    client = Client(started=False)
    (error,) = errors(client.send(startup(user="u", options="-x")))
    assert (error["S"], error["C"]) == ("FATAL", "42601")
    assert error["M"] == "invalid command-line argument for server process: -x"


@pytest.mark.parametrize("code", [codec.SSL_REQUEST, codec.GSSENC_REQUEST])
def test_a_request_for_encryption_is_answered_no(code: int) -> None:
    client = Client(started=False)
    assert client.send(frontend.request(code)) == b"N"
    assert kinds(client.send(startup(user="u"))) == "RSSKZ"


def test_a_cancel_request_reaches_the_coordinator_and_gets_no_answer() -> None:
    client = Client(started=False)
    assert client.send(frontend.request(codec.CANCEL_REQUEST, pack(">iI", 7, 0xF000_0001))) == b""
    assert client.coordinator.cancels == [(7, 0xF000_0001)]
    assert client.closed


def test_a_newer_minor_version_and_unknown_options_are_negotiated_down() -> None:
    client = Client(started=False)
    answer = client.send(startup(196610, user="u", **{"_pq_.x": "1"}))
    assert split(answer)[0] == ("v", pack(">ii", 0, 1) + b"_pq_.x\0")
    assert kinds(answer) == "vRSSKZ"
    assert client.coordinator.connects == [("u", "u", {})]


def test_another_major_version_is_refused() -> None:
    client = Client(started=False)
    (error,) = errors(client.send(startup(0x20000, user="u")))
    assert (error["S"], error["C"]) == ("FATAL", "0A000")
    assert error["M"] == "unsupported frontend protocol 2.0: server supports 3.0 to 3.0"
    assert client.closed


def test_a_startup_without_a_user_is_refused() -> None:
    client = Client(started=False)
    (error,) = errors(client.send(startup(database="u")))
    assert error["M"] == "no PostgreSQL user name specified in startup packet"
    assert (error["S"], error["V"], error["C"]) == ("FATAL", "FATAL", "28000")


def test_the_coordinators_refusal_is_fatal() -> None:
    client = Client(started=False)
    client.coordinator.refusal = SqlError("3D000", 'database "x" does not exist')
    (error,) = errors(client.send(startup(user="u", database="x") + query("a")))
    assert error == {"S": "FATAL", "V": "FATAL", "C": "3D000", "M": 'database "x" does not exist'}
    assert client.closed
    assert client.ended == 1


def test_a_malformed_message_ends_the_connection_after_those_before_it() -> None:
    client = Client(FakeSession({"a": IntRows([1])}))
    answer = client.send(query("a") + frontend.message("Q", b"no terminator"))
    assert kinds(answer) == "TDCZE"
    assert errors(answer)[0]["S"] == "FATAL"
    assert errors(answer)[0]["C"] == "08P01"
    assert client.closed
    assert client.session.closed == 1


def test_a_bad_header_ends_the_connection_after_those_before_it() -> None:
    client = Client(FakeSession({"a": Later(CommandOutcome("A"))}))
    assert client.send(query("a") + b"Q\0\0\0\0") == b""
    answer = client.deliver()
    assert kinds(answer) == "CZE"
    assert errors(answer)[0]["M"] == "invalid message length"


def test_an_error_tells_all_it_knows() -> None:
    error = SqlError("42P01", "no", detail="d", hint="h", position=3, context="c")
    client = Client(FakeSession({"a": error}))
    assert errors(client.send(query("a"))) == [
        {"S": "ERROR", "V": "ERROR", "C": "42P01", "M": "no", "D": "d", "H": "h", "P": "3", "W": "c"}
    ]


def test_terminate_ends_the_session() -> None:
    client = Client()
    assert client.send(TERMINATE) == b""
    assert client.closed
    assert client.session.closed == 1
    assert client.ended == 1


def test_messages_behind_an_outcome_that_is_owed_wait_for_it() -> None:
    client = Client(FakeSession({"a": Later(CommandOutcome("A")), "b": CommandOutcome("B")}))
    assert client.send(query("a") + query("b")) == b""
    assert ("run", "b") not in client.session.calls
    assert split(client.deliver()) == [
        command_body("A"),
        ("Z", b"I"),
        command_body("B"),
        ("Z", b"I"),
    ]


def test_a_batch_of_messages_is_answered_in_one_write() -> None:
    client = Client(FakeSession({"a": IntRows([1]), "b": IntRows([2])}))
    client.send(query("a") + query("b"))
    assert len(client.writes) == 2  # one at startup


def test_a_long_pipeline_is_taken_in_turns() -> None:
    client = Client(FakeSession({"a": CommandOutcome("A")}))
    client.connection.data_received(query("a") * 200)
    run = client.session.calls.count(("run", "a"))
    assert 0 < run <= connection.TURN
    assert len(client.turns) == 1
    client.connection.data_received(query("a"))
    assert client.session.calls.count(("run", "a")) == run
    assert len(client.turns) == 1
    client.run_turns()
    assert client.session.calls.count(("run", "a")) == 201
    assert kinds(client.received()) == "CZ" * 201


def test_messages_that_take_long_are_taken_in_turns_of_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(FakeSession({"a": CommandOutcome("A")}))
    execute, taken = client.session.execute_statement, []

    def slow(*arguments: Any) -> Outcome | None:
        client.now += 0.3 * connection.TURN_S
        taken.append(len(client.turns))
        return execute(*arguments)

    monkeypatch.setattr(client.session, "execute_statement", slow)
    client.connection.data_received(query("a") * 10)
    for run in (4, 8, 10):
        assert len(taken) == run
        assert len(client.turns) == (run < 10)
        if client.turns:
            client.turns.pop()()
    assert kinds(client.received()) == "CZ" * 10


def test_reading_pauses_while_too_much_waits() -> None:
    client = Client(FakeSession({"a": Later(CommandOutcome("A")), "b": CommandOutcome("B")}))
    client.send(query("a") + query("b") * (connection.QUEUE_MESSAGES + 1))
    assert not client.is_reading()
    client.deliver()
    assert client.is_reading()
    assert client.session.calls.count(("run", "b")) == connection.QUEUE_MESSAGES + 1


def test_a_message_larger_than_what_may_wait_is_read_to_its_end() -> None:
    text = "b" * (3 * connection.QUEUE_BYTES)
    client = Client(FakeSession({text: CommandOutcome("B")}))
    data = query(text)
    for at in range(0, len(data), 100_000):
        assert client.is_reading()
        client.connection.data_received(data[at : at + 100_000])
        client.run_turns()
    assert client.session.calls.count(("run", text)) == 1
    assert client.is_reading()


def test_what_is_read_in_one_turn_is_bounded() -> None:
    client = Client(FakeSession({"b": CommandOutcome("B")}))
    message = query("b" * 2 * connection.TURN_BYTES)
    most = message[: connection.TURN_BYTES - 1_000]
    client.connection.data_received(most)
    assert client.is_reading()
    client.connection.data_received(b"b" * 1_000)
    assert not client.is_reading()
    client.run_turns()
    assert client.is_reading()
    client.connection.data_received(b"b" * 1_000)
    assert client.is_reading()


def test_a_large_message_that_comes_while_another_is_run_waits_with_the_transport() -> None:
    client = Client(FakeSession({"a": Later(CommandOutcome("A"))}))
    client.send(query("a"))
    client.connection.data_received(query("b" * (2 * connection.QUEUE_BYTES))[:-5])
    assert not client.is_reading()
    client.deliver()
    assert client.is_reading()


def test_a_slow_reader_stops_its_own_pipeline() -> None:
    client = Client(FakeSession({"a": IntRows(list(range(10)))}))
    client.connection.pause_writing()
    assert client.send(query("a")) == b""
    assert ("run", "a") not in client.session.calls
    client.connection.resume_writing()
    client.run_turns()
    assert kinds(client.received()) == "T" + "D" * 10 + "CZ"


def test_a_large_answer_goes_out_a_slice_a_turn_while_the_transport_takes_it() -> None:
    values = list(range(100_000))
    client = Client(FakeSession({"a": IntRows(values), "b": CommandOutcome("B")}))
    client.room = 300_000
    client.connection.data_received(query("a") + query("b"))
    assert len(client.turns) == 1
    assert sum(map(len, client.writes[client.taken :])) < 270_000
    client.run_turns()
    sent = sum(map(len, client.writes[client.taken :]))
    assert 300_000 <= sent < 600_000
    assert ("run", "b") not in client.session.calls
    while client.room <= 0:
        client.room = 300_000
        client.connection.resume_writing()
        client.run_turns()
    found = split(client.received())
    assert found[1:100_001] == [int_row(v) for v in values]
    assert "".join(kind for kind, _ in found[100_001:]) == "CZCZ"


def test_a_large_answer_ends_the_turn() -> None:
    client = Client(FakeSession({"a": IntRows(list(range(8_000)))}))
    client.connection.data_received(query("a") * 3)
    assert client.session.calls.count(("run", "a")) == 1
    client.run_turns()
    assert kinds(client.received()).count("Z") == 3


def test_a_client_that_ends_while_idle_is_let_go_quietly() -> None:
    client = Client()
    client.connection.eof_received()
    assert client.received() == b""
    assert client.closed
    assert client.session.closed == 1


@pytest.mark.parametrize("case", ["half a message", "in flight", "in a block"])
def test_a_client_that_ends_in_the_middle_is_told(case: str) -> None:
    client = Client(FakeSession({"a": Later(CommandOutcome("A"))}))
    if case == "half a message":
        client.send(query("a")[:-1])
    elif case == "in flight":
        client.send(query("a"))
    else:
        client.session.status = b"T"
    client.connection.eof_received()
    (error,) = errors(client.received())
    assert (error["S"], error["C"]) == ("FATAL", "08006")
    assert error["M"] == "unexpected EOF on client connection"
    assert client.closed
    assert client.session.closed == 1


def test_a_client_that_ends_within_its_startup_packet_is_told() -> None:
    client = Client(started=False)
    client.send(startup(user="a")[:6])
    client.connection.eof_received()
    assert errors(client.received())[0]["C"] == "08006"
    assert client.closed


def test_an_outcome_that_comes_after_the_client_has_gone_is_dropped() -> None:
    client = Client(FakeSession({"a": Later(CommandOutcome("A"))}))
    client.send(query("a"))
    client.connection.connection_lost()
    assert client.session.closed == 1
    assert client.deliver() == b""
    assert client.ended == 1


def test_a_client_lost_in_the_middle_of_an_answer_leaves_nothing_running() -> None:
    client = Client(FakeSession({"a": IntRows(list(range(100_000)))}))
    client.connection.data_received(query("a"))
    written = len(client.writes)
    client.connection.connection_lost()
    client.run_turns()
    assert len(client.writes) == written
    assert client.session.closed == 1


def test_a_shutdown_ends_an_idle_connection_at_once() -> None:
    client = Client()
    client.connection.shut_down()
    (error,) = errors(client.received())
    assert error["S"] == "FATAL"
    assert error["C"] == "57P01"
    assert error["M"] == "terminating connection due to administrator command"
    assert client.closed


def test_a_shutdown_lets_what_is_in_flight_end() -> None:
    client = Client(FakeSession({"a": Later(CommandOutcome("A"))}))
    client.send(query("a"))
    client.connection.shut_down()
    assert not client.closed
    assert kinds(client.deliver()) == "CZE"
    assert client.closed


def test_a_shutdown_that_waits_no_longer_ends_what_is_in_flight() -> None:
    client = Client(FakeSession({"a": Later(CommandOutcome("A"))}))
    client.send(query("a"))
    client.connection.end_with(connection.shutting_down())
    assert kinds(client.received()) == "E"
    assert client.session.closed == 1


def test_nothing_is_told_in_the_middle_of_an_answer() -> None:
    client = Client(FakeSession({"a": IntRows(list(range(100_000)))}))
    client.connection.data_received(query("a"))
    written = len(client.writes)
    client.connection.end_with(connection.shutting_down())
    client.run_turns()
    assert len(client.writes) == written
    assert client.closed


def test_a_bug_ends_only_the_connection_that_met_it(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    (error,) = errors(client.send(query("not among the answers")))
    assert (error["S"], error["C"]) == ("FATAL", "XX000")
    assert client.closed
    assert client.session.closed == 1
    assert "KeyError" in caplog.text


def test_sync_alone_is_answered() -> None:
    assert split(Client().send(SYNC)) == [("Z", b"I")]
