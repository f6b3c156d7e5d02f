"""What the server tells about its peeks, and what SQL can do to the sessions that ask them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from layby.errors import SqlError
from tests.adapter.harness import Client, Server, encoder_for, never_later

ACTIVE = "SELECT session, index, state, substrate, positions, rows, query FROM layby_active_peeks ORDER BY id"
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


def at_once(client: Client, sql: str) -> Any:
    """Return the answer to a query that needs no step of anybody."""
    return client.send(sql).result()


# layby_active_peeks


def test_nothing_is_active_in_a_quiet_server(client: Client) -> None:
    assert client.run("SELECT * FROM layby_active_peeks") == []


def test_a_walk_under_way_is_shown_with_what_it_has_visited_and_found(
    table: Server, client: Client, other: Client
) -> None:
    query = other.send(WALK)
    assert at_once(client, ACTIVE) == [(pid(other), "t", "walking", "offloaded", 20, 20, WALK)]
    table.pool.step()
    assert at_once(client, ACTIVE) == [(pid(other), "t", "walking", "offloaded", 50, 50, WALK)]
    table.pool.step()
    assert at_once(client, ACTIVE) == [(pid(other), "t", "walking", "offloaded", 80, 69, WALK)]
    table.settle()
    assert len(query.result()) == 69
    assert client.run(ACTIVE) == []


def test_peeks_that_wait_are_shown_too(table: Server, client: Client, other: Client) -> None:
    table.coordinator.parameters.set("compute_index_peek_activation_budget", "60")
    sessions = [table.connect() for _ in range(4)]
    queries = [s.send(WALK) for s in sessions]
    shown = [(p.pending.asker, p.pending.state.value, p.offloaded) for p in table.coordinator.worker.active()]
    assert [(asker.session, state, off) for asker, state, off in shown if asker is not None] == [
        (pid(sessions[3]), "waiting", False),
        (pid(sessions[0]), "walking", True),
        (pid(sessions[1]), "queued", True),
        (pid(sessions[2]), "queued", True),
    ]
    table.settle()
    assert [len(q.result()) for q in queries] == [69] * 4
    table.coordinator.parameters.reset("compute_index_peek_activation_budget")


def test_a_peek_has_a_number_of_its_own_and_an_age(table: Server, client: Client, other: Client) -> None:
    other.send(WALK)
    other.session.close()
    table.settle()
    third = table.connect()
    third.send(WALK)
    [(number, age)] = at_once(client, "SELECT id, age FROM pg_catalog.layby_active_peeks")
    assert number == 2
    assert age >= 0


def test_a_read_by_an_index_names_the_index(table: Server, client: Client, other: Client) -> None:
    client.run("CREATE INDEX by_a ON t (a)")
    other.send("SELECT b FROM t WHERE a > 3")
    assert at_once(client, "SELECT index FROM layby_active_peeks") == [("by_a",)]


def test_the_relation_cannot_be_written_or_dropped(client: Client) -> None:
    assert client.fails("DROP TABLE layby_active_peeks")[0] == "42501"


# pg_cancel_backend


def test_cancelling_a_session_ends_its_statement(table: Server, client: Client, other: Client) -> None:
    query = other.send(WALK)
    assert at_once(client, f"SELECT pg_cancel_backend({pid(other)})") == [(True,)]
    assert query.error is not None
    assert (query.error.sqlstate, query.error.message) == (
        "57014",
        "canceling statement due to user request",
    )
    table.settle()
    assert table.coordinator.metrics.walks_offloaded == 0
    assert other.run("SELECT 1") == [(1,)]


def test_cancelling_an_idle_session_does_nothing(client: Client, other: Client) -> None:
    assert client.run(f"SELECT pg_cancel_backend({pid(other)})") == [(True,)]
    assert other.run("SELECT 1") == [(1,)]


@pytest.mark.parametrize("function", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_process_id_that_nobody_has_gives_false_and_a_warning(client: Client, function: str) -> None:
    assert client.run(f"SELECT {function}(4711)") == [(False,)]
    notices = [(n.severity, n.sqlstate, n.message) for n in client.session.take_notices()]
    assert notices == [("WARNING", "01000", "PID 4711 is not a PostgreSQL backend process")]


def test_a_null_process_id_gives_null(client: Client) -> None:
    assert client.run("SELECT pg_cancel_backend(NULL)") == [(None,)]
    assert client.session.take_notices() == []


def test_the_process_ids_may_come_from_a_relation(table: Server, client: Client, other: Client) -> None:
    third = table.connect()
    one, two = other.send(WALK), third.send("SELECT b FROM t WHERE b < 10")
    sql = "SELECT session, pg_cancel_backend(session) AS done FROM layby_active_peeks WHERE query LIKE '%70'"
    assert at_once(client, sql) == [(pid(other), True)]
    assert one.error is not None
    table.settle()
    assert len(two.result()) == 9


def test_a_row_that_is_left_out_is_left_alone(table: Server, client: Client, other: Client) -> None:
    third = table.connect()
    one, two = other.send(WALK), third.send(WALK)
    sql = "SELECT pg_cancel_backend(session) FROM layby_active_peeks ORDER BY id DESC LIMIT 1"
    assert at_once(client, sql) == [(True,)]
    assert two.error is not None
    table.settle()
    assert len(one.result()) == 69


def test_a_session_that_cancels_itself_fails_its_statement(client: Client) -> None:
    assert client.fails("SELECT pg_cancel_backend(pg_backend_pid())") == (
        "57014",
        "canceling statement due to user request",
    )
    assert client.run("SELECT 1") == [(1,)]


def test_a_prepared_call_takes_its_process_id_as_a_parameter(
    table: Server, client: Client, other: Client
) -> None:
    query = other.send(WALK)
    client.session.prepared.prepare("", "SELECT pg_cancel_backend($1)", [], never_later)
    types, desc = client.session.prepared.describe_statement("")
    assert [t.name for t in types] == ["integer"]
    assert desc is not None
    assert [(c.name, c.type.name) for c in desc] == [("pg_cancel_backend", "boolean")]
    client.session.prepared.bind("", "", (pid(other),))
    client.session.execute_portal("", encoder_for, lambda _: None)
    assert query.error is not None


@pytest.mark.parametrize(
    ("sql", "sqlstate"),
    [
        ("SELECT pg_cancel_backend('x'::text)", "42883"),
        ("SELECT 1 WHERE pg_cancel_backend(1)", "0A000"),
        ("SELECT NOT pg_cancel_backend(1)", "0A000"),
        ("SELECT pg_cancel_backend(g) AS x FROM generate_series(1, 2) g ORDER BY x", "0A000"),
    ],
)
def test_a_signal_stands_alone_as_a_result_column(client: Client, sql: str, sqlstate: str) -> None:
    assert client.fails(sql)[0] == sqlstate


# pg_terminate_backend


def test_terminating_a_session_ends_what_it_does_and_its_connection(
    table: Server, client: Client, other: Client
) -> None:
    told: list[SqlError] = []
    other.session.on_terminated = told.append
    other.run("BEGIN")
    other.run("INSERT INTO t VALUES (1, 1)")
    other.send(WALK)
    assert len(table.coordinator.worker.offload) == 1
    assert at_once(client, f"SELECT pg_terminate_backend({pid(other)})") == [(True,)]
    table.loop.turn()
    assert [(e.sqlstate, e.message) for e in told] == [
        ("57P01", "terminating connection due to administrator command")
    ]
    assert table.coordinator.session(pid(other)) is None
    assert table.coordinator.locks.held() == 0
    table.settle()
    assert len(table.coordinator.worker.offload) == 0
    assert table.coordinator.metrics.walks_offloaded == 0
    assert client.run(f"SELECT pg_terminate_backend({pid(other)})") == [(False,)]


def test_a_session_that_terminates_itself_gets_no_answer_but_the_end(server: Server, client: Client) -> None:
    told: list[SqlError] = []
    client.session.on_terminated = told.append
    query = client.send("SELECT pg_terminate_backend(pg_backend_pid())")
    server.settle()
    assert [e.sqlstate for e in told] == ["57P01"]
    assert not query.done
    assert server.coordinator.session(pid(client)) is None
