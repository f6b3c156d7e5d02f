"""Reads of which a single row may take long never start on the serving loop."""

from __future__ import annotations

import pytest

from tests.adapter.harness import Client, Server


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def client(server: Server) -> Client:
    return server.connect()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT length(repeat('ab', 1000))", [(2_000,)]),
        ("SELECT length(lpad('a', 300)) AS n ORDER BY n", [(300,)]),
        ("SELECT g FROM generate_series(1, 3) AS g WHERE length(rpad('a', 10 * g::int)) = 20", [(2,)]),
    ],
)
def test_an_expression_that_may_make_a_text_of_any_size_is_evaluated_on_the_walk_pool(
    server: Server, client: Client, sql: str, expected: list[tuple[int]]
) -> None:
    query = client.send(sql)
    assert not query.done
    assert len(server.pool.walks) == 1
    server.settle()
    assert query.result() == expected
    assert server.coordinator.metrics.walks_offloaded == 1


def test_a_filter_of_very_many_terms_is_evaluated_on_the_walk_pool(server: Server, client: Client) -> None:
    client.run("CREATE TABLE t (a integer, b integer)")
    client.run("INSERT INTO t VALUES (1, 2), (3, 4)")
    before = server.coordinator.metrics.walks_offloaded
    terms = " OR ".join(f"a + b = {n}" for n in range(7, 407))
    assert client.run(f"SELECT a FROM t WHERE {terms}") == [(3,)]
    assert server.coordinator.metrics.walks_offloaded == before + 1


def test_a_value_that_may_be_of_any_size_is_made_apart(server: Server, client: Client) -> None:
    client.run("CREATE TABLE t (a text, b integer)")
    query = client.send("INSERT INTO t VALUES (repeat('ab', 3), 1), ('plain', 2)")
    assert not query.done
    assert server.maintenance.jobs
    server.settle()
    assert query.result() == "INSERT 0 2"
    assert client.run("SELECT a FROM t ORDER BY b") == [("ababab",), ("plain",)]


def test_an_error_of_such_a_value_is_the_statements(client: Client) -> None:
    client.run("CREATE TABLE t (a text, b integer)")
    assert client.fails("INSERT INTO t VALUES (repeat('ab', 1 / 0), 1)") == ("22012", "division by zero")
    assert client.run("SELECT b FROM t") == []


def test_with_the_offload_off_such_a_read_is_answered_by_the_call(server: Server, client: Client) -> None:
    server.coordinator.parameters.set("enable_compute_index_peek_offload", "off")
    assert client.run("SELECT length(repeat('ab', 1000))") == [(2_000,)]
    assert server.coordinator.metrics.walks_offloaded == 0
    assert server.coordinator.metrics.walks_inline == 1


def test_minus_zero_and_zero_are_one_value_to_order_by(client: Client) -> None:
    client.run("CREATE TABLE z (d double precision, a integer)")
    client.run("INSERT INTO z VALUES (0, 1), ('-0', 2), (0, 3), ('-0', 4)")
    expected = [(1,), (2,), (3,), (4,)]
    assert client.run("SELECT a FROM z ORDER BY d, a") == expected
    client.run("CREATE INDEX zd ON z (d, a)")
    assert client.run("SELECT a FROM z ORDER BY d, a") == expected
    assert client.run("SELECT a FROM z WHERE d = 0 ORDER BY a") == expected
    assert client.run("SELECT a FROM z ORDER BY d DESC, a DESC") == expected[::-1]
