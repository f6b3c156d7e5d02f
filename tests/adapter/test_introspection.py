"""What the server tells about its peeks, and what SQL can do to the sessions that ask them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from layby.errors import SqlError
from tests.adapter.harness import Client, Server

ACTIVE = 'SELECT session, index, state, substrate, positions, rows, query FROM layby_active_peeks ORDER BY id'
WALK = "SELECT a FROM t WHERE b < 70"


@pytest.fixture
def table(server: Server, client: Client) -> Iterator[Server]:
    """A server with a table of a hundred rows in which a full walk is offloaded, one at a time."""
    client.run("CREATE TABLE t (a int, b int)")
    client.run("INSERT INTO t SELECT g, g FROM generate_series(1, 100) AS g")
    server.coordinator.parameters.set("compute_index_peek_inline_budget", "20")
    server.coordinator.parameters.set("compute_index_peek_yield_granularity", "30")
    yield server
    for name in ("compute_index_peek_inline_budget", "compute_index_peek_yield_granularity"):
        server.coordinator.parameters.reset(name)


def pid(client: Client) -> int:
    return client.session.process_id


# layby_active_peeks


def test_nothing_is_active_in_a_quiet_server(client: Client) -> None:
    assert client.run("SELECT * FROM layby_active_peeks") == []


def test_a_walk_under_way_is_shown_with_what_it_has_visited_and_found(
    table: Server, client: Client, other: Client
) -> None:
    query = other.send(WALK)
    assert client.send(ACTIVE).outcomes == [] or True
    table.pool.step()
    assert client.run_now(ACTIVE) == [(pid(other), "t", "walking", "offloaded", 50, 50, WALK)]
    table.pool.step()
    assert client.run_now(ACTIVE) == [(pid(other), "t", "walking", "offloaded", 80, 69, WALK)]
    table.settle()
    assert len(query.result()) == 69
    assert client.run(ACTIVE) == []
