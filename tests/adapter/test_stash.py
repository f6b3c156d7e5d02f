"""Stashed answers in a session: which statements take them, and what ends them."""

from __future__ import annotations

import pytest

from layby.adapter.outcome import CopyOutOutcome, Outcome, RowSource, RowsOutcome
from layby.errors import SqlError
from layby.peek.answer import Rows
from tests.adapter.harness import Client, Query, Row, Server, decode
from tests.persist.memory_blob import MemoryBlob


@pytest.fixture
def blob() -> MemoryBlob:
    return MemoryBlob()


@pytest.fixture
def server(blob: MemoryBlob) -> Server:
    """A server that offloads and stashes whatever it can, and has a table of 100 rows."""
    server = Server(
        blob=blob,
        compute_index_peek_inline_budget=1,
        compute_index_peek_yield_granularity=10,
        peek_response_stash_threshold_bytes=0,
    )
    client = server.connect()
    client.run("CREATE TABLE t (k bigint, v bigint)")
    client.run("INSERT INTO t SELECT g, g FROM generate_series(1, 100) g")
    client.run("CREATE INDEX ti ON t (k)")
    assert blob.objects == {}
    return server


def source_of(query: Query) -> RowSource:
    """Return where the rows of the last statement come from."""
    outcome = query.outcomes[-1]
    assert isinstance(outcome, RowsOutcome | CopyOutOutcome)
    assert outcome.stash is not None
    return outcome.stash


def fetch(server: Server, source: RowSource) -> Rows | SqlError | None:
    found: list[Rows | SqlError] = []
    if not source.fetch(found.append):
        return None
    server.settle()
    return found[0]


def read_all(server: Server, source: RowSource) -> list[Row]:
    rows: list[Row] = []
    while (piece := fetch(server, source)) is not None:
        assert isinstance(piece, Rows)
        rows += decode(piece.encoded)
    return rows


def ask(server: Server, client: Client, sql: str) -> RowSource:
    query = client.send(sql)
    server.settle()
    return source_of(query)


def test_a_select_hands_out_a_stashed_answer_with_its_tag(server: Server, blob: MemoryBlob) -> None:
    query = server.connect().send("SELECT k, v FROM t")
    server.settle()
    outcome = query.outcomes[-1]
    assert isinstance(outcome, RowsOutcome)
    assert (outcome.tag, outcome.count, outcome.encoded) == ("SELECT 100", 100, None)
    assert read_all(server, source_of(query)) == [(k, k) for k in range(1, 101)]
    assert blob.objects == {}


def test_copy_to_hands_out_a_stashed_answer(server: Server, blob: MemoryBlob) -> None:
    query = server.connect().send("COPY t TO STDOUT")
    server.settle()
    outcome = query.outcomes[-1]
    assert isinstance(outcome, CopyOutOutcome)
    assert outcome.tag == "COPY 100"
    assert read_all(server, source_of(query)) == [(k, k) for k in range(1, 101)]
    assert blob.objects == {}


def test_statements_that_write_what_they_read_never_stash(server: Server, blob: MemoryBlob) -> None:
    client = server.connect()
    assert client.run("INSERT INTO t SELECT k, v FROM t") == "INSERT 0 100"
    assert client.run("UPDATE t SET v = v + 1") == "UPDATE 200"
    assert client.run("DELETE FROM t") == "DELETE 200"
    assert blob.calls == []


def test_a_transactions_own_writes_are_in_a_stashed_answer(server: Server) -> None:
    client = server.connect()
    client.run("BEGIN")
    client.run("INSERT INTO t VALUES (101, 101)")
    source = ask(server, client, "SELECT k FROM t WHERE k > 50")
    assert read_all(server, source) == [(k,) for k in range(51, 102)]
    client.run("ROLLBACK")


def test_an_order_by_the_key_is_stashed_and_one_by_another_column_is_not(server: Server) -> None:
    client = server.connect()
    source = ask(server, client, "SELECT v FROM t ORDER BY k DESC LIMIT 30 OFFSET 5")
    assert read_all(server, source) == [(v,) for v in range(95, 65, -1)]
    assert client.run("SELECT v FROM t ORDER BY v DESC LIMIT 3") == [(100,), (99,), (98,)]


