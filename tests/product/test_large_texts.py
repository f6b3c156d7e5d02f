"""Texts of many bytes, from the wire to the plan: the loop hands them on, and comes to what short ones do."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from layby.adapter import long_texts
from layby.compute import runtime
from layby.compute.runtime import Job
from layby.memory.arena import Arena
from layby.pgwire import codec
from layby.sql import statement_text
from layby.sql.pack import PackedPlan, pack
from layby.sql.plan import PlannedStatement
from layby.sql.statement_text import LARGE_TEXT
from layby.types.text import decode_text
from tests.adapter.harness import Server
from tests.pgwire.frontend import SYNC, bind, errors, execute, kinds, message, parse, query, split
from tests.product.wire import Wire

PADDING = "/*" + "é" * LARGE_TEXT + "*/"
LARGE = "x" * (LARGE_TEXT + 1)
PIECE = 1 << 16


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def wire(server: Server) -> Wire:
    wire = Wire(server)
    wire.run("CREATE TABLE t (a int, b text)")
    wire.run("CREATE INDEX t_a ON t (a)")
    wire.run("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    return wire


@pytest.fixture(autouse=True)
def decoded_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Note how many bytes are decoded at a time but in jobs: never many."""
    lengths: list[int] = []
    jobs: list[Job] = []

    def run_job(job: Job, arena: Arena) -> object:
        jobs.append(job)
        try:
            return run(job, arena)
        finally:
            jobs.pop()

    def noting(decode: Callable[[bytes], str]) -> Callable[[bytes], str]:
        def noted(data: bytes) -> str:
            if not jobs:
                lengths.append(len(data))
            return decode(data)

        return noted

    run = runtime.run_job
    monkeypatch.setattr(runtime, "run_job", run_job)
    monkeypatch.setattr(statement_text, "decode_text", noting(decode_text))
    monkeypatch.setattr(codec, "utf8", noting(codec.utf8))
    yield lengths
    assert max(lengths) <= LARGE_TEXT


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the bytes that the loop unpacks of each plan that was made apart."""
    lengths: list[int] = []

    def noting(planned: PlannedStatement, arena: Arena) -> PackedPlan:
        packed = pack(planned, arena)
        lengths.append(len(packed.data))
        return packed

    monkeypatch.setattr(long_texts, "pack", noting)
    return lengths


def sent(wire: Wire, data: bytes) -> bytes:
    """Send bytes as the transport reads them; return what is written in answer at once."""
    return b"".join(wire.send(data[at : at + PIECE]) for at in range(0, len(data), PIECE))


def talked(wire: Wire, data: bytes) -> bytes:
    """Send, and return all that is written in answer."""
    found = sent(wire, data)
    wire.server.settle()
    return found + wire.received()


def rows(data: bytes) -> list[bytes]:
    return [body[6:] for kind, body in split(data) if kind == "D"]


def test_a_large_query_is_answered_once_a_job_has_read_it(wire: Wire) -> None:
    assert sent(wire, query(f"SELECT b FROM t WHERE a = 2 {PADDING}")) == b""
    wire.server.settle()
    answer = wire.received()
    assert kinds(answer) == "TDCZ"
    assert rows(answer) == [b"two"]


def test_the_statements_of_a_large_script_are_cut_where_they_begin(wire: Wire) -> None:
    script = f"SELECT 'é{LARGE}'; SELECT b FROM t WHERE a = 1; {PADDING}; SELECT 'ü' {PADDING}; SELECT 'ö'"
    answer = talked(wire, query(script))
    assert kinds(answer) == "TDC" * 4 + "Z"
    assert rows(answer) == [f"é{LARGE}".encode(), b"one", "ü".encode(), "ö".encode()]


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        (f"SELECT 'é'; {PADDING} SELECT nope", "nope"),
        (f"SELECT 'é'; SELECT nope; SELECT 1 {PADDING}", "nope"),
        (f"SELECT 'é'; {PADDING}; SELEC nope", "SELEC"),
        (f"SELECT 'é' || {PADDING} nope", "nope"),
        (f"SELECT 'é'; SELECT 1 {PADDING}; SELECT 2 + nope", "nope"),
        (f"SELECT 'é'; SELECT 1 {PADDING} + nope", "nope"),
    ],
)
def test_an_error_has_its_position_in_characters_of_the_whole_script(
    wire: Wire, sql: str, place: str
) -> None:
    (error,) = errors(talked(wire, query(sql)))
    assert error["P"] == str(sql.rindex(place) + 1)


def test_a_large_text_is_prepared_and_runs_with_each_binding(wire: Wire) -> None:
    prepared = parse("s", f"SELECT b FROM t WHERE a = $1 {PADDING}", [23])
    assert sent(wire, prepared + SYNC) == b""
    wire.server.settle()
    assert kinds(wire.received()) == "1Z"
    for value, found in ((b"1", b"one"), (b"2", b"two")):
        assert rows(talked(wire, bind("", "s", [value]) + execute() + SYNC)) == [found]
    # Its plan is made again under the next catalog.
    wire.run("CREATE INDEX t_b ON t (b)")
    assert rows(talked(wire, bind("", "s", [b"2"]) + execute() + SYNC)) == [b"two"]
    assert errors(talked(wire, parse("s", f"SELECT 1 {PADDING}") + SYNC))[0]["C"] == "42P05"


def test_many_types_of_a_large_parse_are_read(wire: Wire) -> None:
    cells = ", ".join(f"(${n})" for n in range(1, 301))
    values = [f"v{n}".encode() for n in range(1, 301)]
    data = parse("", f"VALUES {cells} {PADDING}", [25] * 300) + bind("", "", values) + execute() + SYNC
    assert rows(talked(wire, data)) == values


@pytest.mark.parametrize("extended", [False, True])
def test_bytes_that_are_no_text_fail_their_statement(wire: Wire, extended: bool) -> None:
    text = f"SELECT 1 {PADDING}".encode() + b"\xff"
    data = message("P", b"\0" + text + b"\0\0\0") + bind() + SYNC if extended else message("Q", text + b"\0")
    assert sent(wire, data) == b""
    wire.server.settle()
    answer = wire.received()
    assert kinds(answer) == "EZ"
    (error,) = errors(answer)
    assert (error["S"], error["C"]) == ("ERROR", "22021")
    assert error["M"] == 'invalid byte sequence for encoding "UTF8": 0xff'
    assert rows(talked(wire, query("SELECT 7"))) == [b"7"]


def test_a_message_tells_the_beginning_of_what_it_quotes(wire: Wire) -> None:
    (error,) = errors(talked(wire, query(f"SELECT 1 '{LARGE}'")))
    assert (error["C"], error["P"]) == ("42601", "10")
    assert error["M"].startswith("syntax error at or near \"'xxx")
    assert (len(error["M"]), error["M"][-4:]) == (1_027, "x...")
    (error,) = errors(talked(wire, query(f"SELECT '{LARGE}'::int")))
    assert (error["C"], len(error["M"])) == ("22P02", 1_027)


def test_an_active_peek_shows_the_beginning_of_its_query(wire: Wire) -> None:
    wire.server.coordinator.parameters.set("compute_index_peek_inline_budget", "1")
    sent(wire, query(f"SELECT a /* é{LARGE} */ FROM t"))
    while not wire.server.pool.walks:
        assert wire.server.step()
    other = Wire(wire.server)
    (shown,) = rows(other.run("SELECT query FROM layby_active_peeks"))
    assert shown.decode() == f"SELECT a /* é{LARGE}"[:1_023] + "..."
    wire.server.settle()
    assert rows(wire.received()) == [b"1", b"2"]


def test_a_client_that_hangs_up_in_a_message_leaves_nothing(wire: Wire) -> None:
    sent(wire, query(LARGE)[:-1_000])
    large: Any = wire.connection._decoder._large
    data = weakref.ref(large.data)
    del large
    assert data() is not None
    wire.vanish()
    assert data() is None


def test_a_cancelled_text_is_let_go_once_its_job_has_ended(wire: Wire) -> None:
    sent(wire, query(f"SELECT 1 {PADDING}")[:-1])
    large: Any = wire.connection._decoder._large
    data = weakref.ref(large.data)
    del large
    assert wire.send(b"\0") == b""
    wire.request_cancel()
    assert errors(wire.received())[0]["C"] == "57014"
    wire.server.settle()
    assert data() is None


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT a FROM t WHERE b = '{}' OR a = 1", [b"1"]),
        ("SELECT a FROM t WHERE b < '{}' ORDER BY a", [b"1", b"2"]),
        ("SELECT length(b || '{}') FROM t WHERE a = 1", [str(LARGE_TEXT + 4).encode()]),
        ("SELECT length(current_user || '{}')", [str(LARGE_TEXT + 6).encode()]),
        ("SELECT a FROM t WHERE a IN (1, length('{}')) ORDER BY b || '{}'", [b"1"]),
        ("SELECT a FROM generate_series(1, length('{}')) g (a) LIMIT 1", [b"1"]),
        ("SELECT a FROM t ORDER BY a LIMIT length('{}')", [b"1", b"2"]),
    ],
)
@pytest.mark.parametrize("indexed", [False, True])
def test_a_large_constant_is_no_part_of_what_the_loop_holds_of_a_plan(
    wire: Wire, sql: str, found: list[bytes], indexed: bool, plans: list[int]
) -> None:
    if indexed:
        wire.run("CREATE INDEX t_b ON t (b)")
    assert rows(talked(wire, query(sql.replace("{}", LARGE)))) == found
    assert max(plans) <= 4_096


def test_rows_are_written_by_large_constants(wire: Wire, plans: list[int]) -> None:
    assert kinds(talked(wire, query(f"UPDATE t SET b = b || '{LARGE}' WHERE a = 1"))) == "CZ"
    assert kinds(talked(wire, query(f"INSERT INTO t VALUES (3, '{LARGE}')"))) == "CZ"
    assert rows(talked(wire, query(f"SELECT a FROM t WHERE b = 'one{LARGE}'"))) == [b"1"]
    assert kinds(talked(wire, query(f"DELETE FROM t WHERE b = '{LARGE}'"))) == "CZ"
    assert rows(wire.run("SELECT a FROM t ORDER BY a")) == [b"1", b"2"]
    assert max(plans) <= 4_096


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE d (a text DEFAULT '{}')",
        "CREATE INDEX ON t ((b || '{}'))",
        "SET search_path = '{}'",
    ],
)
def test_ddl_and_settings_that_are_too_large_to_be_kept_are_refused(wire: Wire, sql: str) -> None:
    (error,) = errors(talked(wire, query(sql.replace("{}", "x" * (1 << 20)))))
    assert (error["C"], error["M"]) == ("54000", "statement is too large")


def test_explain_shows_the_beginning_of_a_large_constant(wire: Wire, plans: list[int]) -> None:
    shown = rows(talked(wire, query(f"EXPLAIN SELECT a FROM t WHERE b = '{LARGE}'")))
    assert shown == [b"Walk of index t_a on t", b"  Filter: (b = '" + b"x" * (32_768 - 16) + b"..."]
    assert max(plans) <= 65_536
