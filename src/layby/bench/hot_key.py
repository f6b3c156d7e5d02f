"""Hot key: what lookups of one key with very many rows do to lookups of ordinary keys.

`hot_key (key int, val int)` with an index on `key`: one key with four fifths of all rows, and as many keys
with one row each as there are rows left. 10 lookups a second of ordinary keys, each for the least value of
its key, and beside them the same lookup of the hot key every other second.
"""

from __future__ import annotations

from rich.console import Console

from layby.bench.arms import OFFLOAD_OFF, OFFLOAD_ON, Arm, Beside, compare, interleave, run_arm
from layby.bench.load import Load
from layby.bench.plan import Plan
from layby.bench.result import Result
from layby.bench.table import make_table

SCENARIO = "hot-key"
_HOT_KEY = 0
_LOOKUP = "SELECT val FROM hot_key WHERE key = $1 ORDER BY val LIMIT 1"
_LOOKUPS_PER_S = 10.0
_HOT_LOOKUPS_PER_S = 0.5
_CONNECTIONS = 32


def hot_key(plan: Plan, console: Console) -> list[Result]:
    """Run the scenario; one result an arm, the median of its rounds. Progress goes to `console`."""
    ordinary = plan.rows // 5
    with plan.layby() as server:
        make_table(
            server,
            "hot_key",
            "key int, val int",
            f"SELECT {_HOT_KEY}, g FROM generate_series(1, {plan.rows - ordinary}) AS g",
            f"SELECT g, g FROM generate_series(1, {ordinary}) AS g",
        )
        console.log(f"layby: {plan.rows:,} rows loaded and indexed")
        lookups = Load(
            server.host,
            server.port,
            _LOOKUP,
            _LOOKUPS_PER_S,
            plan.seconds,
            _CONNECTIONS,
            prepared=True,
            keys=ordinary,
            expect_rows=1,
        )
        hot = Load(
            server.host,
            server.port,
            _LOOKUP.replace("$1", str(_HOT_KEY)),
            # A smoke run is too short for a share of it.
            max(_HOT_LOOKUPS_PER_S, 1 / plan.seconds),
            plan.seconds,
            _CONNECTIONS,
            expect_rows=1,
        )
        beside = (Beside("hot_lookup", hot),)
        arms = [
            Arm("no-hot-key", server, lookups, parameters=OFFLOAD_ON),
            Arm("offload-off", server, lookups, beside, OFFLOAD_OFF),
            Arm("offload-on", server, lookups, beside, OFFLOAD_ON),
        ]
        results = interleave(SCENARIO, plan, arms, console, run_arm)
    pairs = [(f"ratio-{arm}", arm, "no-hot-key") for arm in ("offload-off", "offload-on")]
    return results + compare(results, "p99_ms", pairs)
