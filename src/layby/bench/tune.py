"""Tune: the curve that the defaults of the peek path's budgets come from.

Inline budget by yield granularity: 200 prepared lookups a second of random keys beside saturating full
walks. A cell's `p99_ms` is that of the lookups, `walks_per_s` and `rows_per_s` the throughput of the walks,
and `short_p50_ms` a walk of a fiftieth of the table at ten a second: what an inline slice spares or costs
where a walk is about as long as its hand-over. The arm `no-walks` has the lookups alone.
"""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from layby.bench.arms import OFFLOAD_ON, Arm, Beside, interleave, run_arm
from layby.bench.load import Load
from layby.bench.plan import Plan
from layby.bench.result import Result
from layby.bench.saturation import lookups, walks
from layby.bench.table import load_table

SCENARIO = "tune"
INLINE_BUDGET = "compute_index_peek_inline_budget"
GRANULARITY = "compute_index_peek_yield_granularity"
BUDGETS = (1_024, 4_096, 16_384, 65_536)
GRANULARITIES = (8_192, 65_536, 131_072, 524_288)
_SHORT_PER_S = 10.0
_SHORT_CONNECTIONS = 16
_SHORT = 50


def tune(plan: Plan, console: Console) -> list[Result]:
    """Run the scenario; an arm `inline-B-granularity-G` for each pair. Progress goes to `console`."""
    budgets, granularities = (BUDGETS[::3], GRANULARITIES[::3]) if plan.smoke else (BUDGETS, GRANULARITIES)
    with plan.layby() as server:
        load_table(server, "tune", plan.rows)
        console.log(f"layby: {plan.rows:,} rows loaded and indexed")
        quiet = lookups(server, "tune", plan.rows, plan.seconds)
        busy = replace(walks(server, "tune", plan.seconds), rows=plan.rows)
        short = Load(
            server.host,
            server.port,
            f"SELECT v FROM tune WHERE k <= {plan.rows // _SHORT} AND v = -1",
            _SHORT_PER_S,
            plan.seconds,
            _SHORT_CONNECTIONS,
            expect_rows=0,
        )
        arms = [Arm("no-walks", server, quiet, parameters=OFFLOAD_ON)]
        arms += [
            Arm(
                f"inline-{budget}-granularity-{granularity}",
                server,
                quiet,
                (busy, Beside("short", short)),
                OFFLOAD_ON | {INLINE_BUDGET: str(budget), GRANULARITY: str(granularity)},
            )
            for budget in budgets
            for granularity in granularities
        ]
        return interleave(SCENARIO, plan, arms, console, run_arm)
