"""Random sessions in random interleavings, held to a naive model of the table."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.adapter.harness import Client, Query, Server

KEYS = 3


@dataclass
class Actor:
    """A client with at most one query under way."""

    client: Client
    query: Query | None = None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_nothing_is_lost_or_half_done_however_sessions_interleave(data: st.DataObject) -> None:
    """Each addition to a row is logged in the same transaction, so the log says what the rows have to hold:
    a lost update, a write of a failed statement or half of a block would show."""
    server = Server(
        compute_index_peek_inline_budget=data.draw(st.sampled_from([1, 1000])),
        compute_index_peek_yield_granularity=1,
    )
    setup = server.connect()
    setup.run("CREATE TABLE t (k int PRIMARY KEY, n int)")
    setup.run("CREATE INDEX t_n ON t (n)")
    setup.run(f"INSERT INTO t SELECT g, 0 FROM generate_series(1, {KEYS}) AS g")
    setup.run("CREATE TABLE log (k int, d int)")
    actors = [Actor(server.connect()) for _ in range(3)]
    mark = 1
    for _ in range(data.draw(st.integers(5, 40))):
        actor = actors[data.draw(st.integers(0, 2))]
        if actor.query is not None and actor.query.done:
            actor.query = None
        if actor.query is not None:
            if data.draw(st.booleans()):
                server.step()
            elif data.draw(st.integers(0, 4)) == 0:
                actor.client.session.cancel()
            continue
        k = data.draw(st.integers(1, KEYS))
        match data.draw(st.sampled_from(["add", "add", "read", "begin", "commit", "rollback", "index"])):
            case "add":
                sql = f"UPDATE t SET n = n + {mark} WHERE k = {k}; INSERT INTO log VALUES ({k}, {mark})"
                mark *= 2
            case "read":
                sql = "SELECT k, n FROM t WHERE n >= 0"
            case "index":
                sql = data.draw(
                    st.sampled_from(["DROP INDEX IF EXISTS t_n", "CREATE INDEX IF NOT EXISTS t_n ON t (n)"])
                )
            case other:
                sql = other
        actor.query = actor.client.send(sql)
    server.settle()
    for actor in actors:
        if actor.query is not None and not actor.query.done:
            # It waits for a block that is still open.
            assert server.coordinator.locks.held() > 0
    for actor in actors:
        actor.client.session.close()
    server.settle()
    expected = dict.fromkeys(range(1, KEYS + 1), 0)
    for k, d in setup.run("SELECT k, d FROM log"):
        expected[k] += d
    assert dict(setup.run("SELECT k, n FROM t")) == expected
    assert dict(setup.run("SELECT k, n FROM t WHERE k > 0")) == expected
    assert dict(setup.run("SELECT k, n FROM t WHERE n >= 0")) == expected
    setup.run("DROP TABLE t, log")
    setup.session.close()
    server.assert_nothing_leaked()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_unique_keys_stay_unique_however_writers_interleave(data: st.DataObject) -> None:
    server = Server()
    setup = server.connect()
    setup.run("CREATE TABLE t (k text UNIQUE, v int)")
    clients = [server.connect() for _ in range(3)]
    queries: list[tuple[Query, str, int]] = []
    for number in range(data.draw(st.integers(2, 15))):
        client = clients[number % 3]
        if all(q.done for q, _, n in queries if n % 3 == number % 3):
            key = data.draw(st.sampled_from(["a", "b", "c"]))
            sql = data.draw(
                st.sampled_from(["INSERT INTO t VALUES ('{}', {})", "DELETE FROM t WHERE k = '{}'"])
            )
            queries.append((client.send(sql.format(key, number)), key, number))
        for _ in range(data.draw(st.integers(0, 3))):
            server.step()
    server.settle()
    assert all(q.done for q, _, _ in queries)
    rows = setup.run("SELECT k, v FROM t")
    keys = [k for k, _ in rows]
    assert len(keys) == len(set(keys))
    confirmed = {n for q, _, n in queries if q.error is None and q.result() == "INSERT 0 1"}
    assert {v for _, v in rows} <= confirmed
    for query, _, _ in queries:
        assert query.error is None or query.error.sqlstate == "23505"
