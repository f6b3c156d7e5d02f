from __future__ import annotations

import pytest

from layby.errors import SqlError
from tests.adapter.harness import Client, Server


@pytest.fixture(autouse=True)
def table(client: Client) -> None:
    client.run("CREATE TABLE t (a int, b text)")
    client.run("CREATE INDEX t_a ON t (a)")
    client.run("CREATE INDEX t_b ON t (b)")


def test_writes_outside_a_block_answer_with_their_tags(client: Client) -> None:
    assert client.run("INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'z')") == "INSERT 0 3"
    assert client.run("UPDATE t SET b = 'w' WHERE a >= 2") == "UPDATE 2"
    assert client.run("DELETE FROM t WHERE a = 1") == "DELETE 1"
    assert client.run("DELETE FROM t WHERE a = 1") == "DELETE 0"
    assert client.run("SELECT * FROM t ORDER BY a") == [(2, "w"), (3, "w")]


def test_the_status_follows_the_block(client: Client) -> None:
    assert client.session.status == b"I"
    assert client.run("BEGIN") == "BEGIN"
    assert client.session.status == b"T"
    assert client.fails("SELECT 1 / 0") == ("22012", "division by zero")
    assert client.session.status == b"E"
    assert client.fails("SELECT 1") == (
        "25P02",
        "current transaction is aborted, commands ignored until end of transaction block",
    )
    assert client.fails("BEGIN")[0] == "25P02"
    assert client.run("COMMIT") == "ROLLBACK"
    assert client.session.status == b"I"
    assert client.run("SELECT 1") == [(1,)]


def test_a_rolled_back_block_leaves_nothing(client: Client) -> None:
    client.run("BEGIN")
    client.run("INSERT INTO t VALUES (1, 'x')")
    assert client.run("ROLLBACK") == "ROLLBACK"
    assert client.run("SELECT * FROM t") == []


def test_a_failed_block_keeps_none_of_its_writes(client: Client) -> None:
    client.run("BEGIN")
    client.run("INSERT INTO t VALUES (1, 'x')")
    client.fails("SELECT 1 / 0")
    client.run("COMMIT")
    assert client.run("SELECT * FROM t") == []


