"""The sweep: turns, the aggregate, places kept, and peeks whose index is not there yet."""

from __future__ import annotations

from layby.peek.pending import PeekState, PendingPeek
from tests.peek.harness import INDEX, Harness, HarnessOn, append, bundle_of, keys, pairs, rows_of, spec

TEN = tuple((k, k) for k in range(10))


def lookup(key: int, timestamp: int = 100) -> object:
    return spec(timestamp, constraints=keys(key))


def test_slices_of_one_activation_draw_on_one_aggregate() -> None:
    harness = Harness(bundle_of(pairs(*TEN)), inline_budget=100, activation_budget=15)
    answered = [harness.peek()[1] is not None for _ in range(4)]
    # The first two peeks visit 20 positions: the aggregate is overrun by one slice at most.
    assert answered == [True, True, False, False]


def test_the_aggregate_refills_at_the_start_of_an_activation_and_not_within_one() -> None:
    harness = Harness(bundle_of(pairs(*TEN)), inline_budget=100, activation_budget=10)
    peeks = [harness.peek()[0] for _ in range(3)]
    assert [p.state for p in peeks] == [PeekState.ANSWERED, PeekState.WAITING, PeekState.WAITING]
    harness.turn()
    assert [p.state for p in peeks] == [PeekState.ANSWERED, PeekState.ANSWERED, PeekState.WAITING]
    harness.turn()
    assert [p.state for p in peeks] == [PeekState.ANSWERED] * 3


def test_a_peek_gets_its_whole_budget_or_none(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*TEN)), inline_budget=9, activation_budget=10, granularity=1)
    first, _ = harness.peek()
    second, _ = harness.peek()
    assert [work.walks[0].scan.positions for work, _ in harness.pool.walks] == [9]
    assert second.state is PeekState.QUEUED
    assert first.state is PeekState.WALKING
    third, _ = harness.peek()
    assert third.state is PeekState.WAITING


def test_peeks_that_get_no_grant_keep_their_places_and_come_first_at_the_next_activation() -> None:
    harness = Harness(bundle_of(pairs(*TEN)), inline_budget=100, activation_budget=1)
    order: list[int] = []
    peeks = []
    for number in range(4):
        peek = harness.pending(lookup(number))  # type: ignore[arg-type]
        peek.respond = lambda _, number=number: order.append(number)  # type: ignore[misc]
        if harness.worker.peek(peek) is not None:
            order.append(number)
        peeks.append(peek)
    assert order == [0]
    while harness.turn():
        pass
    assert order == [0, 1, 2, 3]


def test_a_later_peek_does_not_overtake_one_that_waits_for_its_turn() -> None:
    harness = Harness(bundle_of(pairs(*TEN)), inline_budget=100, activation_budget=10)
    harness.peek()
    waiting, _ = harness.peek()
    late, response = harness.peek(lookup(1))  # type: ignore[arg-type]
    assert response is None
    assert (waiting.state, late.state) == (PeekState.WAITING, PeekState.WAITING)


def test_a_peek_that_left_the_queue_keeps_nobody_from_a_turn() -> None:
    harness = Harness(bundle_of(pairs(*TEN)), inline_budget=100, activation_budget=1)
    harness.peek()
    gone, _ = harness.peek()
    assert gone.state is PeekState.WAITING
    harness.worker.cancel(gone)
    harness.turn()
    _, response = harness.peek(lookup(1))  # type: ignore[arg-type]
    assert rows_of(response) == [(1, 1)]


def test_the_sweep_asks_for_the_next_activation_while_peeks_wait() -> None:
    harness = Harness(bundle_of(pairs(*TEN)), inline_budget=100, activation_budget=1)
    for _ in range(5):
        harness.peek()
    turns = 0
    while harness.worker.waiting:
        assert harness.turn()
        turns += 1
    assert turns == 4


def test_peeks_whose_index_is_behind_keep_their_place_spend_nothing_and_hold_nobody_up() -> None:
    bundle = bundle_of(pairs(*TEN))
    harness = Harness(bundle, upper=50, inline_budget=100, activation_budget=10)
    early, response = harness.peek(spec(60))
    assert response is None
    assert early.state is PeekState.WAITING
    _, response = harness.peek(spec(40))
    assert len(rows_of(response)) == 10
    append(bundle, pairs((99, 99), time=55), 61)
    harness.state.publish({INDEX: bundle.snapshot()}, 61)
    harness.worker.request_activation()
    harness.turn()
    assert len(rows_of(harness.answers[early])) == 11


