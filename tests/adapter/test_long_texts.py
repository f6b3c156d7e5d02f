"""Long texts: nothing of them is parsed or planned within a call; they come to what short ones come to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from layby.adapter.long_texts import LONGEST_AT_ONCE, LONGEST_KEPT, PlanText
from layby.adapter.outcome import CommandOutcome, FailureOutcome, Outcome, RowsOutcome
from layby.errors import SqlError
from layby.memory.segment import segment_of
from layby.memory.shared_arena import SharedArena
from layby.types.column import FixedColumn
from tests.adapter.harness import Client, Server, decode, encoder_for

PADDING = "/*" + "x" * LONGEST_AT_ONCE + "*/"


class Later:
    """Takes what a session calls back with."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def __call__(self, value: Any) -> None:
        self.got.append(value)


def prepared(client: Client, name: str, sql: str, oids: tuple[int, ...] = ()) -> SqlError | None:
    """Have a long text prepared, to the end."""
    later = Later()
    assert client.session.prepared.prepare(name, sql, oids, later) is False
    assert later.got == []
    client.server.settle()
    (error,) = later.got
    assert error is None or isinstance(error, SqlError)
    return error


def executed(client: Client, statement: str, *params: Any) -> Any:
    client.session.prepared.bind("", statement, params)
    later = Later()
    outcome: Outcome | None = client.session.execute_portal("", encoder_for, later)
    if outcome is None:
        client.server.settle()
        (outcome,) = later.got
    if isinstance(outcome, RowsOutcome):
        return decode(outcome.encoded)
    if isinstance(outcome, FailureOutcome):
        return outcome.error.sqlstate, outcome.error.message
    assert isinstance(outcome, CommandOutcome)
    return outcome.tag


def insert(count: int) -> str:
    sql = "INSERT INTO t VALUES " + ", ".join(f"({n}, 'v{n}')" for n in range(count))
    assert len(sql) > LONGEST_AT_ONCE
    return sql


def on_its_way(server: Server, something: Callable[[], object]) -> None:
    """Have something happen while the plan of the long text under way is made, and not yet taken."""
    assert server.maintenance.step()
    held, server.loop.turns = server.loop.turns, []
    something()
    server.loop.turns = held
    server.settle()


@pytest.fixture
def table(client: Client) -> Client:
    client.run("CREATE TABLE t (a int, b text)")
    client.run("CREATE INDEX t_a ON t (a)")
    return client


def test_the_longest_text_that_is_short_is_answered_within_the_call(client: Client) -> None:
    sql = "SELECT 1".ljust(LONGEST_AT_ONCE)
    assert client.send(sql).result() == [(1,)]


def test_a_long_text_is_not_parsed_within_the_call_and_others_are_served_meanwhile(
    table: Client, other: Client
) -> None:
    query = table.send("this is no statement" + PADDING)
    assert query.outcomes == []
    assert other.send("SELECT count FROM (VALUES (7)) v (count)").result() == [(7,)]
    assert not query.done
    table.server.settle()
    assert query.error is not None
    assert (query.error.sqlstate, query.error.message) == ("42601", 'syntax error at or near "this"')


def test_the_rows_of_a_long_values_list_are_written(table: Client) -> None:
    assert table.run(insert(5_000)) == "INSERT 0 5000"
    assert table.run("SELECT b FROM t WHERE a = 4321") == [("v4321",)]
    assert table.run("SELECT a FROM t WHERE b = 'v0'") == [(0,)]


def test_a_long_values_list_reads_like_a_short_one(client: Client) -> None:
    rows = [(n, None if n % 3 else f"é{n}", n / 4) for n in range(500)]
    cells = [f"({a}, {'NULL' if b is None else repr(b)}, {c}::float8)" for a, b, c in rows]
    sql = "VALUES " + ", ".join(cells)
    assert client.run(sql) == rows
    assert client.run(f"{sql} ORDER BY 1 DESC LIMIT 2 {PADDING}") == [rows[499], rows[498]]


def test_constants_and_what_only_the_session_knows_stand_side_by_side(client: Client) -> None:
    sql = "VALUES " + ", ".join(f"({n}, current_user)" if n % 2 else f"({n}, 'x')" for n in range(600))
    assert client.run(sql) == [(n, "layby" if n % 2 else "x") for n in range(600)]


def test_the_first_error_of_a_cell_is_told(table: Client) -> None:
    cells = ", ".join(f"({n}, 'x')" for n in range(1_000))
    assert table.fails(f"INSERT INTO t VALUES {cells}, (1 / 0, 'x')") == ("22012", "division by zero")
    assert table.run("SELECT a FROM t") == []


