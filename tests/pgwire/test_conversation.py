"""Simple and extended queries, transactions and COPY, as the client sees them."""

from __future__ import annotations

from struct import pack

import pytest

from layby.adapter.outcome import (
    CommandOutcome,
    CopyInOutcome,
    CopyOutOutcome,
    FailureOutcome,
    Notice,
    RowsOutcome,
)
from layby.errors import SqlError
from layby.peek.answer import EncodedRows
from layby.types.column import column_from_values
from layby.types.relation import ColumnDesc
from layby.types.scalar import BIGINT, INTEGER, TEXT
from tests.pgwire.fakes import (
    INT_ROWS,
    Client,
    FakeSession,
    FakeSink,
    IntRows,
    Later,
    command_body,
    int_row,
)
from tests.pgwire.frontend import (
    COPY_DONE,
    FLUSH,
    SYNC,
    bind,
    close,
    describe,
    errors,
    execute,
    fields,
    kinds,
    message,
    parse,
    query,
    split,
)

_READY = ("Z", b"I")
_INT_DESCRIPTION = ("T", pack(">H", 1) + b"n\0" + pack(">IhIhih", 0, 0, 23, 4, -1, 0))
_FAILURE = FailureOutcome(SqlError("22012", "division by zero"))
_CONFLICT = FailureOutcome(SqlError("40001", "could not serialize access"))


# -- simple query


def test_rows_are_described_sent_and_counted() -> None:
    client = Client(FakeSession({"a": IntRows([1, -20])}))
    assert split(client.send(query("a"))) == [
        _INT_DESCRIPTION,
        int_row(1),
        int_row(-20),
        command_body("SELECT 2"),
        _READY,
    ]


def test_rows_that_come_later_look_the_same() -> None:
    encoded = EncodedRows(b"D\0\0\0\x0b\0\x01\0\0\0\x011", [12], 1)
    client = Client(FakeSession({"a": Later(RowsOutcome(INT_ROWS, "SELECT 1", 1, encoded))}))
    assert client.send(query("a")) == b""
    assert split(client.deliver()) == [_INT_DESCRIPTION, int_row(1), command_body("SELECT 1"), _READY]


def test_rows_that_come_as_columns_are_encoded() -> None:
    columns = (column_from_values(INTEGER, [5]),)
    client = Client(FakeSession({"a": RowsOutcome(INT_ROWS, "SHOW", 1, None, columns)}))
    assert split(client.send(query("a")))[1:3] == [int_row(5), command_body("SHOW")]


def test_an_empty_query_is_answered_as_such() -> None:
    assert split(Client().send(query(" ; "))) == [("I", b""), _READY]


def test_a_script_runs_in_order_and_is_committed_once() -> None:
    client = Client(FakeSession({"a": CommandOutcome("A"), "b": Later(CommandOutcome("B"))}))
    client.send(query("a; b; a"))
    answer = client.deliver()
    assert split(answer) == [command_body("A"), command_body("B"), command_body("A"), _READY]
    assert client.session.calls[1:] == [("run", "a"), ("run", "b"), ("run", "a"), ("sync",)]


@pytest.mark.parametrize("late", [False, True])
def test_a_script_ends_at_its_first_error(late: bool) -> None:
    failure = Later(_FAILURE) if late else _FAILURE
    client = Client(FakeSession({"a": CommandOutcome("A"), "b": failure}))
    answer = client.send(query("a; b; a"))
    if late:
        answer += client.deliver()
    assert kinds(answer) == "CEZ"
    assert client.session.calls[1:] == [("run", "a"), ("run", "b"), ("fail",), ("sync",)]


def test_a_syntax_error_fails_the_whole_script() -> None:
    client = Client()
    answer = client.send(query("syntax error"))
    assert kinds(answer) == "EZ"
    assert errors(answer)[0]["P"] == "1"
    assert client.session.calls == [("script", "syntax error"), ("fail",), ("sync",)]


def test_a_query_that_is_no_utf8_is_refused_and_the_connection_goes_on() -> None:
    client = Client(FakeSession({"a": CommandOutcome("A")}))
    answer = client.send(message("Q", b"\xff\0"))
    assert kinds(answer) == "EZ"
    assert errors(answer)[0]["C"] == "22021"
    assert kinds(client.send(query("a"))) == "CZ"


