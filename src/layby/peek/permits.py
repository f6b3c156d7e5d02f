"""Permits: how many offloaded walks run at once, and the queue of those that wait.

The bound can change at any time. A raise admits waiters at once; a shrink is met as walks release their
permits: a permit given back while more are in use than the bound allows is absorbed, waiters or not. No walk
under way is interrupted. Used from the serving loop only, so it needs no lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from layby.errors import SqlError


def permit_bound(fraction: float, pool_size: int) -> int:
    """Return `fraction` of the walk pool, rounded down, at least one; NaN and negative values mean one."""
    if math.isnan(fraction) or fraction <= 0:
        return 1
    return max(1, math.floor(min(fraction * pool_size, 2**31)))


class Ticket:
    """One walk's place: first in the queue, then holding a permit, then neither."""

    __slots__ = ("_granted", "_on_granted", "_permits")

    def __init__(self, permits: PeekPermits, on_granted: Callable[[], None]) -> None:
        self._permits: PeekPermits | None = permits
        # Let go of as soon as it is of no use: the callback holds the walk, which holds this ticket, and the
        # memory of an ended walk must not wait for the garbage collector, which the server runs seldom.
        self._on_granted: Callable[[], None] | None = on_granted
        self._granted = False

    @property
    def granted(self) -> bool:
        """Whether a permit is held."""
        return self._granted

    def release(self) -> None:
        """Leave the queue, or give the permit back; whichever it was, once."""
        permits, self._permits = self._permits, None
        self._on_granted = None
        if permits is not None:
            permits.leave(self)

    def admit(self) -> None:
        """Hold a permit from now on."""
        self._granted = True
        on_granted, self._on_granted = self._on_granted, None
        if on_granted is not None:
            on_granted()


class PeekPermits:
    """A bound on walks under way, with a first come, first served queue behind it."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._in_use = 0
        self._queue: dict[Ticket, None] = {}
        self.granted_total = 0

    @property
    def in_use(self) -> int:
        """How many permits are held."""
        return self._in_use

    @property
    def queued(self) -> int:
        """How many walks wait."""
        return len(self._queue)

    def acquire(self, on_granted: Callable[[], None], max_queued: int) -> Ticket:
        """Take a permit or a place in the queue; `on_granted` is called when the permit is there.

        It may be called before this returns. Raises SqlError 53400 where `max_queued` (0: no bound) already
        wait; nothing has been taken then.
        """
        ticket = Ticket(self, on_granted)
        if self._in_use >= self._bound and 0 < max_queued <= len(self._queue):
            raise SqlError(
                "53400",
                f"too many index peeks wait for a permit (compute_index_peek_max_queued = {max_queued})",
                hint="Retry later, make the query cheaper with an index on the columns it filters by, or "
                "raise compute_index_peek_max_queued.",
            )
        self._queue[ticket] = None
        self._admit()
        return ticket

    def resize(self, bound: int) -> None:
        """Put another bound in force."""
        self._bound = bound
        self._admit()

    def leave(self, ticket: Ticket) -> None:
        """Take a ticket out of the queue or its permit back (`Ticket.release` calls this, once)."""
        if ticket.granted:
            self._in_use -= 1
            self._admit()
        else:
            self._queue.pop(ticket, None)

    def _admit(self) -> None:
        while self._queue and self._in_use < self._bound:
            ticket = next(iter(self._queue))
            del self._queue[ticket]
            self._in_use += 1
            self.granted_total += 1
            ticket.admit()
