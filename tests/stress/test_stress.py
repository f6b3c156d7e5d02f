"""A short run of the stress test; `python -m tests.stress` runs it for as long as one likes."""

from __future__ import annotations

import secrets

from tests.stress.run import StressRun


def test_a_short_run_finds_nothing_wrong_and_nothing_left() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    run = StressRun(seed, sessions=6, kills=False, workers="processes", say=print)
    assert run.run(5.0) == [], f"seed {seed}"
