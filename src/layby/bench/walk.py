"""Walk: how long one walk takes, a client at a time, of integers, of text, of a range, and of the first rows.

The client does not look at the rows. Beside its round trip (`p50_ms`) an arm has `walk_ms`, the server's own
time without the wire: for layby the mean of all walks of the run from its metrics, for PostgreSQL the median
execution time that EXPLAIN ANALYZE states. The arm `numpy` is the bare comparison of the same integers, in
the process of the benchmark, as fast as any walk in numpy could be.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

import numpy as np
from rich.console import Console

from layby.bench.arms import OFFLOAD_ON, Extra, compare, figure_of, set_parameters
from layby.bench.drive import run_together
from layby.bench.load import Load
from layby.bench.plan import Plan
from layby.bench.result import Result, combine, ratio, summarize
from layby.bench.scrape import mean_walk_ms, scrape
from layby.bench.server import LaybyServer, PostgresServer, Server
from layby.bench.table import load_table, make_table

SCENARIO = "walk"
NUMPY = "numpy"
_EXPLAINED = 9


@dataclass(frozen=True, slots=True)
class _Walk:
    name: str
    statement: str
    rows: int


def walk(plan: Plan, console: Console) -> list[Result]:
    """Run the scenario; one result an arm, the median of its rounds. Progress goes to `console`."""
    first = plan.rows // 2
    share = plan.rows // 100
    walks = [
        _Walk("integer", "SELECT k FROM walk WHERE v = -1", 0),
        _Walk("text", "SELECT k FROM walk_text WHERE t = 'nobody'", 0),
        _Walk("range", f"SELECT v FROM walk WHERE k BETWEEN {first} AND {first + share - 1}", share),
        _Walk("first-rows", "SELECT k, v FROM walk ORDER BY k LIMIT 10", 10),
    ]
    with ExitStack() as stack:
        layby = stack.enter_context(plan.layby())
        servers: list[Server] = [layby]
        if plan.postgres:
            servers.append(stack.enter_context(PostgresServer()))
        for server in servers:
            load_table(server, "walk", plan.rows)
            rows = f"SELECT g, 'customer ' || g % 1000 FROM generate_series(1, {plan.rows}) AS g"
            make_table(server, "walk_text", "k int, t text", rows)
            console.log(f"{server.name}: two tables of {plan.rows:,} rows loaded and indexed")
        set_parameters(layby, OFFLOAD_ON)
        runs: dict[str, list[Result]] = {}
        for round_ in range(1, plan.rounds + 1):
            turns = [_run(server, walk_, plan.seconds) for walk_ in walks for server in servers]
            turns.append(_run_numpy(plan))
            for result in turns:
                runs.setdefault(result.arm, []).append(result)
            console.log(
                f"round {round_} of {plan.rounds}: " + ", ".join(f"{r.arm} {r.p50_ms} ms" for r in turns)
            )
    results = [combine(repeats) for repeats in runs.values()]
    return results + _ratios(results, [walk_.name for walk_ in walks])


def _run(server: Server, walk_: _Walk, seconds: float) -> Result:
    """One client, one walk after the other."""
    load = Load(
        server.host,
        server.port,
        walk_.statement,
        rate=0.0,
        seconds=seconds,
        connections=1,
        prepared=True,
        expect_rows=walk_.rows,
        unread=True,
    )
    extra: Extra = {}
    if isinstance(server, LaybyServer):
        before = scrape(server)
        (measured,) = run_together([load])
        taken = mean_walk_ms(before, scrape(server))
    else:
        (measured,) = run_together([load])
        taken = _explained_ms(server, walk_.statement)
    if taken is not None:
        extra["walk_ms"] = round(taken, 4)
    if measured.error:
        extra["error"] = measured.error
    arm = walk_.name if isinstance(server, LaybyServer) else f"{server.name}-{walk_.name}"
    return summarize(
        SCENARIO, arm, measured.latencies_ms, errors=measured.errors, seconds=measured.elapsed_s, extra=extra
    )


def _explained_ms(server: Server, statement: str) -> float:
    """The execution time that PostgreSQL states for a statement, the median of a few."""
    with server.connect() as connection:
        plans = [
            connection.query(f"EXPLAIN (ANALYZE, TIMING OFF) {statement}").rows for _ in range(_EXPLAINED)
        ]
    lines = [str(line) for plan in plans for (line,) in plan]
    return median(float(line.split()[2]) for line in lines if line.startswith("Execution Time:"))


def _run_numpy(plan: Plan) -> Result:
    """The bare comparison, again and again, for a tenth of a run."""
    values = (np.arange(1, plan.rows + 1, dtype=np.int32)) % 1000
    latencies = _timed(lambda: values == -1, plan.seconds / 10)
    taken = round(float(np.median(latencies)), 4)
    return summarize(
        SCENARIO, NUMPY, latencies, errors=0, seconds=sum(latencies) / 1e3, extra={"walk_ms": taken}
    )


def _timed(work: Callable[[], object], seconds: float) -> list[float]:
    """How long `work` takes, in milliseconds, each time until `seconds` are over."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end or not latencies:
        work()
        latencies.append((time.perf_counter() - began) * 1e3)
    return latencies


def _ratios(results: list[Result], names: list[str]) -> list[Result]:
    """How many times faster than PostgreSQL, and how many times what numpy takes."""
    found = {result.arm: result for result in results}
    ratios = [
        ratio(
            SCENARIO,
            f"speedup-{name}{suffix}",
            figure_of(found[f"postgres-{name}"], figure),
            figure_of(found[name], figure),
            of=f"{figure} postgres-{name} / {figure} {name}",
        )
        for name in names
        for figure, suffix in (("p50_ms", ""), ("walk_ms", "-in-server"))
        if f"postgres-{name}" in found
    ]
    return [
        *ratios,
        *compare(results, "p50_ms", [("ratio-integer-vs-numpy", "integer", NUMPY)]),
        *compare(results, "walk_ms", [("ratio-integer-vs-numpy-in-server", "integer", NUMPY)]),
    ]
