"""Many or large parameters: a plan takes them apart from the loop, and comes to what it comes to with few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from layby.adapter.jobs import ArrangeRuns, Instantiate, MakeUpdates, SortWrites
from layby.adapter.outcome import Outcome
from layby.compute.runtime import Job
from layby.expr.mfp import Mfp
from layby.expr.packed import PackedMfp
from layby.memory.arena import HEAP
from layby.sql.instantiate import Recipe
from layby.sql.params import MANY, PackedParams, pack_params
from layby.sql.plan import MANY_RANGES, PackedRecipe, SelectPlan
from layby.types.type_list import TypeList
from tests.adapter.harness import Client, decode, encoder_for
from tests.adapter.test_long_texts import Later, executed, prepared

COUNT = 3 * MANY
LARGE = "x" * 100_000


@pytest.fixture
def table(client: Client) -> Client:
    client.run("CREATE TABLE t (a int, b text, c float8)")
    client.run("CREATE INDEX t_a ON t (a)")
    client.run("CREATE INDEX t_b ON t (b)")
    client.run("INSERT INTO t VALUES (1, 'one', 1.5), (2, 'two', 2.5), (3, NULL, -0.0), (NULL, 'none', 4)")
    return client


@pytest.fixture
def jobs(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Note what is run apart."""
    noted: list[Job] = []
    run_apart = client.server.maintenance.run_apart

    def noting(job: Job, then: Callable[[object], None]) -> None:
        noted.append(job)
        run_apart(job, then)

    monkeypatch.setattr(client.server.maintenance, "run_apart", noting)
    return noted


