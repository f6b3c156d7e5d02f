"""Short texts whose plans take long: made apart like those of long texts, kept like those of short ones."""

from __future__ import annotations

import pytest

from layby.expr.mfp import Mfp
from layby.expr.packed import PackedMfp
from layby.sql.explain import explain
from layby.sql.parse import parse_script
from layby.sql.planner import plan
from tests.adapter.harness import Client, Query
from tests.adapter.test_long_texts import Later, executed, prepared

WIDTH = 400
"""Columns of a table that is too wide for a statement on it to be planned on the loop."""


@pytest.fixture
def wide(client: Client) -> Client:
    client.run(f"CREATE TABLE w ({', '.join(f'c{i} int' for i in range(WIDTH))})")
    client.run("INSERT INTO w (c0, c1) VALUES (1, 10), (2, 20)")
    return client


def at_once(client: Client, sql: str) -> object:
    """Return what a query is answered with within the call."""
    return client.send(sql).result()


def later(client: Client, sql: str) -> object:
    """Return what a query is answered with after its plan was made apart."""
    query = client.send(sql)
    assert not query.done
    assert len(client.server.maintenance.jobs) == 1
    client.server.settle()
    return query.result()


def test_a_statement_on_a_wide_table_is_planned_apart_and_its_plan_kept(wide: Client, other: Client) -> None:
    assert later(wide, "SELECT c1 FROM w") == [(10,), (20,)]
    assert at_once(wide, "SELECT c1 FROM w") == [(10,), (20,)]
    assert at_once(other, "SELECT c1 FROM w") == [(10,), (20,)]


def test_one_plan_serves_all_literals_of_it(wide: Client) -> None:
    assert later(wide, "SELECT c1 FROM w WHERE c0 = 1") == [(10,)]
    assert at_once(wide, "SELECT c1 FROM w WHERE c0 = 2") == [(20,)]


def test_a_short_list_of_many_parts_is_planned_apart_and_its_plan_kept(client: Client) -> None:
    sql = f"SELECT {', '.join(['1'] * 600)}"
    assert later(client, sql) == [(1,) * 600]
    assert client.run(sql) == [(1,) * 600]
    assert not client.server.maintenance.jobs


def test_literals_that_an_index_holds_in_an_expression_are_planned_as_they_stand(wide: Client) -> None:
    wide.run("CREATE INDEX w_sum ON w ((c0 + 1))")
    visited = wide.server.coordinator.metrics.row_iteration_rows
    before = visited.sum
    assert wide.run("SELECT c1 FROM w WHERE c0 + 1 = 3") == [(20,)]
    assert visited.sum - before == 1


def test_a_literal_that_does_not_fit_is_told_in_terms_of_the_text(wide: Client) -> None:
    wide.run("SELECT c1 FROM w WHERE c0 = '1'")
    query = wide.send("SELECT c1 FROM w WHERE c0 = 'x'")
    wide.server.settle()
    assert query.error is not None
    assert (query.error.sqlstate, query.error.position) == ("22P02", 29)


@pytest.mark.parametrize(
    ("sql", "position"),
    [
        ("SELECT nope FROM w", 8),
        ("SELECT nope FROM w WHERE c0 = 1", 8),
        ("SELECT 'é'; SELECT nope FROM w", 20),
        ("SELECT 'é'; SELECT 'é', nope FROM w WHERE c0 = 1", 25),
    ],
)
def test_an_error_has_its_position_in_the_script(wide: Client, sql: str, position: int) -> None:
    query = wide.send(sql)
    wide.server.settle()
    assert query.error is not None
    assert (query.error.sqlstate, query.error.position) == ("42703", position)


def test_a_failed_block_takes_no_statement_whose_plan_is_kept(wide: Client) -> None:
    long = "SELECT c1 FROM w".ljust(5_000)
    wide.run("SELECT c1 FROM w")
    wide.run(long)
    wide.run("BEGIN")
    wide.fails("SELECT 1 / 0")
    assert wide.fails("SELECT c1 FROM w")[0] == "25P02"
    assert wide.fails("SELECT c2 FROM w")[0] == "25P02"
    assert wide.fails(long)[0] == "25P02"
    wide.run("ROLLBACK")
    assert wide.run(long) == [(10,), (20,)]


def test_a_long_text_that_is_kept_is_run_at_once_until_the_catalog_changes(wide: Client) -> None:
    sql = "SELECT c1 FROM w".ljust(5_000)
    assert later(wide, sql) == [(10,), (20,)]
    assert at_once(wide, sql) == [(10,), (20,)]
    wide.run("CREATE TABLE other (a int)")
    assert later(wide, sql) == [(10,), (20,)]
    assert later(wide, "SELECT c1 FROM w".ljust(9_000)) == [(10,), (20,)]
    assert later(wide, "SELECT c1 FROM w".ljust(9_000)) == [(10,), (20,)]


@pytest.mark.parametrize("length", [0, 5_000])
def test_a_statement_is_prepared_apart_once(wide: Client, other: Client, length: int) -> None:
    sql = "SELECT c1 FROM w WHERE c0 = $1".ljust(length)
    assert prepared(wide, "get", sql, (23,)) is None
    assert executed(wide, "get", 2) == [(20,)]
    assert other.session.prepared.prepare("get", sql, (23,), Later())
    assert executed(other, "get", 1) == [(10,)]
    wide.session.sync(Later())
    other.session.sync(Later())


