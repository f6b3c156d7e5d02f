"""The smoke run: every scenario runs to its end, whatever the figures are."""

from __future__ import annotations

import json
import subprocess
import sys

from layby.bench.scenario import SCENARIOS
from layby.cli.commands import Scenario

ARMS = {
    "isolation": (
        "no-walks",
        "offload-off",
        "offload-on",
        "no-walks-outside-load",
        "offload-on-outside-load",
    ),
    "saturation": (
        *("no-walks", "offload-off", "offload-on", "no-walks-outside-load", "offload-on-outside-load"),
        *(
            "offload-on-small",
            "ratio-offload-on",
            "ratio-outside-load",
            "ratio-size",
            "ratio-walk-throughput",
        ),
    ),
    "hot-key": ("no-hot-key", "offload-off", "offload-on", "ratio-offload-on"),
    "big-answer": ("no-answers", "offload-off", "offload-on", "ratio-offload-on"),
    "slow-reader": ("no-readers", "slow-readers"),
    "filter-ab": ("off", "on", "ratio"),
    "walk": ("integer", "text", "range", "first-rows", "numpy", "ratio-integer-vs-numpy"),
    "hydration": ("quiet", "hydrating", "ratio-hydrating"),
    "growth": ("lookup-20", "walk-20", "lookup-20000", "walk-20000", "ratio-lookup", "ratio-walk-20000"),
    "tune": ("no-walks", "inline-1024-granularity-8192", "inline-65536-granularity-524288"),
}


def test_every_scenario_can_be_named_on_the_command_line() -> None:
    assert {scenario.value for scenario in Scenario} - {"all"} == set(SCENARIOS)


def test_a_scenario_runs_at_its_own_size_unless_told_otherwise() -> None:
    scenario = SCENARIOS["saturation"]
    own = scenario.plan(None, None, None, postgres=False)
    told = scenario.plan(2.5, 1, 9_000, postgres=True)

    assert (own.rows, own.rounds, own.postgres, own.smoke) == (20_000_000, 3, False, False)
    assert (told.seconds, told.rounds, told.rows, told.postgres) == (2.5, 1, 9_000, True)
    assert told.quick().rows == 9_000
    assert own.quick().rows == 20_000
    assert own.quick().smoke


def test_the_quick_run_of_all_scenarios_prints_every_arm_without_errors() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "layby", "bench", "all", "--quick", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr

    results = [json.loads(line) for line in ran.stdout.splitlines()]
    arms = {(result["scenario"], result["arm"]) for result in results}
    assert {(name, arm) for name, arms in ARMS.items() for arm in arms} <= arms
    assert {("lookup", f"{mode}-{n}") for mode in ("prepared", "simple") for n in (1, 4, 16)} <= arms
    assert {result["scenario"] for result in results} == set(SCENARIOS)
    assert [r for r in results if r["arm"].startswith("ratio") and not r.get("ratio")] == []
    measured = [result for result in results if "n" in result]
    assert [result for result in measured if result["errors"] or not result["n"]] == []
    beside = ("walk", "hot_lookup", "answer", "build", "short", "reader")
    assert [r for r in measured for noun in beside if r.get(f"{noun}_errors")] == []
    assert [r for r in measured if r.get("walk_ms") == 0.0] == []
    lookups = [result for result in measured if result["scenario"] == "isolation"]
    assert all({"p50_ms", "p90_ms", "p99_ms", "max_ms", "qps"} <= result.keys() for result in lookups)