@pytest.mark.parametrize("where", ["a = 1", "b = 'x'", "a + 0 = 1"])
def test_a_block_sees_its_own_writes_by_every_index_and_by_none(client: Client, where: str) -> None:
    client.run("BEGIN")
    client.run("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    assert client.run(f"SELECT * FROM t WHERE {where}") == [(1, "x")]
    assert client.run(f"UPDATE t SET b = 'w' WHERE {where}") == "UPDATE 1"
    assert client.run("SELECT * FROM t WHERE b = 'x'") == []
    assert client.run("SELECT * FROM t WHERE b = 'w'") == [(1, "w")]
    assert client.run("DELETE FROM t WHERE a = 1") == "DELETE 1"
    assert client.run("SELECT * FROM t") == [(2, "y")]
    client.run("COMMIT")
    assert client.run("SELECT * FROM t WHERE a >= 0") == [(2, "y")]
    assert client.run("SELECT * FROM t WHERE b >= ''") == [(2, "y")]


def test_a_large_own_write_is_seen_as_well(client: Client) -> None:
    client.run("BEGIN")
    assert client.run("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 5000) AS g") == "INSERT 0 5000"
    assert client.run("SELECT a FROM t WHERE a = 4711") == [(4711,)]
    assert client.run("UPDATE t SET b = 'y' WHERE a > 10") == "UPDATE 4990"
    client.run("COMMIT")
    assert client.run("SELECT a FROM t WHERE b = 'x' ORDER BY a LIMIT 2 OFFSET 8") == [(9,), (10,)]


def test_a_block_reads_one_snapshot(client: Client, other: Client) -> None:
    client.run("INSERT INTO t VALUES (1, 'x')")
    client.run("BEGIN")
    assert client.run("SELECT a FROM t") == [(1,)]
    other.run("INSERT INTO t VALUES (2, 'y')")
    other.run("DELETE FROM t WHERE a = 1")
    assert client.run("SELECT a FROM t") == [(1,)]
    assert client.run("SELECT a FROM t WHERE b = 'y'") == []
    client.run("COMMIT")
    assert client.run("SELECT a FROM t") == [(2,)]


def test_the_snapshot_is_taken_at_the_first_read(client: Client, other: Client) -> None:
    client.run("BEGIN")
    other.run("INSERT INTO t VALUES (2, 'y')")
    assert client.run("SELECT a FROM t") == [(2,)]


def test_a_block_is_invisible_to_others_until_it_commits_and_then_all_at_once(
    server: Server, client: Client, other: Client
) -> None:
    client.run("CREATE TABLE u (a int)")
    client.run("BEGIN")
    client.run("INSERT INTO t VALUES (1, 'x')")
    client.run("INSERT INTO u VALUES (1)")
    assert other.run("SELECT a FROM t") == []
    commit = client.send("COMMIT")
    seen: list[tuple[int, int]] = []
    while not commit.done:
        assert server.step()
        reads = [other.send("SELECT a FROM t"), other.send("SELECT a FROM u")]
        seen.append((len(reads[0].result()), len(reads[1].result())))
    assert set(seen) == {(0, 0), (1, 1)}


def test_compaction_leaves_what_an_open_block_reads(server: Server, client: Client, other: Client) -> None:
    other.run("INSERT INTO t VALUES (1, 'x')")
    client.run("BEGIN")
    client.run("SELECT a FROM t")
    snapshot = client.session.block.transaction
    assert snapshot is not None
    assert snapshot.snapshot is not None
    for n in range(2, 20):
        other.run(f"UPDATE t SET a = {n}")
        server.maintenance.maintenance.work()
    assert server.coordinator._compaction_frontier <= snapshot.snapshot
    assert client.run("SELECT a FROM t WHERE a > 0") == [(1,)]
    client.run("COMMIT")
    other.run("UPDATE t SET a = 20")
    assert server.coordinator._compaction_frontier == server.coordinator.state.upper - 1


def test_compaction_leaves_what_a_read_that_waits_for_its_turn_reads(server: Server, other: Client) -> None:
    other.run("INSERT INTO t VALUES (1, 'x')")
    coordinator = server.coordinator
    before = coordinator.state.upper - 1
    coordinator.parameters.set("compute_index_peek_activation_budget", "1")
    write = other.send("INSERT INTO t VALUES (2, 'y')")  # takes what this turn has for reads
    reads = [server.connect().send("SELECT a FROM t") for _ in range(2)]
    assert server.commits.step()
    assert server.maintenance.step()
    assert server.loop.turn()
    assert (write.done, [read.done for read in reads]) == (True, [True, False])
    assert coordinator._compaction_frontier == before < coordinator.state.upper - 1
    server.settle()
    assert [read.result() for read in reads] == [[(1,)], [(1,)]]


def test_a_large_overlay_being_arranged_keeps_its_history(
    server: Server, client: Client, other: Client
) -> None:
    other.run("INSERT INTO t VALUES (0, 'old')")
    script = "INSERT INTO t SELECT g, 'x' FROM generate_series(1, 5000) AS g; SELECT a FROM t WHERE b = 'old'"
    query = client.send(script)
    while len(query.outcomes) < 1 or not server.maintenance.jobs:
        assert server.step()
    (job,) = server.maintenance.jobs
    server.maintenance.jobs.clear()
    for n in range(3):
        other.run(f"INSERT INTO t VALUES ({-n}, 'more')")
        server.maintenance.maintenance.work()
    job()
    server.settle()
    assert query.error is None
    assert query.result() == [(0,)]


def test_the_statements_of_one_query_are_one_transaction(client: Client) -> None:
    assert client.fails("INSERT INTO t VALUES (1, 'x'); SELECT 1 / 0") == ("22012", "division by zero")
    assert client.run("SELECT * FROM t") == []


def test_begin_in_a_query_keeps_what_came_before_it(client: Client) -> None:
    client.run("INSERT INTO t VALUES (1, 'x'); BEGIN; INSERT INTO t VALUES (2, 'y')")
    assert client.session.status == b"T"
    client.run("ROLLBACK")
    assert client.run("SELECT * FROM t") == []


def test_rollback_without_a_block_takes_back_what_the_query_did(client: Client) -> None:
    client.run("INSERT INTO t VALUES (1, 'x'); ROLLBACK; INSERT INTO t VALUES (2, 'y')")
    assert client.run("SELECT * FROM t") == [(2, "y")]


def test_commit_without_a_block_keeps_what_the_query_did(client: Client) -> None:
    client.fails("INSERT INTO t VALUES (1, 'x'); COMMIT; SELECT 1 / 0")
    assert client.run("SELECT * FROM t") == [(1, "x")]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("COMMIT", "there is no transaction in progress"),
        ("ROLLBACK", "there is no transaction in progress"),
        ("BEGIN; BEGIN", "there is already a transaction in progress"),
    ],
)
def test_a_needless_transaction_statement_warns(client: Client, sql: str, message: str) -> None:
    client.run(sql)
    assert [(n.severity, n.message) for n in client.session.take_notices()] == [("WARNING", message)]


