"""Savepoints: going back within a block, and what stays."""

from __future__ import annotations

import pytest

from tests.adapter.harness import Server

SETUP = "CREATE TABLE t (a integer)"


@pytest.fixture
def server() -> Server:
    server = Server()
    server.connect().run(SETUP)
    return server


def test_rolling_back_to_a_savepoint_takes_back_what_came_after_it_and_keeps_the_rest(server: Server) -> None:
    client = server.connect()
    client.run("BEGIN")
    client.run("INSERT INTO t VALUES (1)")
    client.run("SAVEPOINT s")
    client.run("INSERT INTO t VALUES (2)")
    client.run("ROLLBACK TO SAVEPOINT s")
    client.run("INSERT INTO t VALUES (3)")
    client.run("COMMIT")
    assert client.run("SELECT a FROM t ORDER BY a") == [(1,), (3,)]


def test_a_failed_block_goes_on_after_it_was_rolled_back_to_a_savepoint(server: Server) -> None:
    client = server.connect()
    client.run("BEGIN")
    client.run("INSERT INTO t VALUES (1)")
    client.run("SAVEPOINT s")
    assert client.fails("SELECT 1 / 0")[0] == "22012"
    assert client.fails("SELECT 1")[0] == "25P02"
    client.run("ROLLBACK TO s")
    client.run("COMMIT")
    assert client.run("SELECT a FROM t") == [(1,)]


def test_a_table_created_after_a_savepoint_is_gone_after_rolling_back_to_it(server: Server) -> None:
    client = server.connect()
    client.run("BEGIN")
    client.run("SAVEPOINT s")
    client.run("CREATE TABLE u (a integer)")
    client.run("ROLLBACK TO s")
    client.run("COMMIT")
    assert client.fails("SELECT a FROM u")[0] == "42P01"


def test_savepoints_of_one_name_hide_each_other_and_releasing_forgets_the_later_ones(server: Server) -> None:
    client = server.connect()
    client.run("BEGIN")
    client.run("SAVEPOINT s")
    client.run("INSERT INTO t VALUES (1)")
    client.run("SAVEPOINT s")
    client.run("INSERT INTO t VALUES (2)")
    client.run("ROLLBACK TO s")
    client.run("RELEASE s")
    client.run("ROLLBACK TO s")
    client.run("INSERT INTO t VALUES (9)")
    client.run("COMMIT")
    assert client.run("SELECT a FROM t") == [(9,)]


def test_a_savepoint_that_is_not_there_or_outside_a_block_is_an_error(server: Server) -> None:
    client = server.connect()
    assert client.fails("SAVEPOINT s") == (
        "25P01",
        "SAVEPOINT can only be used in transaction blocks",
    )
    client.run("BEGIN")
    assert client.fails("ROLLBACK TO s") == ("3B001", 'savepoint "s" does not exist')
    assert client.fails("RELEASE s")[0] == "25P02"
