from __future__ import annotations

import pytest

from layby.adapter.locks import LockMode, LockOwner, TableLocks
from layby.errors import SqlError
from tests.adapter.harness import Client, Server

SHARED, EXCLUSIVE = LockMode.SHARED, LockMode.EXCLUSIVE
DEADLOCK = ("40P01", "deadlock detected")


class Locks:
    """Table locks, and who was let in, in order."""

    def __init__(self) -> None:
        self.locks = TableLocks()
        self.granted: list[str] = []
        self.owners: dict[str, LockOwner] = {}

    def take(self, name: str, table_id: int, mode: LockMode) -> bool:
        owner = self.owners.setdefault(name, LockOwner(ord(name)))
        return self.locks.acquire(owner, table_id, mode, lambda: self.granted.append(name))

    def release(self, name: str) -> None:
        self.locks.release_all(self.owners[name])


def test_shared_holders_stand_beside_each_other() -> None:
    locks = Locks()
    assert locks.take("a", 1, SHARED)
    assert locks.take("b", 1, SHARED)
    assert not locks.take("c", 1, EXCLUSIVE)
    locks.release("a")
    assert locks.granted == []
    locks.release("b")
    assert locks.granted == ["c"]


def test_nobody_overtakes_one_who_waits() -> None:
    locks = Locks()
    locks.take("a", 1, SHARED)
    assert not locks.take("b", 1, EXCLUSIVE)
    assert not locks.take("c", 1, SHARED)
    assert not locks.take("d", 1, SHARED)
    locks.release("a")
    assert locks.granted == ["b"]
    locks.release("b")
    assert locks.granted == ["b", "c", "d"]


def test_one_who_waits_no_more_lets_those_behind_in_and_keeps_what_he_holds() -> None:
    locks = Locks()
    locks.take("a", 1, SHARED)
    locks.take("b", 2, EXCLUSIVE)
    locks.take("b", 1, EXCLUSIVE)
    locks.take("c", 1, SHARED)
    locks.locks.withdraw(locks.owners["b"])
    assert locks.granted == ["c"]
    assert not locks.take("c", 2, SHARED)
    for name in "abc":
        locks.release(name)
    assert locks.locks.held() == 0


def test_a_cycle_over_three_tables_is_refused_and_changes_nothing() -> None:
    locks = Locks()
    for name, table_id in (("a", 1), ("b", 2), ("c", 3)):
        locks.take(name, table_id, EXCLUSIVE)
    assert not locks.take("a", 2, EXCLUSIVE)
    assert not locks.take("b", 3, EXCLUSIVE)
    with pytest.raises(SqlError) as caught:
        locks.take("c", 1, SHARED)
    assert (caught.value.sqlstate, caught.value.message) == DEADLOCK
    assert caught.value.detail == (
        "Process 99 waits for ShareLock on relation 1; blocked by process 97.\n"
        "Process 97 waits for ExclusiveLock on relation 2; blocked by process 98.\n"
        "Process 98 waits for ExclusiveLock on relation 3; blocked by process 99."
    )
    locks.release("c")
    assert locks.granted == ["b"]
    locks.release("b")
    assert locks.granted == ["b", "a"]
    locks.release("a")
    assert locks.locks.held() == 0


@pytest.fixture
def tables(client: Client) -> None:
    for name in ("t", "u"):
        client.run(f"CREATE TABLE {name} (a int, b int)")
        client.run(f"INSERT INTO {name} VALUES (1, 0)")


@pytest.mark.usefixtures("tables")
def test_updates_of_a_table_wait_for_each_other_in_order(server: Server) -> None:
    clients = [server.connect() for _ in range(4)]
    clients[0].run("BEGIN")
    clients[0].run("UPDATE t SET b = b * 10 + 1")
    queries = [c.send(f"UPDATE t SET b = b * 10 + {n}") for n, c in enumerate(clients[1:], 2)]
    server.settle()
    assert [q.done for q in queries] == [False] * 3
    clients[0].run("COMMIT")
    assert [q.result() for q in queries] == ["UPDATE 1"] * 3
    assert clients[0].run("SELECT b FROM t") == [(1234,)]


@pytest.mark.usefixtures("tables")
def test_an_update_waits_for_a_commit_under_way(server: Server, client: Client, other: Client) -> None:
    insert = client.send("INSERT INTO t VALUES (2, 0)")
    update = other.send("UPDATE t SET b = 7")
    assert not update.done
    server.settle()
    assert insert.result() == "INSERT 0 1"
    assert update.result() == "UPDATE 2"


@pytest.mark.usefixtures("tables")
def test_an_insert_waits_for_the_block_that_updated_its_table(
    server: Server, client: Client, other: Client
) -> None:
    client.run("BEGIN")
    client.run("UPDATE t SET b = 1")
    insert = other.send("INSERT INTO t VALUES (2, 2)")
    server.settle()
    assert not insert.done
    client.run("ROLLBACK")
    assert insert.result() == "INSERT 0 1"
    assert client.run("SELECT b FROM t ORDER BY b") == [(0,), (2,)]


