"""Shared scans: several scans that share their walk take the same visits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import or_

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
        self._beginnings: Comparisons
        """What the filters of `_scans` begin with."""

    def step(self, scans: Sequence[PeekScan], fuel: Fuel) -> None:
        """Visit positions for `scans`, at least one, until the fuel is spent, all of them have their outcome,
        or one holds a full batch; each is charged what was visited.

        The cursor of the first moves, and all have it afterwards, so those that are left can go on together.
        A scan that raises costs itself alone (`PeekScan.latched` raises it), and what the cursor or a
        comparison raises all of them.
        """
        start, cursor = self._clock(), scans[0].cursor
        left = [scan for scan in scans if scan.goes_on]
        while fuel.remaining > 0 and left:
            try:
                took = self._visit(left, cursor, fuel)
            except Exception as error:  # noqa: BLE001 - raised again by `latched`
                for scan in left:
                    scan.break_with(error)
                break
            if took:
                left = [scan for scan in left if scan.goes_on]
                if any(scan.is_full for scan in took):
                    break
        spent = (self._clock() - start) / len(scans)
        for scan in scans:
            scan.cursor = cursor
            scan.times.rows += spent

    def _visit(self, scans: Sequence[PeekScan], cursor: Cursor, fuel: Fuel) -> list[PeekScan]:
        """Visit one chunk for all scans; return those that have taken it, and may have come to something.

        What is raised but by a scan is raised before any has taken it.
        """
        most = CHUNK
        for scan in scans:
            most = scan.next_fuel(fuel, most)
        visit = cursor.advance(most)
        if visit is None:
            for scan in scans:
                scan.take_visit(None, ())
            return list(scans)
        positions = visit.positions
        fuel.charge(positions)
        if scans != self._scans:
            self._scans, self._beginnings = scans, Comparisons([_beginning(scan) for scan in scans])
        slices = visited(visit)
        may_pass = [False] * len(scans)
        for part in slices:
            may_pass = list(map(or_, may_pass, part.may_pass(self._beginnings)))
        took = []
        for scan, may in zip(scans, may_pass, strict=True):
            if may or scan.position_limit:
                scan.take_visit(visit, slices if may else ())
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