def test_a_long_filter_finds_its_rows_by_the_index_and_without(table: Client) -> None:
    table.run("INSERT INTO t VALUES (3, 'v3'), (5000, 'v5000'), (9999999, 'none')")
    numbers = ", ".join(map(str, range(6_000)))
    assert table.run(f"SELECT b FROM t WHERE a IN ({numbers}) ORDER BY a") == [("v3",), ("v5000",)]
    texts = ", ".join(f"'v{n}'" for n in range(6_000))
    assert table.run(f"DELETE FROM t WHERE b IN ({texts})") == "DELETE 2"


def test_explain_counts_the_rows_of_a_long_values_list(table: Client) -> None:
    lines = table.run("EXPLAIN " + insert(1_000))
    assert ("Values: 1000 rows") in " ".join(line for (line,) in lines)


def test_system_relations_are_read_by_long_texts(table: Client) -> None:
    assert table.run("SELECT typname FROM pg_type WHERE oid = 23" + PADDING) == [("int4",)]
    assert table.run("SELECT id FROM layby_active_peeks" + PADDING) == []


@pytest.mark.parametrize(
    ("sql", "sqlstate", "message", "position"),
    [
        (f"SELECT 1; SELECT 'é'; {PADDING} SELECT nope", "42703", 'column "nope" does not exist', None),
        (f"SELECT 'é'; SELECT nope; SELECT 1 {PADDING}", "42703", 'column "nope" does not exist', None),
        (f"SELECT 'é'; {PADDING}; SELEC nope", "42601", 'syntax error at or near "SELEC"', "SELEC"),
        (f"SELECT 'é' || {PADDING} nope", "42703", 'column "nope" does not exist', None),
        (f"SELECT 'é'; SELECT 1 {PADDING}; SELECT 2 + nope", "42703", 'column "nope" does not exist', None),
    ],
)
def test_an_error_has_its_position_in_the_whole_script(
    client: Client, sql: str, sqlstate: str, message: str, position: str | None
) -> None:
    query = client.send(sql)
    client.server.settle()
    assert query.error is not None
    assert (query.error.sqlstate, query.error.message) == (sqlstate, message)
    assert query.error.position == sql.rindex(position or "nope") + 1


def test_a_syntax_error_at_the_end_keeps_what_comes_before_from_running(table: Client) -> None:
    query = table.send(f"INSERT INTO t VALUES (1, 'x'); {PADDING} SELEC")
    table.server.settle()
    assert [type(outcome) for outcome in query.outcomes] == [FailureOutcome]
    assert table.run("SELECT a FROM t") == []


def test_statements_of_a_script_may_name_what_those_before_them_made(client: Client) -> None:
    sql = f"CREATE TABLE t (a int, b text); {insert(1_000)}; SELECT b FROM t WHERE a = 999"
    query = client.send(sql)
    client.server.settle()
    assert [getattr(outcome, "tag", None) for outcome in query.outcomes] == [
        "CREATE TABLE",
        "INSERT 0 1000",
        "SELECT 1",
    ]
    assert query.result() == [("v999",)]


def test_a_failed_statement_of_a_long_script_takes_the_implicit_transaction_along(table: Client) -> None:
    assert table.fails(f"{insert(1_000)}; SELECT 1 / 0") == ("22012", "division by zero")
    assert table.run("SELECT a FROM t") == []


def test_white_space_alone_is_an_empty_script_however_long(client: Client) -> None:
    query = client.send(PADDING + " ; ;")
    client.server.settle()
    assert (query.outcomes, query.done) == ([], True)


def test_a_plan_is_made_again_where_the_catalog_changed_meanwhile(table: Client, other: Client) -> None:
    query = table.send(insert(1_000))
    on_its_way(table.server, lambda: other.run("DROP TABLE t"))
    assert query.error is not None
    assert (query.error.sqlstate, query.error.message) == ("42P01", 'relation "t" does not exist')


def test_an_index_made_meanwhile_is_used(table: Client, other: Client) -> None:
    table.run("INSERT INTO t VALUES (1, 'x')")
    query = table.send(f"EXPLAIN SELECT a FROM t WHERE b = 'x' {PADDING}")
    on_its_way(table.server, lambda: other.run("CREATE INDEX t_b ON t (b)"))
    assert "Peek at index t_b on t" in " ".join(line for (line,) in query.result())


