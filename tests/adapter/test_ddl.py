from __future__ import annotations

import pytest

from layby.errors import SqlError
from tests.adapter.harness import Client, Server


def notices(client: Client) -> list[tuple[str, str, str]]:
    return [(n.severity, n.sqlstate, n.message) for n in client.session.take_notices()]


def exists(relation: str) -> tuple[str, str]:
    return "42P07", f'relation "{relation}" already exists'


def missing(relation: str) -> tuple[str, str]:
    return "42P01", f'relation "{relation}" does not exist'


def test_a_table_whose_creation_is_rolled_back_is_gone(server: Server, client: Client) -> None:
    before = server.arrangements()
    client.run("BEGIN")
    client.run("CREATE TABLE t (a int PRIMARY KEY, b int UNIQUE)")
    client.run("INSERT INTO t VALUES (1, 1)")
    assert client.run("SELECT a FROM t") == [(1,)]
    client.run("ROLLBACK")
    assert client.fails("SELECT a FROM t") == missing("t")
    assert server.arrangements() == before
    client.run("CREATE TABLE t (a int PRIMARY KEY)")
    assert client.run("SELECT a FROM t") == []


def test_of_two_creations_of_one_name_at_once_the_second_fails(
    server: Server, client: Client, other: Client
) -> None:
    first = client.send("CREATE TABLE t (a int)")
    second = other.send("CREATE TABLE t (b int)")
    skipped = server.connect()
    skipping = skipped.send("CREATE TABLE IF NOT EXISTS t (c int)")
    server.settle()
    assert first.result() == "CREATE TABLE"
    with pytest.raises(SqlError, match='relation "t" already exists'):
        second.result()
    assert skipping.result() == "CREATE TABLE"
    assert client.run("SELECT a FROM t") == []


def test_an_index_name_is_taken_while_it_is_built(server: Server, client: Client, other: Client) -> None:
    client.run("CREATE TABLE t (a int)")
    first = client.send("CREATE INDEX i ON t (a)")
    assert other.fails("CREATE TABLE i (a int)") == exists("i")
    assert first.result() == "CREATE INDEX"
    assert other.fails("CREATE INDEX i ON t (a)") == exists("i")


def test_if_exists_and_if_not_exists_say_what_they_skip(client: Client) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("CREATE INDEX i ON t (a)")
    assert client.run("CREATE TABLE IF NOT EXISTS t (b int)") == "CREATE TABLE"
    assert client.run("CREATE INDEX IF NOT EXISTS i ON t (a)") == "CREATE INDEX"
    assert client.run("DROP TABLE IF EXISTS v, t") == "DROP TABLE"
    assert client.run("DROP INDEX IF EXISTS i") == "DROP INDEX"
    assert notices(client) == [
        ("NOTICE", "42P07", 'relation "t" already exists, skipping'),
        ("NOTICE", "42P07", 'relation "i" already exists, skipping'),
        ("NOTICE", "00000", 'table "v" does not exist, skipping'),
        ("NOTICE", "00000", 'index "i" does not exist, skipping'),
    ]


def test_drop_refuses_what_is_not_there_or_of_another_kind(client: Client) -> None:
    client.run("CREATE TABLE t (a int PRIMARY KEY)")
    client.run("CREATE INDEX i ON t (a)")
    assert client.fails("DROP TABLE v") == ("42P01", 'table "v" does not exist')
    assert client.fails("DROP INDEX v") == ("42704", 'index "v" does not exist')
    assert client.fails("DROP TABLE i") == ("42809", '"i" is not a table')
    assert client.fails("DROP INDEX t") == ("42809", '"t" is not an index')
    assert client.fails("DROP INDEX t_pkey") == (
        "2BP01",
        "cannot drop index t_pkey because constraint t_pkey on table t requires it",
    )
    assert client.fails("DROP TABLE t, v")[0] == "42P01"
    assert client.run("SELECT a FROM t") == []