@pytest.fixture
def unpacked(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note whether a job ran or the loop, each time that parameters are unpacked."""
    done: list[bool] = []
    in_job: list[bool] = []
    step, unpack = client.server.maintenance.step, PackedParams.unpack

    def stepped() -> bool:
        in_job.append(True)
        try:
            return step()
        finally:
            in_job.clear()

    def noted(params: PackedParams) -> Any:
        done.append(bool(in_job))
        return unpack(params)

    monkeypatch.setattr(client.server.maintenance, "step", stepped)
    monkeypatch.setattr(PackedParams, "unpack", noted)
    return done


def numbers(count: int, first: int = 1) -> str:
    return ", ".join(f"${n}" for n in range(first, first + count))


def have(client: Client, sql: str, oids: tuple[int, ...] = ()) -> None:
    """Have a statement prepared as the unnamed one, wherever it is planned."""
    later = Later()
    if not client.session.prepared.prepare("", sql, oids, later):
        client.server.settle()
        assert later.got == [None]


def run(client: Client, sql: str, *params: Any, oids: tuple[int, ...] = ()) -> Any:
    """Run a statement once with its parameters, and end its transaction."""
    have(client, sql, oids)
    found = executed(client, "", *params)
    client.session.sync(Later())
    client.server.settle()
    return found


def run_large(client: Client, sql: str, *params: Any) -> Any:
    """Run a statement with parameters that a Bind has read apart."""
    have(client, sql)
    client.session.prepared.bind("", "", pack_params(params, HEAP))
    later = Later()
    outcome: Outcome | None = client.session.execute_portal("", encoder_for, later)
    assert outcome is None
    client.server.settle()
    client.session.sync(Later())
    client.server.settle()
    (outcome,) = later.got
    return outcome


@pytest.mark.parametrize(("count", "apart"), [(MANY, False), (MANY + 1, True)])
def test_many_parameters_are_put_into_their_plan_apart(
    table: Client, jobs: list[Job], count: int, apart: bool
) -> None:
    have(table, f"SELECT a FROM t WHERE a IN ({numbers(count)})")
    jobs.clear()
    assert executed(table, "", *range(2, count + 2)) == [(2,), (3,)]
    assert [type(job) for job in jobs] == [Instantiate] * apart


def test_a_plan_of_many_parameters_holds_nothing_that_grows_with_them(table: Client) -> None:
    have(table, f"SELECT a FROM t WHERE a IN ({numbers(COUNT)}) OR c IN ({numbers(COUNT)}) LIMIT $1")
    planned = table.session.prepared._statements[""].planned
    assert planned is not None
    assert isinstance(planned.plan, SelectPlan)
    assert isinstance(planned.params, TypeList)
    plan = planned.plan
    assert isinstance(plan.recipe, PackedRecipe)
    assert (plan.ranges, plan.limit, plan.mfp.predicates, plan.mfp.outputs) == (None, None, (), ())


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (f"SELECT a FROM t WHERE a IN ({numbers(COUNT)}) ORDER BY a", [(1,), (2,), (3,)]),
        (f"SELECT a FROM t WHERE a IN ({numbers(COUNT)}) ORDER BY a DESC LIMIT 2", [(3,), (2,)]),
        (f"SELECT a FROM t WHERE a IN ({numbers(COUNT)}) ORDER BY a LIMIT $1 OFFSET $2", [(3,)]),
        (f"SELECT b FROM t WHERE a + 0 IN ({numbers(COUNT)}) AND c > 2 ORDER BY b", [("two",)]),
        (f"SELECT b FROM t WHERE a NOT IN ({numbers(COUNT - 2, 3)}) ORDER BY a", [("one",), ("two",)]),
        (f"SELECT a FROM t WHERE a > $1 AND (a = 9 OR c NOT IN ({numbers(COUNT)}))", [(2,), (3,)]),
        (f"SELECT g FROM generate_series($1, $3) g WHERE g IN ({numbers(COUNT)})", [(1,), (2,), (3,)]),
        (f"VALUES ({numbers(COUNT)})", [tuple(range(1, COUNT + 1))]),
        (f"SELECT a, current_user FROM t WHERE a IN ({numbers(COUNT)}) AND b IS NULL", [(3, "layby")]),
        (f"SELECT typname FROM pg_type WHERE oid IN (16, {numbers(COUNT)}) AND oid < 17", [("bool",)]),
    ],
)
def test_reads_of_every_kind(table: Client, sql: str, expected: Any) -> None:
    assert run(table, sql, *range(1, COUNT + 1), oids=(23,) * COUNT) == expected


def test_null_parameters_match_nothing_and_leave_not_in_unknown(table: Client) -> None:
    params = [None, *range(2, COUNT + 1)]
    assert run(table, f"SELECT a FROM t WHERE a IN ({numbers(COUNT)})", *params) == [(2,), (3,)]
    assert run(table, f"SELECT a FROM t WHERE c NOT IN ({numbers(COUNT)})", *params) == []


def test_integers_of_another_width_find_their_keys(table: Client) -> None:
    params = [2**40, *range(2, COUNT + 1)]
    sql = f"SELECT a FROM t WHERE a IN ({numbers(COUNT)})"
    assert run(table, sql, *params, oids=(20,) * COUNT) == [(2,), (3,)]
    filtered = f"SELECT a FROM t WHERE a + 0 IN ({numbers(COUNT)})"
    assert run(table, filtered, *params, oids=(20,) * COUNT) == [(2,), (3,)]


def test_rows_that_are_written_take_their_parameters(table: Client) -> None:
    cells = ", ".join(f"(${2 * n + 1}, ${2 * n + 2}::text || '!')" for n in range(COUNT))
    params = [value for n in range(COUNT) for value in (100 + n, f"v{n}")]
    assert run(table, f"INSERT INTO t (a, b) VALUES {cells}", *params) == f"INSERT 0 {COUNT}"
    assert table.run("SELECT b FROM t WHERE a = 142") == [("v42!",)]
    updated = run(
        table, f"UPDATE t SET b = $1 WHERE a IN ({numbers(COUNT, 2)})", "new", *range(100, 100 + COUNT)
    )
    assert updated == f"UPDATE {COUNT}"
    assert table.run("SELECT a FROM t WHERE b = 'new' AND a < 102") == [(100,), (101,)]
    deleted = run(table, f"DELETE FROM t WHERE a IN ({numbers(COUNT)})", *range(101, 101 + COUNT))
    assert deleted == f"DELETE {COUNT - 1}"
    assert table.run("SELECT a FROM t WHERE b = 'new'") == [(100,)]


def test_a_block_sees_its_own_rows(table: Client) -> None:
    table.run("BEGIN")
    table.run("INSERT INTO t VALUES (7, 'own')")
    have(table, f"SELECT b FROM t WHERE a IN ({numbers(COUNT)}) AND a > 2")
    assert executed(table, "", *range(1, COUNT + 1)) == [(None,), ("own",)]
    table.run("COMMIT")


def test_explain_tells_the_plan_and_analyze_runs_it(table: Client) -> None:
    sql = f"SELECT a FROM t WHERE a IN ({numbers(COUNT)})"
    explained = run(table, f"EXPLAIN {sql}", *range(COUNT))
    assert explained[0] == ("Peek at index t_a on t",)
    analyzed = run(table, f"EXPLAIN ANALYZE {sql}", *range(COUNT))
    assert analyzed[: len(explained)] == explained
    assert ("  Rows: 3",) in analyzed


def test_each_execution_of_a_portal_takes_its_parameters(table: Client, jobs: list[Job]) -> None:
    have(table, f"SELECT a FROM t WHERE a IN ({numbers(COUNT)})")
    jobs.clear()
    assert executed(table, "", *range(1, COUNT + 1)) == [(1,), (2,), (3,)]
    assert executed(table, "", *range(3, COUNT + 3)) == [(3,)]
    assert [type(job) for job in jobs] == [Instantiate] * 2


LISTED = f"SELECT a FROM t WHERE a IN ({numbers(COUNT)}"


@pytest.mark.parametrize(
    ("sql", "value", "error"),
    [
        (f"{LISTED}) LIMIT $1", -1, ("2201W", "LIMIT must not be negative")),
        (f"{LISTED}, 1 / ($1 - 1))", 1, ("22012", "division by zero")),
        (
            f"INSERT INTO t (a, b) VALUES ($1, concat({numbers(COUNT)}))",
            2**40,
            ("22003", "integer out of range"),
        ),
    ],
    ids=["limit", "key", "row"],
)
def test_an_error_is_the_statements(table: Client, sql: str, value: int, error: tuple[str, str]) -> None:
    assert run(table, sql, *[value] * COUNT, oids=(20,) * COUNT) == error
    assert table.run("SELECT a FROM t WHERE a = 1") == [(1,)]


def test_an_error_fails_the_block(table: Client) -> None:
    have(table, f"{LISTED}) LIMIT $1", (20,) * COUNT)
    table.run("BEGIN")
    assert executed(table, "", *[-1] * COUNT) == ("2201W", "LIMIT must not be negative")
    assert table.session.status == b"E"
    table.run("ROLLBACK")


def under_way(client: Client) -> Later:
    """Have a statement begun whose parameters are being put into its plan."""
    have(client, f"SELECT a FROM t WHERE a IN ({numbers(COUNT)})")
    client.session.prepared.bind("", "", tuple(range(COUNT)))
    later = Later()
    assert client.session.execute_portal("", encoder_for, later) is None
    assert len(client.server.maintenance.jobs) == 1
    return later


def test_a_cancellation_ends_it(table: Client) -> None:
    later = under_way(table)
    table.session.cancel()
    (outcome,) = later.got
    assert outcome.error.sqlstate == "57014"
    table.server.settle()
    assert len(later.got) == 1


def test_its_timeout_ends_it(table: Client) -> None:
    table.run("SET statement_timeout = 2500")
    later = under_way(table)
    ((_, expire),) = table.server.loop.timers
    expire()
    (outcome,) = later.got
    assert outcome.error.message == "canceling statement due to statement timeout"
    table.server.settle()


def test_a_session_that_is_closed_takes_nothing_more(table: Client, other: Client) -> None:
    later = under_way(table)
    table.session.close()
    table.server.settle()
    assert later.got == []
    assert other.run("SELECT a FROM t WHERE a = 1") == [(1,)]


def test_a_table_that_is_dropped_meanwhile_is_not_there(table: Client, other: Client) -> None:
    later = under_way(table)
    held, table.server.maintenance.jobs = table.server.maintenance.jobs, type(table.server.maintenance.jobs)()
    other.run("DROP TABLE t")
    table.server.maintenance.jobs = held
    table.server.settle()
    (outcome,) = later.got
    assert (outcome.error.sqlstate, outcome.error.message) == ("42P01", 'relation "t" does not exist')


@pytest.mark.parametrize(
    ("sql", "params", "rows"),
    [
        ("SELECT a FROM t WHERE b = $1", [LARGE], [(9,)]),
        ("SELECT a FROM t WHERE b > $1", [LARGE[:-1]], [(9,)]),
        ("SELECT a FROM t WHERE b > $1 ORDER BY b DESC", [LARGE], []),
        ("SELECT a FROM t WHERE b >= $1 AND b <= $2", [LARGE, LARGE + "y"], [(9,)]),
        ("SELECT a FROM t WHERE b || '' = $1 AND a > 1", [LARGE], [(9,)]),
        ("SELECT length($1::text)", [LARGE], [(100_000,)]),
        ("SELECT a FROM t WHERE a = $1", [2], [(2,)]),
        ("SELECT a FROM t ORDER BY a LIMIT $1", [2], [(1,), (2,)]),
        ("SELECT $1::text", [LARGE], [(LARGE,)]),
    ],
)
def test_large_values_are_taken_apart_and_read_on_the_walk_pool(
    table: Client, unpacked: list[bool], sql: str, params: list[Any], rows: list[Any]
) -> None:
    table.run(f"INSERT INTO t VALUES (9, '{LARGE}', 1)")
    found = run_large(table, sql, *params)
    assert decode(found.encoded) == rows
    assert unpacked == [True]


def test_a_read_of_a_large_value_is_not_begun_on_the_loop(table: Client) -> None:
    walks = table.server.coordinator.metrics
    for sql in ("SELECT a FROM t WHERE b = $1", "SELECT a FROM t WHERE b < $1 AND a < 0", "SELECT $1::text"):
        before = walks.walks_offloaded
        run_large(table, sql, LARGE)
        assert walks.walks_offloaded == before + 1


@pytest.mark.parametrize(("count", "apart"), [(MANY_RANGES, False), (MANY_RANGES + 1, True)])
def test_a_read_of_many_keys_is_not_begun_on_the_loop(table: Client, count: int, apart: bool) -> None:
    metrics = table.server.coordinator.metrics
    before = metrics.walks_offloaded
    assert run(table, f"SELECT a FROM t WHERE a IN ({numbers(count)})", *range(3, 3 + count)) == [(3,)]
    assert metrics.walks_offloaded == before + apart
    keys = ", ".join(map(str, range(3, 3 + count)))
    assert table.run(f"SELECT a FROM t WHERE a IN ({keys})".ljust(5_000)) == [(3,)]
    assert metrics.walks_offloaded == before + 2 * apart


def test_a_large_row_is_written_apart(table: Client, jobs: list[Job]) -> None:
    large = "y" * (1 << 20)
    outcome = run_large(table, "INSERT INTO t (a, b) VALUES (5, $1)", large)
    assert outcome.tag == "INSERT 0 1"
    assert [type(job) for job in jobs] == [Instantiate, MakeUpdates, SortWrites]
    assert table.run("SELECT length(b) FROM t WHERE a = 5") == [(1 << 20,)]


def test_a_large_row_of_the_block_itself_is_arranged_apart(table: Client, jobs: list[Job]) -> None:
    table.run("BEGIN")
    have(table, "INSERT INTO t (a, b) VALUES (5, $1)")
    table.session.prepared.bind("", "", pack_params(["z" * (1 << 18)], HEAP))
    assert table.session.execute_portal("", encoder_for, Later()) is None
    table.server.settle()
    jobs.clear()
    assert table.run("SELECT length(b) FROM t WHERE a = 5") == [(1 << 18,)]
    assert [type(job) for job in jobs] == [ArrangeRuns]
    table.run("ROLLBACK")


def test_a_small_plan_with_large_values_goes_out_as_it_is(table: Client, jobs: list[Job]) -> None:
    run_large(table, "SELECT a FROM t WHERE b = $1 AND current_user = $2", LARGE, "layby")
    (job,) = jobs
    assert isinstance(job, Instantiate)
    assert isinstance(job.recipe, Recipe)
    assert isinstance(job.params, PackedParams)
    assert job.session == {"current_user": "layby"}


def test_a_long_list_of_constants_stays_packed_on_the_loop(
    table: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[PackedMfp] = []
    unpack = PackedMfp.unpack

    def noted(packed: PackedMfp) -> Mfp:
        done.append(packed)
        return unpack(packed)

    monkeypatch.setattr(PackedMfp, "unpack", noted)
    query = table.send(f"SELECT a FROM t WHERE a + 0 IN ({', '.join(map(str, range(2, 20_000)))})")
    while not table.server.pool.walks:
        assert table.server.maintenance.step() or table.server.loop.turn()
    assert done == []
    table.server.settle()
    assert query.result() == [(2,), (3,)]


def test_a_short_text_with_many_types_is_prepared_apart_and_kept(table: Client, other: Client) -> None:
    oids = (23,) * COUNT
    assert prepared(table, "", f"SELECT a FROM t WHERE a = ${COUNT}", oids) is None
    assert len(table.session.prepared.describe_statement("")[0]) == COUNT
    assert executed(table, "", *range(COUNT)) == []
    assert other.session.prepared.prepare("", f"SELECT a FROM t WHERE a = ${COUNT}", oids, Later())


@pytest.mark.parametrize(("count", "kept"), [(2_048, True), (2_049, False)])
def test_a_plan_of_very_many_types_is_not_looked_up_by_them(table: Client, count: int, kept: bool) -> None:
    sql, oids = f"SELECT a FROM t WHERE a = ${count}", (23,) * count
    assert prepared(table, "first", sql, oids) is None
    later = Later()
    assert table.session.prepared.prepare("second", sql, oids, later) is kept
    table.server.settle()
    assert later.got == ([] if kept else [None])
