"""Offloaded walks: a scan that goes on away from the serving loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from layby.config import PeekParameters
from layby.errors import InternalError, SqlError
from layby.expr.finishing import finish_part
from layby.peek.answer import EncodedRows, Failed, PeekResponse, RowEncoder, Rows, Stashed, build_answer
from layby.peek.fuel import Fuel
from layby.peek.outcome import Complete, ScanFailed, ScanOutcome, Suspended
from layby.peek.scan import PeekScan
from layby.peek.upload import PART_BYTES, StashTarget, Upload
from layby.types.column import Column

log = logging.getLogger("layby.peek")


_ROW_BYTES: Final = 7
_VALUE_BYTES: Final = 4
_TEXT_BYTES: Final = 16
"""What a row and a value of the wire format add, and what a text is taken to be long."""


class WalkLimits(NamedTuple):
    """The parameters that a walk under way reads anew at every granularity."""

    yield_granularity: int
    max_result_size: int
    row_iteration_limit: int
    stash_threshold: int
    """Bytes of found rows past which they go to the stash; negative where the stash is off."""

    @classmethod
    def of(cls, parameters: PeekParameters) -> WalkLimits:
        """Return those among the parameters in force."""
        return cls(
            parameters.yield_granularity,
            parameters.max_result_size,
            parameters.row_iteration_limit,
            parameters.stash_threshold_bytes if parameters.stash else -1,
        )


class Walk:
    """Steps a scan to its end and builds its answer, on whatever runs it.

    Every `compute_index_peek_yield_granularity` positions it looks whether it has been cancelled and reads
    its limits again. `response` is None until it is over, and stays None where it was cancelled.

    With a stash to write to, it hands the rows found over whenever they pass a size: first the threshold,
    then, once there is a part, that of a part, since what it holds at its end waits in memory until the
    client has read all the parts. Unless it ends with a `Stashed` answer it leaves no part behind.
    """

    def __init__(
        self,
        scan: PeekScan,
        encoder: RowEncoder | None,
        limits: Callable[[], WalkLimits],
        is_cancelled: Callable[[], bool] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        stash: StashTarget | None = None,
    ) -> None:
        """`is_cancelled` is asked beside the walk's own `cancelled`, where the canceller is elsewhere.

        `stash` may be given only where the finishing streams.
        """
        self.scan = scan
        self.encoder = encoder
        self.stash = stash
        self.response: PeekResponse | None = None
        self.raised = False
        self.over = False
        """Whether there is nothing left to do: `response` is there, or it was cancelled."""
        self.cancelled = False
        self.on_cancel: Callable[[], None] | None = None
        """What tells the place where the walk runs, where it cannot see `cancelled`."""
        self.progress_elsewhere: Callable[[], tuple[int, int]] | None = None
        """What tells positions and rows, where the walk runs on another copy of the scan."""
        self._limits = limits
        self._is_cancelled = is_cancelled
        self._clock = clock
        self._upload = None if stash is None else Upload(stash)
        self._share: float | None = None if encoder is not None else 1.0

    @property
    def progress(self) -> tuple[int, int]:
        """Positions visited and rows found so far, at most one granularity old."""
        if self.progress_elsewhere is not None:
            return self.progress_elsewhere()
        return self.scan.positions, self.scan.count

    def cancel(self) -> None:
        """Have the walk stop within one granularity."""
        self.cancelled = True
        on_cancel, self.on_cancel = self.on_cancel, None  # it may hold this walk
        if on_cancel is not None:
            on_cancel()

    @property
    def walks(self) -> tuple[Walk, ...]:
        """Itself: the walks that end with it."""
        return (self,)

    settled: Final = True
    """As a pass's: any step may change what was found."""

    @property
    def positions(self) -> int:
        """Positions visited."""
        return self.scan.positions

    def step(self) -> bool:
        """Visit one granularity; True when there is nothing left to do. Never raises."""
        if self.given_up():
            return True
        limits = self._limits()
        self.prepare(limits)
        scan = self.scan
        return self.settle(
            lambda: scan.step(Fuel(limits.yield_granularity)) if scan.goes_on else scan.latched()
        )

    def given_up(self) -> bool:
        """Return whether the walk has been cancelled, and if so leave nothing behind."""
        if not self._stopped():
            return False
        # Its rows go now: others of its pass may go on for long.
        self.scan.found_rows(self.scan.count)
        if self._upload is not None:
            self._upload.discard()
        self.over = True
        return True

    def prepare(self, limits: WalkLimits) -> None:
        """Put the limits in force for the scan's next step, which raises what this does."""
        try:
            self._put_in_force(limits)
        except Exception as error:  # noqa: BLE001 - see `settle`
            self.scan.break_with(error)

    def _put_in_force(self, limits: WalkLimits) -> None:
        scan, upload = self.scan, self._upload
        scan.max_result_size = limits.max_result_size
        scan.position_limit = limits.row_iteration_limit
        if upload is not None:
            limit = limits.stash_threshold if limits.stash_threshold >= 0 else None
            if upload.opened:
                limit = PART_BYTES if limit is None else min(limit, PART_BYTES)
            if limit is None:
                scan.batch_bytes = None
            else:
                if self._share is None:
                    self._share = _share_of_wire(scan)
                scan.batch_bytes = int(limit * self._share)

    def settle(self, step: Callable[[], ScanOutcome]) -> bool:
        """Step the scan and do what its outcome asks; True where the walk is over. Never raises."""
        upload = self._upload
        try:
            outcome = step()
            if isinstance(outcome, ScanFailed):
                self.response = Failed(outcome.error)
            elif upload is not None:
                self._hand_to_stash(upload, outcome)
            elif isinstance(outcome, Complete):
                self.response = build_answer(self.scan, outcome, self.encoder, self._clock)
        except Exception as error:  # noqa: BLE001 - a bug in a walk must cost one peek, not the pool
            self.raised = True
            self.response = raised_response(self.scan, error)
        if self.response is None:
            return False
        if upload is not None and not isinstance(self.response, Stashed):
            upload.discard()
        self.over = True
        return True

    def _stopped(self) -> bool:
        return self.cancelled or (self._is_cancelled is not None and self._is_cancelled())

    def _hand_to_stash(self, upload: Upload, outcome: ScanOutcome) -> None:
        """Hand over what the scan holds, where that is enough or the end."""
        scan = self.scan
        full = scan.batch_bytes is not None and scan.nbytes > scan.batch_bytes
        if isinstance(outcome, Complete):
            if full or upload.opened:
                self._end_in_stash(upload, outcome, full=full)
            else:
                self.response = build_answer(scan, outcome, self.encoder, self._clock)
        elif isinstance(outcome, Suspended) and full:
            found = scan.take_found()
            if isinstance(found, ScanFailed):
                self.response = Failed(found.error)
            else:
                self._write(upload, *self._cut(found))

    def _end_in_stash(self, upload: Upload, found: Complete, *, full: bool) -> None:
        """Answer with the parts written and the rows found last, written too where they are many."""
        columns, count = self._cut(found)
        if full and count:
            if not self._write(upload, columns, count):
                return
            columns, count = tuple(column.slice(0, 0) for column in columns), 0
        start = self._clock()
        if self.encoder is None:
            rest = Rows(count, columns)
        else:
            rest = Rows(count, (), self.encoder(columns, count) if count else EncodedRows(b"", (), 0))
        self.scan.times.collection += self._clock() - start
        handle = upload.handle
        self.response = Stashed(handle, rest, handle.count + count) if upload.opened else rest

    def _cut(self, found: Complete) -> tuple[tuple[Column, ...], int]:
        """Return what the answer has of the rows found last."""
        if not found.count:
            return (), 0
        before = self.scan.count - found.count
        return finish_part(self.scan.spec.finishing, found.columns, found.count, before)

    def _write(self, upload: Upload, columns: Sequence[Column], count: int) -> bool:
        """Write rows to the stash; False where that failed, which is the answer then, or was cancelled."""
        start = self._clock()
        try:
            return not count or upload.write(columns, count, self._stopped)
        except SqlError as error:
            self.response = Failed(error)
            return False
        finally:
            self.scan.times.collection += self._clock() - start


def _share_of_wire(scan: PeekScan) -> float:
    """Return about how much of an encoded row its columns are: what is held in the end is the encoded answer.

    A row of two integers is 8 bytes of columns and 31 on the wire: 7 of the row, 4 and the digits a value.
    """
    outputs = scan.spec.mfp.outputs
    types = [outputs[i].type for i in scan.spec.finishing.projection]
    columns = sum(t.size if t.size > 0 else _TEXT_BYTES for t in types)
    wire = _ROW_BYTES + sum(_VALUE_BYTES + (2 * t.size if t.size > 0 else _TEXT_BYTES) for t in types)
    return max(columns, 1) / wire


def raised_response(scan: PeekScan | None, error: Exception) -> Failed:
    """Log an exception that a walk let through and return the peek's answer to it (XX000)."""
    name = "a peek" if scan is None else f'the walk of "{scan.spec.collection}"'
    log.error("%s raised", name, exc_info=error)
    return Failed(InternalError(f"{name} raised {type(error).__name__}: {error}"))
