"""Big answer: lookups beside a client that takes a whole table, sorted, again and again.

`big (k int, v int)` with an index on `k`; 50 prepared lookups a second, and beside them `SELECT * FROM big
ORDER BY v` from one client, which reads as fast as it can and does not look at the rows. The server sorts,
encodes and sends every row, `rows_per_s` to the client.
"""

from __future__ import annotations

from contextlib import ExitStack

from rich.console import Console

from layby.bench.arms import OFFLOAD_OFF, OFFLOAD_ON, Arm, Beside, compare, interleave, run_arm
from layby.bench.load import Load
from layby.bench.plan import Plan
from layby.bench.result import Result
from layby.bench.server import PostgresServer, Server
from layby.bench.table import load_table

SCENARIO = "big-answer"
_LOOKUPS_PER_S = 50.0
_CONNECTIONS = 32


def big_answer(plan: Plan, console: Console) -> list[Result]:
    """Run the scenario; one result an arm, the median of its rounds. Progress goes to `console`."""
    with ExitStack() as stack:
        layby: Server = stack.enter_context(plan.layby())
        postgres = stack.enter_context(PostgresServer()) if plan.postgres else None
        for server in filter(None, (layby, postgres)):
            load_table(server, "big", plan.rows)
            console.log(f"{server.name}: {plan.rows:,} rows loaded and indexed")
        lookups, answers = _lookups(layby, plan), (_answers(layby, plan),)
        arms = [
            Arm("no-answers", layby, lookups, parameters=OFFLOAD_ON),
            Arm("offload-off", layby, lookups, answers, OFFLOAD_OFF),
            Arm("offload-on", layby, lookups, answers, OFFLOAD_ON),
        ]
        if postgres is not None:
            arms += [
                Arm("postgres-no-answers", postgres, _lookups(postgres, plan)),
                Arm("postgres", postgres, _lookups(postgres, plan), (_answers(postgres, plan),)),
            ]
        results = interleave(SCENARIO, plan, arms, console, run_arm)
    p99 = [
        ("ratio-offload-off", "offload-off", "no-answers"),
        ("ratio-offload-on", "offload-on", "no-answers"),
        ("ratio-postgres", "postgres", "postgres-no-answers"),
    ]
    rows = [("ratio-rows-vs-postgres", "offload-on", "postgres")]
    return [*results, *compare(results, "p99_ms", p99), *compare(results, "rows_per_s", rows)]


def _lookups(server: Server, plan: Plan) -> Load:
    return Load(
        server.host,
        server.port,
        "SELECT v FROM big WHERE k = $1",
        _LOOKUPS_PER_S,
        plan.seconds,
        _CONNECTIONS,
        prepared=True,
        keys=plan.rows,
        expect_rows=1,
    )


def _answers(server: Server, plan: Plan) -> Beside:
    load = Load(
        server.host,
        server.port,
        "SELECT * FROM big ORDER BY v",
        rate=0.0,
        seconds=plan.seconds,
        connections=1,
        expect_rows=plan.rows,
        unread=True,
    )
    return Beside("answer", load, rows=plan.rows)
