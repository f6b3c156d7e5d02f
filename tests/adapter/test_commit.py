from __future__ import annotations

from typing import Any

import pytest

from layby.adapter import commit, jobs
from layby.adapter.commit import Oracle
from layby.compute import arrangement, maintenance
from layby.compute.maintenance import ApplyWrites
from layby.errors import SqlError
from tests.adapter.harness import Client, Server


def times(server: Server) -> list[int]:
    """Return the commit times on their way to maintenance."""
    return [m.time for m in server.maintenance.messages if isinstance(m, ApplyWrites)]


def test_the_oracle_follows_the_clock_and_never_repeats_itself() -> None:
    now = 100
    oracle = Oracle(100, lambda: now)
    assert [oracle.next(), oracle.next()] == [101, 102]
    now = 500
    assert oracle.next() == 500
    now = 300
    assert oracle.next() == 501


def test_all_that_waits_is_committed_at_one_time(server: Server) -> None:
    clients = [server.connect() for _ in range(3)]
    clients[0].run("CREATE TABLE t (a int)")
    clients[0].run("CREATE TABLE u (a int)")
    queries = [
        c.send(f"INSERT INTO t VALUES ({n}); INSERT INTO u VALUES ({n})") for n, c in enumerate(clients)
    ]
    assert server.commits.step()
    assert len(times(server)) == 1
    server.settle()
    assert [q.result() for q in queries] == ["INSERT 0 1"] * 3
    assert clients[0].run("SELECT a FROM t ORDER BY a") == [(0,), (1,), (2,)]
    assert clients[0].run("SELECT a FROM u ORDER BY a") == [(0,), (1,), (2,)]


def test_a_write_is_confirmed_only_once_readers_see_it(server: Server, client: Client, other: Client) -> None:
    client.run("CREATE TABLE t (a int)")
    insert = client.send("INSERT INTO t VALUES (1)")
    assert server.commits.step()
    server.loop.turn()
    assert not insert.done
    assert other.send("SELECT a FROM t").result() == []
    server.maintenance.run()
    assert other.send("SELECT a FROM t").result() == [(1,)]
    assert not insert.done
    server.loop.turn()
    assert insert.result() == "INSERT 0 1"


def test_a_refused_write_lets_the_rest_of_its_group_through(
    server: Server, client: Client, other: Client
) -> None:
    client.run("CREATE TABLE t (a int PRIMARY KEY)")
    client.run("CREATE TABLE u (a int)")
    refused = client.send("INSERT INTO t VALUES (1), (1)")
    accepted = other.send("INSERT INTO u VALUES (1)")
    server.settle()
    with pytest.raises(SqlError, match="duplicate key"):
        refused.result()
    assert accepted.result() == "INSERT 0 1"


