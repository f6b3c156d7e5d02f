"""Arms: what is measured under one name, and how arms take turns.

The arms of a scenario run one after the other, again and again, so that a noisy neighbour meets all of them;
each run gets processes and connections of its own, and what is printed is the median of an arm's repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console

from layby.bench.drive import Measured, run_together
from layby.bench.load import Load
from layby.bench.outside import OutsideLoad
from layby.bench.plan import Plan
from layby.bench.result import Result, combine, percentile, ratio, summarize
from layby.bench.server import LaybyServer, Server

OFFLOAD: Final = "enable_compute_index_peek_offload"
_REALTIME: Final = "enable_serving_loop_realtime"
OFFLOAD_ON: Final = {OFFLOAD: "on", _REALTIME: "on"}
OFFLOAD_OFF: Final = {OFFLOAD: "off", _REALTIME: "on"}
NORMAL_PRIORITY: Final = {OFFLOAD: "on", _REALTIME: "off"}
"""As where the system does not permit real-time priority."""

Extra = dict[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Beside:
    """A load that runs beside the lookups of an arm.

    Its figures are printed under its noun: `walks`, `walk_errors`, `walk_p50_ms`, `walks_per_s`, and
    `rows_per_s` where its answers have `rows` rows each.
    """

    noun: str
    load: Load
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Arm:
    """Lookups, what runs beside them, the server's parameters, and how many outside programs compute."""

    name: str
    server: Server
    lookups: Load
    beside: tuple[Beside, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    outside: int = 0


def interleave(
    scenario: str, plan: Plan, arms: Sequence[Arm], console: Console, run: Callable[[str, Arm], Result]
) -> list[Result]:
    """Run every arm `plan.rounds` times in turn with `run`; one result an arm. Raises what `run` raises."""
    runs: dict[str, list[Result]] = {arm.name: [] for arm in arms}
    for round_ in range(1, plan.rounds + 1):
        for arm in arms:
            result = run(scenario, arm)
            console.log(f"round {round_} of {plan.rounds}, {arm.name}: p99 {result.p99_ms} ms")
            runs[arm.name].append(result)
    return [combine(repeats) for repeats in runs.values()]


def run_arm(scenario: str, arm: Arm) -> Result:
    """One run of one arm. Raises LoadError, ServerError, OSError."""
    set_parameters(arm.server, arm.parameters)
    with OutsideLoad(arm.outside):
        lookups, *rest = run_together([arm.lookups, *(beside.load for beside in arm.beside)])
    extra: Extra = {}
    if lookups.late_ms:
        extra["late_p99_ms"] = round(percentile(sorted(lookups.late_ms), 99), 3)
    if lookups.error:
        extra["error"] = lookups.error
    for beside, measured in zip(arm.beside, rest, strict=True):
        extra |= beside_figures(beside, measured)
    return summarize(
        scenario,
        arm.name,
        lookups.latencies_ms,
        errors=lookups.errors,
        seconds=lookups.elapsed_s,
        extra=extra,
    )


def beside_figures(beside: Beside, measured: Measured) -> Extra:
    """What ran beside an arm's lookups, by the names that `Beside` gives."""
    noun, count = beside.noun, len(measured.latencies_ms)
    extra: Extra = {f"{noun}s": count, f"{noun}_errors": measured.errors}
    if measured.latencies_ms:
        extra[f"{noun}_p50_ms"] = round(percentile(sorted(measured.latencies_ms), 50), 3)
    extra[f"{noun}s_per_s"] = round(count / measured.elapsed_s, 3)
    if beside.rows is not None:
        extra["rows_per_s"] = round(count * beside.rows / measured.elapsed_s, 1)
    if measured.error:
        extra[f"{noun}_error"] = measured.error
    return extra


def set_parameters(server: Server, parameters: Mapping[str, str]) -> None:
    """Put system parameters of layby in force; another server has none. Raises ServerError."""
    if parameters and isinstance(server, LaybyServer):
        with server.connect() as connection:
            for name, value in parameters.items():
                connection.query(f"ALTER SYSTEM SET {name} = '{value}'")


def compare(results: Sequence[Result], figure: str, pairs: Sequence[tuple[str, str, str]]) -> list[Result]:
    """For each `(name, ours, theirs)` of which both arms ran: `figure` of one over that of the other.

    `figure` is a figure of `Result` or the name of an extra one.
    """
    found = {result.arm: figure_of(result, figure) for result in results}
    return [
        ratio(
            results[0].scenario, name, found[ours], found[theirs], of=f"{figure} {ours} / {figure} {theirs}"
        )
        for name, ours, theirs in pairs
        if ours in found and theirs in found
    ]


def figure_of(result: Result, name: str) -> float | None:
    """A figure of an arm by its JSON name; None where the arm has none."""
    value = result.extra.get(name) if name in result.extra else getattr(result, name, None)
    return value if isinstance(value, (int, float)) else None
