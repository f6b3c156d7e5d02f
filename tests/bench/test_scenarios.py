"""The smoke run: every scenario runs to its end, whatever the figures are."""

from __future__ import annotations

import json
import subprocess
import sys


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
    assert {("isolation", arm) for arm in ("no-walks", "offload-off", "offload-on")} <= arms
    assert {("lookup", f"{mode}-{n}") for mode in ("prepared", "simple") for n in (1, 4, 16)} <= arms
    measured = [result for result in results if "n" in result]
    assert [result for result in measured if result["errors"] or not result["n"]] == []
    assert [result for result in measured if result.get("walk_errors")] == []
    lookups = [result for result in measured if result["scenario"] == "isolation"]
    assert all({"p50_ms", "p90_ms", "p99_ms", "max_ms", "qps"} <= result.keys() for result in lookups)
