"""Isolation: what long walks beside them do to point lookups.

`hot (k int, v int)` with an index on `k` and distinct keys. 50 lookups a second of one key, and beside them
3 walks a second that filter every row away; without and with two outside programs that keep cores busy.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from rich.console import Console

from layby.bench.arms import (
    NORMAL_PRIORITY,
    OFFLOAD_OFF,
    OFFLOAD_ON,
    Arm,
    Beside,
    compare,
    interleave,
    run_arm,
)
from layby.bench.load import Load
from layby.bench.plan import Plan
from layby.bench.result import Result
from layby.bench.server import PostgresServer, Server
from layby.bench.table import load_table

SCENARIO = "isolation"
LOOKUP = "SELECT v FROM hot WHERE k = 42"
WALK = "SELECT v FROM hot WHERE v = -1"
OUTSIDE = 2
_LOOKUPS_PER_S = 50.0
_WALKS_PER_S = 3.0
_LOOKUP_CONNECTIONS = 32
_WALK_CONNECTIONS = 48

# What the promise is stated in: p99 beside walks over p99 without.
RATIOS = (
    ("ratio-offload-off", "offload-off", "no-walks"),
    ("ratio-offload-on", "offload-on", "no-walks"),
    ("ratio-outside-load", "offload-on-outside-load", "no-walks-outside-load"),
    ("ratio-outside-load-vs-quiet", "offload-on-outside-load", "no-walks"),
    ("ratio-normal-priority", "normal-priority", "no-walks"),
    ("ratio-postgres", "postgres", "postgres-no-walks"),
    ("ratio-vs-postgres", "offload-on", "postgres"),
)


def isolation(plan: Plan, console: Console) -> list[Result]:
    """Run the scenario; one result an arm, the median of its rounds. Progress goes to `console`."""

    def lookups(server: Server) -> Load:
        return Load(
            server.host, server.port, LOOKUP, _LOOKUPS_PER_S, plan.seconds, _LOOKUP_CONNECTIONS, expect_rows=1
        )

    def walks(server: Server) -> tuple[Beside]:
        load = Load(
            server.host, server.port, WALK, _WALKS_PER_S, plan.seconds, _WALK_CONNECTIONS, expect_rows=0
        )
        return (Beside("walk", load),)

    with ExitStack() as stack:
        layby: Server = stack.enter_context(plan.layby())
        postgres = stack.enter_context(PostgresServer()) if plan.postgres else None
        for server in filter(None, (layby, postgres)):
            load_table(server, "hot", plan.rows)
            console.log(f"{server.name}: {plan.rows:,} rows loaded and indexed")
        arms = arms_of_walks(layby, postgres, lookups, walks)
        results = interleave(SCENARIO, plan, arms, console, run_arm)
    return results + compare(results, "p99_ms", RATIOS)


def arms_of_walks(
    layby: Server,
    postgres: Server | None,
    lookups: Callable[[Server], Load],
    walks: Callable[[Server], tuple[Beside, ...]],
) -> list[Arm]:
    """The arms of an isolation scenario: without and with walks, the offload off and on, outside load."""
    quiet, busy = lookups(layby), walks(layby)
    arms = [
        Arm("no-walks", layby, quiet, parameters=OFFLOAD_ON),
        Arm("offload-off", layby, quiet, busy, OFFLOAD_OFF),
        Arm("offload-on", layby, quiet, busy, OFFLOAD_ON),
        Arm("normal-priority", layby, quiet, busy, NORMAL_PRIORITY),
        Arm("no-walks-outside-load", layby, quiet, parameters=OFFLOAD_ON, outside=OUTSIDE),
        Arm("offload-on-outside-load", layby, quiet, busy, OFFLOAD_ON, OUTSIDE),
        Arm("normal-priority-outside-load", layby, quiet, busy, NORMAL_PRIORITY, OUTSIDE),
    ]
    if postgres is not None:
        arms += [
            Arm("postgres-no-walks", postgres, lookups(postgres)),
            Arm("postgres", postgres, lookups(postgres), walks(postgres)),
        ]
    return arms
