"""Shared walks: full walks of one index that wait together go in one pass over it.

Their scans take the same visits (`SharedScan`). Each walk keeps its own finishing, cancellation, limits and
accounting; the pass holds one permit.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from layby.peek.fuel import Fuel
from layby.peek.shared_scan import SharedScan
from layby.peek.walk import Walk, WalkLimits

MOST_TOGETHER: Final = 60
"""Walks that go together at most: where they run, each has a bit of a word for its cancellation."""

_SETTLE_S: Final = 0.001
"""How long walks that are over wait for others that are at the same time."""


class SharedWalk:
    """Steps several walks together, whose scans share their walk (`PeekScan.shares_walk_with`)."""

    def __init__(
        self,
        walks: Sequence[Walk],
        limits: Callable[[], WalkLimits],
        any_cancelled: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`any_cancelled` tells whether one may have been, where that costs less than to ask each."""
        self.walks = tuple(walks)
        """All of them, in the order of their coming, those that are over included."""
        self._live = list(walks)
        self._scans = [walk.scan for walk in walks]
        """Those of the walks that are not over."""
        self._scan = SharedScan()
        self._unsettled: deque[Walk] = deque()
        """Walks whose scans are over or full, of which that has yet to be made something."""
        self._clock = clock
        self._limits = limits
        self._any_cancelled = any_cancelled
        self.settled: bool
        """Whether the last step may have changed more than positions."""
        self._in_force: WalkLimits | None = None
        """What all walks that are left have last been prepared with."""

    @property
    def over(self) -> bool:
        """Whether all walks are over."""
        return all(walk.over for walk in self.walks)

    @property
    def positions(self) -> int:
        """Positions that the walks which are not over have visited."""
        return self._scans[0].positions

    def step(self) -> bool:
        """Visit one granularity, or settle what the last one left; True where that was the end of a walk.

        Never raises.
        """
        live, before = self._live, len(self._live)
        self.settled = False
        if self._any_cancelled():
            live = [walk for walk in live if not walk.given_up()]
            if len(live) < before:
                self._scans = [walk.scan for walk in live]
        if live:
            limits = self._limits()
            if limits != self._in_force:
                self._in_force = limits
                for walk in live:
                    walk.prepare(limits)
            # Most steps leave nothing to do.
            if not self._unsettled and self._scan.step(self._scans, Fuel(limits.yield_granularity)):
                self._unsettled.extend(w for w in live if w.scan.is_full or not w.scan.goes_on)
                self.settled = True
            if self._unsettled:
                self._settle(live, limits)
        self._live = live
        return len(live) < before

    def _settle(self, live: list[Walk], limits: WalkLimits) -> None:
        """Do what outcomes ask, and take walks that are over out of `live`: at least one, for `_SETTLE_S`.

        To sort and to encode a large answer takes long, and answers that are there should not wait for it.
        """
        until = self._clock() + _SETTLE_S
        while self._unsettled:
            walk = self._unsettled.popleft()
            if walk.over:
                continue  # cancelled since
            if walk.settle(walk.scan.latched):
                live.remove(walk)
                self._scans = [each.scan for each in live]
            else:
                walk.prepare(limits)
            if self._clock() > until:
                break
