"""Metrics as a scrape shows them: all there from the start at zero, and each moved by what it names."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from layby.metrics import PeekMetrics, registry
from tests.peek.harness import Harness, HarnessOn, bundle_of, keys, pairs, spec

HUNDRED = tuple((k, k) for k in range(100))

COUNTERS = (
    'layby_index_peek_walks_total{substrate="inline"}',
    'layby_index_peek_walks_total{substrate="offloaded"}',
    "layby_index_peek_permits_granted_total",
    "layby_index_peek_shared_walks_total",
    "layby_index_peek_stashed_total",
    "layby_walk_process_restarts_total",
)
GAUGES = (
    "layby_index_peek_permits_queued",
    "layby_index_peek_permits_in_use",
    "layby_index_peek_pinned_bytes",
    "layby_index_peek_queued_rows_bytes",
    "layby_peek_stash_bytes",
    "layby_serving_loop_realtime",
)
HISTOGRAMS = (
    "layby_index_peek_total_seconds",
    "layby_index_peek_offload_seconds",
    "layby_index_peek_permit_wait_seconds",
    "layby_index_peek_error_scan_seconds",
    "layby_index_peek_cursor_setup_seconds",
    "layby_index_peek_row_iteration_seconds",
    "layby_index_peek_row_iteration_rows",
    "layby_index_peek_result_sort_seconds",
    "layby_index_peek_result_sort_rows",
    "layby_index_peek_row_collection_seconds",
    "layby_index_peek_seek_fulfillment_seconds",
    "layby_index_peek_frontier_check_seconds",
    "layby_serving_loop_turn_seconds",
)


def scrape(metrics: PeekMetrics) -> dict[str, float]:
    """Return every sample of the exposition."""
    lines = generate_latest(registry(metrics)).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


@pytest.mark.parametrize(
    "name", [*COUNTERS, *GAUGES, *(f"{h}_{of}" for h in HISTOGRAMS for of in ("count", "sum"))]
)
def test_every_metric_is_there_and_zero_from_the_start(name: str) -> None:
    assert scrape(PeekMetrics())[name] == 0


def test_the_help_of_total_seconds_says_where_the_rest_of_an_expensive_peek_is() -> None:
    text = generate_latest(registry(PeekMetrics())).decode()
    line = next(x for x in text.splitlines() if x.startswith("# HELP layby_index_peek_total_seconds"))
    assert "layby_index_peek_offload_seconds" in line


def test_an_inline_peek_moves_what_belongs_to_the_loop() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)))
    harness.ask(spec(constraints=keys(1)))
    seen = scrape(harness.metrics)
    assert seen[COUNTERS[0]] == 1
    assert seen[COUNTERS[1]] == 0
    moved = {h for h in HISTOGRAMS if seen[f"{h}_count"]}
    assert moved == {
        "layby_index_peek_total_seconds",
        "layby_index_peek_error_scan_seconds",
        "layby_index_peek_cursor_setup_seconds",
        "layby_index_peek_row_iteration_seconds",
        "layby_index_peek_row_iteration_rows",
        "layby_index_peek_result_sort_seconds",
        "layby_index_peek_result_sort_rows",
        "layby_index_peek_row_collection_seconds",
        "layby_index_peek_seek_fulfillment_seconds",
        "layby_index_peek_frontier_check_seconds",
    }
    assert {seen[f"{h}_count"] for h in moved} == {1}
    assert seen["layby_index_peek_row_iteration_rows_sum"] == 1
    assert seen["layby_index_peek_result_sort_rows_sum"] == 1


def test_an_offloaded_peek_moves_the_rest(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=10)
    harness.peek()
    harness.peek()
    seen = scrape(harness.metrics)
    assert seen["layby_index_peek_permits_in_use"] == 1
    assert seen["layby_index_peek_permits_queued"] == 1
    batches = harness.bundle.snapshot().oks
    assert seen["layby_index_peek_pinned_bytes"] == sum(b.nbytes for b in batches)
    harness.settle()
    seen = scrape(harness.metrics)
    assert seen[COUNTERS[1]] == 2
    assert seen["layby_index_peek_permits_granted_total"] == 2
    for name in GAUGES:
        assert seen[name] == 0
    assert seen["layby_index_peek_offload_seconds_count"] == 2
    assert seen["layby_index_peek_permit_wait_seconds_count"] == 2
    assert seen["layby_index_peek_row_iteration_rows_sum"] == 200


def test_the_wait_for_a_permit_is_in_the_time_away_from_the_loop(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=10)
    harness.now = 100.0
    harness.peek()
    harness.peek()
    harness.now = 103.0
    harness.pool.run()
    harness.now = 105.0
    harness.settle()
    seen = scrape(harness.metrics)
    assert seen["layby_index_peek_permit_wait_seconds_sum"] == 3.0
    assert seen["layby_index_peek_offload_seconds_sum"] == 10.0


def test_a_wait_for_the_frontier_is_counted_once_it_is_over() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), upper=10)
    peek, _ = harness.peek(spec(20))
    assert scrape(harness.metrics)["layby_index_peek_seek_fulfillment_seconds_count"] == 0
    harness.now = 2.0
    harness.state.publish({}, 21)
    harness.worker.request_activation()
    harness.settle()
    assert peek in harness.answers
    seen = scrape(harness.metrics)
    assert seen["layby_index_peek_frontier_check_seconds_count"] == 1
    assert seen["layby_index_peek_seek_fulfillment_seconds_count"] == 1