@pytest.mark.parametrize(
    ("sql", "verb"),
    [
        ("INSERT INTO t VALUES (1, 'x')", "INSERT"),
        ("UPDATE t SET a = 1", "UPDATE"),
        ("DELETE FROM t", "DELETE"),
        ("COPY t FROM STDIN", "COPY FROM"),
        ("CREATE TABLE u (a int)", "CREATE TABLE"),
        ("CREATE INDEX ON t (a)", "CREATE INDEX"),
        ("DROP TABLE t", "DROP TABLE"),
    ],
)
def test_a_read_only_block_does_not_write(client: Client, sql: str, verb: str) -> None:
    client.run("BEGIN READ ONLY")
    assert client.run("SELECT * FROM t") == []
    assert client.fails(sql) == ("25006", f"cannot execute {verb} in a read-only transaction")
    client.run("ROLLBACK")
    assert client.run("INSERT INTO t VALUES (1, 'x')") == "INSERT 0 1"


def test_transactions_are_read_only_by_default_where_that_is_set(client: Client) -> None:
    client.run("SET default_transaction_read_only = on")
    assert client.fails("INSERT INTO t VALUES (1, 'x')")[0] == "25006"
    client.run("BEGIN READ WRITE")
    assert client.run("INSERT INTO t VALUES (1, 'x')") == "INSERT 0 1"
    client.run("COMMIT")
    assert client.run("SELECT a FROM t") == [(1,)]


def test_now_is_one_time_throughout_a_statement(client: Client) -> None:
    assert client.run("SELECT now() = now(), statement_timestamp() = statement_timestamp()") == [(True, True)]


def test_an_update_that_swaps_unique_keys_is_one_step(client: Client) -> None:
    client.run("CREATE TABLE u (k int PRIMARY KEY)")
    client.run("INSERT INTO u VALUES (1), (2), (3)")
    assert client.run("UPDATE u SET k = k + 1") == "UPDATE 3"
    assert client.run("SELECT k FROM u ORDER BY k") == [(2,), (3,), (4,)]


def test_equal_rows_are_counted_one_by_one(client: Client) -> None:
    client.run("INSERT INTO t VALUES (1, 'x'), (1, 'x'), (1, 'x')")
    assert client.run("UPDATE t SET b = 'y' WHERE a = 1") == "UPDATE 3"
    assert client.run("SELECT b FROM t") == [("y",), ("y",), ("y",)]
    assert client.run("DELETE FROM t") == "DELETE 3"


def test_an_error_that_an_own_delete_takes_back_is_none(client: Client) -> None:
    client.run("INSERT INTO t VALUES (0, 'x'), (2, 'y')")
    client.run("CREATE INDEX t_inverse ON t ((10 / a))")
    read = "SELECT b FROM t WHERE 10 / a = 5"
    assert client.fails(read)[0] == "22012"
    client.run("BEGIN")
    client.run("DELETE FROM t WHERE a = 0")
    assert client.run(read) == [("y",)]
    client.run("INSERT INTO t VALUES (0, 'z')")
    assert client.fails(read)[0] == "22012"
    client.run("ROLLBACK")
    client.run("DELETE FROM t WHERE a = 0")
    assert client.run(read) == [("y",)]


def test_a_block_reads_past_indexes_that_are_younger_than_its_snapshot(client: Client, other: Client) -> None:
    client.run("CREATE TABLE u (a int)")
    client.run("INSERT INTO u VALUES (1), (2)")
    client.run("BEGIN")
    assert client.run("SELECT a FROM u WHERE a = 1") == [(1,)]
    other.run("DELETE FROM u WHERE a = 1")
    other.run("CREATE INDEX u_a ON u (a)")
    assert client.run("SELECT a FROM u WHERE a = 1") == [(1,)]
    client.run("COMMIT")
    assert client.run("SELECT a FROM u WHERE a = 1") == []


def test_a_table_younger_than_a_blocks_snapshot_is_empty_to_it(client: Client, other: Client) -> None:
    client.run("BEGIN")
    assert client.run("SELECT a FROM t") == []
    other.run("INSERT INTO t VALUES (1, 'x')")
    other.run("CREATE TABLE u (a int PRIMARY KEY)")
    other.run("INSERT INTO u VALUES (1)")
    assert client.run("SELECT a FROM u WHERE a = 1") == []
    client.run("COMMIT")
    assert client.run("SELECT a FROM u WHERE a = 1") == [(1,)]


def test_a_statement_that_fails_later_fails_its_block(server: Server, client: Client) -> None:
    client.run("ALTER SYSTEM SET compute_index_peek_inline_budget = 1")
    client.run("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 100) AS g")
    client.run("CREATE TABLE u (a int NOT NULL)")
    client.run("BEGIN")
    insert = client.send("INSERT INTO u SELECT nullif(a, 50) FROM t")
    assert not insert.done
    server.settle()
    with pytest.raises(SqlError, match='null value in column "a" of relation "u" violates'):
        insert.result()
    assert client.session.status == b"E"