@pytest.mark.usefixtures("tables")
def test_reads_wait_for_nobody(client: Client, other: Client) -> None:
    client.run("BEGIN")
    client.run("UPDATE t SET b = 1")
    assert other.send("SELECT b FROM t").result() == [(0,)]


@pytest.mark.usefixtures("tables")
def test_a_deadlock_fails_who_closes_it_and_lets_the_other_go_on(
    server: Server, client: Client, other: Client
) -> None:
    client.run("BEGIN")
    client.run("UPDATE t SET b = 1")
    other.run("BEGIN")
    other.run("UPDATE u SET b = 2")
    waiting = client.send("UPDATE u SET b = 1")
    assert other.fails("UPDATE t SET b = 2") == DEADLOCK
    assert other.session.status == b"E"
    assert waiting.result() == "UPDATE 1", "a failed block holds nothing any more"
    client.run("COMMIT")
    assert other.run("ROLLBACK") == "ROLLBACK"
    assert client.run("SELECT b FROM u") == [(1,)]


@pytest.mark.usefixtures("tables")
def test_a_deadlock_found_when_a_commit_gets_its_first_lock_answers_the_commit(
    server: Server, client: Client, other: Client
) -> None:
    """The commit locks t and then u; u is held by somebody who waits for the committer."""
    third = server.connect()
    client.run("CREATE TABLE v (a int)")
    client.run("INSERT INTO v VALUES (1)")
    third.run("BEGIN")
    third.run("UPDATE t SET b = 3")
    other.run("BEGIN")
    other.run("UPDATE u SET b = 2")
    client.run("BEGIN")
    client.run("UPDATE v SET a = 2")
    client.run("INSERT INTO t VALUES (5, 5)")
    client.run("INSERT INTO u VALUES (5, 5)")
    commit = client.send("COMMIT")
    waiting = other.send("UPDATE v SET a = 3")
    assert not commit.done
    assert not waiting.done
    assert third.run("COMMIT") == "COMMIT"
    with pytest.raises(SqlError, match="deadlock detected"):
        commit.result()
    assert waiting.result() == "UPDATE 1"
    other.run("COMMIT")
    assert client.run("SELECT a FROM t") == [(1,)]
    assert client.run("SELECT a FROM v") == [(3,)]


@pytest.mark.usefixtures("tables")
def test_an_update_under_an_older_snapshot_is_refused_after_a_concurrent_write(
    client: Client, other: Client
) -> None:
    client.run("BEGIN")
    client.run("SELECT b FROM t")
    other.run("INSERT INTO u VALUES (2, 2)")
    assert client.run("UPDATE t SET b = 5") == "UPDATE 1"
    assert client.fails("UPDATE u SET b = 5") == (
        "40001",
        "could not serialize access due to concurrent update",
    )
    client.run("ROLLBACK")
    assert client.run("UPDATE u SET b = 5") == "UPDATE 2"


@pytest.mark.usefixtures("tables")
def test_an_update_that_waited_sees_what_it_waited_for(server: Server, client: Client, other: Client) -> None:
    client.run("BEGIN")
    client.run("UPDATE t SET b = 41")
    other.run("BEGIN")
    update = other.send("UPDATE t SET b = b + 1")
    client.run("COMMIT")
    assert update.result() == "UPDATE 1"
    other.run("COMMIT")
    assert client.run("SELECT b FROM t") == [(42,)]


@pytest.mark.usefixtures("tables")
def test_an_update_whose_table_is_dropped_while_it_waits_fails(
    server: Server, client: Client, other: Client
) -> None:
    client.run("BEGIN")
    client.run("DROP TABLE t")
    # Planned before the drop took effect: a statement that waits for the lock of what goes away.
    other.run("BEGIN")
    third = server.connect()
    assert third.fails("UPDATE t SET b = 1") == ("42P01", 'relation "t" does not exist')
    client.run("ROLLBACK")
    client.run("BEGIN")
    client.run("UPDATE t SET b = 1")
    update = other.send("UPDATE t SET b = 2")
    client.run("DROP TABLE t")
    assert client.run("COMMIT") == "COMMIT"
    with pytest.raises(SqlError, match='relation "t" does not exist'):
        update.result()


