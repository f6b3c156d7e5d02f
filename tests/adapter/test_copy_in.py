from __future__ import annotations

import pytest

from layby.adapter.outcome import CopyInSink
from layby.errors import SqlError
from tests.adapter.harness import Client, Query, Server

MIB = 1 << 20


@pytest.fixture(autouse=True)
def table(client: Client) -> None:
    client.run("CREATE TABLE t (a int NOT NULL, b varchar(3) DEFAULT 'd', c int DEFAULT 40 + 2)")
    client.run("CREATE INDEX t_a ON t (a)")


def sink_of(query: Query) -> CopyInSink:
    assert query.sink is not None
    return query.sink


def copied(client: Client, sql: str, *pieces: bytes) -> SqlError:
    with pytest.raises(SqlError) as caught:
        client.copy(sql, *pieces)
    return caught.value


def test_rows_cut_anywhere_are_put_together(client: Client) -> None:
    data = b"1\tx\t7\n2\t\\N\t\\N\n3\ty\t9\n"
    assert client.copy("COPY t FROM STDIN", *(data[i : i + 1] for i in range(len(data)))) == "COPY 3"
    assert client.run("SELECT * FROM t WHERE a > 0 ORDER BY a") == [(1, "x", 7), (2, None, None), (3, "y", 9)]


def test_columns_that_are_not_named_get_their_defaults(client: Client) -> None:
    assert client.copy("COPY t (c, a) FROM STDIN", b"5\t1\n6\t2\n") == "COPY 2"
    assert client.copy("COPY t (a) FROM STDIN (FORMAT csv, HEADER)", b"a\n3\n") == "COPY 1"
    assert client.run("SELECT * FROM t ORDER BY a") == [(1, "d", 5), (2, "d", 6), (3, "d", 42)]


def test_no_rows_are_no_error(client: Client) -> None:
    assert client.copy("COPY t (a) FROM STDIN") == "COPY 0"
    assert client.run("SELECT * FROM t") == []


@pytest.mark.parametrize(
    ("data", "sqlstate", "message", "context"),
    [
        (
            b"1\tx\t1\nno\tx\t1\n",
            "22P02",
            'invalid input syntax for type integer: "no"',
            'COPY t, line 2, column a: "no"',
        ),
        (
            b"1\tx\t1\n2\tx\t99999999999\n",
            "22003",
            'value "99999999999" is out of range for type integer',
            'COPY t, line 2, column c: "99999999999"',
        ),
        (b"1\tx\t1\n2\tx\n", "22P04", 'missing data for column "c"', 'COPY t, line 2: "2\tx"'),
        (
            b"1\tx\t1\t1\n",
            "22P04",
            "extra data after last expected column",
            'COPY t, line 1: "1\tx\t1\t1"',
        ),
    ],
)
def test_a_bad_row_says_where_it_is(
    client: Client, data: bytes, sqlstate: str, message: str, context: str
) -> None:
    error = copied(client, "COPY t FROM STDIN", data)
    assert (error.sqlstate, error.message, error.context) == (sqlstate, message, context)
    assert client.run("SELECT * FROM t") == []


def test_rows_are_checked_as_those_of_an_insert(client: Client) -> None:
    assert copied(client, "COPY t FROM STDIN", b"\\N\tx\t1\n").sqlstate == "23502"
    assert copied(client, "COPY t FROM STDIN", b"1\tlong\t1\n").sqlstate == "22001"


def test_a_copy_in_a_block_is_part_of_it(client: Client) -> None:
    client.run("BEGIN")
    client.copy("COPY t (a) FROM STDIN", b"1\n2\n")
    assert client.run("SELECT a FROM t WHERE a = 2") == [(2,)]
    client.run("ROLLBACK")
    assert client.run("SELECT a FROM t") == []


def test_a_bad_row_fails_the_block(client: Client) -> None:
    client.run("BEGIN")
    copied(client, "COPY t (a) FROM STDIN", b"x\n")
    assert client.session.status == b"E"


def test_a_client_that_gives_up_is_answered_with_its_reason(server: Server, client: Client) -> None:
    query = client.send("COPY t (a) FROM STDIN")
    sink = sink_of(query)
    sink.feed(b"1\n")
    sink.abort(SqlError("57014", "COPY from stdin failed: enough"))
    assert query.error is not None
    assert query.error.message == "COPY from stdin failed: enough"
    sink.feed(b"2\n")
    sink.finish()
    server.settle()
    assert len(query.outcomes) == 1
    assert client.run("SELECT a FROM t") == []


@pytest.mark.parametrize("fed", [b"1\n", b"1\n" * MIB])
@pytest.mark.parametrize("finished", [False, True])
def test_a_copy_can_be_cancelled_at_any_point(
    server: Server, client: Client, fed: bytes, finished: bool
) -> None:
    query = client.send("COPY t (a) FROM STDIN")
    sink = sink_of(query)
    sink.feed(fed)
    if finished:
        sink.finish()
    client.session.cancel()
    assert query.error is not None
    assert query.error.sqlstate == "57014"
    server.settle()
    assert client.run("SELECT a FROM t LIMIT 1") == []


def test_a_copy_cancelled_while_its_rows_are_put_together_writes_nothing(
    server: Server, client: Client
) -> None:
    client.run("BEGIN; SAVEPOINT s")
    query = client.send("COPY t (a) FROM STDIN")
    sink_of(query).feed(b"1\n")
    sink_of(query).finish()
    assert server.maintenance.step(), "parsed"
    server.loop.turn()
    together = server.maintenance.jobs.popleft()
    client.session.cancel()
    assert query.error is not None
    client.run("ROLLBACK TO s")
    together()
    server.settle()
    client.run("COMMIT")
    assert client.run("SELECT a FROM t") == []


def test_statement_timeout_ends_a_copy_whose_client_is_silent(server: Server, client: Client) -> None:
    client.run("SET statement_timeout = '1s'")
    query = client.send("COPY t (a) FROM STDIN")
    ((delay, expire),) = server.loop.timers
    assert delay == 1.0
    expire()
    assert query.error is not None
    assert query.error.message == "canceling statement due to statement timeout"


def test_a_sender_that_is_too_fast_is_paused_until_half_is_parsed(server: Server, client: Client) -> None:
    query = client.send("COPY t (a) FROM STDIN")
    sink = sink_of(query)
    ready: list[str] = []
    sink.on_ready = lambda: ready.append("ready")
    piece = b"1234567\n" * (MIB // 8)
    fed = 1
    while sink.feed(piece):
        fed += 1
    assert fed == 17, "16 MiB may wait"
    assert server.maintenance.step()
    server.loop.turn()
    assert ready == [], "1 MiB less is not half"
    jobs = 1
    while not ready:
        assert server.maintenance.step()
        server.loop.turn()
        jobs += 1
    assert jobs == 9, "each job takes 1 MiB, however much waits: the loop copies what it takes"
    server.settle()
    assert ready == ["ready"]
    assert sink.feed(b"7\n")
    sink.finish()
    server.settle()
    assert query.result() == f"COPY {17 * MIB // 8 + 1}"
    assert client.run("SELECT a FROM t WHERE a = 7") == [(7,)]
    assert ready == ["ready"]
