from __future__ import annotations

from collections.abc import Callable

import pytest

from layby.adapter.outcome import CommandOutcome, FailureOutcome, Outcome, RowsOutcome
from layby.errors import SqlError
from layby.types.scalar import PhysicalValue
from tests.adapter.harness import Client, Server, decode, encoder_for, never_later


def raises(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(SqlError) as caught:
        call()
    return caught.value.sqlstate, caught.value.message


class Extended:
    """A client that speaks in prepared statements."""

    def __init__(self, client: Client) -> None:
        self.client, self.session = client, client.session
        self.later: list[Outcome] = []

    def execute(self, portal: str = "") -> Outcome:
        outcome = self.session.execute_portal(portal, encoder_for, self.later.append)
        if outcome is None:
            self.client.server.settle()
            outcome = self.later.pop()
        return outcome

    def rows(self, statement: str, *params: PhysicalValue) -> object:
        self.session.prepared.bind("", statement, params)
        outcome = self.execute()
        if isinstance(outcome, FailureOutcome):
            raise outcome.error
        assert isinstance(outcome, RowsOutcome | CommandOutcome)
        return decode(outcome.encoded) if isinstance(outcome, RowsOutcome) else outcome.tag

    def sync(self) -> Outcome:
        outcome = self.session.sync(self.later.append)
        if outcome is None:
            self.client.server.settle()
            outcome = self.later.pop()
        return outcome


@pytest.fixture
def extended(client: Client) -> Extended:
    client.run("CREATE TABLE t (a int, b text)")
    client.run("CREATE INDEX t_a ON t (a)")
    return Extended(client)


def test_a_prepared_statement_runs_with_each_binding(extended: Extended) -> None:
    extended.session.prepared.prepare("put", "INSERT INTO t VALUES ($1, $2)", [], never_later)
    extended.session.prepared.prepare("get", "SELECT b FROM t WHERE a = $1", [], never_later)
    assert extended.rows("put", 1, "x") == "INSERT 0 1"
    assert extended.rows("put", 2, "y") == "INSERT 0 1"
    assert extended.rows("get", 2) == [("y",)], "a pipeline sees its own writes"
    assert extended.client.server.connect().send("SELECT a FROM t").result() == []
    assert extended.sync() == CommandOutcome("")
    assert extended.client.run("SELECT a FROM t ORDER BY a") == [(1,), (2,)]


def test_a_failing_statement_takes_its_pipeline_along(extended: Extended) -> None:
    extended.session.prepared.prepare("put", "INSERT INTO t VALUES ($1, 'x')", [], never_later)
    extended.session.prepared.prepare("bad", "SELECT 1 / $1::int", [], never_later)
    extended.rows("put", 1)
    assert raises(lambda: extended.rows("bad", 0)) == ("22012", "division by zero")
    extended.session.fail()
    assert extended.sync() == CommandOutcome("")
    assert extended.client.run("SELECT a FROM t") == []


@pytest.mark.parametrize(
    ("oid", "error"),
    [
        (1700, ("0A000", "parameters of type numeric are not supported")),
        (1007, ("0A000", "parameters of type integer[] are not supported")),
        (2950, ("0A000", "parameters of type uuid are not supported")),
        (5, ("42704", "type with OID 5 does not exist")),
    ],
)
def test_a_parameter_of_a_type_that_is_not_there_is_refused_by_its_name(
    extended: Extended, oid: int, error: tuple[str, str]
) -> None:
    assert raises(lambda: extended.session.prepared.prepare("s", "SELECT $1", [oid], never_later)) == error


def test_names_that_are_not_there_or_there_already_are_refused(extended: Extended) -> None:
    session = extended.session
    session.prepared.prepare("s", "SELECT 1", [], never_later)
    session.prepared.bind("p", "s", ())
    assert raises(lambda: session.prepared.prepare("s", "SELECT 2", [], never_later)) == (
        "42P05",
        'prepared statement "s" already exists',
    )
    assert raises(lambda: session.prepared.bind("p", "s", ())) == ("42P03", 'cursor "p" already exists')
    assert raises(lambda: session.prepared.bind("", "no", ())) == (
        "26000",
        'prepared statement "no" does not exist',
    )
    assert raises(lambda: session.prepared.describe_statement("no"))[0] == "26000"
    assert raises(lambda: session.prepared.describe_portal("no")) == ("34000", 'portal "no" does not exist')
    outcome = session.execute_portal("no", encoder_for, extended.later.append)
    assert isinstance(outcome, FailureOutcome)
    assert outcome.error.sqlstate == "34000"
    session.prepared.close_statement("s")
    session.prepared.close_statement("s")
    assert raises(lambda: session.prepared.bind("", "s", ()))[0] == "26000"
    assert raises(lambda: session.prepared.bind("", "", ()))[1] == "unnamed prepared statement does not exist"


def test_a_wrong_number_of_parameters_is_refused(extended: Extended) -> None:
    extended.session.prepared.prepare("s", "SELECT $1::int + $2::int", [], never_later)
    assert raises(lambda: extended.session.prepared.bind("", "s", (1,))) == (
        "08P01",
        'bind message supplies 1 parameters, but prepared statement "s" requires 2',
    )


def test_a_prepared_statement_is_one_command(extended: Extended) -> None:
    assert raises(lambda: extended.session.prepared.prepare("s", "SELECT 1; SELECT 2", [], never_later)) == (
        "42601",
        "cannot insert multiple commands into a prepared statement",
    )


def test_an_empty_statement_answers_with_an_empty_tag(extended: Extended) -> None:
    extended.session.prepared.prepare("", " -- nothing", [], never_later)
    assert extended.session.prepared.describe_statement("") == ((), None)
    assert extended.rows("") == ""


def test_a_parameter_in_a_simple_query_is_refused(client: Client) -> None:
    assert client.fails("SELECT $1") == ("42P02", "there is no parameter $1")


def test_an_index_that_comes_or_goes_leaves_prepared_statements_working(extended: Extended) -> None:
    extended.client.run("INSERT INTO t VALUES (1, 'x')")
    extended.session.prepared.prepare("get", "SELECT a FROM t WHERE b = $1", [], never_later)
    for sql in ("CREATE INDEX t_b ON t (b)", "DROP INDEX t_b", "DROP INDEX t_a"):
        extended.client.run(sql)
        assert extended.rows("get", "x") == [(1,)]


def test_a_result_that_changed_its_type_is_refused(extended: Extended) -> None:
    extended.session.prepared.prepare("get", "SELECT * FROM t", [], never_later)
    extended.client.run("DROP TABLE t")
    assert raises(lambda: extended.rows("get")) == (
        "42P01",
        'relation "t" does not exist',
    )
    extended.client.run("CREATE TABLE t (a bigint, b text)")
    assert raises(lambda: extended.rows("get")) == ("0A000", "cached plan must not change result type")
    extended.client.run("DROP TABLE t")
    extended.client.run("CREATE TABLE t (a int, b text)")
    assert extended.rows("get") == []


def test_portals_end_with_the_transaction_and_statements_do_not(extended: Extended) -> None:
    session = extended.session
    session.prepared.prepare("s", "SELECT 1", [], never_later)
    session.prepared.bind("p", "s", ())
    assert isinstance(extended.execute("p"), RowsOutcome)
    extended.sync()
    assert raises(lambda: session.prepared.describe_portal("p"))[0] == "34000"
    assert extended.rows("s") == [(1,)]


def test_portals_end_with_their_block_before_the_next_sync(extended: Extended) -> None:
    prepared = extended.session.prepared
    extended.client.run("BEGIN")
    prepared.prepare("s", "SELECT 1", [], never_later)
    prepared.prepare("end", "COMMIT", [], never_later)
    prepared.bind("p", "s", ())
    assert extended.rows("end") == "COMMIT"
    assert raises(lambda: prepared.describe_portal("p"))[0] == "34000"


def test_a_failed_block_prepares_and_runs_only_its_end(extended: Extended) -> None:
    prepared = extended.session.prepared
    prepared.prepare("s", "SELECT 1", [], never_later)
    extended.client.run("BEGIN")
    prepared.bind("p", "s", ())
    assert extended.client.fails("SELECT 1 / 0")[0] == "22012"
    assert raises(lambda: prepared.prepare("t", "SELECT 2", [], never_later))[0] == "25P02"
    outcome = extended.execute("p")
    assert isinstance(outcome, FailureOutcome)
    assert outcome.error.sqlstate == "25P02"
    prepared.prepare("end", "ROLLBACK", [], never_later)
    assert extended.rows("end") == "ROLLBACK"


def test_deallocate_forgets_statements(extended: Extended) -> None:
    extended.session.prepared.prepare("s", "SELECT 1", [], never_later)
    assert extended.client.run("DEALLOCATE s") == "DEALLOCATE"
    assert extended.client.fails("DEALLOCATE s") == ("26000", 'prepared statement "s" does not exist')


def test_who_may_connect(server: Server) -> None:
    connect = server.coordinator.connect
    assert raises(lambda: connect("eve", "layby", {})) == ("28000", 'role "eve" does not exist')
    assert raises(lambda: connect("layby", "other", {})) == ("3D000", 'database "other" does not exist')


def test_a_cancel_request_needs_the_right_key(server: Server, client: Client, other: Client) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("INSERT INTO t VALUES (1)")
    client.run("BEGIN")
    client.run("UPDATE t SET a = 2")
    waiting = other.send("UPDATE t SET a = 3")
    session = other.session
    server.coordinator.cancel(session.process_id, (session.secret_key + 1) % 2**31)
    server.coordinator.cancel(session.process_id + 1000, session.secret_key)
    assert not waiting.done
    server.coordinator.cancel(session.process_id, session.secret_key)
    assert waiting.done


@pytest.fixture
def offloading(server: Server, client: Client) -> None:
    """A table whose reads all leave the loop, and a walk pool that steps row by row."""
    client.run("CREATE TABLE t (a int, b int)")
    client.run("INSERT INTO t SELECT g, 0 FROM generate_series(1, 50) AS g")
    for name in ("inline_budget", "yield_granularity"):
        server.coordinator.parameters.set(f"compute_index_peek_{name}", "1")


@pytest.mark.usefixtures("offloading")
@pytest.mark.parametrize(
    "sql", ["SELECT * FROM t", "UPDATE t SET b = 1", "DELETE FROM t", "INSERT INTO t SELECT a, 1 FROM t"]
)
def test_a_statement_cancelled_while_its_walk_is_offloaded_writes_nothing(
    server: Server, client: Client, sql: str
) -> None:
    query = client.send(sql)
    server.loop.turn()
    server.pool.step()
    assert len(server.pool.walks) == 1
    client.session.cancel()
    assert query.done
    assert query.error is not None
    assert (query.error.sqlstate, query.error.message) == (
        "57014",
        "canceling statement due to user request",
    )
    server.settle()
    assert client.run("SELECT b FROM t WHERE b = 1") == []
    assert len(client.run("SELECT b FROM t")) == 50


@pytest.mark.usefixtures("offloading")
def test_statement_timeout_ends_an_offloaded_walk(server: Server, client: Client) -> None:
    client.run("SET statement_timeout = 100")
    query = client.send("SELECT * FROM t")
    ((delay, expire),) = server.loop.timers
    assert delay == 0.1
    expire()
    assert query.error is not None
    assert query.error.message == "canceling statement due to statement timeout"


@pytest.mark.usefixtures("offloading")
def test_rows_that_come_after_the_cancellation_are_not_written(server: Server, client: Client) -> None:
    """The walk has ended when the cancel arrives, but its answer has not been collected."""
    client.run("BEGIN")
    query = client.send("UPDATE t SET b = 1")
    server.loop.turn()
    server.pool.run()
    client.session.cancel()
    assert query.done
    server.settle()
    assert len(query.outcomes) == 1
    client.run("COMMIT")
    assert client.run("SELECT b FROM t WHERE b = 1") == []


def test_a_large_write_cancelled_while_it_is_checked_is_dropped(server: Server, client: Client) -> None:
    client.run("CREATE TABLE t (a int)")
    query = client.send("INSERT INTO t SELECT g FROM generate_series(1, 5000) AS g")
    while not server.maintenance.jobs:
        assert server.step()
    client.session.cancel()
    assert query.error is not None
    server.settle()
    assert client.run("SELECT a FROM t LIMIT 1") == []


def test_a_large_write_cancelled_before_its_block_goes_back_stays_out_of_it(
    server: Server, client: Client
) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("BEGIN; SAVEPOINT s")
    query = client.send("INSERT INTO t SELECT g FROM generate_series(1, 5000) AS g")
    while not server.maintenance.jobs:
        assert server.step()
    held = server.maintenance.jobs.popleft()
    client.session.cancel()
    assert query.error is not None
    client.run("ROLLBACK TO s")
    held()
    server.settle()
    client.run("COMMIT")
    assert client.run("SELECT a FROM t LIMIT 1") == []


def test_a_read_cancelled_while_own_writes_are_laid_over_it_walks_nothing(
    server: Server, client: Client
) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("BEGIN")
    client.run("INSERT INTO t SELECT g FROM generate_series(1, 5000) AS g")
    metrics = server.coordinator.metrics
    walks = metrics.walks_inline + metrics.walks_offloaded
    query = client.send("SELECT a FROM t")
    assert len(server.maintenance.jobs) == 1
    client.session.cancel()
    assert query.error is not None
    server.settle()
    assert metrics.walks_inline + metrics.walks_offloaded == walks


# Closing


def test_a_closed_session_gives_up_what_its_block_holds(
    server: Server, client: Client, other: Client
) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("INSERT INTO t VALUES (1)")
    client.run("BEGIN")
    client.run("UPDATE t SET a = 2")
    waiting = other.send("UPDATE t SET a = a + 10")
    client.session.close()
    server.settle()
    assert waiting.result() == "UPDATE 1"
    assert other.run("SELECT a FROM t") == [(11,)]
    assert server.coordinator._snapshots == {}


@pytest.mark.usefixtures("offloading")
@pytest.mark.parametrize("in_block", [False, True])
def test_a_session_closed_while_it_walks_frees_the_walk(
    server: Server, client: Client, in_block: bool
) -> None:
    if in_block:
        client.run("BEGIN")
    query = client.send("UPDATE t SET b = 1")
    server.loop.turn()
    server.pool.step()
    client.session.close()
    server.settle()
    assert not query.done, "nobody listens"
    server.assert_nothing_leaked()


@pytest.mark.usefixtures("offloading")
def test_a_session_closed_while_it_waits_for_a_lock_leaves_the_queue(
    server: Server, client: Client, other: Client
) -> None:
    client.run("BEGIN")
    client.run("DELETE FROM t WHERE a > 1")
    other.run("BEGIN")
    other.send("DELETE FROM t")
    third = server.connect()
    third.send("INSERT INTO t VALUES (1000, 0)")
    other.session.close()
    third.session.close()
    client.run("COMMIT")
    server.assert_nothing_leaked()
    assert client.run("SELECT a FROM t") == [(1,)]


@pytest.mark.parametrize("sql", ["COMMIT", "ROLLBACK"])
def test_a_session_closed_during_its_commit_commits_and_keeps_its_locks_until_then(
    server: Server, client: Client, other: Client, sql: str
) -> None:
    client.run("CREATE TABLE t (a int)")
    client.run("CREATE TABLE u (a int)")
    client.run("INSERT INTO t VALUES (1)")
    client.run("BEGIN")
    client.run("UPDATE t SET a = 2")
    client.run("DROP TABLE u")
    client.send(sql)
    client.session.close()
    waiting = other.send("UPDATE t SET a = a * 10")
    assert not waiting.done
    server.settle()
    assert waiting.result() == "UPDATE 1"
    if sql == "COMMIT":
        assert other.run("SELECT a FROM t") == [(20,)]
        assert other.fails("SELECT a FROM u")[0] == "42P01"
    else:
        assert other.run("SELECT a FROM t") == [(10,)]
        assert other.run("SELECT a FROM u") == []
    server.assert_nothing_leaked()


@pytest.mark.parametrize("in_block", [False, True])
@pytest.mark.parametrize("sql", ["CREATE TABLE t (a int PRIMARY KEY)", "CREATE UNIQUE INDEX i ON s (a)"])
def test_a_session_closed_while_it_creates_leaves_nothing(
    server: Server, client: Client, other: Client, sql: str, in_block: bool
) -> None:
    other.run("CREATE TABLE s (a int)")
    before = server.arrangements()
    if in_block:
        client.run("BEGIN")
        client.run("SELECT a FROM s")
    client.send(sql)
    client.session.close()
    server.settle()
    assert server.arrangements() == before
    server.assert_nothing_leaked()
    assert other.run(sql) in ("CREATE TABLE", "CREATE INDEX")


def test_a_session_closed_during_copy_writes_nothing(server: Server, client: Client, other: Client) -> None:
    client.run("CREATE TABLE t (a int)")
    query = client.send("COPY t FROM STDIN")
    assert query.sink is not None
    query.sink.feed(b"1\n2\n" * 300_000)
    client.session.close()
    query.sink.feed(b"3\n")
    query.sink.finish()
    server.settle()
    assert other.run("SELECT a FROM t") == []
    server.assert_nothing_leaked()


def test_a_coordinator_that_closes_takes_no_sessions(server: Server) -> None:
    server.coordinator._closing = True
    assert raises(lambda: server.coordinator.connect("layby", "layby", {})) == (
        "57P03",
        "the database system is shutting down",
    )
