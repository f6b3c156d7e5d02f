"""The small client: framing, values, errors, COPY."""

from __future__ import annotations

import pytest

from layby.bench.wire import (
    AnswerEnd,
    Connection,
    Framer,
    LostConnectionError,
    ServerError,
    error_of,
    execute_message,
    parse_message,
    query_message,
    row_of,
)
from tests.bench.fake import ANSWER, ERROR, READY, FakeServer


def test_a_stream_cut_anywhere_gives_the_same_messages() -> None:
    stream = b"T\x00\x00\x00\x06abC\x00\x00\x00\x04D\x00\x00\x00\x05x"
    whole = [(b"T", b"ab"), (b"C", b""), (b"D", b"x")]

    for size in range(1, len(stream) + 1):
        framer = Framer()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [found for piece in pieces for found in framer.feed(piece)] == whole


def test_a_length_below_four_is_no_message() -> None:
    with pytest.raises(LostConnectionError):
        Framer().feed(b"Z\x00\x00\x00\x03I")


def test_messages_are_those_of_the_protocol() -> None:
    assert query_message("é") == b"Q\x00\x00\x00\x07\xc3\xa9\x00"
    assert parse_message("s", "x") == b"P\x00\x00\x00\x0as\x00x\x00\x00\x00S\x00\x00\x00\x04"
    assert execute_message("s", ["12"]) == (
        b"B\x00\x00\x00\x13\x00s\x00\x00\x00\x00\x01\x00\x00\x00\x0212\x00\x00"
        b"D\x00\x00\x00\x06P\x00"
        b"E\x00\x00\x00\x09\x00\x00\x00\x00\x00"
        b"S\x00\x00\x00\x04"
    )


def test_a_row_has_null_apart_from_the_empty_text() -> None:
    body = b"\x00\x03\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x02\xc3\xa9"

    assert row_of(body) == ("", None, "é")


def test_an_error_has_its_sqlstate_and_message() -> None:
    error = error_of(b'SERROR\0VERROR\0C42P01\0Mrelation "t" does not exist\0P15\0\0')

    assert (error.sqlstate, error.message) == ("42P01", 'relation "t" does not exist')


def test_a_session_goes_on_after_an_error() -> None:
    with FakeServer(lambda sql: ERROR if sql == "bad" else ANSWER) as server:
        connection = Connection(server.host, server.port)
        with connection:
            with pytest.raises(ServerError, match="division by zero"):
                connection.query("bad")
            reply = connection.query("good")

    assert (reply.rows, reply.tag) == ([("7",)], "SELECT 1")


def test_a_closed_connection_is_told_from_an_error() -> None:
    with (
        FakeServer(lambda sql: None) as server,
        Connection(server.host, server.port) as connection,
        pytest.raises(LostConnectionError),
    ):
        connection.query("anything")


def test_a_refused_copy_sends_no_data() -> None:
    chunks = iter([b"1\n", b"2\n"])

    with (
        FakeServer(lambda sql: ERROR) as server,
        Connection(server.host, server.port) as connection,
        pytest.raises(ServerError, match="division by zero"),
    ):
        connection.copy_in("COPY t FROM STDIN", chunks)

    assert list(chunks) == [b"1\n", b"2\n"]


def test_a_copy_ends_with_its_tag() -> None:
    def answer(sql: str) -> bytes:
        return b"G\x00\x00\x00\x07\x00\x00\x00" + b"C\x00\x00\x00\x0bCOPY 2\x00" + READY

    with FakeServer(answer) as server, Connection(server.host, server.port) as connection:
        assert connection.copy_in("COPY t FROM STDIN", [b"1\n", b"2\n"]).tag == "COPY 2"


def test_the_end_of_an_answer_is_found_wherever_it_is_cut() -> None:
    row = b"D\x00\x00\x00\x0c\x00\x01\x00\x00\x00\x02Z0"
    answer = b"T\x00\x00\x00\x06\x00\x00" + 300 * row + b"C\x00\x00\x00\x0fSELECT 300\x00" + READY

    for size in (1, 2, 5, 7, 64, 2047, 2049, len(answer)):
        end = AnswerEnd()
        pieces = [answer[at : at + size] for at in range(0, len(answer), size)]
        assert [end.feed(piece) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
        assert (end.rows, end.error) == (300, None)


def test_an_error_in_the_middle_of_an_answer_ends_it() -> None:
    end = AnswerEnd()

    assert not end.feed(5000 * b"D\x00\x00\x00\x06\x00\x00")
    assert end.feed(ERROR)
    assert (end.rows, str(end.error)) == (0, "division by zero (22012)")


def test_an_answer_after_a_failed_one_has_no_error() -> None:
    end = AnswerEnd()
    end.feed(ERROR)

    assert end.feed(ANSWER)
    assert (end.rows, end.error) == (1, None)


def test_a_command_after_a_failed_query_has_no_error() -> None:
    end = AnswerEnd()
    end.feed(ERROR)

    assert end.feed(b"C\x00\x00\x00\x11CREATE TABLE\x00" + READY)
    assert (end.rows, end.error) == (0, None)
