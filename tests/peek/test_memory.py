"""The memory of an ended walk: free at once, and not only when the garbage collector comes by."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from layby.peek.scan import PeekScan
from tests.peek.harness import Harness, bundle_of, pairs

HUNDRED = tuple((k, k) for k in range(100))


def refused(harness: Harness) -> None:
    harness.peek()
    harness.settle()


def answered(harness: Harness) -> None:
    harness.settle()


def cancelled_in_the_queue(harness: Harness) -> None:
    for peek in list(harness.worker.offload)[1:]:
        harness.worker.cancel(peek)
    harness.settle()


def cancelled_while_walking(harness: Harness) -> None:
    harness.pool.step()
    for peek in list(harness.worker.offload):
        harness.worker.cancel(peek)
    harness.settle()


@pytest.mark.parametrize("end", [answered, refused, cancelled_in_the_queue, cancelled_while_walking])
def test_the_scan_of_an_ended_walk_is_free_without_the_garbage_collector(
    end: Callable[[Harness], None],
) -> None:
    gc.collect()
    gc.disable()
    try:
        harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=1, granularity=10, max_queued=1)
        for _ in range(2):
            harness.peek()
        end(harness)
        harness.answers.clear()
        assert [found for found in gc.get_objects() if isinstance(found, PeekScan)] == []
    finally:
        gc.enable()
