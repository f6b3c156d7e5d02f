"""DDL of many tables at once: what of it is done in one turn of the loop, and that it is all or nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from layby.adapter.coordinator import RELEASES
from layby.adapter.ddl import DROPS
from layby.sql.catalog import Catalog
from tests.adapter.harness import Client, Server

COUNT = 3 * DROPS + 5
NAMES = [f"t{number}" for number in range(COUNT)]
DROP = f"DROP TABLE {', '.join(NAMES)}"


def create(client: Client) -> None:
    for name in NAMES:
        client.run(f"CREATE TABLE {name} (a int PRIMARY KEY, b text)")


def there(server: Server) -> list[str]:
    return [name for name in NAMES if server.coordinator.catalog.table(name, "public") is not None]


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Note how many tables each new version of the catalog puts and removes."""
    made: list[tuple[int, int]] = []
    changed = Catalog.changed

    def noted(catalog: Catalog, version: int, put: Any = (), remove: Any = ()) -> Catalog:
        made.append((len(put), len(remove)))
        return changed(catalog, version, put, remove)

    monkeypatch.setattr(Catalog, "changed", noted)
    return made


def turns(server: Server) -> list[list[str]]:
    """Take turns until nothing is left to do; return the tables that were there after each."""
    found = []
    while server.loop.turn() or server.maintenance.step():
        found.append(there(server))
    return found


def test_many_tables_are_dropped_over_some_turns(
    server: Server, client: Client, versions: list[tuple[int, int]]
) -> None:
    create(client)
    versions.clear()
    query = client.send(DROP)
    left = [COUNT, *(len(names) for names in turns(server))]
    assert query.result() == "DROP TABLE"
    assert max(before - after for before, after in pairwise(left)) == DROPS
    assert left[-1] == 0
    assert versions == [(0, DROPS)] * 3 + [(0, 5)]
    server.assert_nothing_leaked()


def test_tables_are_let_go_of_over_some_turns_once_they_are_gone(server: Server, client: Client) -> None:
    client.run("BEGIN")
    create(client)
    known = len(server.coordinator.arrangements)
    client.send("ROLLBACK").result()
    assert there(server) == []
    left = [known]
    while server.loop.turn():
        left.append(len(server.coordinator.arrangements))
    assert max(before - after for before, after in pairwise(left)) == RELEASES
    server.settle()
    server.assert_nothing_leaked()


@pytest.mark.parametrize("savepoint", [False, True])
def test_what_a_block_did_to_many_tables_is_taken_back_as_one_change(
    server: Server, client: Client, versions: list[tuple[int, int]], savepoint: bool
) -> None:
    create(client)
    client.run("BEGIN")
    if savepoint:
        client.run("SAVEPOINT s")
    client.run(DROP)
    for name in NAMES:
        client.run(f"CREATE TABLE {name} (c int)")
    client.run(f"CREATE INDEX i ON {NAMES[0]} (c)")
    client.run(f"DROP TABLE {NAMES[1]}")
    versions.clear()
    assert client.run("ROLLBACK TO s" if savepoint else "ROLLBACK") == "ROLLBACK"
    assert versions == [(COUNT, COUNT - 1)]
    assert client.run(f"SELECT a, b FROM {NAMES[0]}") == []
    assert there(server) == NAMES
    client.run("COMMIT")
    server.assert_nothing_leaked()


def test_a_drop_that_is_cancelled_on_its_way_drops_nothing(server: Server, client: Client) -> None:
    create(client)
    query = client.send(DROP)
    while len(there(server)) == COUNT:
        assert server.step()
    assert len(there(server)) == COUNT - DROPS
    client.session.cancel()
    assert query.error is not None
    assert query.error.sqlstate == "57014"
    server.settle()
    assert there(server) == NAMES
    server.assert_nothing_leaked()
    assert client.run(DROP) == "DROP TABLE"


def test_a_drop_of_nothing_makes_no_version_of_the_catalog(
    client: Client, versions: list[tuple[int, int]]
) -> None:
    assert client.run("DROP TABLE IF EXISTS a, b") == "DROP TABLE"
    assert versions == []


def test_a_session_that_is_closed_while_it_drops_drops_nothing(server: Server, client: Client) -> None:
    create(client)
    gone = server.connect()
    gone.send(DROP)
    while len(there(server)) == COUNT:
        assert server.step()
    gone.session.close()
    server.settle()
    assert there(server) == NAMES
    server.assert_nothing_leaked()


def test_a_name_that_means_nothing_once_the_tables_are_held_drops_none(
    server: Server, client: Client, other: Client
) -> None:
    create(client)
    other.run("BEGIN")
    other.run(f"UPDATE {NAMES[-1]} SET a = 1")
    query = client.send(DROP)
    server.settle()
    assert not query.done
    other.run(f"DROP TABLE {NAMES[-1]}")
    other.run("COMMIT")
    assert query.error is not None
    assert (query.error.sqlstate, query.error.message) == ("42P01", f'table "{NAMES[-1]}" does not exist')
    assert there(server) == NAMES[:-1]
    server.assert_nothing_leaked()