def test_a_prepared_statement_whose_table_becomes_wide_follows_the_catalog(client: Client) -> None:
    client.run("CREATE TABLE w (c0 int, c1 int)")
    assert client.session.prepared.prepare("get", "SELECT c1 FROM w WHERE c0 = $1", (), Later())
    client.run("DROP TABLE w")
    client.run(f"CREATE TABLE w ({', '.join(f'c{i} int' for i in range(WIDTH))})")
    client.run("INSERT INTO w (c0, c1) VALUES (1, 10)")
    assert client.session.prepared.describe_statement("get")[1] is not None
    assert executed(client, "get", 1) == [(10,)]
    client.session.sync(Later())
    assert executed(client, "get", 2) == []
    client.session.sync(Later())


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[PackedMfp]:
    """Note what packed expressions are taken apart."""
    done: list[PackedMfp] = []
    unpack = PackedMfp.unpack

    def noted(packed: PackedMfp) -> Mfp:
        done.append(packed)
        return unpack(packed)

    monkeypatch.setattr(PackedMfp, "unpack", noted)
    return done


def walking(client: Client, sql: str) -> Query:
    """Have a statement planned and handed to the walk pool, where nothing is done about it yet."""
    query = client.send(sql)
    while not client.server.pool.walks:
        assert client.server.maintenance.step() or client.server.loop.turn()
    return query


BRANCHES = " ".join(f"WHEN c0 + {n} = {2 * n} THEN {n}" for n in range(2_000))


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT CASE {BRANCHES} END FROM w",
        f"SELECT CASE {BRANCHES} END FROM w LIMIT 1",
        f"SELECT c0 FROM w WHERE CASE {BRANCHES} END = 2",
        f"SELECT c0 FROM w WHERE CASE {BRANCHES} END = 2 AND current_user = 'layby'",
        f"COPY (SELECT CASE {BRANCHES} END FROM w) TO STDOUT",
        f"UPDATE w SET c1 = CASE {BRANCHES} END",
        f"DELETE FROM w WHERE CASE {BRANCHES} END > 10",
        f"EXPLAIN ANALYZE SELECT CASE {BRANCHES} END FROM w",
    ],
    ids=lambda sql: f"{sql[:24]}...{sql[-24:]}",
)
def test_many_expressions_are_not_taken_apart_before_they_are_evaluated(
    wide: Client, unpacked: list[PackedMfp], sql: str
) -> None:
    query = walking(wide, sql)
    assert unpacked == []
    wide.server.settle()
    assert query.error is None
    assert query.done
    assert unpacked


def test_many_expressions_take_the_parameters_of_each_execution(
    wide: Client, unpacked: list[PackedMfp]
) -> None:
    sql = f"SELECT CASE {BRANCHES} ELSE $1 END FROM w WHERE c1 = $2"
    assert prepared(wide, "get", sql, (23, 23)) is None
    assert unpacked == []
    assert executed(wide, "get", 7, 10) == [(1,)]
    assert executed(wide, "get", 7, 20) == [(2,)]
    wide.run("INSERT INTO w (c0, c1) VALUES (-1, 30)")
    assert executed(wide, "get", 7, 30) == [(7,)]
    assert executed(wide, "get", 8, 30) == [(8,)]
    wide.session.sync(Later())


def test_rows_of_many_columns_are_read_and_encoded_on_the_walk_pool(client: Client) -> None:
    columns = [f"c{i}" for i in range(600)]
    client.run(f"CREATE TABLE w ({', '.join(f'{c} int DEFAULT {c[1:]}' for c in columns)})")
    client.run("INSERT INTO w DEFAULT VALUES")
    row = tuple(range(600))
    for sql in ("SELECT * FROM w", f"SELECT {', '.join(columns)} FROM w", "SELECT * FROM w LIMIT 1"):
        query = walking(client, sql)
        assert client.server.pool.walk().progress == (0, 0)
        client.server.settle()
        assert query.result() == [row]
    assert client.run("UPDATE w SET c599 = 0") == "UPDATE 1"
    assert client.run("SELECT * FROM w") == [(*row[:-1], 0)]
    assert client.run("DELETE FROM w") == "DELETE 1"


def test_explain_of_a_long_statement_tells_what_that_of_a_short_one_tells(wide: Client) -> None:
    wide.run("CREATE INDEX w_key ON w (c0, c1)")
    keys = ", ".join(f"({n}, {n})" for n in range(40))
    asked = f"SELECT c2 + 1 FROM w WHERE (c0, c1) IN ({keys}) AND c2 > 3 ORDER BY c3 LIMIT 2 OFFSET 1"
    (statement,) = parse_script(asked)
    expected = explain(plan(statement, wide.server.coordinator.catalog, ()).plan)
    assert len(expected) == 6
    assert wide.run(f"EXPLAIN {asked}".ljust(5_000)) == [(line,) for line in expected]
    analyzed = wide.run(f"EXPLAIN ANALYZE {asked}".ljust(5_000))
    assert [line for (line,) in analyzed[:6]] == expected
