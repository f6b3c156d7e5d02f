"""Permits under any interleaving of acquire, release, cancel and resize, against a naive model."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from layby.peek.permits import PeekPermits, Ticket

_BOUNDS = st.integers(1, 5)
_EVENTS = st.lists(
    st.one_of(
        st.just(("acquire", 0)),
        st.tuples(st.just("release"), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("resize"), _BOUNDS),
    ),
    max_size=60,
)


class Model:
    """What permits promise, said over two lists: who runs, and who waits in the order of their coming."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.running: list[int] = []
        self.waiting: list[int] = []
        self.admitted: list[int] = []

    def admit(self) -> None:
        while self.waiting and len(self.running) < self.bound:
            first = self.waiting.pop(0)
            self.running.append(first)
            self.admitted.append(first)


@settings(max_examples=300, deadline=None)
@given(_BOUNDS, _EVENTS)
def test_no_interleaving_loses_or_invents_a_permit(bound: int, events: list[tuple[str, int]]) -> None:
    permits, model = PeekPermits(bound), Model(bound)
    tickets: list[Ticket] = []
    admitted: list[int] = []
    largest = bound  # the largest bound that any walk under way may have been admitted under
    for event, number in events:
        if event == "acquire":
            name = len(tickets)
            model.waiting.append(name)
            tickets.append(permits.acquire(lambda name=name: admitted.append(name), 0))  # type: ignore[misc]
        elif event == "resize":
            model.bound = number
            largest = max(largest, number)
            permits.resize(number)
        else:
            place = model.running if event == "release" else model.waiting
            if not place:
                continue
            tickets[place.pop(number % len(place))].release()
        model.admit()
        if len(model.running) <= model.bound:
            largest = model.bound
        assert len(admitted) == len(set(admitted))
        assert permits.in_use <= largest
        assert (admitted, permits.in_use, permits.queued) == (
            model.admitted,
            len(model.running),
            len(model.waiting),
        )
    for ticket in tickets:
        ticket.release()
    assert (permits.in_use, permits.queued) == (0, 0)
    started: list[int] = []
    for name in range(model.bound + 1):
        permits.acquire(lambda name=name: started.append(name), 0)  # type: ignore[misc]
    assert started == list(range(model.bound))


def test_a_grant_that_ends_at_once_hands_its_permit_on_and_none_is_lost() -> None:
    permits = PeekPermits(1)
    order: list[str] = []
    first = permits.acquire(lambda: order.append("first"), 0)
    tickets: list[Ticket] = []

    def ends_at_once() -> None:
        order.append("second")
        tickets[0].release()

    tickets.append(permits.acquire(ends_at_once, 0))
    permits.acquire(lambda: order.append("third"), 0)
    first.release()
    assert order == ["first", "second", "third"]
    assert (permits.in_use, permits.queued) == (1, 0)
