"""Statements and sessions leave nothing to the garbage collector, which runs seldom in the server."""

from __future__ import annotations

import gc
import weakref

import pytest

from layby.trace.batch import Batch
from tests.adapter.harness import Client, Server
from tests.cycles import nothing_in_cycles


@pytest.fixture
def table(client: Client) -> None:
    client.run("CREATE TABLE t (k int, v int, x text)")
    client.run("INSERT INTO t SELECT g, g % 10, g::text FROM generate_series(1, 1000) g")
    client.run("CREATE INDEX t_k ON t (k)")
    client.run("CREATE TABLE u (k int PRIMARY KEY)")
    client.run("INSERT INTO u VALUES (1)")


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT * FROM t",
        "SELECT v, x FROM t WHERE k = 7 AND v < 5",
        "SELECT k + v AS sum FROM t WHERE v = 3 ORDER BY x DESC LIMIT 5 OFFSET 1",
        "SELECT x FROM t WHERE k IN (1, 2, 3) LIMIT 1 + 1",
        "SELECT g FROM generate_series(1, 100000) g WHERE g % 7 = 3",
        "INSERT INTO t VALUES (1, 2, 'x')",
        "UPDATE t SET v = v + 1 WHERE k BETWEEN 3 AND 50",
        "DELETE FROM t WHERE k = 5",
        "BEGIN; INSERT INTO t VALUES (1, 2, 'x'); SELECT * FROM t WHERE v = 2; ROLLBACK",
        "BEGIN; SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; COMMIT",
        "CREATE TABLE made (a int); CREATE INDEX made_a ON made (a); DROP TABLE made",
        "EXPLAIN ANALYZE SELECT * FROM t WHERE v = 1",
        "SELECT 1 / (k - 1) FROM t",
        "SELECT * FROM nothing",
        "INSERT INTO u VALUES (1)",
    ],
)
def test_a_statement_leaves_nothing_in_cycles(server: Server, sql: str) -> None:
    client = server.connect()
    client.send(sql)
    server.settle()
    with nothing_in_cycles():
        # The plan goes as well, since it is of an older catalog the next time.
        for each in ("CREATE TABLE later (a int)", sql, "DROP TABLE later", sql):
            client.send(each)
            server.settle()


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT x FROM t ORDER BY x",
        "INSERT INTO u VALUES (2)",
        "BEGIN; UPDATE t SET v = 0",
        "COPY t FROM STDIN",
    ],
)
def test_a_session_whose_client_goes_leaves_nothing_in_cycles(
    server: Server, sql: str, *, stepped: bool
) -> None:
    with nothing_in_cycles():
        client = server.connect()
        query = client.send(sql)
        if stepped:
            server.step()
        client.session.close()
        server.settle()
        del client, query


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    "sql",
    ["SELECT * FROM t", "SELECT x FROM t WHERE v = 3 ORDER BY x LIMIT 1 + 1", "SELECT * FROM t WHERE k = 3"],
)
def test_batches_that_a_statement_read_are_free_with_their_table(
    server: Server, client: Client, sql: str
) -> None:
    read = server.coordinator.state.snapshot(server.index_id("t_k"))
    assert read is not None
    batches = [weakref.ref(batch) for batch in read.oks]
    assert [type(batch()) for batch in batches] == [Batch]
    del read
    gc.disable()
    try:
        assert client.run(sql)
        client.run("DROP TABLE t")
        assert [batch() for batch in batches] == [None]
    finally:
        gc.enable()
