"""The scenarios by name, with the size that each runs at unless told otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console

from layby.bench.big_answer import big_answer
from layby.bench.filter_ab import filter_ab
from layby.bench.growth import growth
from layby.bench.hot_key import hot_key
from layby.bench.hydration import hydration
from layby.bench.isolation import isolation
from layby.bench.lookup import lookup
from layby.bench.plan import Plan
from layby.bench.result import Result
from layby.bench.saturation import saturation
from layby.bench.server import LaybyServer
from layby.bench.shared_walks import shared_walks
from layby.bench.slow_reader import slow_reader
from layby.bench.tune import tune
from layby.bench.walk import walk

__all__ = ["SCENARIOS", "Plan", "Scenario", "run_scenarios"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What runs a scenario, the rows of its table, and the seconds of one run of one arm.

    With the defaults any of them takes less than five minutes, PostgreSQL included.
    """

    run: Callable[[Plan, Console], list[Result]]
    rows: int
    seconds: float
    rounds: int = 3

    def plan(self, seconds: float | None, rounds: int | None, rows: int | None, *, postgres: bool) -> Plan:
        """The size of a run; None is the scenario's own."""
        return Plan(
            self.seconds if seconds is None else seconds,
            self.rounds if rounds is None else rounds,
            self.rows if rows is None else rows,
            postgres,
        )


SCENARIOS: Final[dict[str, Scenario]] = {
    "isolation": Scenario(isolation, 500_000, 10.0),
    "saturation": Scenario(saturation, 20_000_000, 6.0),
    "hot-key": Scenario(hot_key, 7_500_000, 20.0),
    "big-answer": Scenario(big_answer, 1_000_000, 10.0),
    "slow-reader": Scenario(slow_reader, 1_000_000, 15.0),
    "filter-ab": Scenario(filter_ab, 1_000_000, 10.0, rounds=9),
    "shared-walks": Scenario(shared_walks, 2_000_000, 5.0, rounds=9),
    "lookup": Scenario(lookup, 500_000, 5.0),
    "walk": Scenario(walk, 1_000_000, 5.0),
    "hydration": Scenario(hydration, 5_000_000, 15.0),
    "growth": Scenario(growth, 10_000_000, 4.0),
    "tune": Scenario(tune, 1_000_000, 4.0),
}


def run_scenarios(plans: Mapping[str, Plan], console: Console, *, quick: bool) -> Iterator[list[Result]]:
    """Run scenarios by name, each at its plan or as a smoke run of it, and yield the results of each.

    Smoke runs of several share one server. Raises StartError, LoadError, PgbenchError, ServerError,
    LostConnectionError, OSError.
    """
    with ExitStack() as stack:
        shared = stack.enter_context(LaybyServer()) if quick and len(plans) > 1 else None
        for name, plan in plans.items():
            yield SCENARIOS[name].run(replace(plan.quick(), shared=shared) if quick else plan, console)
