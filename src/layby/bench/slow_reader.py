"""Slow reader: what clients that ask for much and read slowly cost in memory, and lookups beside them.

`slow (k int, v int)` with an index on `k`. 20 clients ask for the whole table and read a set number of
bytes a second; beside them 50 prepared lookups a second. `before_mib`, `peak_mib` and `after_mib` are the
memory of the server and its processes, all shared segments included and counted once, before the clients ask,
at its highest while they read, and after they have gone.
"""

from __future__ import annotations

import time

from rich.console import Console

from layby.bench.arms import OFFLOAD_ON, Arm, Extra, compare, interleave, run_arm
from layby.bench.load import Load
from layby.bench.plan import Plan
from layby.bench.resident import PeakWatch, resident_mib
from layby.bench.result import Result
from layby.bench.server import LaybyServer
from layby.bench.slow_clients import SlowClients
from layby.bench.table import load_table

SCENARIO = "slow-reader"
_CLIENTS = 20
_BYTES_PER_S = 256 * 1024
_LOOKUPS_PER_S = 50.0
_CONNECTIONS = 32
_SETTLE_S = 5.0
_SETTLED_MIB = 1.0


def slow_reader(plan: Plan, console: Console) -> list[Result]:
    """Run the scenario; one result an arm, the median of its rounds. Progress goes to `console`."""
    with plan.layby() as server:
        load_table(server, "slow", plan.rows)
        console.log(f"layby: {plan.rows:,} rows loaded and indexed")
        lookups = Load(
            server.host,
            server.port,
            "SELECT v FROM slow WHERE k = $1",
            _LOOKUPS_PER_S,
            plan.seconds,
            _CONNECTIONS,
            prepared=True,
            keys=plan.rows,
            expect_rows=1,
        )
        arms = [
            Arm("no-readers", server, lookups, parameters=OFFLOAD_ON),
            Arm("slow-readers", server, lookups, parameters=OFFLOAD_ON),
        ]

        def run(scenario: str, arm: Arm) -> Result:
            if arm.name == "no-readers":
                return run_arm(scenario, arm)
            return _run(scenario, arm, server, plan)

        results = interleave(SCENARIO, plan, arms, console, run)
    return results + compare(results, "p99_ms", [("ratio-slow-readers", "slow-readers", "no-readers")])


def _run(scenario: str, arm: Arm, server: LaybyServer, plan: Plan) -> Result:
    """One run beside slow readers."""
    before = resident_mib(server.pid)
    clients = SlowClients(server.host, server.port, "SELECT * FROM slow", _CLIENTS, _BYTES_PER_S, plan.rows)
    with PeakWatch(server.pid) as watch, clients:
        result = run_arm(scenario, arm)
    extra: Extra = {
        "before_mib": round(before, 1),
        "peak_mib": round(watch.peak_mib, 1),
        "after_mib": round(_settled_mib(server.pid), 1),
        "grown_mib": round(watch.peak_mib - before, 1),
        "readers": str(_CLIENTS),
        "read_mib": round(clients.received / 2**20, 1),
        "answers": clients.answers,
        "reader_errors": clients.errors,
    }
    if clients.error:
        extra["reader_error"] = clients.error
    result.extra.update(extra)
    return result


def _settled_mib(pid: int) -> float:
    """Resident memory once it falls no further, or after a bounded time."""
    end = time.monotonic() + _SETTLE_S
    last = resident_mib(pid)
    while time.monotonic() < end:
        time.sleep(0.5)
        now = resident_mib(pid)
        if last - now < _SETTLED_MIB:
            return now
        last = now
    return last
