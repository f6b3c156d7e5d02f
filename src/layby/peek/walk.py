"""Offloaded walks: a scan that goes on away from the serving loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from layby.config import PeekParameters
from layby.errors import InternalError
from layby.peek.answer import Failed, PeekResponse, RowEncoder, build_answer
from layby.peek.fuel import Fuel
from layby.peek.scan import Complete, PeekScan, ScanFailed

log = logging.getLogger("layby.peek")


class Walk:
    """Steps a scan to its end and builds its answer, on whatever runs it.

    Every `compute_index_peek_yield_granularity` positions it looks whether it has been cancelled and reads
    its parameters again. `response` is None until it is over, and stays None where it was cancelled.
    """

    def __init__(
        self,
        scan: PeekScan,
        encoder: RowEncoder | None,
        parameters: Callable[[], PeekParameters],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.scan = scan
        self.response: PeekResponse | None = None
        self.raised = False
        self.cancelled = False
        """Set by the serving loop, read here."""
        self._encoder = encoder
        self._parameters = parameters
        self._clock = clock

    def step(self) -> bool:
        """Visit one granularity; True when there is nothing left to do. Never raises."""
        if self.cancelled:
            return True
        try:
            parameters = self._parameters()
            self.scan.max_result_size = parameters.max_result_size
            outcome = self.scan.step(Fuel(parameters.yield_granularity))
            if isinstance(outcome, Complete):
                self.response = build_answer(self.scan, outcome, self._encoder, self._clock)
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