@pytest.mark.usefixtures("tables")
def test_an_update_whose_index_is_dropped_while_it_waits_fails(
    server: Server, client: Client, other: Client
) -> None:
    client.run("CREATE INDEX t_a ON t (a)")
    client.run("BEGIN")
    client.run("UPDATE t SET b = 1")
    update = other.send("UPDATE t SET b = 2 WHERE a = 1")
    client.run("DROP INDEX t_a")
    client.run("COMMIT")
    with pytest.raises(SqlError) as caught:
        update.result()
    assert (caught.value.sqlstate, caught.value.message) == (
        "57014",
        'canceling statement because index "t_a" was dropped',
    )
    assert other.run("UPDATE t SET b = 2 WHERE a = 1") == "UPDATE 1"


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("in_block", [False, True])
def test_a_statement_cancelled_while_it_waits_leaves_the_queue(
    server: Server, client: Client, other: Client, in_block: bool
) -> None:
    third = server.connect()
    client.run("BEGIN")
    client.run("UPDATE t SET b = 1")
    if in_block:
        other.run("BEGIN")
    waiting = other.send("UPDATE t SET b = 2")
    behind = third.send("UPDATE t SET b = b + 10")
    server.coordinator.cancel(other.session.process_id, other.session.secret_key)
    with pytest.raises(SqlError, match="canceling statement due to user request"):
        waiting.result()
    client.run("COMMIT")
    assert behind.result() == "UPDATE 1"
    assert other.session.status == (b"E" if in_block else b"I")
    other.run("ROLLBACK")
    assert client.run("SELECT b FROM t") == [(11,)]


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("in_block", [False, True])
def test_a_commit_cancelled_while_it_waits_writes_nothing(
    server: Server, client: Client, other: Client, in_block: bool
) -> None:
    client.run("BEGIN")
    client.run("UPDATE t SET b = 1")
    if in_block:
        other.run("BEGIN")
        other.run("INSERT INTO t VALUES (2, 2)")
        waiting = other.send("COMMIT")
    else:
        waiting = other.send("INSERT INTO t VALUES (2, 2)")
    server.settle()
    assert not waiting.done
    other.session.cancel()
    with pytest.raises(SqlError, match="canceling statement due to user request"):
        waiting.result()
    assert other.session.status == b"I"
    client.run("COMMIT")
    assert client.run("SELECT a FROM t") == [(1,)]


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("sql", ["UPDATE t SET b = 2", "INSERT INTO t VALUES (2, 2)"])
def test_statement_timeout_ends_a_wait_for_a_lock(
    server: Server, client: Client, other: Client, sql: str
) -> None:
    other.run("SET statement_timeout = '2s'")
    client.run("BEGIN")
    client.run("UPDATE t SET b = 1")
    waiting = other.send(sql)
    ((delay, expire),) = server.loop.timers
    assert delay == 2.0
    expire()
    with pytest.raises(SqlError) as caught:
        waiting.result()
    assert (caught.value.sqlstate, caught.value.message) == (
        "57014",
        "canceling statement due to statement timeout",
    )


@pytest.mark.usefixtures("tables")
def test_a_timeout_that_comes_late_ends_no_later_statement(
    server: Server, client: Client, other: Client
) -> None:
    other.run("SET statement_timeout = '2s'")
    client.run("BEGIN")
    client.run("UPDATE t SET b = 1")
    waiting = other.send("UPDATE t SET b = 2")
    ((_, expire),) = server.loop.timers
    client.run("COMMIT")
    assert waiting.result() == "UPDATE 1"
    client.run("BEGIN")
    client.run("UPDATE t SET b = 1")
    waiting = other.send("UPDATE t SET b = 3")
    expire()
    assert not waiting.done
    client.run("COMMIT")
    assert waiting.result() == "UPDATE 1"


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("how", ["ROLLBACK TO s", "SELECT 1 / 0"])
def test_what_was_locked_after_a_savepoint_is_free_once_the_block_goes_back(
    server: Server, client: Client, other: Client, how: str
) -> None:
    third = server.connect()
    client.run("BEGIN; UPDATE t SET b = 1; SAVEPOINT s; UPDATE u SET b = 1")
    held, freed = other.send("UPDATE t SET b = b + 10"), third.send("UPDATE u SET b = b + 20")
    server.settle()
    assert (held.done, freed.done) == (False, False)
    client.send(how)
    server.settle()
    assert (held.done, freed.done) == (False, True)
    client.run("ROLLBACK TO s")
    client.run("COMMIT")
    assert held.result() == "UPDATE 1"
    assert client.run("SELECT b FROM t") == [(11,)]
    assert client.run("SELECT b FROM u") == [(20,)]


@pytest.mark.usefixtures("tables")
def test_a_block_that_goes_back_to_a_savepoint_no_longer_waits_for_what_was_cancelled(
    server: Server, client: Client, other: Client
) -> None:
    third = server.connect()
    client.run("BEGIN")
    client.run("UPDATE t SET b = 1")
    other.run("BEGIN; UPDATE u SET b = 5; SAVEPOINT s")
    waiting = other.send("UPDATE t SET b = 2")
    behind = third.send("UPDATE t SET b = b + 10")
    other.session.cancel()
    assert waiting.error is not None
    client.run("COMMIT")
    assert behind.result() == "UPDATE 1", "the block is not let in any more"
    other.run("ROLLBACK TO s")
    other.run("COMMIT")
    assert client.run("SELECT b FROM t") == [(11,)]
    assert client.run("SELECT b FROM u") == [(5,)]
