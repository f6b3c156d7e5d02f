"""The inline budget: what index peeks may visit on the serving loop within one activation."""

from __future__ import annotations

from typing import Final

from layby.config import PeekParameters
from layby.peek.fuel import Fuel, UnboundedFuel

TURN_S: Final = 0.001
"""How long the slices that one peek gets in a turn take together: the most that the next has to wait for it.

They end between two visits, whatever fuel is left: positions do not tell what one costs. A list of keys seeks
each of them.
"""


class InlineBudget:
    """Grants fuel for the inline slices of one activation out of one aggregate.

    A peek gets its whole per-peek budget or none, so the aggregate is overrun by one slice at most. The
    aggregate is armed at the first grant of an activation from the parameters in force then, and a budget of
    zero counts as one position. With the offload off every grant is unbounded and nothing is ever refused.
    """

    __slots__ = ("_remaining",)

    def __init__(self) -> None:
        self._remaining: int | None = None

    def refill(self) -> None:
        """Start an activation: the next grant arms the aggregate anew."""
        self._remaining = None

    def grant(self, parameters: PeekParameters) -> Fuel | None:
        """Return the fuel for one peek's slice, or None where the aggregate is spent."""
        if not parameters.offload:
            return UnboundedFuel()
        if self._remaining is None:
            self._remaining = max(1, parameters.activation_budget)
        if self._remaining <= 0:
            return None
        return Fuel(max(1, parameters.inline_budget))

    def charge(self, positions: int) -> None:
        """Draw what a slice visited on the aggregate."""
        if self._remaining is not None:
            self._remaining -= positions