@pytest.mark.parametrize("late", [False, True])
def test_a_commit_that_fails_takes_back_the_last_completion(late: bool) -> None:
    session = FakeSession({"a": CommandOutcome("A"), "b": IntRows([1])})
    session.sync_answer = Later(_CONFLICT) if late else _CONFLICT
    client = Client(session)
    answer = client.send(query("a; b"))
    assert "C" not in kinds(answer)[1:]
    if late:
        answer += client.deliver()
    assert kinds(answer) == "CTDEZ"
    assert errors(answer)[0]["C"] == "40001"


def test_an_answer_before_a_commit_that_is_owed_does_not_let_its_completion_out() -> None:
    session = FakeSession({"a": CommandOutcome("A"), "b": CommandOutcome("B")})
    client = Client(session)
    session.sync_answers = [CommandOutcome(""), Later(_CONFLICT)]
    assert kinds(client.send(query("a") + query("b"))) == "CZ"
    assert kinds(client.deliver()) == "EZ"


def test_the_status_is_that_of_the_session() -> None:
    session = FakeSession({"a": CommandOutcome("BEGIN")})
    client = Client(session)
    session.status = b"T"
    assert split(client.send(query("a")))[-1] == ("Z", b"T")
    session.status = b"E"
    assert split(client.send(query("a")))[-1] == ("Z", b"E")


def test_notices_come_before_the_completion_and_parameters_before_readiness() -> None:
    session = FakeSession({"a": CommandOutcome("A")})
    client = Client(session)
    session.notices.append(Notice("WARNING", "25001", "already there", hint="h"))
    session.changes.append(("TimeZone", "UTC"))
    answer = split(client.send(query("a")))
    assert [kind for kind, _ in answer] == ["N", "C", "S", "Z"]
    assert fields(answer[0][1]) == {
        "S": "WARNING",
        "V": "WARNING",
        "C": "25001",
        "M": "already there",
        "H": "h",
    }
    assert answer[2][1] == b"TimeZone\0UTC\0"


def test_a_function_call_is_refused() -> None:
    answer = Client().send(message("F", b"\0\0\0\0"))
    assert kinds(answer) == "EZ"
    assert errors(answer)[0]["C"] == "0A000"


# -- extended query


def test_a_prepared_statement_is_described_bound_and_executed() -> None:
    session = FakeSession({"a": IntRows([7])}, types=(INTEGER, TEXT))
    client = Client(session)
    answer = client.send(
        parse("s", "a", [0, 25])
        + describe("S", "s")
        + bind("p", "s", [b"42", b"x"])
        + describe("P", "p")
        + execute("p")
        + SYNC
    )
    assert split(answer) == [
        ("1", b""),
        ("t", pack(">HII", 2, 23, 25)),
        _INT_DESCRIPTION,
        ("2", b""),
        _INT_DESCRIPTION,
        int_row(7),
        command_body("SELECT 1"),
        _READY,
    ]
    assert session.calls == [
        ("prepare", "s", "a", (0, 25)),
        ("bind", "p", "s", [42, "x"]),
        ("execute", "p"),
        ("sync",),
    ]


def test_a_statement_without_rows_has_no_data() -> None:
    session = FakeSession({"a": CommandOutcome("INSERT 0 1")}, desc=None)
    answer = Client(session).send(parse("", "a") + describe("S") + bind() + describe("P") + execute() + SYNC)
    assert kinds(answer) == "1tn2nCZ"


def test_binary_results_are_described_and_encoded_as_such() -> None:
    session = FakeSession({"a": IntRows([7])})
    answer = split(
        Client(session).send(parse("", "a") + bind(results=[1]) + describe("P") + execute() + SYNC)
    )
    assert answer[2][1][-2:] == b"\0\x01"
    assert answer[3] == ("D", pack(">hii", 1, 4, 7))


def test_binary_and_null_parameters_are_read_by_the_statements_types() -> None:
    session = FakeSession({"a": CommandOutcome("A")}, types=(BIGINT, INTEGER, TEXT))
    client = Client(session)
    client.send(parse("", "a") + bind(values=[pack(">q", -5), None, b"\xc3\xa4"], formats=[1]) + SYNC)
    assert session.calls[1] == ("bind", "", "", [-5, None, "ä"])
    client.send(bind(values=[b"-5", pack(">i", 3), b"t"], formats=[0, 1, 0]) + SYNC)
    assert session.calls[3] == ("bind", "", "", [-5, 3, "t"])