class BrokenError(Exception):
    """What arranging raises in these tests."""


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of arrangements that raise when rows are sorted for them."""
    names: set[str] = set()
    whole: Any = arrangement.arrange

    def arrange(desc: arrangement.ArrangementDesc, *rest: object) -> object:
        if desc.name in names:
            raise BrokenError(desc.name)
        return whole(desc, *rest)

    monkeypatch.setattr(maintenance, "arrange", arrange)
    return names


def test_a_write_that_cannot_be_arranged_is_answered_and_applied_nowhere(
    server: Server, client: Client, broken: set[str]
) -> None:
    client.run("CREATE TABLE t (a int UNIQUE, b int)")
    client.run("CREATE INDEX t_b ON t (b)")
    broken.add("t_b")
    code, message = client.fails("INSERT INTO t VALUES (1, 1)")
    assert code == "XX000"
    assert "Broken" in message
    for where in ("", "WHERE a = 1", "WHERE b = 1"):
        assert client.run(f"SELECT * FROM t {where}") == []
    broken.clear()
    assert client.run("INSERT INTO t VALUES (1, 1)") == "INSERT 0 1", "later groups do not wait for it"
    for where in ("", "WHERE a = 1", "WHERE b = 1"):
        assert client.run(f"SELECT * FROM t {where}") == [(1, 1)]


def test_a_block_whose_writes_cannot_be_arranged_is_rolled_back(client: Client, broken: set[str]) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("CREATE TABLE u (a int)")
    client.run("CREATE INDEX t_a ON t (a)")
    client.run("BEGIN")
    client.run("DROP TABLE u")
    client.run("INSERT INTO t VALUES (1)")
    broken.add("t_a")
    assert client.fails("COMMIT")[0] == "XX000"
    assert client.session.status == b"I"
    assert client.run("SELECT a FROM u") == []


def test_a_build_that_raises_is_answered_and_leaves_nothing(
    server: Server, client: Client, broken: set[str]
) -> None:
    client.run("CREATE TABLE t (a int)")
    before = server.arrangements()
    broken.add("t_a")
    assert client.fails("CREATE INDEX t_a ON t (a)")[0] == "XX000"
    assert server.arrangements() == before
    broken.clear()
    assert client.run("CREATE INDEX t_a ON t (a)") == "CREATE INDEX"


def test_a_build_that_cannot_catch_up_is_answered_and_leaves_nothing(
    server: Server, client: Client, other: Client, broken: set[str]
) -> None:
    client.run("CREATE TABLE t (a int)")
    before = server.arrangements()
    build = client.send("CREATE INDEX t_a ON t (a)")
    server.maintenance.step()
    (job,) = server.maintenance.jobs
    server.maintenance.jobs.clear()
    other.run("INSERT INTO t VALUES (1)")
    job()
    broken.add("t_a")
    server.settle()
    assert build.error is not None
    assert build.error.sqlstate == "XX000"
    assert server.arrangements() == before
    assert client.run("SELECT a FROM t") == [(1,)]


def test_a_table_of_which_one_arrangement_fails_is_not_created(
    server: Server, client: Client, broken: set[str]
) -> None:
    before = server.arrangements()
    broken.add("t_b_key")
    assert client.fails("CREATE TABLE t (a int PRIMARY KEY, b int UNIQUE)")[0] == "XX000"
    assert server.arrangements() == before
    broken.clear()
    assert client.run("CREATE TABLE t (a int)") == "CREATE TABLE"


def test_a_large_write_that_cannot_be_sorted_is_answered(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.run("CREATE TABLE t (a int)")

    def arrange(*_: object) -> None:
        raise BrokenError

    monkeypatch.setattr(jobs, "arrange", arrange)
    assert client.fails("INSERT INTO t SELECT g FROM generate_series(1, 5000) AS g")[0] == "XX000"
    monkeypatch.undo()
    assert client.run("INSERT INTO t SELECT g FROM generate_series(1, 5000) AS g") == "INSERT 0 5000"


def test_writes_that_cannot_be_put_together_are_answered_and_hold_nobody_up(
    server: Server, client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.run("CREATE TABLE t (a int PRIMARY KEY)")

    def together(_group: object) -> None:
        raise BrokenError

    monkeypatch.setattr(commit, "_together", together)
    queries = [client.send("INSERT INTO t VALUES (1)"), other.send("INSERT INTO t VALUES (2)")]
    server.settle()
    assert [q.error is not None and q.error.sqlstate for q in queries] == ["XX000"] * 2
    monkeypatch.undo()
    assert client.run("INSERT INTO t VALUES (1)") == "INSERT 0 1"


def test_a_check_that_raises_is_answered(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.run("CREATE TABLE t (a int PRIMARY KEY)")

    def violation(*_: object) -> None:
        raise BrokenError

    monkeypatch.setattr(commit, "violation", violation)
    assert client.fails("INSERT INTO t VALUES (1)")[0] == "XX000"
    monkeypatch.undo()
    assert client.run("INSERT INTO t VALUES (1)") == "INSERT 0 1"
