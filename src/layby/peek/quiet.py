"""Quiet walks: a read that outran its budget goes on inline for as long as nobody else would wait for it.

To move a walk to another process and back costs 0.1 ms and more on a busy machine, which is a good part of a
walk over a million integers (0.35 ms). The move protects the others; where there are none it is a loss. So
while no other peek waits or walks, a scan goes on on the serving loop, in slices of at most `SLICE_S`, one a
turn, so that sockets are served in between. The first other peek that comes is answered, and ends this: the
scan is offloaded like any other. What a slice takes is measured: a walk whose slices are slow is offloaded
at once.
"""

from __future__ import annotations

from typing import Final

from layby.peek.pending import PendingPeek
from layby.peek.scan import PeekScan

SLICE_S: Final = 0.000_5
"""How long a slice should take: the most that a peek which comes during one has to wait for it."""

_GROWTH: Final = 64.0
"""How much longer than the one before it a slice is at most: a short one is a poor measure."""

_SLOW: Final = 2.0
"""A slice that took so many times as long as it should ends the quiet walk."""


class QuietWalk:
    """A suspended scan on the serving loop, and how far its next slice may go."""

    __slots__ = ("disturbed", "pending", "positions", "scan")

    def __init__(self, pending: PendingPeek, scan: PeekScan, positions: int) -> None:
        self.pending = pending
        self.scan = scan
        self.positions = positions
        self.disturbed = False
        """Whether another peek has come."""


def next_slice(visited: int, seconds: float, spent: float = 0.0) -> int | None:
    """Return the positions of a slice after one that visited so many in so long, None for no more.

    `spent` are the seconds of this turn that are gone already.
    """
    if visited <= 0 or seconds > _SLOW * SLICE_S or spent >= SLICE_S:
        return None
    return max(1, int(visited * min(_GROWTH, (SLICE_S - spent) / max(seconds, 1e-6))))
