"""EXPLAIN ANALYZE: the statement is run, and the figures are those of its walk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from layby.persist.folder import FolderBlob
from tests.adapter.harness import Client, Server


@pytest.fixture
def table(server: Server, client: Client) -> Iterator[Server]:
    """A server with a table of a hundred rows and an index."""
    client.run("CREATE TABLE t (a int, b int)")
    client.run("INSERT INTO t SELECT g, g FROM generate_series(1, 100) AS g")
    client.run("CREATE INDEX by_a ON t (a)")
    yield server
    server.coordinator.parameters.reset()
    server.coordinator.parameters.set("enable_compute_index_peek_offload", "on")


def lines(client: Client, sql: str) -> list[str]:
    """Return the lines of a plan, with every time as `#`."""
    return [re.sub(r"[\d.]+ ms", "# ms", row[0]) for row in client.run(sql)]


PHASES = [
    "  Cursor setup: # ms",
    "  Error scan: # ms",
    "  Row iteration: # ms",
    "  Result sort: # ms",
    "  Row collection: # ms",
    "Execution Time: # ms",
]


def test_an_inline_peek_tells_its_positions_rows_and_phases(table: Server, client: Client) -> None:
    assert lines(client, "EXPLAIN ANALYZE SELECT b FROM t WHERE a IN (3, 5)") == [
        "Peek at index by_a on t",
        "  Key: (a IN (3, 5))",
        "  Substrate: inline",
        "  Positions: 2 inline, 0 offloaded",
        "  Rows: 2",
        "  Frontier check: # ms",
        "  Inline slice: # ms",
        *PHASES,
    ]


def test_an_offloaded_walk_tells_what_it_visited_on_each_substrate(table: Server, client: Client) -> None:
    table.coordinator.parameters.set("compute_index_peek_inline_budget", "30")
    found = lines(client, "EXPLAIN ANALYZE SELECT a FROM t WHERE b <= 60")
    assert found == [
        "Walk of index by_a on t",
        "  Filter: (b <= 60)",
        "  Substrate: offloaded",
        "  Positions: 30 inline, 70 offloaded",
        "  Rows: 60",
        "  Frontier check: # ms",
        "  Inline slice: # ms",
        "  Permit wait: # ms",
        "  Offloaded, permit wait included: # ms",
        *PHASES,
    ]
    assert table.coordinator.metrics.walks_offloaded == 1


def test_the_statement_is_really_run(table: Server, client: Client) -> None:
    before = table.coordinator.metrics.walks_inline
    client.run("EXPLAIN ANALYZE SELECT a FROM t")
    assert table.coordinator.metrics.walks_inline == before + 1
    assert client.fails("EXPLAIN ANALYZE SELECT 1 / (a - a) FROM t") == ("22012", "division by zero")


def test_plain_explain_runs_nothing(table: Server, client: Client) -> None:
    before = table.coordinator.metrics.walks_inline
    assert lines(client, "EXPLAIN SELECT 1 / (a - a) FROM t")[0].startswith("Walk of")
    assert table.coordinator.metrics.walks_inline == before


def test_a_read_of_a_transactions_own_rows_is_analyzed_too(table: Server, client: Client) -> None:
    client.run("BEGIN")
    client.run("INSERT INTO t VALUES (3, 0)")
    found = lines(client, "EXPLAIN (ANALYZE) SELECT b FROM t WHERE a = 3")
    assert "  Positions: 2 inline, 0 offloaded" in found
    client.run("ROLLBACK")


def test_it_can_be_cancelled_while_it_walks(table: Server, client: Client) -> None:
    table.coordinator.parameters.set("compute_index_peek_inline_budget", "30")
    query = client.send("EXPLAIN ANALYZE SELECT a FROM t")
    client.session.cancel()
    assert query.error is not None
    assert query.error.sqlstate == "57014"
    table.settle()
    assert table.coordinator.metrics.walks_offloaded == 0


def test_a_stashed_answer_is_told_and_deleted(tmp_path: Path) -> None:
    blob = FolderBlob(tmp_path, durable=False)
    server = Server(
        blob=blob,
        compute_index_peek_inline_budget=10,
        compute_index_peek_yield_granularity=50,
        peek_response_stash_threshold_bytes="0",
    )
    client = server.connect()
    client.run("CREATE TABLE t (a int)")
    client.run("INSERT INTO t SELECT g FROM generate_series(1, 100) AS g")
    found = lines(client, "EXPLAIN ANALYZE SELECT a FROM t")
    [stash] = [line for line in found if line.startswith("  Stash: ")]
    assert re.fullmatch(r"  Stash: 2 parts, [1-9]\d* bytes", stash)
    assert "  Rows: 100" in found
    assert server.coordinator.metrics.stashed == 1
    assert server.coordinator.metrics.stash_bytes == 0
    assert blob.list_keys("") == []
    client.session.close()
    server.settle()
    server.assert_nothing_leaked()


@pytest.mark.parametrize(
    "sql",
    [
        "EXPLAIN ANALYZE INSERT INTO t VALUES (7, 7)",
        "EXPLAIN ANALYZE DELETE FROM t",
        "EXPLAIN ANALYZE SELECT pg_cancel_backend(1)",
    ],
)
def test_what_changes_something_is_refused_and_not_done(table: Server, client: Client, sql: str) -> None:
    assert client.fails(sql)[0] == "0A000"
    assert len(client.run("SELECT a FROM t")) == 100
