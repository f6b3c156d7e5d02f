"""Profiles: what EXPLAIN ANALYZE is told of a peek, on the loop and on every pool."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from layby.compute.state import ServingState
from layby.peek.fuel import Fuel
from layby.peek.outcome import ScanOutcome
from layby.peek.pending import PeekState
from layby.peek.profile import PeekProfile
from layby.peek.scan import PeekScan
from tests.peek.harness import Harness, HarnessOn, bundle_of, pairs, spec

HUNDRED = tuple((k, k) for k in range(100))


def test_a_profile_tells_where_an_offloaded_peek_spent_its_time(
    harness_on: HarnessOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=10, granularity=100)
    step: Callable[[PeekScan, Fuel], ScanOutcome] = PeekScan.step

    def slow_upper(_: ServingState) -> int:
        harness.now += 0.25
        return 1_000

    def slow_step(scan: PeekScan, fuel: Fuel) -> ScanOutcome:
        harness.now += 0.5
        return step(scan, fuel)

    harness.now = 100.0
    harness.peek()
    peek = harness.pending()
    peek.profile = profile = PeekProfile()
    with monkeypatch.context() as slowed:
        slowed.setattr(ServingState, "upper", property(slow_upper), raising=False)
        slowed.setattr(PeekScan, "step", slow_step)
        assert harness.worker.peek(peek) is None
    assert (profile.substrate, profile.rows) == (None, 0)
    harness.now = 103.75
    assert harness.pool.step()
    harness.now = 105.75
    harness.settle()
    assert (profile.substrate, profile.rows) == ("offloaded", 100)
    assert (profile.inline_positions, profile.offloaded_positions) == (10, 90)
    assert (profile.frontier_seconds, profile.inline_seconds) == (0.25, 0.5)
    assert (profile.permit_wait_seconds, profile.offload_seconds) == (3.0, 5.0)
    assert harness.metrics.permit_wait_seconds.sum == 3.0
    assert harness.metrics.offload_seconds.sum == 5.75 + 5.0
    assert harness.metrics.frontier_check_seconds.sum == 0.25
    assert harness.metrics.seek_fulfillment_seconds.sum == 0.75
    assert harness.metrics.total_seconds.sum == 0.5


def test_a_profile_has_the_times_of_its_walk(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=10)
    harness.clock.tick = 1.0
    peek = harness.pending(spec())
    peek.profile = profile = PeekProfile()
    harness.worker.peek(peek)
    harness.settle()
    times, metrics = profile.times, harness.metrics
    assert min(times.setup, times.rows, times.sort, times.collection) > 0
    assert times.errors == metrics.error_scan_seconds.sum
    assert times.setup == metrics.cursor_setup_seconds.sum
    assert times.rows == metrics.row_iteration_seconds.sum
    assert times.sort == metrics.result_sort_seconds.sum
    assert times.collection == metrics.row_collection_seconds.sum


def test_a_profile_of_an_inline_peek_says_so() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)))
    peek = harness.pending()
    peek.profile = profile = PeekProfile()
    assert harness.worker.peek(peek) is not None
    assert (profile.substrate, profile.rows) == ("inline", 100)
    assert (profile.inline_positions, profile.offloaded_positions) == (100, 0)
    assert (profile.permit_wait_seconds, profile.offload_seconds) == (0.0, 0.0)


def test_a_peek_that_has_not_run_is_new_and_has_cost_nothing() -> None:
    peek = Harness(bundle_of(pairs(*HUNDRED))).pending()
    assert (peek.state, peek.arrived, peek.inline_positions) == (PeekState.NEW, 0.0, 0)
    assert (peek.frontier_seconds, peek.inline_seconds) == (0.0, 0.0)
