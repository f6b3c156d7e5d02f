"""Results: what one arm of a scenario came to, as a JSON line and as a row of a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table

_FIGURES = ("p50_ms", "p90_ms", "p99_ms", "max_ms", "qps")


@dataclass(frozen=True, slots=True)
class Result:
    """One arm: `n` queries answered, `errors` failed; what does not apply to the arm is None.

    `extra` holds figures of one scenario alone (walks that ran beside, a ratio), by their JSON name.
    """

    scenario: str
    arm: str
    n: int | None = None
    errors: int | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    qps: float | None = None
    extra: dict[str, float | int | str] = field(default_factory=dict)

    def line(self) -> str:
        """The JSON object of this arm, on one line."""
        fields: dict[str, object] = {"scenario": self.scenario, "arm": self.arm}
        fields |= {name: getattr(self, name) for name in ("n", "errors", *_FIGURES)}
        return json.dumps({k: v for k, v in (fields | self.extra).items() if v is not None})


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest of the sorted values that at least `percent` of them do not exceed (nearest rank)."""
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(int(rank), 1) - 1]


def summarize(
    scenario: str,
    arm: str,
    latencies_ms: Sequence[float],
    *,
    errors: int,
    seconds: float,
    extra: dict[str, float | int | str] | None = None,
) -> Result:
    """One run of an arm: the latencies of the queries that were answered, over `seconds`."""
    if not latencies_ms:
        return Result(scenario, arm, n=0, errors=errors, extra=extra or {})
    ordered = sorted(latencies_ms)
    return Result(
        scenario,
        arm,
        n=len(ordered),
        errors=errors,
        p50_ms=round(percentile(ordered, 50), 3),
        p90_ms=round(percentile(ordered, 90), 3),
        p99_ms=round(percentile(ordered, 99), 3),
        max_ms=round(ordered[-1], 3),
        qps=round(len(ordered) / seconds, 1),
        extra=extra or {},
    )


def combine(repeats: Sequence[Result]) -> Result:
    """One arm over its repeats: counts are added, the maximum is the largest, all else is the median."""
    first = repeats[0]
    extra: dict[str, float | int | str] = {"repeats": len(repeats)}
    for name in dict.fromkeys(name for repeat in repeats for name in repeat.extra):
        values = [repeat.extra[name] for repeat in repeats if name in repeat.extra]
        value = values[0]
        if isinstance(value, int):
            extra[name] = sum(int(v) for v in values)
        elif isinstance(value, float):
            extra[name] = round(median(float(v) for v in values), 3)
        else:
            extra[name] = value

    def middle(name: str) -> float | None:
        figures = [getattr(repeat, name) for repeat in repeats if getattr(repeat, name) is not None]
        return round(median(figures), 3) if figures else None

    worst = [repeat.max_ms for repeat in repeats if repeat.max_ms is not None]
    return Result(
        first.scenario,
        first.arm,
        n=sum(repeat.n or 0 for repeat in repeats),
        errors=sum(repeat.errors or 0 for repeat in repeats),
        p50_ms=middle("p50_ms"),
        p90_ms=middle("p90_ms"),
        p99_ms=middle("p99_ms"),
        max_ms=max(worst) if worst else None,
        qps=middle("qps"),
        extra=extra,
    )


def ratio(scenario: str, arm: str, ours: float | None, theirs: float | None, of: str) -> Result:
    """A line that compares two arms: ours divided by theirs; no ratio where either is missing or zero."""
    extra: dict[str, float | int | str] = {"of": of}
    if ours is not None and theirs:
        extra["ratio"] = round(ours / theirs, 3)
    return Result(scenario, arm, extra=extra)


def show(console: Console, results: Sequence[Result], *, as_json: bool) -> None:
    """Print results: one JSON object a line, or one table a scenario and its ratios below."""
    if as_json:
        for result in results:
            console.file.write(result.line() + "\n")
        console.file.flush()
        return
    for scenario in dict.fromkeys(result.scenario for result in results):
        console.print(_table(scenario, [r for r in results if r.scenario == scenario and r.n is not None]))
        for result in results:
            if result.scenario == scenario and "ratio" in result.extra:
                console.print(
                    f"{result.arm}: {result.extra['ratio']}  ({result.extra['of']})", highlight=False
                )


def _table(scenario: str, rows: Sequence[Result]) -> Table:
    """The arms that were measured, a row each, with the columns that apply to any of them."""
    figures = [name for name in _FIGURES if any(getattr(row, name) is not None for row in rows)]
    extras = list(dict.fromkeys(name for row in rows for name in row.extra))
    table = Table(title=scenario, title_justify="left", box=box.MARKDOWN)
    table.add_column("arm", no_wrap=True)
    for name in ("n", "errors", *figures, *extras):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [getattr(row, name) for name in ("n", "errors", *figures)]
        cells += [row.extra.get(name) for name in extras]
        table.add_row(row.arm, *map(_cell, cells))
    return table


def _cell(value: float | str | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:,}"