def test_a_constraint_of_its_tables_own_name_is_refused(client: Client) -> None:
    assert client.fails("CREATE TABLE t (a int CONSTRAINT t UNIQUE)") == exists("t")


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_drop_lasts_if_its_block_commits(client: Client, other: Client, end: str) -> None:
    client.run("CREATE TABLE t (a int UNIQUE)")
    client.run("INSERT INTO t VALUES (1)")
    client.run("BEGIN")
    client.run("INSERT INTO t VALUES (2)")
    client.run("DROP TABLE t")
    assert other.fails("SELECT a FROM t") == missing("t")
    client.run(end)
    if end == "COMMIT":
        assert other.fails("SELECT a FROM t") == missing("t")
    else:
        assert other.run("SELECT a FROM t") == [(1,)]
        assert other.fails("INSERT INTO t VALUES (1)")[0] == "23505"


def test_the_name_of_what_a_block_dropped_is_its_own_until_it_ends(client: Client, other: Client) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("CREATE INDEX i ON t (a)")
    client.run("BEGIN")
    client.run("DROP TABLE t")
    assert other.fails("CREATE TABLE t (b int)") == exists("t")
    assert other.fails("CREATE TABLE i (b int)") == exists("i")
    client.run("CREATE TABLE t (c int)")
    client.run("ROLLBACK")
    assert other.run("SELECT a FROM t") == []
    client.run("BEGIN")
    client.run("DROP TABLE t")
    client.run("CREATE TABLE t (c int)")
    client.run("COMMIT")
    assert other.run("SELECT c FROM t") == []
    assert other.run("CREATE TABLE i (b int)") == "CREATE TABLE"


def test_a_unique_index_dropped_in_a_block_still_holds_if_that_rolls_back(
    server: Server, client: Client, other: Client
) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("CREATE UNIQUE INDEX i ON t (a)")
    client.run("INSERT INTO t VALUES (1)")
    client.run("BEGIN")
    client.run("DROP INDEX i")
    insert = other.send("INSERT INTO t VALUES (1)")
    server.settle()
    assert not insert.done
    client.run("ROLLBACK")
    with pytest.raises(SqlError, match="duplicate key"):
        insert.result()
    assert client.run("SELECT a FROM t WHERE a = 1") == [(1,)]


@pytest.mark.parametrize("offloaded", [False, True])
@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("DROP TABLE t", 'canceling statement because table "t" was dropped'),
        ("DROP INDEX t_a", 'canceling statement because index "t_a" was dropped'),
    ],
)
def test_a_drop_cancels_pending_peeks(
    server: Server, client: Client, other: Client, sql: str, message: str, offloaded: bool
) -> None:
    client.run("CREATE TABLE t (a int, b int)")
    client.run("INSERT INTO t SELECT g, g FROM generate_series(1, 100) AS g")
    client.run("CREATE INDEX t_a ON t (a)")
    server.coordinator.parameters.set("compute_index_peek_inline_budget", "1")
    server.coordinator.parameters.set("compute_index_peek_activation_budget", "1")
    first = other.send("SELECT b FROM t WHERE a > 3")
    read = server.connect().send("SELECT b FROM t WHERE a > 3")
    assert (server.coordinator.worker.waiting, len(server.coordinator.worker.offload)) == (1, 1)
    if offloaded:
        server.loop.turn()
        assert (server.coordinator.worker.waiting, len(server.coordinator.worker.offload)) == (0, 2)
    drop = client.send(sql)
    for query in (first, read):
        with pytest.raises(SqlError) as caught:
            query.result()
        assert (caught.value.sqlstate, caught.value.message) == ("57014", message)
    server.settle()
    assert drop.result() == " ".join(sql.split()[:2])


