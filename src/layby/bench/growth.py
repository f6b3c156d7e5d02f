"""Growth: how lookups and walks grow with the table, over four sizes, each ten times the one before."""

from __future__ import annotations

from itertools import pairwise

from rich.console import Console

from layby.bench.arms import OFFLOAD_ON, Arm, Extra, compare, figure_of, interleave, set_parameters
from layby.bench.drive import run_together
from layby.bench.load import Load
from layby.bench.plan import Plan
from layby.bench.result import Result, ratio, summarize
from layby.bench.scrape import mean_walk_ms, scrape
from layby.bench.server import LaybyServer
from layby.bench.table import load_table

SCENARIO = "growth"
_SIZES = 4


def growth(plan: Plan, console: Console) -> list[Result]:
    """Run the scenario; an arm `lookup-N` and an arm `walk-N` for each size N, `plan.rows` the largest.

    A walk has `walk_ms`, the server's own time, beside its round trip. Progress goes to `console`.
    """
    sizes = [plan.rows // 10**step for step in reversed(range(_SIZES))]
    with plan.layby() as server:
        set_parameters(server, OFFLOAD_ON)
        arms: list[Arm] = []
        for rows in sizes:
            table = f"growth_{rows}"
            load_table(server, table, rows)
            console.log(f"layby: {rows:,} rows loaded and indexed")
            lookups = _closed(
                server, f"SELECT v FROM {table} WHERE k = $1", plan.seconds, keys=rows, expect=1
            )
            walks = _closed(server, f"SELECT v FROM {table} WHERE v = -1", plan.seconds, keys=0, expect=0)
            arms += [Arm(f"lookup-{rows}", server, lookups), Arm(f"walk-{rows}", server, walks)]

        def run(scenario: str, arm: Arm) -> Result:
            before = scrape(server)
            (measured,) = run_together([arm.lookups])
            taken = mean_walk_ms(before, scrape(server))
            extra: Extra = {} if taken is None else {"walk_ms": round(taken, 4)}
            if measured.error:
                extra["error"] = measured.error
            return summarize(
                scenario,
                arm.name,
                measured.latencies_ms,
                errors=measured.errors,
                seconds=measured.elapsed_s,
                extra=extra,
            )

        results = interleave(SCENARIO, plan, arms, console, run)
    return results + _ratios(results, sizes)


def _closed(server: LaybyServer, statement: str, seconds: float, *, keys: int, expect: int) -> Load:
    """One client, one prepared query after the other."""
    return Load(
        server.host,
        server.port,
        statement,
        rate=0.0,
        seconds=seconds,
        connections=1,
        prepared=True,
        keys=keys,
        expect_rows=expect,
    )


def _ratios(results: list[Result], sizes: list[int]) -> list[Result]:
    """Lookups: the largest over the smallest. Walks: the time of a row in each size over that in the next."""
    found = {result.arm: result for result in results}
    ratios = compare(results, "p50_ms", [("ratio-lookup", f"lookup-{sizes[-1]}", f"lookup-{sizes[0]}")])
    for small, large in pairwise(sizes):
        ours, theirs = (
            figure_of(found[f"walk-{large}"], "walk_ms"),
            figure_of(found[f"walk-{small}"], "walk_ms"),
        )
        ratios.append(
            ratio(
                SCENARIO,
                f"ratio-walk-{large}",
                None if ours is None else ours / large,
                None if theirs is None else theirs / small,
                of=f"walk_ms a row, {large:,} rows / {small:,} rows",
            )
        )
    return ratios
