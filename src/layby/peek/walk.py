"""Offloaded walks: a scan that goes on away from the serving loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from layby.config import PeekParameters
from layby.errors import InternalError
from layby.peek.answer import Failed, PeekResponse, RowEncoder, build_answer
from layby.peek.fuel import Fuel
from layby.peek.scan import Complete, PeekScan, ScanFailed

log = logging.getLogger("layby.peek")


class WalkLimits(NamedTuple):
    """The parameters that a walk under way reads anew at every granularity."""

    yield_granularity: int
    max_result_size: int
    row_iteration_limit: int

    @classmethod
    def of(cls, parameters: PeekParameters) -> WalkLimits:
        """Return those among the parameters in force."""
        return cls(
            parameters.yield_granularity, parameters.max_result_size, parameters.row_iteration_limit
        )


class Walk:
    """Steps a scan to its end and builds its answer, on whatever runs it.

    Every `compute_index_peek_yield_granularity` positions it looks whether it has been cancelled and reads
    its limits again. `response` is None until it is over, and stays None where it was cancelled.
    """

    def __init__(
        self,
        scan: PeekScan,
        encoder: RowEncoder | None,
        limits: Callable[[], WalkLimits],
        is_cancelled: Callable[[], bool] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`is_cancelled` is asked beside the walk's own `cancelled`, where the canceller is elsewhere."""
        self.scan = scan
        self.encoder = encoder
        self.response: PeekResponse | None = None
        self.raised = False
        self.cancelled = False
        self.on_cancel: Callable[[], None] | None = None
        """What tells the place where the walk runs, where it cannot see `cancelled`."""
        self._limits = limits
        self._is_cancelled = is_cancelled
        self._clock = clock

    def cancel(self) -> None:
        """Have the walk stop within one granularity."""
        self.cancelled = True
        if self.on_cancel is not None:
            self.on_cancel()

    def step(self) -> bool:
        """Visit one granularity; True when there is nothing left to do. Never raises."""
        if self.cancelled or (self._is_cancelled is not None and self._is_cancelled()):
            return True
        try:
            limits = self._limits()
            self.scan.max_result_size = limits.max_result_size
            self.scan.position_limit = limits.row_iteration_limit
            outcome = self.scan.step(Fuel(limits.yield_granularity))
            if isinstance(outcome, Complete):
                self.response = build_answer(self.scan, outcome, self.encoder, self._clock)
            elif isinstance(outcome, ScanFailed):
                self.response = Failed(outcome.error)
        except Exception as error:  # noqa: BLE001 - a bug in a walk must cost one peek, not the pool
            self.raised = True
            self.response = raised_response(self.scan, error)
        return self.response is not None


def raised_response(scan: PeekScan | None, error: Exception) -> Failed:
    """Log an exception that a walk let through and return the peek's answer to it (XX000)."""
    name = "a peek" if scan is None else f'the walk of "{scan.spec.collection}"'
    log.error("%s raised", name, exc_info=error)
    return Failed(InternalError(f"{name} raised {type(error).__name__}: {error}"))