def test_an_index_built_while_writes_go_on_misses_none(server: Server, client: Client, other: Client) -> None:
    client.run("CREATE TABLE t (a int, b int)")
    client.run("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    build = client.send("CREATE INDEX t_a ON t (a)")
    insert = other.send("INSERT INTO t VALUES (4, 4)")  # before the build takes its snapshot
    while not server.maintenance.jobs:
        assert server.step()
    (job,) = server.maintenance.jobs
    server.maintenance.jobs.clear()
    server.settle()
    assert insert.result() == "INSERT 0 1"
    assert other.run("INSERT INTO t VALUES (5, 5)") == "INSERT 0 1"  # after it, before the build
    assert other.run("DELETE FROM t WHERE a = 1") == "DELETE 1"
    job()
    assert other.send("UPDATE t SET b = 22 WHERE a = 2").outcomes  # committed before the adoption or after
    server.settle()
    assert build.result() == "CREATE INDEX"
    assert client.run("EXPLAIN SELECT b FROM t WHERE a > 0") != client.run("EXPLAIN SELECT b FROM t")
    assert client.run("SELECT a, b FROM t WHERE a > 0 ORDER BY a") == [(2, 22), (3, 3), (4, 4), (5, 5)]


def test_a_unique_index_over_duplicates_leaves_nothing_behind(server: Server, client: Client) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("INSERT INTO t VALUES (1), (2), (2)")
    before = server.arrangements()
    with pytest.raises(SqlError) as caught:
        client.run("CREATE UNIQUE INDEX i ON t (a)")
    assert caught.value.sqlstate == "23505"
    assert caught.value.message == 'could not create unique index "i"'
    assert caught.value.detail == "Key (a)=(2) is duplicated."
    assert server.arrangements() == before
    client.run("INSERT INTO t VALUES (2)")
    client.run("DELETE FROM t WHERE a = 2")
    assert client.run("CREATE UNIQUE INDEX i ON t (a)") == "CREATE INDEX"
    assert client.fails("INSERT INTO t VALUES (1)")[0] == "23505"


def test_a_unique_index_keeps_writes_out_while_it_is_built(
    server: Server, client: Client, other: Client
) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("INSERT INTO t VALUES (1)")
    build = client.send("CREATE UNIQUE INDEX i ON t (a)")
    insert = other.send("INSERT INTO t VALUES (1)")
    assert not build.done
    assert not insert.done
    server.settle()
    assert build.result() == "CREATE INDEX"
    with pytest.raises(SqlError, match='unique constraint "i"'):
        insert.result()


def test_an_index_on_what_raises_fails_its_reads_until_the_row_is_gone(client: Client) -> None:
    client.run("CREATE TABLE t (a int, b int)")
    client.run("CREATE INDEX i ON t ((100 / a))")
    client.run("INSERT INTO t VALUES (50, 1)")
    assert client.run("SELECT b FROM t WHERE 100 / a = 2") == [(1,)]
    assert client.run("INSERT INTO t VALUES (0, 2)") == "INSERT 0 1"
    assert client.fails("SELECT b FROM t WHERE 100 / a = 2") == ("22012", 'index "i": division by zero')
    assert client.run("SELECT a FROM t ORDER BY a") == [(0,), (50,)]
    client.run("DELETE FROM t WHERE a = 0")
    assert client.run("SELECT b FROM t WHERE 100 / a = 2") == [(1,)]


def test_a_build_whose_table_is_dropped_meanwhile_answers_and_frees_its_name(
    server: Server, client: Client, other: Client
) -> None:
    client.run("CREATE TABLE t (a int)")
    build = client.send("CREATE INDEX i ON t (a)")
    drop = other.send("DROP TABLE t")
    server.settle()
    assert drop.result() == "DROP TABLE"
    with pytest.raises(SqlError):
        build.result()
    assert client.run("CREATE TABLE i (a int)") == "CREATE TABLE"


def test_a_build_that_is_cancelled_leaves_nothing_behind(server: Server, client: Client) -> None:
    client.run("CREATE TABLE t (a int)")
    before = server.arrangements()
    build = client.send("CREATE INDEX i ON t (a)")
    client.session.cancel()
    assert build.error is not None
    assert build.error.sqlstate == "57014"
    server.settle()
    assert server.arrangements() == before
    assert client.run("CREATE INDEX i ON t (a)") == "CREATE INDEX"


def test_an_index_created_in_a_block_is_undone_with_it(server: Server, client: Client) -> None:
    client.run("CREATE TABLE t (a int)")
    before = server.arrangements()
    client.run("BEGIN")
    client.run("CREATE INDEX i ON t (a)")
    client.run("ROLLBACK")
    assert client.fails("DROP INDEX i")[0] == "42704"
    assert server.arrangements() == before


def test_an_index_over_uncommitted_rows_is_refused(client: Client) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("BEGIN")
    client.run("INSERT INTO t VALUES (1)")
    assert client.fails("CREATE INDEX i ON t (a)")[0] == "55006"


def test_a_table_dropped_after_a_block_wrote_to_it_fails_the_commit(client: Client, other: Client) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("CREATE TABLE u (a int)")
    client.run("BEGIN")
    client.run("INSERT INTO t VALUES (1)")
    client.run("INSERT INTO u VALUES (1)")
    other.run("DROP TABLE t")
    assert client.fails("COMMIT")[0] == "42P01"
    assert client.session.status == b"I"
    assert client.run("SELECT a FROM u") == []


def test_a_drop_waits_for_a_large_write_under_way(server: Server, client: Client, other: Client) -> None:
    client.run("CREATE TABLE t (a int PRIMARY KEY)")
    write = client.send("INSERT INTO t SELECT g FROM generate_series(1, 5000) AS g")
    while server.coordinator.locks.held() == 0:
        assert server.step()
    drop = other.send("DROP TABLE t")
    assert not drop.done
    server.settle()
    assert write.result() == "INSERT 0 5000"
    assert drop.result() == "DROP TABLE"


def test_ddl_of_a_block_whose_commit_fails_is_undone(client: Client) -> None:
    client.run("CREATE TABLE t (a int PRIMARY KEY)")
    client.run("CREATE TABLE u (a int)")
    client.run("INSERT INTO t VALUES (1)")
    client.run("BEGIN")
    client.run("DROP TABLE u")
    client.run("CREATE TABLE v (a int)")
    client.run("INSERT INTO t VALUES (1)")
    assert client.fails("COMMIT")[0] == "23505"
    assert client.run("SELECT a FROM u") == []
    assert client.fails("SELECT a FROM v") == missing("v")


@pytest.mark.parametrize("kind", ["table", "unique index", "index"])
def test_a_dropped_relation_takes_its_arrangements_along(server: Server, client: Client, kind: str) -> None:
    before = server.arrangements()
    client.run("CREATE TABLE t (a int, b int)")
    client.run(f"CREATE {'UNIQUE ' if kind == 'unique index' else ''}INDEX i ON t (a, b)")
    client.run("INSERT INTO t VALUES (1, 2)")
    if kind != "table":
        client.run("DROP INDEX i")
        assert len(server.arrangements()) == 1 + len(before)
        assert client.run("SELECT b FROM t WHERE a = 1") == [(2,)]
    client.run("DROP TABLE t")
    assert server.arrangements() == before


def test_a_system_relation_is_not_dropped(client: Client) -> None:
    code, _ = client.fails("DROP TABLE pg_catalog.pg_type")
    assert code in ("42501", "42P01")


# What one block creates and another drops


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_drop_waits_for_the_block_that_creates_the_table(
    server: Server, client: Client, other: Client, end: str
) -> None:
    client.run("BEGIN")
    client.run("CREATE TABLE t (a int PRIMARY KEY)")
    other.run("BEGIN")
    drop = other.send("DROP TABLE t")
    server.settle()
    assert not drop.done
    client.run("INSERT INTO t VALUES (1)")
    client.run(end)
    if end == "COMMIT":
        assert drop.result() == "DROP TABLE"
        other.run("ROLLBACK")
        assert client.run("SELECT a FROM t") == [(1,)]
    else:
        assert drop.error is not None
        assert (drop.error.sqlstate, drop.error.message) == ("42P01", 'table "t" does not exist')
        other.run("ROLLBACK")
        assert client.fails("SELECT a FROM t") == missing("t")
    server.assert_nothing_leaked()


@pytest.mark.parametrize("back", ["ROLLBACK TO s", "SELECT 1 / 0"])
def test_a_drop_waits_no_longer_than_to_where_the_table_is_taken_back(
    server: Server, client: Client, other: Client, back: str
) -> None:
    client.run("BEGIN")
    client.run("CREATE TABLE kept (a int)")
    client.run("SAVEPOINT s")
    client.run("CREATE TABLE t (a int)")
    drop, waits = other.send("DROP TABLE t"), server.connect().send("DROP TABLE kept")
    client.send(back)
    server.settle()
    assert drop.error is not None
    assert drop.error.sqlstate == "42P01"
    assert not waits.done
    client.run("ROLLBACK TO s")
    client.run("COMMIT")
    assert waits.result() == "DROP TABLE"


@pytest.mark.parametrize("write", ["INSERT INTO t VALUES (1)", "UPDATE t SET a = 1"])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_nothing_is_written_to_a_table_that_may_be_taken_back(
    server: Server, client: Client, other: Client, write: str, end: str
) -> None:
    client.run("BEGIN")
    client.run("CREATE TABLE t (a int)")
    assert other.run("SELECT a FROM t") == []
    query = other.send(write)
    server.settle()
    assert not query.done
    client.run(end)
    if end == "COMMIT":
        assert query.error is None
        assert query.done
    else:
        assert query.error is not None
        assert query.error.sqlstate == "42P01"


def test_a_name_that_a_block_dropped_twice_is_kept_once_one_drop_is_taken_back(
    client: Client, other: Client
) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("BEGIN")
    client.run("DROP TABLE t")
    client.run("SAVEPOINT s")
    client.run("CREATE TABLE t (b int)")
    client.run("DROP TABLE t")
    client.run("ROLLBACK TO s")
    assert other.fails("CREATE TABLE t (c int)") == exists("t")
    client.run("ROLLBACK")
    assert other.run("SELECT a FROM t") == []


def test_a_name_that_two_blocks_dropped_is_kept_until_both_have_ended(
    server: Server, client: Client, other: Client
) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("CREATE TABLE u (a int)")
    client.run("CREATE INDEX i ON t (a)")
    client.run("BEGIN")
    client.run("DROP INDEX i")
    client.run("CREATE INDEX i ON u (a)")
    other.run("BEGIN")
    other.run("DROP INDEX i")
    client.run("COMMIT")
    assert client.fails("CREATE TABLE i (a int)") == exists("i")
    other.run("ROLLBACK")
    found = server.coordinator.catalog.index("i")
    assert found is not None
    assert found[0].name == "u"
    assert client.run("DROP INDEX i") == "DROP INDEX"
    assert other.run("CREATE TABLE i (a int)") == "CREATE TABLE"


@pytest.mark.parametrize("drop", ["DROP INDEX i", "DROP TABLE t"])
@pytest.mark.parametrize(
    ("ends", "there"),
    [
        (("creator COMMIT", "dropper ROLLBACK"), True),
        (("dropper ROLLBACK", "creator COMMIT"), True),
        (("creator ROLLBACK", "dropper ROLLBACK"), False),
        (("dropper ROLLBACK", "creator ROLLBACK"), False),
        (("creator ROLLBACK TO s", "dropper ROLLBACK", "creator COMMIT"), False),
        (("creator COMMIT", "dropper COMMIT"), False),
        (("dropper COMMIT", "creator COMMIT"), False),
        (("creator ROLLBACK", "dropper COMMIT"), False),
        (("dropper COMMIT", "creator ROLLBACK"), False),
    ],
    ids=str,
)
def test_an_index_is_there_if_its_creation_lasts_and_its_drop_does_not(
    server: Server, client: Client, other: Client, drop: str, ends: tuple[str, ...], there: bool
) -> None:
    client.run("CREATE TABLE t (a int, b int UNIQUE)")
    client.run("INSERT INTO t VALUES (1, 2)")
    client.run("BEGIN")
    client.run("SAVEPOINT s")
    client.run("CREATE INDEX i ON t (a)")
    other.run("BEGIN")
    other.run(drop)
    for end in ends:
        who, command = end.split(" ", 1)
        {"creator": client, "dropper": other}[who].run(command)
    assert (server.coordinator.catalog.index("i") is not None) == there
    if drop == "DROP TABLE t" and "dropper COMMIT" in ends:
        assert client.fails("SELECT b FROM t WHERE a = 1") == missing("t")
    else:
        assert client.run("SELECT b FROM t WHERE a = 1") == [(2,)]
        assert client.fails("INSERT INTO t VALUES (2, 2)")[0] == "23505"
    assert (client.run("DROP INDEX IF EXISTS i"), len(notices(client))) == ("DROP INDEX", 0 if there else 1)
    server.assert_nothing_leaked()
