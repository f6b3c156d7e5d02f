"""Isolation: what long walks beside them do to point lookups.

`hot (k int, v int)` with an index on `k` and distinct keys. 50 lookups a second of one key, and beside them
3 walks a second that filter every row away. The arms run one after the other, again and again, so that a
noisy neighbour meets all of them; each run of an arm gets processes and connections of its own.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console

from layby.bench.drive import run_together
from layby.bench.load import Load
from layby.bench.plan import Plan
from layby.bench.result import Result, combine, percentile, ratio, summarize
from layby.bench.server import LaybyServer, PostgresServer, Server
from layby.bench.table import load_table

SCENARIO = "isolation"
LOOKUP = "SELECT v FROM hot WHERE k = 42"
WALK = "SELECT v FROM hot WHERE v = -1"
_LOOKUPS_PER_S = 50.0
_WALKS_PER_S = 3.0
_LOOKUP_CONNECTIONS = 32
_WALK_CONNECTIONS = 48
_OFFLOAD = "enable_compute_index_peek_offload"


@dataclass(frozen=True, slots=True)
class _Arm:
    name: str
    server: Server
    walks: bool
    offload: bool | None = None


def isolation(plan: Plan, console: Console) -> list[Result]:
    """Run the scenario; one result an arm, the median of its rounds. Progress goes to `console`."""
    with ExitStack() as stack:
        layby = stack.enter_context(LaybyServer())
        arms = [
            _Arm("no-walks", layby, walks=False, offload=True),
            _Arm("offload-off", layby, walks=True, offload=False),
            _Arm("offload-on", layby, walks=True, offload=True),
        ]
        if plan.postgres:
            postgres = stack.enter_context(PostgresServer())
            arms += [
                _Arm("postgres-no-walks", postgres, walks=False),
                _Arm("postgres", postgres, walks=True),
            ]
        for server in dict.fromkeys(arm.server for arm in arms):
            load_table(server, "hot", plan.rows)
            console.log(f"{server.name}: {plan.rows:,} rows loaded and indexed")
        runs: dict[str, list[Result]] = {arm.name: [] for arm in arms}
        for round_ in range(1, plan.rounds + 1):
            for arm in arms:
                result = _run(arm, plan.seconds)
                console.log(f"round {round_} of {plan.rounds}, {arm.name}: p99 {result.p99_ms} ms")
                runs[arm.name].append(result)
    return _with_ratios([combine(repeats) for repeats in runs.values()])


def _run(arm: _Arm, seconds: float) -> Result:
    """One run of one arm."""
    server = arm.server
    if arm.offload is not None:
        with server.connect() as connection:
            connection.query(f"ALTER SYSTEM SET {_OFFLOAD} = {'on' if arm.offload else 'off'}")
    loads = [
        Load(server.host, server.port, LOOKUP, _LOOKUPS_PER_S, seconds, _LOOKUP_CONNECTIONS, expect_rows=1)
    ]
    if arm.walks:
        loads.append(
            Load(server.host, server.port, WALK, _WALKS_PER_S, seconds, _WALK_CONNECTIONS, expect_rows=0)
        )
    lookups, *rest = run_together(loads)
    extra: dict[str, float | int | str] = {}
    if lookups.late_ms:
        extra["late_p99_ms"] = round(percentile(sorted(lookups.late_ms), 99), 3)
    for walks in rest:
        extra |= {"walks": len(walks.latencies_ms), "walk_errors": walks.errors}
        if walks.latencies_ms:
            extra["walk_p50_ms"] = round(percentile(sorted(walks.latencies_ms), 50), 3)
    for name, error in (("error", lookups.error), ("walk_error", next((w.error for w in rest), ""))):
        if error:
            extra[name] = error
    return summarize(
        SCENARIO,
        arm.name,
        lookups.latencies_ms,
        errors=lookups.errors,
        seconds=lookups.elapsed_s,
        extra=extra,
    )


def _with_ratios(results: list[Result]) -> list[Result]:
    """The arms, and what the promise is stated in: p99 beside walks over p99 without."""
    p99 = {result.arm: result.p99_ms for result in results}
    pairs = [
        ("ratio-offload-off", "offload-off", "no-walks"),
        ("ratio-offload-on", "offload-on", "no-walks"),
        ("ratio-postgres", "postgres", "postgres-no-walks"),
        ("ratio-vs-postgres", "offload-on", "postgres"),
    ]
    return results + [
        ratio(SCENARIO, name, p99[ours], p99[theirs], of=f"p99 {ours} / p99 {theirs}")
        for name, ours, theirs in pairs
        if ours in p99 and theirs in p99
    ]