def test_a_cancellation_ends_an_answer_that_is_on_its_way(server: Server, blob: MemoryBlob) -> None:
    client = server.connect()
    source = ask(server, client, "SELECT k FROM t")
    errors: list[SqlError] = []
    source.on_cancel = errors.append
    server.coordinator.cancel(client.session.process_id, client.session.secret_key)
    assert [error.sqlstate for error in errors] == ["57014"]
    source.close()
    server.settle()
    assert blob.objects == {}


def test_a_cancellation_leaves_an_answer_alone_that_nobody_waits_for(server: Server) -> None:
    client = server.connect()
    source = ask(server, client, "SELECT k FROM t")
    client.session.cancel()
    assert len(read_all(server, source)) == 100


def test_a_session_that_is_closed_deletes_what_its_client_has_not_read(
    server: Server, blob: MemoryBlob
) -> None:
    client = server.connect()
    first, second = ask(server, client, "SELECT k FROM t"), ask(server, client, "SELECT v FROM t")
    fetch(server, first)
    assert len(blob.objects) > 10
    client.session.close()
    server.settle()
    assert blob.objects == {}
    assert fetch(server, second) is None
    server.assert_nothing_leaked()


def test_a_session_that_is_closed_while_its_answer_is_written_leaves_no_part(
    server: Server, blob: MemoryBlob
) -> None:
    client = server.connect()
    client.send("SELECT k FROM t")
    while not blob.objects:
        assert server.step()
    client.session.close()
    server.settle()
    assert blob.objects == {}
    server.assert_nothing_leaked()


def test_a_session_that_an_answer_before_its_own_closes_leaves_no_part(
    server: Server, blob: MemoryBlob
) -> None:
    server.coordinator.parameters.set("compute_index_peek_permit_fraction", "2")
    killer, victim = server.connect(), server.connect()
    killing = killer.send("SELECT k FROM t")
    victim.send("SELECT v FROM t")
    on_outcome = killer.session._runner.under_way._on_outcome  # type: ignore[union-attr]

    def close_the_other(outcome: Outcome) -> None:
        victim.session.close()
        on_outcome(outcome)

    killer.session._runner.under_way._on_outcome = close_the_other  # type: ignore[union-attr]
    server.pool.run()
    assert len(blob.objects) == 20
    server.settle()
    assert len(read_all(server, source_of(killing))) == 100
    assert blob.objects == {}


def test_a_failing_store_fails_the_statement_and_the_session_goes_on(
    server: Server, blob: MemoryBlob
) -> None:
    client = server.connect()
    blob.failing.add("put")
    assert client.fails("SELECT k FROM t") == ("58030", "could not write an answer to the stash")
    assert client.run("SELECT v FROM t WHERE k = 7 ORDER BY v") == [(7,)]
    blob.failing.clear()
    assert len(read_all(server, ask(server, client, "SELECT k FROM t"))) == 100


def test_dropping_the_table_leaves_a_stashed_answer_whole(server: Server) -> None:
    client = server.connect()
    source = ask(server, client, "SELECT k FROM t")
    client.run("DROP TABLE t")
    assert read_all(server, source) == [(k,) for k in range(1, 101)]


def test_dropping_the_table_while_its_answer_is_written_deletes_the_parts(
    server: Server, blob: MemoryBlob
) -> None:
    query = server.connect().send("SELECT k FROM t")
    while not blob.objects:
        assert server.step()
    server.connect().run("DROP TABLE t")
    server.settle()
    assert query.error is not None
    assert query.error.sqlstate == "57014"
    assert blob.objects == {}


def test_a_statement_timeout_while_the_answer_is_written_deletes_the_parts(
    server: Server, blob: MemoryBlob
) -> None:
    client = server.connect()
    client.run("SET statement_timeout = 1000")
    query = client.send("SELECT k FROM t")
    while not blob.objects:
        assert server.step()
    for _, expire in list(server.loop.timers):
        expire()
    server.settle()
    assert query.error is not None
    assert query.error.message == "canceling statement due to statement timeout"
    assert blob.objects == {}