def test_a_long_text_in_a_failed_block_is_refused_but_for_its_end(table: Client) -> None:
    table.run("BEGIN")
    table.fails("SELECT 1 / 0")
    refused = "current transaction is aborted, commands ignored until end of transaction block"
    assert table.fails("SELECT nope" + PADDING) == ("25P02", refused)
    assert table.fails(f"SELECT 1; {insert(1_000)}") == ("25P02", refused)
    assert table.run("ROLLBACK" + PADDING) == "ROLLBACK"
    assert table.session.status == b"I"


def test_a_block_keeps_its_snapshot_over_a_long_text(table: Client, other: Client) -> None:
    table.run("BEGIN")
    assert table.run("SELECT a FROM t") == []
    other.run("INSERT INTO t VALUES (1, 'x')")
    other.run("CREATE INDEX t_b ON t (b)")
    assert table.run("SELECT a FROM t WHERE b = 'x'" + PADDING) == []
    assert table.run("COMMIT") == "COMMIT"
    assert table.run("SELECT a FROM t WHERE b = 'x'" + PADDING) == [(1,)]


def by_request(client: Client) -> None:
    client.session.cancel()


def by_timeout(client: Client) -> None:
    ((delay, expire),) = client.server.loop.timers
    assert delay == 2.5
    expire()


@pytest.mark.parametrize(("end", "reason"), [(by_request, "user request"), (by_timeout, "statement timeout")])
@pytest.mark.parametrize("script", [False, True])
def test_waiting_for_a_plan_is_ended(
    table: Client, end: Callable[[Client], None], reason: str, script: bool
) -> None:
    table.run("SET statement_timeout = 2500")
    query = table.send(f"SELECT 1; {insert(1_000)}" if script else insert(1_000))
    if script:  # the script is split, and its second statement waits
        while not query.outcomes:
            assert table.server.step()
    end(table)
    assert query.done
    assert query.error is not None
    assert (query.error.sqlstate, query.error.message) == (
        "57014",
        f"canceling statement due to {reason}",
    )
    table.server.settle()
    assert table.run("SELECT a FROM t") == []


def test_a_session_that_is_closed_waits_for_no_plan(server: Server, table: Client) -> None:
    gone = server.connect()
    query = gone.send(insert(1_000))
    gone.session.close()
    server.settle()
    assert query.outcomes == []
    assert table.run("SELECT a FROM t") == []


def test_a_long_text_is_prepared_apart_and_runs_with_each_binding(table: Client) -> None:
    assert prepared(table, "put", f"INSERT INTO t VALUES ($1, $2) {PADDING}") is None
    types, columns = table.session.prepared.describe_statement("put")
    assert ([str(t) for t in types], columns) == (["integer", "text"], None)
    assert executed(table, "put", 1, "x") == "INSERT 0 1"
    assert executed(table, "put", 2, "y") == "INSERT 0 1"
    table.server.settle()
    table.session.sync(Later())
    table.server.settle()
    assert table.run("SELECT a, b FROM t ORDER BY a") == [(1, "x"), (2, "y")]


def test_many_parameters_of_a_long_values_list_are_filled_in(table: Client) -> None:
    count = 1_500
    cells = ", ".join(f"(${2 * n + 1}, ${2 * n + 2})" for n in range(count))
    # Drivers send the narrowest integers that hold the values: 21 is smallint, 23 integer.
    oids = tuple(oid for n in range(count) for oid in (21 if n % 2 else 23, 25))
    assert prepared(table, "", f"INSERT INTO t VALUES {cells}, (-1, 'constant'), ($1, NULL)", oids) is None
    params = [value for n in range(count) for value in (n * 2, None if n == 7 else f"p{n}")]
    assert executed(table, "", *params) == "INSERT 0 1502"
    table.session.sync(Later())
    table.server.settle()
    expected = [(-1, "constant"), (0, None), *((n * 2, None if n == 7 else f"p{n}") for n in range(count))]
    found = table.run("SELECT a, b FROM t ORDER BY a")
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_a_parameter_that_does_not_fit_is_told(table: Client) -> None:
    cells = ", ".join(f"(${n}, 'x')" for n in range(1, 1_001))
    assert prepared(table, "", f"INSERT INTO t VALUES {cells}", (20,) * 1_000) is None
    params = [*range(999), 2**40]
    assert executed(table, "", *params) == ("22003", "integer out of range")


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT nope", ("42703", 'column "nope" does not exist', 8)),
        ("SELECT 1; SELECT 2", ("42601", "cannot insert multiple commands into a prepared statement", None)),
    ],
)
def test_what_a_long_text_is_refused_for_is_told_by_prepare(
    client: Client, sql: str, error: tuple[str, str, int | None]
) -> None:
    found = prepared(client, "s", sql + PADDING)
    assert found is not None
    assert (found.sqlstate, found.message, found.position) == error
    with pytest.raises(SqlError, match='prepared statement "s" does not exist'):
        client.session.prepared.describe_statement("s")


