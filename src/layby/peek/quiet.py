"""Quiet walks: a read that outran its budget goes on inline for as long as nobody else would wait for it.

To move a walk to another process and back costs 0.1 ms and more on a busy machine, which is a good part of a
walk of a million integers. The move protects the others; where there are none it is a loss. So while no other
peek waits or walks, a scan goes on on the serving loop, for `TURN_S` a turn, so that sockets are served in
between. The first other peek that comes is answered, and ends this: the scan is offloaded like any other, and
so is one that turns out slow.

A turn costs 40 to 60 µs beside what it walks, so each is used up, and is long enough for a walk of a million
integers: where it was half as long, every second one (0.4 to 0.5 ms) took another, and was 5 to 15 % slower
than without the offload, 1 to 4 % now. A scan's first slice, with everything cold, tells little of its speed:
what fits is reckoned anew from each slice, and where a chunk fits, the scan itself looks at the clock after
each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from layby.config import PeekParameters
from layby.peek.budget import TURN_S
from layby.peek.fuel import Fuel
from layby.peek.outcome import SUSPENDED, ScanOutcome, Suspended
from layby.peek.pending import PendingPeek
from layby.peek.scan import CHUNK, PeekScan

_GROWTH: Final = 64.0
"""How much longer than the one before it a slice is at most: a short one is a poor measure."""

_LEAST_S: Final = TURN_S / 16
"""A turn of which less is left ends: a slice costs 10 to 20 µs beside its positions."""

_SLOW_S: Final = 2 * TURN_S
"""A scan is slow where a slice, or as many positions as the inline budget, take longer."""


class QuietWalk:
    """A suspended scan on the serving loop, and what its last slice came to."""

    __slots__ = ("disturbed", "fresh", "pending", "scan", "seconds", "visited")

    def __init__(self, pending: PendingPeek, scan: PeekScan, visited: int, seconds: float) -> None:
        self.pending = pending
        self.scan = scan
        self.visited = visited
        """Positions of the last slice."""
        self.seconds = seconds
        """What it took."""
        self.disturbed = False
        """Whether another peek has come."""
        self.fresh = True
        """Whether the turn in which it came, and had its time, has not ended."""

    def next_slice(self, parameters: PeekParameters, spent: float = 0.0) -> int | None:
        """Return the positions of a turn's next slice, None for no more; `spent` seconds of it are gone.

        None for a new turn says that the scan has to leave: its quiet budget is spent, it has found more rows
        than the inline budget, or it is slow.
        """
        scan, visited, seconds = self.scan, self.visited, self.seconds
        left = parameters.quiet_budget - scan.positions
        time_left = TURN_S - spent
        if left <= 0 or time_left < _LEAST_S or visited <= 0 or seconds > _SLOW_S:
            return None
        inline_budget = parameters.inline_budget
        if scan.count > inline_budget or seconds * inline_budget > _SLOW_S * visited:
            return None
        # No builtins are called here: after a slice all is out of the cache, and this takes 2 µs, not 3.
        fits = visited * (_GROWTH if seconds * _GROWTH < time_left else time_left / seconds)
        if fits >= CHUNK or fits >= left:
            return left
        return int(fits) or 1

    def use_up_turn(
        self, start: float, now: float, parameters: PeekParameters, clock: Callable[[], float]
    ) -> ScanOutcome:
        """Step the scan in slices until its turn, which began at `start`, is used up; return the outcome."""
        scan = self.scan
        outcome: ScanOutcome = SUSPENDED
        while isinstance(outcome, Suspended):
            positions = self.next_slice(parameters, now - start)
            if positions is None:
                break
            before, began = scan.positions, now
            scan.step_seconds = TURN_S - (now - start)
            outcome = scan.step(Fuel(positions))
            now = clock()
            self.visited, self.seconds = scan.positions - before, now - began
        return outcome
