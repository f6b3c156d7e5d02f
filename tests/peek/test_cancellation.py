"""Cancellation: in each state, and that the mechanism itself ended the work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from layby.errors import SqlError
from layby.peek.pending import PeekState
from layby.peek.scan import PeekScan
from tests.peek.harness import INDEX, Harness, HarnessOn, bundle_of, error_of, pairs, rows_of, spec

HUNDRED = tuple((k, k) for k in range(100))


def test_a_peek_cancelled_while_it_waits_for_a_turn_is_gone_and_spends_nothing() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=1_000, activation_budget=100)
    harness.peek()
    waiting, _ = harness.peek()
    behind, _ = harness.peek()
    harness.worker.cancel(waiting)
    assert error_of(harness.answers[waiting]) == ("57014", "canceling statement due to user request")
    harness.turn()
    # Had it spent its slice, the aggregate would not have reached the one behind it in this activation.
    assert len(rows_of(harness.answers[behind])) == 100
    assert harness.worker.waiting == 0
    assert harness.metrics.walks_inline == 2


def test_a_peek_cancelled_while_it_waits_for_its_index_is_gone() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), upper=10)
    waiting, _ = harness.peek(spec(20))
    harness.worker.cancel(waiting)
    assert harness.worker.waiting == 0
    assert waiting.state is PeekState.CANCELLED


def test_a_peek_cancelled_while_it_waits_for_a_permit_releases_its_batches_and_takes_none(
    harness_on: HarnessOn,
) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1, granularity=10)
    running, _ = harness.peek()
    queued, _ = harness.peek()
    harness.worker.cancel(queued)
    assert list(harness.worker.offload) == [running]
    assert harness.metrics.permits_queued == 0
    harness.settle()
    assert harness.metrics.permits_granted == 1
    assert harness.metrics.pinned_bytes == 0
    assert error_of(harness.answers[queued])[0] == "57014"


def test_a_walk_stops_within_one_granularity_of_its_cancellation(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1, granularity=10)
    peek, _ = harness.peek()
    walk = harness.pool.walk()
    harness.pool.step()
    assert walk.progress == (11, 11)
    harness.worker.cancel(peek)
    assert error_of(harness.answers[peek])[0] == "57014"
    assert harness.metrics.pinned_bytes > 0
    assert harness.pool.step()
    assert walk.scan.positions == 11
    assert harness.metrics.permits_in_use == 0
    assert harness.metrics.pinned_bytes == 0
    harness.turn()
    assert (harness.metrics.walks_inline, harness.metrics.walks_offloaded) == (0, 0)


def test_cancelling_an_answered_peek_does_nothing() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)))
    peek, response = harness.peek()
    assert response is not None
    harness.worker.cancel(peek)
    assert peek not in harness.answers
    assert peek.state is PeekState.ANSWERED


def test_a_peek_that_waits_is_cancelled_once() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), upper=10)
    waiting, _ = harness.peek(spec(20))
    harness.worker.cancel(waiting)
    harness.worker.cancel(waiting)  # `answers` takes one


def of_what_is_gone(harness: Harness, _: pytest.MonkeyPatch) -> str:
    harness.state.drop(INDEX)
    return "57014"


def raising(_: Harness, monkeypatch: pytest.MonkeyPatch) -> str:
    def burst(*_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(PeekScan, "step", burst)
    return "XX000"


@pytest.mark.parametrize("fails", [of_what_is_gone, raising])
def test_cancelling_a_peek_that_waited_and_failed_does_nothing(
    fails: Callable[[Harness, pytest.MonkeyPatch], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), upper=10)
    waiting, _ = harness.peek(spec(20))
    sqlstate = fails(harness, monkeypatch)
    harness.state.publish({}, 30)
    harness.worker.request_activation()
    harness.turn()
    assert error_of(harness.answers[waiting])[0] == sqlstate
    harness.worker.cancel(waiting)
    assert waiting.state is PeekState.ANSWERED


def test_a_walk_that_ended_before_its_cancellation_is_not_answered_twice(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1, granularity=1_000)
    peek, _ = harness.peek()
    harness.pool.step()
    harness.worker.cancel(peek)
    assert error_of(harness.answers[peek])[0] == "57014"
    harness.turn()
    assert len(harness.answers) == 1
    assert harness.metrics.walks_offloaded == 0


def test_dropping_an_index_cancels_its_pending_peeks_in_every_state(harness_on: HarnessOn) -> None:
    harness = harness_on(
        bundle_of(pairs(*HUNDRED)), upper=10, inline_budget=1, activation_budget=2, granularity=10
    )
    walking, _ = harness.peek(spec(5))
    queued, _ = harness.peek(spec(5))
    starved, _ = harness.peek(spec(5))
    behind, _ = harness.peek(spec(20))
    states = [p.state for p in (walking, queued, starved, behind)]
    assert states == [PeekState.WALKING, PeekState.QUEUED, PeekState.WAITING, PeekState.WAITING]
    harness.worker.cancel_reads_of(INDEX, SqlError("57014", "dropped"))
    assert [error_of(harness.answers[p])[1] for p in (walking, queued, starved, behind)] == ["dropped"] * 4
    harness.settle()
    assert (harness.worker.waiting, len(harness.worker.offload), harness.metrics.permits_in_use) == (0, 0, 0)


def test_a_peek_of_a_collection_that_is_gone_is_answered() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)))
    harness.state.drop(INDEX)
    assert error_of(harness.ask())[0] == "57014"
