"""Filter A/B: what the offload costs a walk that nobody else competes with.

100 peeks that reject every row of an index, one at a time, with the offload off and on in turn: a few of one,
a few of the other, so that both meet the same machine. A round's ratio is that of its medians, and the
line `ratio` is the median of the rounds.
"""

from __future__ import annotations

import time
from statistics import median

from rich.console import Console

from layby.bench.arms import OFFLOAD_OFF, OFFLOAD_ON, set_parameters
from layby.bench.plan import Plan
from layby.bench.result import Result, combine, percentile, summarize
from layby.bench.scrape import mean_walk_ms, scrape
from layby.bench.server import LaybyServer
from layby.bench.table import load_table
from layby.bench.wire import Connection, ServerError

SCENARIO = "filter-ab"
PEEKS = 100
_IN_TURN = 5
_STATEMENT = "SELECT v FROM filter WHERE v = -1"
_ARMS = {"off": OFFLOAD_OFF, "on": OFFLOAD_ON}


def filter_ab(plan: Plan, console: Console) -> list[Result]:
    """Run the scenario: the arms `off` and `on`, and `ratio`. Progress goes to `console`.

    A round ends early once it has taken `plan.seconds` for each arm.
    """
    runs: dict[str, list[Result]] = {arm: [] for arm in _ARMS}
    ratios: list[float] = []
    with plan.layby() as server:
        load_table(server, "filter", plan.rows)
        console.log(f"layby: {plan.rows:,} rows loaded and indexed")
        with server.connect() as connection:
            for parameters in _ARMS.values():
                set_parameters(server, parameters)
                _peeks(connection, _IN_TURN)
            for round_ in range(1, plan.rounds + 1):
                results = _round(server, connection, plan.seconds)
                for arm, result in results.items():
                    runs[arm].append(result)
                off, on = results["off"].p50_ms, results["on"].p50_ms
                if off and on:
                    ratios.append(on / off)
                console.log(f"round {round_} of {plan.rounds}: off {off} ms, on {on} ms")
    middle: dict[str, float | int | str] = {"of": "p50_ms on / p50_ms off, median of rounds"}
    if ratios:
        middle["ratio"] = round(median(ratios), 4)
    return [*(combine(repeats) for repeats in runs.values()), Result(SCENARIO, "ratio", extra=middle)]


def _round(server: LaybyServer, connection: Connection, seconds: float) -> dict[str, Result]:
    """Both arms once, a few peeks of each in turn."""
    latencies: dict[str, list[float]] = {arm: [] for arm in _ARMS}
    errors = dict.fromkeys(_ARMS, 0)
    walks: dict[str, list[float]] = {arm: [] for arm in _ARMS}
    end = time.monotonic() + seconds * len(_ARMS)
    for turn in range(PEEKS // _IN_TURN):
        if turn and time.monotonic() > end:
            break
        # Which of the two goes first changes, since the second finds the caches as the first left them.
        for arm in sorted(_ARMS, reverse=bool(turn % 2)):
            set_parameters(server, _ARMS[arm])
            before = scrape(server)
            taken, failed = _peeks(connection, _IN_TURN)
            walk_ms = mean_walk_ms(before, scrape(server))
            latencies[arm] += taken
            errors[arm] += failed
            walks[arm] += [] if walk_ms is None else [walk_ms]
    return {
        arm: summarize(
            SCENARIO,
            arm,
            latencies[arm],
            errors=errors[arm],
            seconds=max(sum(latencies[arm]), 1e-3) / 1e3,
            extra={"walk_ms": round(percentile(sorted(walks[arm]), 50), 4)} if walks[arm] else {},
        )
        for arm in _ARMS
    }


def _peeks(connection: Connection, count: int) -> tuple[list[float], int]:
    """Ask one after the other; the latencies in milliseconds, and how many failed."""
    latencies: list[float] = []
    errors = 0
    for _ in range(count):
        began = time.perf_counter()
        try:
            reply = connection.query(_STATEMENT)
        except ServerError:
            errors += 1
            continue
        if reply.rows:
            errors += 1
        else:
            latencies.append((time.perf_counter() - began) * 1e3)
    return latencies, errors
