"""Lookup: how many point lookups of random keys a server answers in a second, in a closed loop.

Prepared and simple statements, from 1, 4 and 16 clients. The client is pgbench; without it our own load
generator, one process, which stops at some 30,000 queries a second: the result then says so.
"""

from __future__ import annotations

from contextlib import ExitStack

from rich.console import Console

from layby.bench.drive import run_together
from layby.bench.load import Load
from layby.bench.pgbench import find_pgbench, run_pgbench
from layby.bench.plan import Plan
from layby.bench.result import Result, combine, ratio, summarize
from layby.bench.server import LaybyServer, PostgresServer, Server
from layby.bench.table import load_table

SCENARIO = "lookup"
MODES = ("prepared", "simple")
CLIENTS = (1, 4, 16)


def lookup(plan: Plan, console: Console) -> list[Result]:
    """Run the scenario; one result a server, mode and number of clients, the median of its rounds."""
    with ExitStack() as stack:
        servers: list[Server] = [stack.enter_context(plan.layby())]
        if plan.postgres:
            servers.append(stack.enter_context(PostgresServer()))
        for server in servers:
            load_table(server, "lookup", plan.rows)
            console.log(f"{server.name}: {plan.rows:,} rows loaded and indexed")
        runs: dict[str, list[Result]] = {}
        for round_ in range(1, plan.rounds + 1):
            for mode in MODES:
                for clients in CLIENTS:
                    for server in servers:
                        result = _run(server, mode, clients, plan)
                        console.log(f"round {round_} of {plan.rounds}, {result.arm}: {result.qps:,.0f}/s")
                        runs.setdefault(result.arm, []).append(result)
    results = {arm: combine(repeats) for arm, repeats in runs.items()}
    return list(results.values()) + _ratios(results)


def _arm(server: Server, mode: str, clients: int) -> str:
    name = f"{mode}-{clients}"
    return name if isinstance(server, LaybyServer) else f"{server.name}-{name}"


def _run(server: Server, mode: str, clients: int, plan: Plan) -> Result:
    """One run of one arm."""
    arm = _arm(server, mode, clients)
    program = find_pgbench()
    if program is not None:
        script = f"\\set k random(1, {plan.rows})\nSELECT v FROM lookup WHERE k = :k;\n"
        seen = run_pgbench(program, server, script, mode=mode, clients=clients, seconds=plan.seconds)
        extra: dict[str, float | int | str] = {"client": "pgbench"}
        return Result(SCENARIO, arm, n=seen.n, errors=seen.errors, qps=round(seen.tps, 1), extra=extra)
    load = Load(
        server.host,
        server.port,
        "SELECT v FROM lookup WHERE k = $1",
        rate=0.0,
        seconds=plan.seconds,
        connections=clients,
        prepared=mode == "prepared",
        keys=plan.rows,
        expect_rows=1,
    )
    (measured,) = run_together([load])
    return summarize(
        SCENARIO,
        arm,
        measured.latencies_ms,
        errors=measured.errors,
        seconds=measured.elapsed_s,
        extra={"client": "layby"},
    )


def _ratios(results: dict[str, Result]) -> list[Result]:
    """For each mode and number of clients that both servers ran: layby's rate over PostgreSQL's."""
    return [
        ratio(
            SCENARIO,
            f"ratio-{arm}",
            result.qps,
            results[f"postgres-{arm}"].qps,
            of="qps layby / qps postgres",
        )
        for arm, result in results.items()
        if f"postgres-{arm}" in results
    ]
