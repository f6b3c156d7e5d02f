"""Shared scans: several scans that share their walk take the same visits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from layby.expr.comparisons import Comparison, Comparisons
from layby.peek.fuel import Fuel
from layby.peek.scan import CHUNK, PeekScan
from layby.peek.visited import visited
from layby.trace.cursor import Cursor


class SharedScan:
    """Steps scans that share their walk (`PeekScan.shares_walk_with`).

    Each chunk is visited and cut once. What the filters begin with is evaluated for all of them together, and
    only those that may find a row look at the chunk for themselves.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._scans: Sequence[PeekScan] = ()
        """Those of the last step."""
        self._spent = 0.0
        """Seconds of each of `_scans` that it has yet to be charged."""
        self._compared: Sequence[PeekScan] = ()
        self._beginnings: Comparisons
        """What the filters of `_compared` begin with."""

    def step(self, scans: Sequence[PeekScan], fuel: Fuel) -> bool:
        """Visit positions for `scans`, which all go on, at least one, until the fuel is spent, all of them
        have their outcome, or one holds a full batch; each is charged what was visited, and its part of the
        time by when one may be full or over, which is returned.

        The cursor of the first moves, and all have it, so those that are left can go on together.
        A scan that raises costs itself alone (`PeekScan.latched` raises it), and what the cursor or a
        comparison raises all of them.
        """
        start, cursor = self._clock(), scans[0].cursor
        if scans is not self._scans:
            # Mostly they are: what is left out is not touched, which after a visit is out of the cache.
            self._charge()
            self._scans = scans
            for scan in scans:
                scan.cursor = cursor
        left, settled = scans, False
        while fuel.remaining > 0 and left:
            try:
                took = self._visit(left, cursor, fuel)
            except Exception as error:  # noqa: BLE001 - raised again by `latched`
                for scan in left:
                    scan.break_with(error)
                settled = True
                break
            if took:
                settled = True
                if any(not scan.goes_on for scan in took):
                    left = [scan for scan in left if scan.goes_on]
                if any(scan.is_full for scan in took):
                    break
        self._spent += (self._clock() - start) / len(scans)
        if settled:
            self._charge()
        return settled

    def _charge(self) -> None:
        spent, self._spent = self._spent, 0.0
        for scan in self._scans:
            scan.times.rows += spent

    def _visit(self, scans: Sequence[PeekScan], cursor: Cursor, fuel: Fuel) -> Sequence[PeekScan]:
        """Visit one chunk for all scans; return those that have taken it, and may have come to something.

        What is raised but by a scan is raised before any has taken it.
        """
        most, limited = CHUNK, False
        for scan in scans:
            if scan.position_limit:
                most, limited = scan.next_fuel(fuel, most), True
        visit = cursor.advance(min(fuel.remaining, most))
        if visit is None:
            for scan in scans:
                scan.take_visit(None, ())
            return scans
        positions = visit.positions
        fuel.charge(positions)
        if scans is not self._compared:
            self._compared, self._beginnings = scans, Comparisons([_beginning(scan) for scan in scans])
        slices = visited(visit)
        passed: set[int] = set()
        for part in slices:
            passed |= part.may_pass(self._beginnings)
        if not passed and not limited:
            for scan in scans:
                scan.positions += positions
            return ()
        took = []
        for at, scan in enumerate(scans):
            if at in passed or scan.position_limit:
                scan.take_visit(visit, slices if at in passed else ())
                took.append(scan)
            else:
                scan.positions += positions
        return took


def _beginning(scan: PeekScan) -> Comparison | None:
    """Return what the filter of a scan begins with, None too where it cannot be compiled: the scan raises it
    itself, when it looks at rows."""
    try:
        return scan.beginning
    except Exception:  # noqa: BLE001 - see above
        return None