def test_an_empty_text_is_prepared_however_long(client: Client) -> None:
    assert prepared(client, "", PADDING) is None
    assert client.session.prepared.describe_statement("") == ((), None)
    assert executed(client, "") == ""


def test_preparing_a_long_text_is_ended_by_a_cancellation(client: Client) -> None:
    later = Later()
    client.session.prepared.prepare("s", "SELECT 1" + PADDING, (), later)
    client.session.cancel()
    (error,) = later.got
    assert (error.sqlstate, error.message) == ("57014", "canceling statement due to user request")
    client.server.settle()
    assert len(later.got) == 1


def test_a_statement_is_prepared_under_the_catalog_that_is_in_force_at_the_end(
    table: Client, other: Client
) -> None:
    later = Later()
    table.session.prepared.prepare("s", "SELECT * FROM t" + PADDING, (), later)
    on_its_way(table.server, lambda: other.run("DROP TABLE t"))
    (error,) = later.got
    assert (error.sqlstate, error.message) == ("42P01", 'relation "t" does not exist')


def test_a_prepared_long_text_follows_the_catalog(table: Client, other: Client) -> None:
    assert prepared(table, "get", f"SELECT * FROM t WHERE b = 'x' {PADDING}") is None
    other.run("INSERT INTO t VALUES (1, 'x')")
    other.run("CREATE INDEX t_b ON t (b)")
    assert executed(table, "get") == [(1, "x")]
    table.session.sync(Later())
    other.run("DROP TABLE t")
    assert executed(table, "get") == ("42P01", 'relation "t" does not exist')
    table.session.sync(Later())
    other.run("CREATE TABLE t (a int, b text, c int)")
    assert executed(table, "get") == ("0A000", "cached plan must not change result type")


def test_a_long_text_that_is_not_kept_is_planned_again_once(table: Client, other: Client) -> None:
    sql = "SELECT * FROM t WHERE b = 'x' /*" + "x" * LONGEST_KEPT + "*/"
    assert prepared(table, "get", sql) is None
    other.run("CREATE INDEX t_b ON t (b)")
    assert executed(table, "get") == []
    table.session.prepared.bind("", "get", ())
    assert table.session.execute_portal("", encoder_for, Later()) is not None


def test_a_long_list_of_keys_crosses_as_columns_and_is_walked_in_either_order(client: Client) -> None:
    client.run("CREATE TABLE p (x float8, y text, z int)")
    client.run("CREATE INDEX p_xy ON p (x, y, z)")
    client.run("INSERT INTO p VALUES (0, 'a', 1), (-0.0, 'a', 2), (2, 'b', 3), (2, 'c', 4), (NULL, 'a', 5)")
    pairs = ", ".join(f"({n}, '{letter}')" for n in range(600) for letter in "ab")
    sql = f"SELECT x, y, z FROM p WHERE (x, y) IN ({pairs}) ORDER BY x"
    found = [(0.0, "a", 1), (-0.0, "a", 2), (2.0, "b", 3)]
    assert sorted(client.run(sql)) == sorted(found)
    assert client.run(f"{sql} DESC LIMIT 1") == [(2.0, "b", 3)]
    assert client.run(f"SELECT z FROM p WHERE (x, y) IN ({pairs}) AND z > 1 AND z < 3") == [(2,)]


def test_cells_of_every_kind_keep_their_places(client: Client) -> None:
    cells = "($1::text || '!'), ($2::text), (current_user), ($1::text || $2::text), ('c'), (NULL)"
    cells += ", ($2::text || '!')"
    assert prepared(client, "", f"VALUES {cells} {PADDING}") is None
    found = executed(client, "", "a", "b")
    assert found == [("a!",), ("b",), ("layby",), ("ab",), ("c",), (None,), ("b!",)]


@pytest.mark.parametrize(("rows", "kept"), [(500, True), (1_000, False)])
def test_a_plan_that_is_kept_shares_no_segment(table: Client, rows: int, kept: bool) -> None:
    coordinator = table.server.coordinator
    text = insert(rows)
    assert (len(text) <= LONGEST_KEPT) == kept
    job = PlanText(text, coordinator.catalog, (), failed=False)
    packed = job(SharedArena()).packed
    assert packed is not None
    numbers = packed.columns[0]
    assert isinstance(numbers, FixedColumn)
    assert (segment_of(numbers.values) is None) == kept
