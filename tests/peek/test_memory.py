"""The memory of an ended walk: free at once, and not only when the garbage collector comes by."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import cast

import pytest

from layby.expr.function import overloads
from layby.expr.mfp import MfpKernel
from layby.expr.scalar import Call, ColumnRef
from layby.peek.answer import Failed
from layby.peek.pool import Work
from layby.peek.scan import PeekScan
from layby.trace.layout import Layout
from layby.types.ordering import ASCENDING
from layby.types.scalar import INTEGER
from tests.peek.harness import Harness, HarnessOn, bundle_of, error_of, pairs, spec

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


def without_kernels(work: Work) -> None:
    """Have a pass raise in `SharedScan.step`, whose frame holds all of its scans."""
    for walk in work.walks:
        walk.scan._kernel = cast("MfpKernel", 0)


def raised_in_a_pass(harness: Harness) -> None:
    harness.parameters.set("enable_compute_index_peek_shared_walks", "on")
    harness.parameters.set("compute_index_peek_max_queued", "2")
    harness.peek()
    while not harness.pool.step():
        pass
    harness.pool.look(without_kernels)
    logging.disable()  # a log record that a test keeps holds the frames
    try:
        harness.settle()
    finally:
        logging.disable(logging.NOTSET)
    assert [a.error.sqlstate for a in harness.answers.values() if isinstance(a, Failed)] == ["XX000"] * 2


ENDS = [answered, refused, cancelled_in_the_queue, cancelled_while_walking, raised_in_a_pass]


def test_rows_that_raised_do_not_keep_the_scan() -> None:
    make_date = next(iter(overloads("make_date")))
    outputs = [Call(make_date, (ColumnRef(0, INTEGER),) * 3)]
    gc.collect()
    gc.disable()
    try:
        # No row is a date: the first is the answer, and the others' errors must hold nothing either.
        layout = Layout((INTEGER,), (ASCENDING,))
        harness = Harness(bundle_of([((k,), 1, 1) for k in range(50, 60)], layout=layout))
        assert error_of(harness.ask(spec(types=(INTEGER,), outputs=outputs)))[0] == "22008"
        harness.answers.clear()
        assert [found for found in gc.get_objects() if isinstance(found, PeekScan)] == []
    finally:
        gc.enable()


@pytest.mark.parametrize("end", ENDS)
def test_the_scan_of_an_ended_walk_is_free_without_the_garbage_collector(
    harness_on: HarnessOn,
    end: Callable[[Harness], None],
) -> None:
    gc.collect()
    gc.disable()
    try:
        harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1, granularity=10, max_queued=1)
        for _ in range(2):
            harness.peek()
        end(harness)
        harness.answers.clear()
        # A thread lets go of its last walk when it has told of its end.
        harness.bench.until(lambda: not [found for found in gc.get_objects() if isinstance(found, PeekScan)])
    finally:
        gc.enable()