@pytest.mark.parametrize(
    ("bound", "sqlstate", "text"),
    [
        (
            bind(values=[]),
            "08P01",
            'bind message supplies 0 parameters, but prepared statement "" requires 1',
        ),
        (
            bind(values=[b"1"], formats=[0, 0]),
            "08P01",
            "bind message has 2 parameter formats but 1 parameters",
        ),
        (bind(values=[b"1"], formats=[2]), "22023", "unsupported format code: 2"),
        (bind(values=[b"1"], results=[3]), "22023", "unsupported format code: 3"),
        (
            bind(values=[b"1"], results=[0, 0]),
            "08P01",
            "bind message has 2 result formats but query has 1 columns",
        ),
        (bind(values=[b"x"]), "22P02", 'invalid input syntax for type integer: "x"'),
        (bind(values=[b"\xff"]), "22021", 'invalid byte sequence for encoding "UTF8": 0xff'),
        (bind(values=[b"1\0"]), "22021", 'invalid byte sequence for encoding "UTF8": 0x00'),
        (
            bind(values=[b"\0" * 5], formats=[1]),
            "22P03",
            "incorrect binary data format in bind parameter 1",
        ),
        (bind(values=[b"\0" * 3], formats=[1]), "08P01", "insufficient data left in message"),
        (bind(statement="none"), "26000", 'prepared statement "none" does not exist'),
    ],
)
def test_a_bind_that_does_not_fit_is_refused(bound: bytes, sqlstate: str, text: str) -> None:
    session = FakeSession({"a": CommandOutcome("A")}, types=(INTEGER,))
    client = Client(session)
    answer = client.send(parse("", "a") + bound + execute() + SYNC)
    assert kinds(answer) == "1EZ"
    (error,) = errors(answer)
    assert (error["S"], error["C"], error["M"]) == ("ERROR", sqlstate, text)
    assert session.calls[1:] == [("fail",), ("sync",)]
    assert not client.closed


@pytest.mark.parametrize("late", [False, True])
def test_after_an_error_everything_up_to_sync_is_skipped(late: bool) -> None:
    session = FakeSession({"a": Later(_FAILURE) if late else _FAILURE, "b": IntRows([1])})
    client = Client(session)
    whole = parse("", "a") + bind() + execute() + parse("", "b") + bind() + execute() + query("b") + SYNC
    answer = client.send(whole + query("b"))
    if late:
        assert answer == b""
        answer = client.deliver()
    assert kinds(answer) == "12EZTDCZ"
    assert session.calls.count(("run", "b")) == 1
    assert session.calls.count(("execute", "")) == 1


def test_an_error_without_sync_is_told_at_once() -> None:
    client = Client()
    assert kinds(client.send(parse("", "syntax error"))) == "E"


def test_an_answer_waits_for_sync_or_flush() -> None:
    client = Client(FakeSession({"a": IntRows([1])}))
    assert client.send(parse("", "a") + bind() + execute()) == b""
    assert kinds(client.send(FLUSH)) == "12DC"
    assert kinds(client.send(SYNC)) == "Z"


@pytest.mark.parametrize("late", [False, True])
def test_a_commit_that_fails_at_sync_takes_back_the_completion(late: bool) -> None:
    session = FakeSession({"a": CommandOutcome("INSERT 0 1")}, desc=None)
    session.sync_answer = Later(_CONFLICT) if late else _CONFLICT
    client = Client(session)
    batch = parse("", "a") + bind() + execute() + bind() + execute() + SYNC
    answer = client.send(batch)
    if late:
        answer += client.deliver()
    assert kinds(answer) == "12C2EZ"


def test_a_commit_that_fails_after_a_flush_is_an_error_more() -> None:
    session = FakeSession({"a": CommandOutcome("INSERT 0 1")}, desc=None)
    session.sync_answer = _CONFLICT
    client = Client(session)
    assert kinds(client.send(parse("", "a") + bind() + execute() + FLUSH)) == "12C"
    assert kinds(client.send(SYNC)) == "EZ"


def test_a_commit_that_fails_after_a_flush_in_the_same_batch_is_an_error_more() -> None:
    session = FakeSession({"a": CommandOutcome("INSERT 0 1")}, desc=None)
    session.sync_answer = _CONFLICT
    assert kinds(Client(session).send(parse("", "a") + bind() + execute() + FLUSH + SYNC)) == "12CEZ"


