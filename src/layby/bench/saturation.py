"""Saturation: lookups beside as many walks as the machine can run, and two more.

`saturation (k int, v int)` with an index on `k`; 200 prepared lookups a second of random keys, and beside
them a closed loop of full walks from as many clients as cores plus two. One more arm walks a table of a
twentieth of the size, since the lookups must not feel how long a walk is.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from rich.console import Console

from layby.bench.arms import OFFLOAD_ON, Arm, Beside, compare, interleave, run_arm
from layby.bench.isolation import RATIOS, arms_of_walks
from layby.bench.load import Load
from layby.bench.plan import Plan
from layby.bench.result import Result
from layby.bench.server import PostgresServer, Server
from layby.bench.table import load_table

SCENARIO = "saturation"
LOOKUPS_PER_S = 200.0
_LOOKUP_CONNECTIONS = 64
_SMALLER = 20


def saturation(plan: Plan, console: Console) -> list[Result]:
    """Run the scenario; one result an arm, the median of its rounds. Progress goes to `console`."""
    with ExitStack() as stack:
        layby: Server = stack.enter_context(plan.layby())
        postgres = stack.enter_context(PostgresServer()) if plan.postgres else None
        for server in filter(None, (layby, postgres)):
            load_table(server, "saturation", plan.rows)
            console.log(f"{server.name}: {plan.rows:,} rows loaded and indexed")
        small = plan.rows // _SMALLER
        load_table(layby, "small", small)
        arms = arms_of_walks(
            layby,
            postgres,
            lambda server: lookups(server, "saturation", plan.rows, plan.seconds),
            lambda server: (walks(server, "saturation", plan.seconds),),
        )
        small_lookups, small_walks = (
            lookups(layby, "small", small, plan.seconds),
            walks(layby, "small", plan.seconds),
        )
        arms.append(Arm("offload-on-small", layby, small_lookups, (small_walks,), OFFLOAD_ON))
        results = interleave(SCENARIO, plan, arms, console, run_arm)
    return [
        *results,
        *compare(results, "p99_ms", [*RATIOS, ("ratio-size", "offload-on", "offload-on-small")]),
        *compare(results, "walks_per_s", [("ratio-walk-throughput", "offload-on", "offload-off")]),
    ]


def lookups(server: Server, table: str, rows: int, seconds: float) -> Load:
    """Prepared lookups of random keys, on a schedule."""
    return Load(
        server.host,
        server.port,
        f"SELECT v FROM {table} WHERE k = $1",
        LOOKUPS_PER_S,
        seconds,
        _LOOKUP_CONNECTIONS,
        prepared=True,
        keys=rows,
        expect_rows=1,
    )


def walks(server: Server, table: str, seconds: float) -> Beside:
    """Full walks that find nothing, from as many clients as cores plus two, one after the other each."""
    clients = (os.cpu_count() or 1) + 2
    load = Load(
        server.host,
        server.port,
        f"SELECT v FROM {table} WHERE v = -1",
        rate=0.0,
        seconds=seconds,
        connections=clients,
        expect_rows=0,
    )
    return Beside("walk", load)
