"""Hydration: lookups of one index while another is built on the same table, dropped, and built again."""

from __future__ import annotations

from rich.console import Console

from layby.bench.arms import OFFLOAD_ON, Arm, Beside, compare, interleave, run_arm
from layby.bench.load import Load
from layby.bench.plan import Plan
from layby.bench.result import Result
from layby.bench.table import load_table

SCENARIO = "hydration"
_LOOKUPS_PER_S = 50.0
_CONNECTIONS = 32
_BUILD = "CREATE INDEX hydration_v ON hydration (v); DROP INDEX hydration_v"


def hydration(plan: Plan, console: Console) -> list[Result]:
    """Run the scenario; one result an arm, the median of its rounds. Progress goes to `console`."""
    with plan.layby() as server:
        load_table(server, "hydration", plan.rows)
        console.log(f"layby: {plan.rows:,} rows loaded and indexed")
        lookups = Load(
            server.host,
            server.port,
            "SELECT v FROM hydration WHERE k = $1",
            _LOOKUPS_PER_S,
            plan.seconds,
            _CONNECTIONS,
            prepared=True,
            keys=plan.rows,
            expect_rows=1,
        )
        builds = Load(server.host, server.port, _BUILD, rate=0.0, seconds=plan.seconds, connections=1)
        arms = [
            Arm("quiet", server, lookups, parameters=OFFLOAD_ON),
            Arm("hydrating", server, lookups, (Beside("build", builds),), OFFLOAD_ON),
        ]
        results = interleave(SCENARIO, plan, arms, console, run_arm)
    return results + compare(results, "p99_ms", [("ratio-hydrating", "hydrating", "quiet")])