def test_a_commit_that_fails_takes_back_nothing_of_the_one_before() -> None:
    session = FakeSession({"a": CommandOutcome("A")}, desc=None)
    client = Client(session)
    session.sync_answers = [CommandOutcome(""), _CONFLICT]
    assert kinds(client.send(parse("", "a") + bind() + execute() + SYNC + SYNC)) == "12CZEZ"


def test_one_statement_is_answered_in_the_formats_of_each_bind() -> None:
    session = FakeSession({"a": IntRows([7])})
    client = Client(session)
    client.send(parse("", "a"))
    text, binary = ("D", pack(">hi", 1, 1) + b"7"), ("D", pack(">hii", 1, 4, 7))
    for formats, row in (((), text), ((1,), binary), ((0,), text), ((1,), binary)):
        assert row in split(client.send(bind(results=formats) + execute() + SYNC))


def test_a_message_that_quotes_what_has_no_utf8_is_still_told() -> None:
    client = Client(FakeSession({"a": SqlError("22P02", "a\0b\ud800")}))
    assert errors(client.send(query("a")))[0]["M"] == "ab\\ud800"


def test_a_row_limit_suspends_the_portal() -> None:
    session = FakeSession({"a": IntRows([1, 2, 3, 4, 5])}, status=b"T")
    client = Client(session)
    answer = client.send(parse("", "a") + bind("p") + execute("p", 2) + execute("p", 2) + SYNC)
    assert split(answer)[2:] == [
        int_row(1),
        int_row(2),
        ("s", b""),
        int_row(3),
        int_row(4),
        ("s", b""),
        ("Z", b"T"),
    ]
    assert split(client.send(execute("p", 2) + execute("p") + SYNC)) == [
        int_row(5),
        command_body("SELECT 1"),
        command_body("SELECT 0"),
        ("Z", b"T"),
    ]
    assert session.calls.count(("execute", "p")) == 1


def test_a_fetch_of_exactly_the_rest_is_suspended_once_more() -> None:
    session = FakeSession({"a": IntRows([1, 2])}, status=b"T")
    answer = Client(session).send(parse("", "a") + bind() + execute("", 2) + execute("", 2) + SYNC)
    assert split(answer)[2:6] == [int_row(1), int_row(2), ("s", b""), command_body("SELECT 0")]


def test_a_suspended_portal_ends_with_its_transaction() -> None:
    session = FakeSession({"a": IntRows([1, 2])}, status=b"T")
    client = Client(session)
    client.send(parse("", "a") + bind("p") + execute("p", 1) + SYNC)
    session.portals.clear()
    answer = client.send(execute("p", 1) + SYNC)
    assert errors(answer)[0]["M"] == 'portal "p" does not exist'


def test_a_portal_bound_again_starts_again() -> None:
    session = FakeSession({"a": IntRows([1, 2])}, status=b"T")
    client = Client(session)
    client.send(parse("", "a") + bind() + execute("", 1) + SYNC)
    assert split(client.send(bind() + execute("", 1) + SYNC))[1] == int_row(1)


def test_a_statement_without_rows_runs_once_a_portal() -> None:
    session = FakeSession({"a": CommandOutcome("INSERT 0 1")}, desc=None)
    answer = Client(session).send(parse("", "a") + bind() + execute() + execute() + SYNC)
    assert kinds(answer) == "12CEZ"
    assert (errors(answer)[0]["C"], errors(answer)[0]["M"]) == ("55000", 'portal "" cannot be run')


def test_an_empty_statement_is_answered_as_such() -> None:
    session = FakeSession({"": CommandOutcome("")}, desc=None)
    assert kinds(Client(session).send(parse("", "") + bind() + execute() + SYNC)) == "12IZ"


def test_what_is_closed_is_gone_and_closing_nothing_is_no_error() -> None:
    session = FakeSession({"a": IntRows([1])}, status=b"T")
    client = Client(session)
    client.send(parse("s", "a") + bind("p", "s") + SYNC)
    assert kinds(client.send(close("P", "p") + close("P", "p") + execute("p") + SYNC)) == "33EZ"
    assert kinds(client.send(close("S", "s") + bind("p", "s") + SYNC)) == "3EZ"


