"""The scan: the one object that walks a trace bundle to answer a peek.

A `PeekScan` owns a cursor over the errors and one over the rows, and what it has found so far. It does no IO
and never awaits: whoever holds it calls `step` with some fuel, and it stops between any two positions. While
suspended it is a plain value that can be pickled to another process and go on there.

Filters run before multiplicities are summed (equal rows pass or fail alike), each batch's slice where it
lies, and only survivors are put together. The arithmetic of a chunk is numpy's, so `CHUNK` trades the
overhead of Python (about 8 µs a chunk) against the cache: an integer filter of a million rows took 2.6 times
the bare comparison in chunks of 16,384, 1.7 times in 32,768, 1.3 times in 65,536 (2 MiB of L2 cache).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from layby.errors import InternalError, SqlError
from layby.expr.comparisons import Comparison
from layby.expr.mfp import MfpKernel
from layby.memory.arena import Arena
from layby.peek.copies import Copies
from layby.peek.found import FoundRows
from layby.peek.fuel import Fuel, UnboundedFuel
from layby.peek.groups import Groups
from layby.peek.lightly import FEW, LightVisits, weigh_little
from layby.peek.outcome import SUSPENDED, Complete, ScanFailed, ScanOutcome
from layby.peek.pace import Pace
from layby.peek.profile import PhaseTimes
from layby.peek.spec import PeekSpec
from layby.peek.visited import VisitedSlice, visited
from layby.trace.batch import Batch
from layby.trace.bundle import Snapshot
from layby.trace.cursor import TOO_HEAVY, Cursor, Place, Visit
from layby.types.column import Column, concat
from layby.types.ordering import sort_indices

log = logging.getLogger("layby.peek")

CHUNK: Final = 65_536
"""Most positions that are visited at once; up to an eighth more where that leaves none of their range."""

_LONGEST_VISIT: Final = CHUNK + (CHUNK >> 3)

_FIRST_CHUNK_OF_LIMITED = 64
"""Where a LIMIT may end a filtered walk early, chunks start this small and double."""


_PIECE_BYTES: Final = 1 << 20
"""Bytes of rows that are copied at once where rows stand for more than one; on the loop a quarter of it."""

_FREE: Final = UnboundedFuel()
"""What the scans of a shared walk are charged to: the walk's fuel is spent once for all."""


