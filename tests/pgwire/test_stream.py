"""Answers from the stash: fetched as the client takes them, under row limits, given up on every way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from layby.adapter.outcome import CommandOutcome, CopyOutOutcome, RowsOutcome
from layby.errors import SqlError
from layby.peek.answer import EncodedRows, Rows
from layby.pgwire.data_row import DataRowEncoder
from layby.types.column import column_from_values
from layby.types.scalar import INTEGER
from tests.cycles import nothing_in_cycles
from tests.pgwire.fakes import INT_ROWS, Client, FakeSession, Later, command_body, int_row
from tests.pgwire.frontend import SYNC, bind, close, errors, execute, kinds, message, parse, query, split

_BROKEN = SqlError("58030", "could not read an answer from the stash")
_CANCELLED = SqlError("57014", "canceling statement due to user request")


def encoded(values: list[int]) -> EncodedRows:
    return DataRowEncoder((INTEGER,), (0,))([column_from_values(INTEGER, values)], len(values))


@dataclass
class FakeSource:
    """Brings pieces when the test says so, or at once where `eager`."""

    pieces: list[EncodedRows | SqlError]
    eager: bool = False
    fetches: int = 0
    closed: int = 0
    on_cancel: Callable[[SqlError], None] | None = None
    waiting: list[Callable[[Rows | SqlError], None]] = field(default_factory=list)

    def fetch(self, then: Callable[[Rows | SqlError], None]) -> bool:
        assert not self.waiting, "two fetches at once"
        assert not self.closed
        if not self.pieces:
            return False
        self.fetches += 1
        self.waiting.append(then)
        if self.eager:
            self.bring()
        return True

    def bring(self) -> None:
        piece = self.pieces.pop(0)
        then = self.waiting.pop()
        then(piece if isinstance(piece, SqlError) else Rows(piece.count, (), piece))

    def close(self) -> None:
        self.closed += 1
        self.pieces.clear()
        self.waiting.clear()


def source(*pieces: list[int] | SqlError, eager: bool = False) -> FakeSource:
    return FakeSource([p if isinstance(p, SqlError) else encoded(p) for p in pieces], eager)


def client_of(stash: FakeSource, *, tag: str = "SELECT 5") -> Client:
    """Return a client whose query "a" comes to a stashed answer, by callback, and "b" to a command."""
    outcome = RowsOutcome(INT_ROWS, tag, 5, None, stash=stash)
    return Client(FakeSession({"a": Later(outcome), "b": CommandOutcome("B")}))


def brought(client: Client, stash: FakeSource) -> bytes:
    stash.bring()
    client.run_turns()
    return client.received()


@pytest.mark.parametrize("eager", [False, True])
def test_the_pieces_of_a_stashed_answer_are_sent_in_order_and_completed(eager: bool) -> None:
    stash = source([1, 2], [3], [4, 5], eager=eager)
    client = client_of(stash)
    client.send(query("a"))
    answer = client.deliver()
    if not eager:
        for _ in range(3):
            answer += brought(client, stash)
    assert split(answer)[1:] == [*map(int_row, range(1, 6)), command_body("SELECT 5"), ("Z", b"I")]
    assert kinds(answer)[0] == "T"
    assert stash.on_cancel is None


def test_what_comes_behind_a_stashed_answer_waits_for_its_end() -> None:
    stash = source([1, 2], [3, 4, 5])
    client = client_of(stash)
    client.send(query("a; b") + query("b"))
    client.deliver()
    assert client.session.calls[-1] == ("run", "a")
    brought(client, stash)
    assert client.session.calls[-1] == ("run", "a")
    answer = brought(client, stash)
    assert kinds(answer).endswith("DDDCCZCZ")


def test_a_piece_is_fetched_only_once_the_transport_has_taken_the_one_before() -> None:
    large = list(range(40_000))
    stash = source(large, large, [1])
    client = client_of(stash)
    client.send(query("a"))
    client.deliver()
    client.room = 100_000
    brought(client, stash)
    assert (stash.fetches, len(stash.waiting)) == (1, 0)
    while stash.fetches == 1:
        assert client.connection._output.blocked
        client.room = 200_000
        client.connection.resume_writing()
        client.run_turns()
    sent = sum(map(len, client.writes))
    assert sent >= len(encoded(large).data)
    client.connection.pause_writing()
    brought(client, stash)
    assert sum(map(len, client.writes)) == sent
    assert stash.fetches == 2
    client.room = None
    client.connection.resume_writing()
    client.run_turns()
    assert stash.fetches == 3
    brought(client, stash)
    assert client.writes[-1].endswith(b"Z\0\0\0\x05I")


def test_small_pieces_are_not_kept_until_the_end() -> None:
    small = list(range(4_000))
    stash = source(*[small] * 5)
    client = client_of(stash)
    client.send(query("a"))
    client.deliver()
    assert brought(client, stash) == b""
    assert kinds(brought(client, stash)) == "T" + "D" * 8_000


def test_a_piece_that_fails_ends_the_answer_with_the_error() -> None:
    stash = source([1, 2], _BROKEN, [3])
    client = client_of(stash)
    client.send(query("a; b"))
    client.deliver()
    brought(client, stash)
    answer = brought(client, stash)
    assert kinds(answer) == "TDDEZ"
    assert errors(answer)[0]["C"] == "58030"
    assert stash.closed >= 1
    assert client.session.calls[-2:] == [("fail",), ("sync",)]


@pytest.mark.parametrize("fetching", [True, False])
def test_a_cancellation_ends_the_answer_that_is_on_its_way(fetching: bool) -> None:
    stash = source([1, 2], list(range(40_000)), [3])
    client = client_of(stash)
    client.send(query("a"))
    client.deliver()
    answer = brought(client, stash)
    if not fetching:
        client.room = 1
        answer += brought(client, stash)
    assert stash.on_cancel is not None
    stash.on_cancel(_CANCELLED)
    client.run_turns()
    if not fetching:
        client.room = None
        client.connection.resume_writing()
        client.run_turns()
    answer += client.received()
    assert kinds(answer).endswith("DEZ")
    assert errors(answer)[0]["C"] == "57014"
    assert stash.closed >= 1
    assert stash.on_cancel is None


def test_a_client_that_goes_away_gives_the_rest_up() -> None:
    stash = source([1, 2], [3])
    client = client_of(stash)
    client.send(query("a"))
    client.deliver()
    client.connection.connection_lost()
    assert (stash.closed, stash.on_cancel) == (1, None)
    assert client.ended == 1


def test_a_client_that_ends_in_the_middle_of_a_stashed_answer_gives_the_rest_up() -> None:
    stash = source([1, 2], [3])
    client = client_of(stash)
    client.send(query("a"))
    client.deliver()
    client.connection.eof_received()
    assert stash.closed == 1
    assert client.closed


# Row limits


def begin_portal(stash: FakeSource, limit: int, name: str = "") -> tuple[Client, bytes]:
    client = client_of(stash)
    client.session.status = b"T"
    assert kinds(client.send(parse("", "a") + bind(name) + message("H"))) == "12"
    client.send(execute(name, limit) + message("H"))
    return client, client.deliver()


def test_a_row_limit_cuts_across_pieces() -> None:
    stash = source([1, 2], [3, 4], [5], eager=True)
    client, answer = begin_portal(stash, 3)
    assert split(answer) == [int_row(1), int_row(2), int_row(3), ("s", b"")]
    assert stash.fetches == 2
    assert stash.on_cancel is None
    answer = client.send(execute("", 1) + message("H"))
    assert split(answer) == [int_row(4), ("s", b"")]
    assert stash.fetches == 2
    answer = client.send(execute("", 5) + message("H"))
    assert split(answer) == [int_row(5), command_body("SELECT 1")]
    answer = client.send(execute("", 5) + message("H"))
    assert split(answer) == [command_body("SELECT 0")]


def test_a_fetch_that_gets_exactly_what_is_left_is_suspended() -> None:
    client, answer = begin_portal(source([1, 2], [3], eager=True), 3)
    assert kinds(answer) == "DDDs"
    assert split(client.send(execute("", 3) + message("H"))) == [command_body("SELECT 0")]


def test_a_limited_execute_waits_for_pieces_that_come_later() -> None:
    stash = source([1, 2], [3, 4])
    client, answer = begin_portal(stash, 3)
    answer += brought(client, stash)
    answer += brought(client, stash)
    assert kinds(answer) == "DDDs"
    assert stash.fetches == 2
    assert kinds(client.send(execute() + SYNC)) == "DCZ"


def test_without_a_limit_the_tag_counts_the_whole_answer() -> None:
    stash = source([1, 2], [3, 4, 5], eager=True)
    _, answer = begin_portal(stash, 0)
    assert split(answer) == [*map(int_row, range(1, 6)), command_body("SELECT 5")]


@pytest.mark.parametrize(
    "ending", [close("P", "p"), parse("x", "b") + bind("p", "x"), message("X"), query("b")]
)
def test_a_suspended_portal_that_is_closed_gives_the_rest_up(ending: bytes) -> None:
    stash = source([1, 2], [3, 4], eager=True)
    client, _ = begin_portal(stash, 1, "p")
    assert stash.closed == 0
    client.session.status = b"I"
    client.send(ending)
    assert stash.closed == 1


def test_an_error_while_a_portal_streams_skips_to_the_sync() -> None:
    stash = source([1, 2], _BROKEN)
    client, _ = begin_portal(stash, 0)
    brought(client, stash)
    client.send(execute() + parse("", "b"))
    brought(client, stash)
    assert client.session.calls[-1] == ("fail",)
    answer = client.send(SYNC)
    assert kinds(answer) == "Z"


# COPY


def test_copy_to_streams_from_the_stash_too() -> None:
    stash = FakeSource([EncodedRows(b"d\0\0\0\x061\n", [7], 1), EncodedRows(b"d\0\0\0\x062\n", [7], 1)])
    outcome = CopyOutOutcome("COPY 2", 1, EncodedRows(b"", (), 0), b"n\n", stash)
    client = Client(FakeSession({"a": Later(outcome)}))
    client.send(query("a"))
    answer = client.deliver() + brought(client, stash) + brought(client, stash)
    found = split(answer)
    assert [kind for kind, _ in found] == ["H", "d", "d", "d", "c", "C", "Z"]
    assert [body for kind, body in found if kind == "d"] == [b"n\n", b"1\n", b"2\n"]
    assert found[-2] == command_body("COPY 2")


@pytest.mark.parametrize("extended", [False, True])
def test_a_copy_that_cannot_be_read_to_its_end_fails(extended: bool) -> None:
    stash = FakeSource([EncodedRows(b"d\0\0\0\x061\n", [7], 1), _BROKEN])
    outcome = CopyOutOutcome("COPY 2", 1, EncodedRows(b"", (), 0), b"", stash)
    client = Client(FakeSession({"a": Later(outcome)}))
    client.send(parse("", "a") + bind() + execute() + SYNC if extended else query("a"))
    answer = client.deliver() + brought(client, stash) + brought(client, stash)
    assert kinds(answer) == ("12" if extended else "") + "HdEZ"
    assert errors(answer)[0]["C"] == "58030"


# Memory


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_client_that_goes_after_or_within_a_stashed_answer_leaves_nothing_in_cycles(
    extended: bool, pieces: int
) -> None:
    with nothing_in_cycles():
        stash = source([1, 2], [3])
        client = client_of(stash)
        client.send(parse("", "a") + bind() + execute() + SYNC if extended else query("a"))
        client.deliver()
        for _ in range(pieces):
            brought(client, stash)
        client.connection.connection_lost()
        del client.connection, client, stash  # the fake transport and its connection are a cycle themselves