def test_a_column_of_limited_length_is_described_as_varchar() -> None:
    session = FakeSession({}, desc=(ColumnDesc("c", TEXT, max_length=8),))
    answer = split(Client(session).send(parse("", "a") + describe("S") + SYNC))
    assert answer[2] == ("T", pack(">H", 1) + b"c\0" + pack(">IhIhih", 0, 0, 1043, -1, 12, 0))


# -- COPY


def _copying(accept: int = 1 << 60) -> tuple[Client, FakeSink]:
    session = FakeSession({"b": CommandOutcome("B")}, desc=None)
    sink = FakeSink(session, accept)
    session.answers["copy"] = CopyInOutcome(2, sink)
    client = Client(session)
    assert split(client.send(query("copy; b"))) == [("G", pack(">bHhh", 0, 2, 0, 0))]
    return client, sink


def test_copy_in_takes_data_and_then_goes_on_with_the_script() -> None:
    client, sink = _copying()
    assert client.send(message("d", b"1\t2\n") + message("d", b"3\t4\n") + FLUSH + SYNC) == b""
    assert sink.data == b"1\t2\n3\t4\n"
    assert split(client.send(COPY_DONE)) == [command_body("COPY 2"), command_body("B"), _READY]
    assert sink.finished


def test_a_copy_that_the_client_fails_is_aborted() -> None:
    client, sink = _copying()
    answer = client.send(message("f", b"no more\0"))
    assert kinds(answer) == "EZ"
    assert errors(answer)[0]["C"] == "57014"
    assert errors(answer)[0]["M"] == "COPY from stdin failed: no more"
    assert sink.aborted is not None


def test_another_message_during_copy_aborts_it() -> None:
    client, _ = _copying()
    answer = client.send(query("b"))
    assert kinds(answer) == "EZ"
    assert errors(answer)[0]["C"] == "08P01"
    assert errors(answer)[0]["M"] == "unexpected message type 0x51 during COPY from stdin"


def test_a_copy_that_fails_by_itself_is_told_at_once_and_its_data_ignored() -> None:
    client, sink = _copying()
    client.send(message("d", b"x"))
    sink.callback(FailureOutcome(SqlError("22P02", "bad", context="COPY t, line 1")))
    answer = client.received()
    assert kinds(answer) == "EZ"
    assert errors(answer)[0]["W"] == "COPY t, line 1"
    assert client.send(message("d", b"y") + COPY_DONE) == b""
    assert sink.data == b"x"
    assert kinds(client.send(query("b"))) == "CZ"


def test_a_full_sink_stops_reading_until_it_is_ready() -> None:
    client, sink = _copying(accept=4)
    client.send(message("d", b"1\n2\n") + message("d", b"3\n") + COPY_DONE)
    assert sink.data == b"1\n2\n"
    assert not client.is_reading()
    assert sink.on_ready is not None
    sink.accept = 100
    sink.on_ready()
    assert sink.data == b"1\n2\n3\n"
    assert client.is_reading()
    assert kinds(client.received()) == "CCZ"


def test_copy_in_by_the_extended_protocol_waits_for_its_sync() -> None:
    session = FakeSession(desc=None)
    sink = FakeSink(session)
    session.answers["copy"] = CopyInOutcome(1, sink)
    client = Client(session)
    assert kinds(client.send(parse("", "copy") + bind() + execute() + SYNC)) == "12G"
    assert kinds(client.send(message("d", b"1\n") + COPY_DONE + SYNC)) == "CZ"
    client.send(bind() + execute() + SYNC)
    assert kinds(client.send(message("f", b"x\0") + query("ignored"))) == "E"
    assert kinds(client.send(SYNC)) == "Z"


def test_a_client_lost_during_copy_ends_the_session() -> None:
    client, sink = _copying()
    client.connection.connection_lost()
    assert client.session.closed == 1
    assert sink.on_ready is not None
    sink.on_ready()
    assert not sink.finished


def test_copy_out_is_announced_sent_and_ended() -> None:
    rows = EncodedRows(message("d", b"1\n") + message("d", b"2\n"), [7, 14], 2)
    client = Client(FakeSession({"copy": CopyOutOutcome("COPY 2", 1, rows, b"name\n")}))
    assert split(client.send(query("copy"))) == [
        ("H", pack(">bHh", 0, 1, 0)),
        ("d", b"name\n"),
        ("d", b"1\n"),
        ("d", b"2\n"),
        ("c", b""),
        command_body("COPY 2"),
        _READY,
    ]