def test_a_peek_without_an_answer_waits_for_a_turn_or_is_with_the_driver(harness_on: HarnessOn) -> None:
    harness = harness_on(
        bundle_of(pairs(*TEN)), upper=10, inline_budget=1, activation_budget=2, granularity=2
    )
    places = [harness.peek(spec(timestamp))[0] for timestamp in (5, 5, 5, 20)]
    walking, queued, starved, behind = places

    def active() -> list[tuple[PendingPeek, bool]]:
        return [(each.pending, each.offloaded) for each in harness.worker.active()]

    assert active() == [(starved, False), (behind, False), (walking, True), (queued, True)]
    harness.turn()
    assert active() == [(behind, False), (walking, True), (queued, True), (starved, True)]
    harness.settle()
    assert active() == [(behind, False)]
    harness.state.publish({}, 21)
    harness.worker.request_activation()
    harness.turn()
    assert active() == [(behind, True)]
    harness.settle()
    assert active() == []
    assert [rows_of(harness.answers[peek]) for peek in places] == [list(TEN)] * 4


def test_an_index_has_reached_a_time_once_it_is_complete_there() -> None:
    harness = Harness(bundle_of(pairs(*TEN)), upper=10)
    assert [harness.peek(spec(timestamp))[1] is None for timestamp in (9, 10)] == [False, True]


def test_a_sweep_goes_on_behind_a_peek_whose_index_is_behind() -> None:
    harness = Harness(bundle_of(pairs(*TEN)), upper=50, inline_budget=100, activation_budget=10)
    early, _ = harness.peek(spec(60))
    harness.peek(spec(40))
    ready, response = harness.peek(spec(40))
    assert response is None
    harness.turn()
    assert (early.state, ready.state) == (PeekState.WAITING, PeekState.ANSWERED)


def test_taken_over_peeks_are_collected_however_little_budget_is_left(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*TEN)), inline_budget=1, activation_budget=1, granularity=100)
    offloaded, _ = harness.peek()
    waiting = [harness.peek()[0] for _ in range(3)]
    harness.pool.step()
    harness.turn()
    assert offloaded.state is PeekState.ANSWERED
    assert [p.state for p in waiting].count(PeekState.WAITING) == 2


def test_the_budget_is_armed_from_the_parameters_in_force_at_the_first_grant() -> None:
    harness = Harness(bundle_of(pairs(*TEN)), inline_budget=100, activation_budget=1_000)
    harness.parameters.set("compute_index_peek_activation_budget", "10")
    assert harness.peek()[1] is not None
    harness.parameters.set("compute_index_peek_activation_budget", "1000")
    assert harness.peek()[1] is None
    harness.turn()
    assert harness.peek()[1] is not None


def test_a_peek_before_any_sweep_gets_a_bounded_slice(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*TEN)), inline_budget=3)
    peek, response = harness.peek()
    assert response is None
    assert harness.pool.walk().scan.positions == 3
    assert peek.state is PeekState.WALKING


def test_a_budget_of_zero_counts_as_one_position(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*TEN)), inline_budget=0, activation_budget=0, granularity=100)
    peeks = [harness.peek()[0] for _ in range(3)]
    assert harness.pool.walk().scan.positions == 1
    assert peeks[1].state is PeekState.WAITING
    harness.settle()
    assert all(len(rows_of(harness.answers[p])) == 10 for p in peeks)


def test_sockets_are_served_between_activations() -> None:
    harness = Harness(bundle_of(pairs(*TEN)), inline_budget=100, activation_budget=1)
    served = []
    for _ in range(3):
        harness.peek()
    harness.turns.append(lambda: served.append(harness.worker.waiting))
    while harness.turn():
        if harness.worker.waiting:
            harness.turns.append(lambda: served.append(harness.worker.waiting))
    assert served == [1, 0]


def test_an_activation_refills_for_peeks_that_arrive_within_it() -> None:
    harness = Harness(bundle_of(pairs(*TEN)), inline_budget=100, activation_budget=10)
    assert harness.peek()[1] is not None
    harness.turn()
    assert harness.peek()[1] is not None
    assert harness.metrics.walks_inline == 2


def test_a_peek_after_the_offload_was_switched_off_does_not_overtake_one_that_waits_for_its_turn() -> None:
    harness = Harness(
        bundle_of(pairs(*((k, k) for k in range(100)))), inline_budget=1_000, activation_budget=100
    )
    harness.peek()
    waiting, _ = harness.peek()
    harness.parameters.set("enable_compute_index_peek_offload", "off")
    behind, response = harness.peek()
    assert response is None
    harness.turn()
    assert list(harness.answers) == [waiting, behind]
