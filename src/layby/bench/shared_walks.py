"""Shared walks: eight filters that wait for a permit, each walked for itself, or all in one pass.

There is one permit. A walk without end holds it while all eight come to wait, and before them another of
the same rows that shares with nobody; then it is cancelled. What is measured is the time from that other's
answer, with which it gives its permit up, to the last of theirs: where walks queue there was one a moment
ago, and neither arm has the rows to fetch from afar. The filters are comparisons of one integer column: in
the arms `reject` with values outside the column's range, in `few` with values within it that a single row
has. Filters that cost more than the visit, or pass many rows, gain less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final

from rich.console import Console

from layby.bench.arms import set_parameters
from layby.bench.plan import Plan
from layby.bench.result import Result, combine, ratio, summarize
from layby.bench.scrape import scrape
from layby.bench.server import LaybyServer
from layby.bench.table import make_table
from layby.bench.wire import Connection, ServerError

SCENARIO = "shared-walks"
WALKS: Final = 8
_SWITCH: Final = "enable_compute_index_peek_shared_walks"
_ONE_PERMIT: Final = {
    "enable_compute_index_peek_offload": "on",
    "compute_index_peek_quiet_budget": "0",
    "compute_index_peek_permit_fraction": "0.0001",
}
_BLOCKER: Final = "SELECT g FROM generate_series(1, 1000000000000) AS g WHERE g < 0"

_BEFORE: Final = "SELECT v FROM shared WHERE v = -1 LIMIT 1"
"""Shares no walk, since it may end early; it does not."""


def shared_walks(plan: Plan, console: Console) -> list[Result]:
    """Run the scenario: arms `alone-…` and `shared-…`, and a ratio of the two. Progress goes to `console`."""
    kinds = {
        "reject": [f"SELECT v FROM shared WHERE v = {-1 - i}" for i in range(WALKS)],
        "few": [f"SELECT v FROM shared WHERE v = {(plan.rows // 10) * (i + 1)}" for i in range(WALKS)],
    }
    results: list[Result] = []
    with plan.layby() as server, ExitStack() as stack:
        make_table(
            server,
            "shared",
            "k int, v int",
            f"SELECT g, (g * 7919::bigint % {plan.rows})::int FROM generate_series(1, {plan.rows}) AS g",
        )
        console.log(f"layby: {plan.rows:,} rows loaded and indexed")
        set_parameters(server, _ONE_PERMIT)
        blocker, before, control = (stack.enter_context(server.connect()) for _ in range(3))
        [(process,)] = blocker.query("SELECT pg_backend_pid()").rows
        cancel = partial(control.query, f"SELECT pg_cancel_backend({process})")
        connections = [stack.enter_context(server.connect()) for _ in range(WALKS)]
        pool = stack.enter_context(ThreadPoolExecutor(WALKS + 2))
        for kind, statements in kinds.items():
            runs: dict[str, list[Result]] = {f"alone-{kind}": [], f"shared-{kind}": []}
            for round_ in range(1, plan.rounds + 1):
                for arm, switch in zip(runs, ("off", "on"), strict=True):
                    set_parameters(server, {_SWITCH: switch})
                    taken = _once(server, pool, blocker, cancel, before, connections, statements)
                    runs[arm].append(
                        summarize(
                            SCENARIO, arm, [] if taken is None else [taken], errors=taken is None, seconds=1
                        )
                    )
                    console.log(f"round {round_} of {plan.rounds}, {arm}: {taken} ms")
            alone, shared = (combine(repeats) for repeats in runs.values())
            of = f"time of {WALKS} walks, shared-{kind} / alone-{kind}"
            results += [alone, shared, ratio(SCENARIO, f"ratio-{kind}", shared.p50_ms, alone.p50_ms, of)]
        for name in (*_ONE_PERMIT, _SWITCH):
            control.query(f"ALTER SYSTEM RESET {name}")
    return results


def _once(
    server: LaybyServer,
    pool: ThreadPoolExecutor,
    blocker: Connection,
    cancel: Callable[[], object],
    before: Connection,
    connections: Sequence[Connection],
    statements: Sequence[str],
) -> float | None:
    """Return the milliseconds from the answer to `before` to the last other, None where not all waited."""

    def ask(connection: Connection, statement: str) -> float:
        connection.query(statement)
        return time.perf_counter()

    def block() -> None:
        with suppress(ServerError):  # it is cancelled
            blocker.query(_BLOCKER)

    first = pool.submit(block)
    waited = _wait_for(server, "layby_index_peek_permits_in_use", 1, first)
    last_before = pool.submit(ask, before, _BEFORE)
    waited = _wait_for(server, "layby_index_peek_permits_queued", 1, first) and waited
    rest = [pool.submit(ask, c, s) for c, s in zip(connections, statements, strict=True)]
    waited = _wait_for(server, "layby_index_peek_permits_queued", 1 + len(statements), first) and waited
    cancel()
    first.result()
    answered = [future.result() for future in rest]
    return (max(answered) - last_before.result()) * 1e3 if waited else None


def _wait_for(server: LaybyServer, name: str, value: float, blocker: Future[None]) -> bool:
    """Wait until a metric has a value; False where the blocker has failed."""
    while scrape(server).get(name) != value:
        if blocker.done():
            return False
    return True
