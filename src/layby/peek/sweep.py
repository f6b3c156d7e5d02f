"""The sweep: which waiting peeks get a turn on the serving loop, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto

from layby.config import SystemParameters
from layby.peek.budget import InlineBudget
from layby.peek.fuel import Fuel
from layby.peek.pending import PeekState, PendingPeek


class Turn(Enum):
    """What became of a peek that asked for a turn."""

    SERVED = auto()
    NOT_READY = auto()
    NO_GRANT = auto()


class Sweep:
    """The queue of peeks that await a turn, and the budget that all turns of an activation draw on.

    `is_ready` tells whether a peek's index has reached its time; `serve` runs its inline slice with the fuel
    granted and returns the positions visited. A peek that is not ready keeps its place, spends nothing and
    holds nobody up; the first ready one that gets no grant ends the sweep, and is first at the next.
    """

    def __init__(
        self,
        parameters: SystemParameters,
        is_ready: Callable[[PendingPeek], bool],
        serve: Callable[[PendingPeek, Fuel], int],
    ) -> None:
        self._parameters = parameters
        self._is_ready = is_ready
        self._serve = serve
        self._budget = InlineBudget()
        self._waiting: dict[PendingPeek, None] = {}
        self._starved = False
        """Whether a ready peek waits because the aggregate is spent: then later ones queue behind it."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[PendingPeek]:
        return iter(self._waiting)

    @property
    def starved(self) -> bool:
        """Whether the next activation is wanted for a peek that is ready."""
        return self._starved

    def arrive(self, pending: PendingPeek) -> Turn:
        """Serve a peek that has just arrived, or queue it."""
        turn = Turn.NO_GRANT
        if not self._starved:
            turn = self._turn(pending)
        if turn is not Turn.SERVED:
            self._starved = self._starved or turn is Turn.NO_GRANT
            pending.state = PeekState.WAITING
            self._waiting[pending] = None
        return turn

    def refill(self) -> None:
        """Start an activation."""
        self._budget.refill()

    def run(self) -> None:
        """Serve the waiting peeks from the front, up to the first ready one that gets no grant."""
        self._starved = False
        for pending in list(self._waiting):
            if pending not in self._waiting:
                continue  # cancelled by the answer to one before it
            turn = self._turn(pending)
            if turn is Turn.NO_GRANT:
                self._starved = True
                return
            if turn is Turn.SERVED:
                self._waiting.pop(pending, None)

    def remove(self, pending: PendingPeek) -> None:
        """Take a peek out of the queue."""
        self._waiting.pop(pending, None)
        if not self._waiting:
            self._starved = False

    def _turn(self, pending: PendingPeek) -> Turn:
        if not self._is_ready(pending):
            return Turn.NOT_READY
        fuel = self._budget.grant(self._parameters.peek)
        if fuel is None:
            return Turn.NO_GRANT
        self._budget.charge(self._serve(pending, fuel))
        return Turn.SERVED
