"""Quiet walks: a read that outran its budget goes on inline for as long as nobody else would wait for it.

To move a walk to another process and back costs 0.1 ms and more on a busy machine, which is a good part of a
walk of a million integers. The move protects the others; where there are none it is a loss. So while no other
peek waits or walks, a scan goes on on the serving loop, for `TURN_S` a turn, so that sockets are served in
between. The first other peek that comes is answered, and ends this: the scan is offloaded like any other, and
so is one that turns out slow.

A turn costs 40 to 60 µs beside what it walks, so each is used up, and is long enough for a walk of a million
integers: where it was half as long, every second one (0.4 to 0.5 ms) took another, and was 5 to 15 % slower
than without the offload. A scan's first visit, with everything cold, tells little of its speed: the scan
itself reckons anew from each what fits into the time (`PeekScan.pace`). To make every visit, and not every
turn, a step of its own cost a walk of a million integers 2 % more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from layby.config import PeekParameters
from layby.peek.budget import TURN_S
from layby.peek.fuel import Fuel
from layby.peek.outcome import SUSPENDED, ScanOutcome
from layby.peek.pending import PendingPeek
from layby.peek.scan import CHUNK, PeekScan

_SLOW_S: Final = 2 * TURN_S
"""A scan is slow where a turn, or as many positions as the inline budget, take longer."""


class QuietWalk:
    """A suspended scan on the serving loop, and what its last turn came to."""

    __slots__ = ("disturbed", "fresh", "pending", "scan", "seconds", "visited")

    def __init__(self, pending: PendingPeek, scan: PeekScan, visited: int, seconds: float) -> None:
        self.pending = pending
        self.scan = scan
        self.visited = visited
        """Positions of the last turn."""
        self.seconds = seconds
        """What it took."""
        self.disturbed = False
        """Whether another peek has come."""
        self.fresh = True
        """Whether the turn in which it came, and had its time, has not ended."""

    def next_visit(self, parameters: PeekParameters) -> int | None:
        """Return the most positions that another turn begins with, None where the scan has to leave.

        That is where its quiet budget is spent, it has found more rows than the inline budget, or it is slow.
        """
        scan, visited, seconds = self.scan, self.visited, self.seconds
        left, inline_budget = parameters.quiet_budget - scan.positions, parameters.inline_budget
        if left <= 0 or visited <= 0 or seconds > _SLOW_S or scan.count > inline_budget:
            return None
        if seconds * inline_budget > _SLOW_S * visited:
            return None
        return max(1, min(CHUNK, visited if seconds <= TURN_S else int(visited * TURN_S / seconds)))

    def take_turn(self, parameters: PeekParameters, clock: Callable[[], float]) -> ScanOutcome:
        """Step the scan until the time of a turn is used up; return the outcome."""
        scan, pace = self.scan, self.next_visit(parameters)
        if pace is None:
            return SUSPENDED
        before, began = scan.positions, clock()
        scan.pace, scan.step_seconds = pace, TURN_S
        outcome = scan.step(Fuel(parameters.quiet_budget - before))
        self.visited, self.seconds = scan.positions - before, clock() - began
        return outcome