class PeekScan:
    """A walk that answers one peek, in as many steps as its driver likes.

    Invariants: the errors are read to their end before the first row is visited; a terminal outcome latches;
    `positions` is what was visited, in both traces.
    """

    def __init__(
        self,
        spec: PeekSpec,
        snapshot: Snapshot,
        max_result_size: int,
        clock: Callable[[], float] = time.perf_counter,
        *,
        position_limit: int = 0,
    ) -> None:
        """`max_result_size` (bytes) and `position_limit` (0: none) may be changed between two steps."""
        start = clock()
        self.spec = spec
        self.snapshot = snapshot
        self.max_result_size = max_result_size
        self.position_limit = position_limit
        self.step_seconds: float | None = None
        """How long a step may take; None for as long as its fuel lasts. It ends between two visits, before
        one that would outlast this if it took as long as the last."""
        self.pace: int | None = None
        """Most positions of the first visit of a step that has its time; those after it are made to fit into
        what is left (`Pace`). None: all are chunks."""
        self.heaviest: int | None = None
        """What the rows of a visit may weigh together (`LightVisits`), in positions: to work on a megabyte
        takes 1 to 3 ms. A step ends before a row that weighs more; None: it is not on the loop."""
        self.positions = 0
        self.times = PhaseTimes()
        self._clock = clock
        self._outcome: Complete | ScanFailed | None = None
        self._errors_left = bool(snapshot.errs)
        self._errors: tuple[Cursor, Groups] | None = None
        if snapshot.errs:
            self._errors = Cursor(snapshot.errs, None), Groups(snapshot.errs[0].layout, reverse=False)
        self.cursor = Cursor(snapshot.oks, spec.constraints, spec.reverse)
        plain = all(batch.inserts_only for batch in snapshot.oks)
        self._groups = None if plain else Groups(snapshot.oks[0].layout, reverse=spec.reverse)
        self._found = FoundRows(spec.finishing)
        self.batch_bytes: int | None = None
        """Size of found rows past which a step ends, so that its driver can take them."""
        self._taken = 0
        self._taken_bytes = 0
        """The rows that `take_found` has handed over."""
        self._owed: Copies | None = None
        """Rows whose copies have yet to be made. Nothing is visited before they are."""
        self._raised: list[SqlError] = []
        self._broken: Exception | None = None
        self._kernel: MfpKernel | None = None
        self._lightly: LightVisits | None = None
        finishing = spec.finishing
        self._wanted: int | None = None
        """LIMIT + OFFSET, where there is one."""
        if finishing.limit is not None:
            self._wanted = finishing.limit + finishing.offset
        self._ends_early = self._wanted is not None and (spec.ordered or not finishing.order_by)
        self._next_chunk = CHUNK
        if self._ends_early and self._wanted is not None:
            least = _FIRST_CHUNK_OF_LIMITED if spec.mfp.filters or not plain else 1
            self._next_chunk = min(CHUNK, max(least, self._wanted))
        self.times.setup = clock() - start

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["_kernel"] = None  # closures; compiled anew where the scan goes on
        state["_lightly"] = None  # it has left the loop
        return state

    @property
    def count(self) -> int:
        """Rows found so far, those handed over included."""
        return self._taken + self._found.count

    def found_rows(self, count: int) -> None:
        """Keep of the rows found only how many: they are elsewhere, or nobody wants them any more."""
        self._found = FoundRows(self.spec.finishing, count=count)
        self._owed = None
        self._taken = 0

    def place_found(self, arena: Arena) -> None:
        """Put the rows found so far into `arena`: the scan then crosses to another process by reference."""
        self._found.place(arena)
        if self._owed is not None:
            self._owed.columns = [column.place(arena) for column in self._owed.columns]

    @property
    def nbytes(self) -> int:
        """Size of the rows that the scan holds, as an answer would store them."""
        return self._found.nbytes

    def take_found(self) -> Complete | ScanFailed:
        """Hand over the rows that a suspended scan holds; it goes on without them.

        Whoever takes them gives them to the client in the end, so here the errors must be at their end.
        """
        failed = self._errors_unread("handed rows over")
        if failed is not None:
            return failed
        found, self._found = self._found, FoundRows(self.spec.finishing)
        self._taken += found.count
        self._taken_bytes += found.nbytes
        return Complete(found.columns(), found.count)

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The batches that the scan holds."""
        return (*self.snapshot.errs, *self.snapshot.oks)

    def step(self, fuel: Fuel) -> ScanOutcome:
        """Visit positions until the fuel is spent or the outcome is known; charge what was visited."""
        if self._outcome is not None:
            return self._outcome
        start = began = self._clock()
        if self._errors_left:
            self._step_errors(fuel, start)
            began = self._clock()
            self.times.errors += began - start
        if self._outcome is None and not self._errors_left:
            if self._owed is None:
                self._step_rows(fuel, start, began)
            elif self.heaviest is None:
                self._emit_owed()
            self.times.rows += self._clock() - began
        return SUSPENDED if self._outcome is None else self._outcome

    def _step_errors(self, fuel: Fuel, start: float) -> None:
        assert self._errors is not None  # some are left
        cursor, groups = self._errors
        longest, seconds = self.pace or CHUNK, self.step_seconds
        pace = (
            None if seconds is None else Pace(self._clock, seconds, start, start, None, longest, even=False)
        )
        while fuel.remaining > 0:
            visit = cursor.advance(self.next_fuel(fuel, longest))
            if visit is None:
                rows = groups.flush()
                self._errors_left = False
            else:
                if not self._charge(fuel, visit.positions):
                    return
                for part in visited(visit):
                    groups.add(*part.cut(self._visible(part), range(len(part.batch.columns))), None)
                rows = groups.take(held_back=visit.open)
            if rows is not None:
                sqlstate, message = (column.value(0) for column in rows.columns)
                if rows.sums[0] < 0:
                    self._fail(self._negative())
                else:
                    self._fail(SqlError(str(sqlstate), str(message)))
            if self._outcome is not None or visit is None:
                return
            if pace is not None and pace.is_over(visit.positions):
                return

    def _step_rows(self, fuel: Fuel, start: float, began: float) -> None:
        if self._ends_early and not self._wanted:
            self._complete()
            return
        cursor, heaviest, longest = self.cursor, self.heaviest, self.pace or CHUNK
        is_light = heaviest is None
        pace: Pace | None = None
        unwatched = 0
        while fuel.remaining > 0 and self._outcome is None:
            most = self._next_chunk
            if longest < most:
                most = longest
            place = None if is_light else cursor.place
            if most < cursor.left <= most + (most >> 3):
                most += most >> 3  # what little is left beyond a chunk is no chunk of its own
            most = self.next_fuel(fuel, most)
            visit = cursor.advance(most, heaviest)
            if place is not None and visit is not None and visit.positions > FEW:
                is_light = self._lightly is None and self._weighs_little()
                if not is_light:
                    visit = self._lighter(visit, place, most)
            if visit is None:
                self._end_rows()
                return
            if visit is TOO_HEAVY:
                return
            if not self._charge(fuel, visit.positions):
                return
            self._take(visited(visit), open_=visit.open)
            if self._outcome is None and self._ends_early:
                if self._wanted is not None and self.count >= self._wanted:
                    self._complete()
                    return
                self._next_chunk = min(CHUNK, 2 * self._next_chunk)
            if self._outcome is None and cursor.exhausted:
                self._end_rows()
            if self.is_full or self._owed is not None:
                return
            if unwatched:
                unwatched -= 1
            elif self.step_seconds is not None and self._outcome is None:
                if pace is None:
                    even = is_light and self._is_even
                    pace = Pace(self._clock, self.step_seconds, start, began, self.pace, CHUNK, even)
                if pace.is_over(visit.positions):
                    return
                longest, unwatched = pace.most, pace.unwatched

    def _weighs_little(self) -> bool:
        """Return whether the rows of no visit weigh too much for the loop."""
        assert self.heaviest is not None  # whoever calls has looked
        layout, kernel, sums = self.snapshot.oks[0].layout, self._mfp_kernel(), self._groups is not None
        return weigh_little(layout, kernel, _LONGEST_VISIT, self.heaviest, sums=sums)

    @property
    def _is_even(self) -> bool:
        """Whether visits of a few numbers take alike: nothing is sought, merged or computed from what passes,
        and all are as long."""
        spec, kernel = self.spec, self._mfp_kernel()
        full = spec.constraints is None and not self._ends_early
        return full and not spec.ordered and kernel.is_plain and kernel.is_even

    def _lighter(self, visit: Visit, place: Place, fuel: int) -> Visit:
        """Return a visit that was made with `fuel` from `place`, or a smaller one in its stead."""
        if self._lightly is None:
            heaviest = self.heaviest
            assert heaviest is not None  # whoever calls has looked
            layout, sums, merges = self.snapshot.oks[0].layout, self._groups is not None, self.spec.ordered
            kernel = self._mfp_kernel()
            self._lightly = LightVisits(self.cursor, layout, kernel, heaviest, sums=sums, merges=merges)
        return self._lightly.lighter(visit, place, fuel)

    @property
    def is_full(self) -> bool:
        """Whether the driver should take the rows found so far."""
        return self.batch_bytes is not None and self._found.nbytes > self.batch_bytes

    def _take(self, slices: Sequence[VisitedSlice], *, open_: bool) -> None:
        """Take what a visit brought; `open_` says that the last row's group may go on beyond it."""
        if slices:
            if self._groups is None:
                self._take_plain(slices)
            else:
                self._take_summed(slices, open_=open_)

    def _end_rows(self) -> None:
        """There is nothing left to visit."""
        if self._groups is not None:
            self._emit(self._groups.flush())
        if self._outcome is None and self._owed is None:
            self._complete()

    # Shared walks: scans that stand at one place of one snapshot take the same visits (`SharedScan`).

    def shares_walk_with(self, other: PeekScan) -> bool:
        """Return whether both are full walks, of the same batches, from the same place, in one direction."""
        return (
            self.spec.constraints is None
            and other.spec.constraints is None
            and self.spec.reverse is other.spec.reverse
            and not self._ends_early
            and not other._ends_early
            and not self._errors_left
            and not other._errors_left
            and self._owed is None
            and other._owed is None
            and self._outcome is None
            and other._outcome is None
            and len(self.snapshot.oks) == len(other.snapshot.oks)
            and all(a is b for a, b in zip(self.snapshot.oks, other.snapshot.oks, strict=True))
            and self.cursor.place == other.cursor.place
        )

    @property
    def goes_on(self) -> bool:
        """Whether there is more to visit: the outcome is not known, and nothing has been raised."""
        return self._outcome is None and self._broken is None

    @property
    def beginning(self) -> Comparison | None:
        """What the filter begins with, where that can be evaluated together with what others begin with."""
        return self._mfp_kernel().beginning

    def take_visit(self, visit: Visit | None, slices: Sequence[VisitedSlice]) -> None:
        """Take what a shared walk has visited, None for its end; without `slices` no row of it passes.

        A group that is held back stays so: what is skipped has nothing to do with it, or would have added
        nothing.
        """
        try:
            if visit is None:
                self._end_rows()
            elif self._charge(_FREE, visit.positions):
                self._take(slices, open_=visit.open)
            while self._owed is not None and self._outcome is None:
                self._emit_owed()
            if visit is None and self._outcome is None:
                self._complete()
        except Exception as error:  # noqa: BLE001 - raised again by `latched`
            self.break_with(error)

    def break_with(self, error: Exception) -> None:
        """Have `latched` raise what a step of a shared walk raised: it costs this peek, and no other."""
        self._broken = error

    def latched(self) -> ScanOutcome:
        """Return what the steps so far have come to; raises what a step of a shared walk raised."""
        broken, self._broken = self._broken, None
        if broken is not None:
            try:
                raise broken
            finally:
                del broken  # its frames must not hold it: the memory of an ended walk is free at once
        return SUSPENDED if self._outcome is None else self._outcome

    def next_fuel(self, fuel: Fuel, most: int) -> int:
        """Return what the next visit may cost: up to the position limit, then the one that passes it."""
        most = min(fuel.remaining, most)
        if self.position_limit:
            most = max(1, min(most, self.position_limit - self.positions))
        return most

    def _charge(self, fuel: Fuel, positions: int) -> bool:
        """Spend positions; False where that passed the limit, and the scan has failed."""
        fuel.charge(positions)
        self.positions += positions
        if 0 < self.position_limit < self.positions:
            self._fail(self._too_far())
            return False
        return True

    def _take_plain(self, slices: Sequence[VisitedSlice]) -> None:
        """Take rows of batches in which every update is one insertion: nothing has to be summed."""
        kernel = self._mfp_kernel()
        merge = self.spec.ordered and len(slices) > 1
        ordering = slices[0].batch.layout.key
        key = range(len(ordering))
        wanted = kernel.output_columns | set(key) if merge else kernel.output_columns
        parts: list[tuple[list[Column], int]] = []
        for part in slices:
            chosen, error = self._filter(part)
            if error is not None:
                if self._ends_early:
                    self._take_in_row_order(slices)
                else:
                    self._fail(error[1][int(next(c for c in error[0] if c)) - 1])
                return
            if chosen is None or len(chosen):
                columns, _, count = part.cut(chosen, wanted)
                parts.append((columns, count))
        if not parts:
            return
        columns, count = parts[0]
        if len(parts) > 1:
            count = sum(n for _, n in parts)
            columns = _concat([c for c, _ in parts], wanted)
            if merge:
                order = sort_indices([columns[i] for i in key], ordering)
                if self.spec.reverse:
                    order = order[::-1]
                columns = [c if c is None else c.take(order) for c in columns]
        elif self.spec.reverse and count > 1:
            order = np.arange(count - 1, -1, -1)
            columns = [c if c is None else c.take(order) for c in columns]
        self._project(kernel, columns, count)

    def _take_summed(self, slices: Sequence[VisitedSlice], *, open_: bool) -> None:
        """Take rows whose multiplicities have to be summed over batches and times."""
        groups = self._groups
        if groups is not None:
            self._add(groups, slices)
            self._emit(groups.take(held_back=open_))

    def _take_in_row_order(self, slices: Sequence[VisitedSlice]) -> None:
        """Take rows of which one raised, by their place before it or after: a LIMIT may come before it."""
        groups = Groups(slices[0].batch.layout, reverse=self.spec.reverse)
        self._add(groups, slices)
        self._emit(groups.flush())

    def _add(self, groups: Groups, slices: Sequence[VisitedSlice]) -> None:
        for part in slices:
            chosen, error = self._filter(part)
            if chosen is not None and not len(chosen):
                continue
            codes = None
            if error is not None:
                codes = np.where(error[0] > 0, error[0] + len(self._raised), 0)
                self._raised.extend(error[1])
            groups.add(*part.cut(chosen, range(len(part.batch.columns))), codes)

    def _emit(self, rows: Groups.Rows | None) -> None:
        """Take whole groups in row order: equal rows with their sum, none of them zero."""
        if rows is None:
            return
        if (rows.sums < 0).any():
            self._fail(self._negative())
            return
        columns: Sequence[Column] = rows.columns
        sums = rows.sums
        raised: SqlError | None = None
        if rows.codes is not None and rows.codes.any():
            first = int(np.flatnonzero(rows.codes)[0])
            raised = self._raised[int(rows.codes[first]) - 1]
            if not self._ends_early:
                self._fail(raised)
                return
            columns, sums = [c.slice(0, first) for c in columns], sums[:first]
        needed = self._needed(len(sums))
        columns, sums = [c.slice(0, needed) for c in columns], sums[:needed]
        if self._wanted is not None:
            if self._ends_early:
                ends = np.minimum(np.cumsum(sums), self._wanted - self.count)
                sums = np.diff(ends, prepend=0)
                count = int(np.count_nonzero(sums))  # those after have their rows already
                columns, sums = [c.slice(0, count) for c in columns], sums[:count]
            else:  # whatever the order, no more copies of a row are needed
                sums = np.minimum(sums, max(1, self._wanted))
        self._owed = Copies(list(columns), sums, raised)
        self._emit_owed()

    def _emit_owed(self) -> None:
        """Take as many copies of the rows owed as there are rows, or as make up a piece: one may stand for
        millions."""
        owed = self._owed
        assert owed is not None  # whoever calls has looked
        columns, count, total = owed.columns, len(owed.sums), owed.total
        done = total == count
        if not done:
            # A row inserted a billion times must not be copied out before its size is known.
            size = sum(columns[i].nbytes for i in self._mfp_kernel().output_columns)
            before = self._taken_bytes + self._found.nbytes
            if before + size * total // count > self.max_result_size:
                self._fail(self._too_large())
                return
            most = min(CHUNK, _PIECE_BYTES * count // max(1, size))
            most = max(count, most if self.heaviest is None else most >> 2)
            columns, count = owed.take(most)
            done = not len(owed.sums)
        if done:
            self._owed = None
        self._project(self._mfp_kernel(), columns, count)
        if done and owed.raised is not None and self._outcome is None and self._needed(1):
            self._fail(owed.raised)

    def _needed(self, count: int) -> int:
        """Return how many of the next `count` rows the answer needs: no more than fill its LIMIT.

        Those after them are never looked at, so that none of their errors counts, however far a visit went.
        """
        if not self._ends_early or self._wanted is None:
            return count
        return min(count, self._wanted - self.count)

    def _filter(
        self, part: VisitedSlice
    ) -> tuple[NDArray[Any] | None, tuple[NDArray[Any], list[SqlError]] | None]:
        """Return the positions (from its start; None: all) that are visible and pass, and their errors."""
        visible = self._visible(part)
        if not self.spec.mfp.filters or (visible is not None and not len(visible)):
            return visible, None
        kernel = self._mfp_kernel()
        begun = None if kernel.beginning is None else part.masks.get(kernel.beginning)
        if visible is None:
            columns, count = part.columns(kernel.filter_columns), part.stop - part.start
        else:
            columns, _, count = part.cut(visible, kernel.filter_columns)
            begun = None if begun is None else begun[visible]
        passed, errors = kernel.filter(columns, count, begun)
        chosen = visible if passed is None else passed if visible is None else visible[passed]
        return chosen, None if errors is None else (errors.codes, errors.errors)

    def _visible(self, part: VisitedSlice) -> NDArray[Any] | None:
        """Return the positions (from its start) not later than the peek's time, None for all."""
        if part.batch.max_time <= self.spec.timestamp:
            return None
        times = part.batch.times[part.start : part.stop]
        visible = np.flatnonzero(times <= self.spec.timestamp)
        return None if len(visible) == len(times) else visible

    def _project(self, kernel: MfpKernel, columns: Sequence[Any], count: int) -> None:
        needed = self._needed(count)
        if needed < count:
            columns, count = [c if c is None else c.slice(0, needed) for c in columns], needed
        outputs, error = kernel.project(columns, count)
        if error is not None:
            self._fail(error)
            return
        found = self._found
        found.add(outputs, count)
        if self._wanted is not None and not self._ends_early and found.count >= 2 * self._wanted:
            found.thin()
        if self._taken_bytes + found.nbytes > self.max_result_size:
            self._fail(self._too_large())

    def _complete(self) -> None:
        if self._errors_unread("completed") is not None:
            return
        found = self._found
        self._outcome = Complete(found.columns(), found.count)
        found.chunks = []

    def _errors_unread(self, done: str) -> ScanFailed | None:
        """Fail where the errors are not at their end, which they are by construction before a row is visited.

        An answer that relied on it wrongly would show rows of a collection that has an error.
        """
        if not self._errors_left:
            return None
        error = InternalError(f"a peek {done} before its error trace had been read")
        log.error("%s: %s", self.spec.collection, error)
        return self._fail(error)

    def _fail(self, error: SqlError) -> ScanFailed:
        self._outcome = failed = ScanFailed(error)
        self._found = FoundRows(self.spec.finishing)
        return failed

    def _negative(self) -> SqlError:
        error = InternalError(f'collection "{self.spec.collection}" has a row of negative multiplicity')
        log.error("%s at %d", error, self.spec.timestamp)
        return error

    def _too_large(self) -> SqlError:
        return SqlError("54000", f"result exceeds max size of {_pretty_size(self.max_result_size)}")

    def _too_far(self) -> SqlError:
        return SqlError(
            "54000",
            f'peek of "{self.spec.collection}" exceeds the row iteration limit of {self.position_limit}',
            hint="Make the query cheaper with an index on the columns it filters by or with a LIMIT, or "
            "raise compute_peek_row_iteration_limit.",
        )

    def _mfp_kernel(self) -> MfpKernel:
        if self._kernel is None:
            self._kernel = self.spec.mfp.compile()
        return self._kernel


def _concat(parts: list[list[Any]], wanted: Collection[int]) -> list[Any]:
    joined: list[Any] = [None] * len(parts[0])
    for i in wanted:
        joined[i] = concat([part[i] for part in parts])
    return joined


def _pretty_size(size: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} bytes"
