"""Arms: they take turns, are compared by name, and are measured beside what their scenario asks for."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console

from layby.bench.arms import Arm, Beside, beside_figures, compare, interleave, run_arm
from layby.bench.drive import Measured
from layby.bench.load import Load
from layby.bench.outside import OutsideLoad
from layby.bench.plan import Plan
from layby.bench.result import Result
from layby.bench.server import Server
from tests.bench.fake import ANSWER, ERROR, FakeServer

PLAN = Plan(seconds=0.1, rounds=2, rows=100, postgres=False)


class _NoServer(Server):
    """A server that somebody else runs."""

    name = "none"


@pytest.fixture
def server() -> Iterator[Server]:
    server = _NoServer()
    yield server
    server.__exit__()


def _load(fake: FakeServer, statement: str) -> Load:
    return Load(fake.host, fake.port, statement, 200.0, 0.1, 4, expect_rows=1)


def test_arms_take_turns_and_their_repeats_become_one_result(server: Server) -> None:
    order: list[str] = []

    def run(scenario: str, arm: Arm) -> Result:
        order.append(arm.name)
        return Result(scenario, arm.name, n=1, errors=0, p99_ms=float(len(order)))

    arms = [Arm(name, server, Load("h", 1, "", 1.0, 1.0, 1)) for name in ("a", "b")]
    results = interleave("s", PLAN, arms, Console(file=io.StringIO()), run)

    assert order == ["a", "b", "a", "b"]
    assert [(r.arm, r.n, r.p99_ms, r.extra) for r in results] == [
        ("a", 2, 2.0, {"repeats": 2}),
        ("b", 2, 3.0, {"repeats": 2}),
    ]


def test_an_arm_has_the_figures_of_its_lookups_and_of_what_ran_beside_them(server: Server) -> None:
    with FakeServer(lambda sql: ERROR if sql == "broken" else ANSWER) as fake:
        beside = (Beside("walk", _load(fake, "walk")), Beside("build", _load(fake, "broken")))
        result = run_arm("s", Arm("a", server, _load(fake, "lookup"), beside))

    assert (result.arm, result.n, result.errors) == ("a", 20, 0)
    assert (result.extra["walks"], result.extra["walk_errors"]) == (20, 0)
    assert (result.extra["builds"], result.extra["build_errors"]) == (0, 20)
    assert result.extra["build_error"] == "division by zero (22012)"
    assert "error" not in result.extra


def test_an_arm_says_what_its_failed_lookups_failed_with(server: Server) -> None:
    with FakeServer(lambda sql: ERROR) as fake:
        result = run_arm("s", Arm("a", server, _load(fake, "lookup")))

    assert (result.n, result.errors, result.extra["error"]) == (0, 20, "division by zero (22012)")


def test_throughput_counts_what_was_answered_over_the_time_it_took() -> None:
    beside = Beside("answer", Load("h", 1, "", 0.0, 1.0, 1), rows=1_000)
    measured = Measured(latencies_ms=[3.0, 1.0, 2.0], errors=1, error="gone", elapsed_s=2.0)

    assert beside_figures(beside, measured) == {
        "answers": 3,
        "answer_errors": 1,
        "answer_p50_ms": 2.0,
        "answers_per_s": 1.5,
        "rows_per_s": 1500.0,
        "answer_error": "gone",
    }
    assert "rows_per_s" not in beside_figures(replace(beside, rows=None), measured)


def test_arms_are_compared_by_a_figure_and_pairs_that_did_not_run_are_left_out() -> None:
    results = [
        Result("s", "on", p99_ms=3.0, extra={"walks_per_s": 9.0}),
        Result("s", "off", p99_ms=2.0, extra={"walks_per_s": 10.0}),
    ]
    pairs = [("r", "on", "off"), ("missing", "on", "postgres")]

    assert compare(results, "p99_ms", pairs) == [
        Result("s", "r", extra={"of": "p99_ms on / p99_ms off", "ratio": 1.5})
    ]
    assert compare(results, "walks_per_s", pairs)[0].extra["ratio"] == 0.9


def test_outside_load_runs_while_its_context_lasts_and_no_longer() -> None:
    with OutsideLoad(2) as outside:
        assert outside.running == 2
        pids = outside.process_ids
        assert len(set(pids)) == 2
        for pid in pids:
            os.kill(pid, 0)
    assert outside.running == 0
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
