"""How far a walk is, as seen from the serving loop, wherever the walk runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from layby.config import SystemParameters
from layby.expr.finishing import Finishing
from layby.expr.function import overloads
from layby.expr.mfp import Mfp
from layby.expr.scalar import Call, ColumnRef, Literal
from layby.peek.fuel import Fuel
from layby.peek.process_pool import ProcessWalkPool
from layby.peek.scan import PeekScan
from layby.peek.spec import PeekSpec
from layby.peek.walk import Walk, WalkLimits
from layby.trace.bundle import Snapshot
from layby.trace.series import series_batch
from layby.types.scalar import BIGINT
from tests.expr.helpers import call
from tests.peek.harness import Harness, HarnessOn, bundle_of, error_of, keys, pairs, spec

_DEADLINE_S = 30.0


def endless() -> PeekScan:
    """Return a scan of a million million numbers that finds the first ten alone, after its first slice."""
    less = next(f for f in overloads("<") if f.args == (BIGINT, BIGINT))
    first_ten = Call(less, (ColumnRef(0, BIGINT), Literal(11, BIGINT)))
    mfp = Mfp(1, (first_ten,), (ColumnRef(0, BIGINT),))
    spec = PeekSpec("numbers", 0, None, False, False, mfp, Finishing((), None, 0, (0,)))
    scan = PeekScan(spec, Snapshot((series_batch(1, 10**12, 1, BIGINT),), (), 0, 1), 2**40)
    scan.step(Fuel(5))
    return scan


async def until(condition: Callable[[], bool]) -> None:
    """Take turns of the loop until a condition holds."""
    loop, held = asyncio.get_running_loop(), asyncio.Event()

    def look() -> None:
        if condition():
            held.set()
        else:
            loop.call_soon(look)

    look()
    await held.wait()


def test_a_walk_in_this_process_tells_what_its_scan_has_visited() -> None:
    limits = WalkLimits.of(SystemParameters({"compute_index_peek_yield_granularity": "7"}).peek)
    walk = Walk(endless(), None, lambda: limits)
    assert walk.progress == (5, 5)
    walk.step()
    assert walk.progress == (12, 10)


def test_an_active_peek_shows_how_far_its_walk_is(harness_on: HarnessOn) -> None:
    hundred = [(k, k) for k in range(100)]
    harness = harness_on(bundle_of(pairs(*hundred)), inline_budget=10, granularity=20)
    harness.now = 5.0
    walking, _ = harness.peek()
    queued, _ = harness.peek()
    harness.pool.step()
    harness.now = 7.0
    assert harness.worker.active() == [(walking, True, 30, 30, 2.0), (queued, True, 10, 10, 2.0)]
    harness.settle()
    assert harness.worker.active() == []


def test_each_walk_of_a_pass_shows_its_own_rows(harness_on: HarnessOn) -> None:
    hundred = [(k, k % 7) for k in range(100)]
    harness = harness_on(bundle_of(pairs(*hundred)), inline_budget=10, granularity=20, shared="on")
    harness.peek(spec(constraints=keys(*range(60))))
    equal = next(f for f in overloads("=") if f.args == (BIGINT, BIGINT))
    for value in (1, 2):
        harness.peek(spec(predicates=[Call(equal, (ColumnRef(1, BIGINT), Literal(value, BIGINT)))]))
    while not harness.pool.step():
        pass
    harness.pool.step()
    together = harness.pool.walks[0].work.walks
    assert [walk.progress for walk in together] == [(30, 5), (30, 4)]
    harness.pool.step()
    assert [walk.progress for walk in together] == [(50, 7), (50, 7)]


def test_rows_found_in_the_step_in_which_another_walk_of_the_pass_ends_are_shown(
    harness_on: HarnessOn,
) -> None:
    hundred = [(k, k % 7) for k in range(100)]
    harness = harness_on(bundle_of(pairs(*hundred)), inline_budget=10, granularity=20, shared="on")
    harness.peek(spec(constraints=keys(*range(60))))
    k, v = ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)
    inverse = call("/", Literal(1, BIGINT), call("-", k, Literal(45, BIGINT)))
    for predicate in (call("=", inverse, v), call("=", v, Literal(1, BIGINT))):
        harness.peek(spec(predicates=[predicate]))
    while not harness.pool.step():
        pass
    harness.pool.step()
    harness.pool.step()
    failed, other = harness.pool.walks[0].work.walks
    harness.bench.until(lambda: failed.over)
    assert other.progress == (50, 7)


def test_the_progress_of_a_pass_goes_on_after_its_first_walk_has_ended(harness_on: HarnessOn) -> None:
    hundred = [(k, 0) for k in range(100)]
    harness = harness_on(bundle_of(pairs(*hundred)), inline_budget=10, granularity=20, shared="on")
    harness.peek(spec(constraints=keys(*range(60))))
    k = ColumnRef(0, BIGINT)
    inverse = call("/", Literal(1, BIGINT), call("-", k, Literal(15, BIGINT)))
    failing, _ = harness.peek(spec(predicates=[call("=", inverse, Literal(1, BIGINT))]))
    other, _ = harness.peek()
    while not harness.pool.step():
        pass
    harness.pool.step()
    harness.turn()
    assert error_of(harness.answers[failing])[0] == "22012"
    for done in ((50, 50), (70, 70)):
        harness.pool.step()
        assert list(harness.worker.offload.progress()) == [(other, done)]


def test_peeks_that_wait_for_a_turn_are_shown_with_their_age() -> None:
    harness = Harness(bundle_of(pairs((1, 1))), upper=10)
    harness.now = 5.0
    waiting, _ = harness.peek(spec(20))
    harness.now = 7.0
    assert harness.worker.active() == [(waiting, False, 0, 0, 2.0)]


def test_a_walk_in_another_process_tells_its_progress_while_it_runs() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        parameters = SystemParameters()
        pool = ProcessWalkPool(1, loop, lambda: parameters.peek)
        try:
            walk, done = Walk(endless(), None, lambda: WalkLimits.of(parameters.peek)), asyncio.Event()
            pool.submit(walk, done.set)
            assert walk.progress == (5, 5)
            async with asyncio.timeout(_DEADLINE_S):
                await until(lambda: walk.progress[0] > 5)
                first, rows = walk.progress
                assert rows == 10
                await until(lambda: walk.progress[0] > first)
                walk.cancel()
                await done.wait()
            assert walk.progress[0] == walk.scan.positions >= first
            # The next walk does not show what the one before it came to; it is long at its first stop.
            parameters.set("compute_index_peek_yield_granularity", "50000000")
            pool.parameters_changed()
            again, ended = Walk(endless(), None, lambda: WalkLimits.of(parameters.peek)), asyncio.Event()
            pool.submit(again, ended.set)
            assert again.progress == (5, 5)
            again.cancel()
            async with asyncio.timeout(_DEADLINE_S):
                await ended.wait()
        finally:
            pool.close()

    asyncio.run(scenario())
