"""The serving worker: answers peeks from the published snapshots, on the serving loop.

A peek that is ready and cheap is answered by a plain call. Whatever is left waits for an activation: one
turn of the event loop, in which the worker collects the walks that have ended and sweeps the peeks that wait.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from layby.compute.state import ServingState
from layby.config import SystemParameters
from layby.errors import SqlError
from layby.metrics import PeekMetrics
from layby.peek.answer import Failed, PeekResponse, build_answer, takes_long
from layby.peek.budget import TURN_S
from layby.peek.fuel import Fuel
from layby.peek.offload import OffloadDriver, fill_profile, observe_phases
from layby.peek.outcome import Complete, ScanFailed, Suspended
from layby.peek.pending import PeekState, PendingPeek
from layby.peek.pool import WalkPool
from layby.peek.quiet import QuietWalk
from layby.peek.scan import PeekScan
from layby.peek.stash import Stash
from layby.peek.sweep import Sweep, Turn
from layby.peek.walk import raised_response
from layby.trace.bundle import Snapshot

log = logging.getLogger("layby.worker")

STEP_BYTES: Final = 1 << 18
"""Bytes of found rows past which a step of a scan ends on the loop: they are copied where it is moved."""

HEAVIEST: Final = 1 << 10
"""What the rows that a scan looks at together may weigh on the loop (`width`): 1 MiB."""


class ActivePeek(NamedTuple):
    """A peek that is not answered yet: how far it is, and how many seconds ago it came."""

    pending: PendingPeek
    offloaded: bool
    positions: int
    rows: int
    age: float


def query_cancelled() -> SqlError:
    """Return the error of a peek that was cancelled."""
    return SqlError("57014", "canceling statement due to user request")


def _respond(pending: PendingPeek, response: PeekResponse) -> None:
    """Answer a peek; whatever that raises must not cost others their answers."""
    try:
        pending.respond(response)
    except Exception:
        log.exception("answering a peek raised")


class ServingWorker:
    """Serves peeks inline or hands them to the offload driver; owns nothing that another thread touches."""

    def __init__(
        self,
        state: ServingState,
        parameters: SystemParameters,
        pool: WalkPool,
        metrics: PeekMetrics,
        schedule: Callable[[Callable[[], None]], None],
        clock: Callable[[], float] = time.perf_counter,
        stash: Stash | None = None,
    ) -> None:
        """`schedule` runs a function in the next turn of the event loop."""
        self._state = state
        self._parameters = parameters
        self._metrics = metrics
        self._schedule = schedule
        self._clock = clock
        self._sweep = Sweep(parameters, self._is_ready, self._serve)
        self._offload = OffloadDriver(pool, parameters, metrics, clock, self.request_activation, stash)
        self._activation_requested = False
        self.before_sweep: Callable[[], None] | None = None
        """Called in each activation before its sweep, with the budget refilled: takes the commands in."""
        self._checked_at = 0.0
        """When the peek whose turn it is was asked whether it is ready."""
        self._served: PeekResponse | None = None
        """The answer that `_serve` came to, until its caller takes it; None: handed to the driver."""
        self._arriving: PendingPeek | None = None
        self._quiet: QuietWalk | None = None

    @property
    def offload(self) -> OffloadDriver:
        """The driver of offloaded walks."""
        return self._offload

    @property
    def waiting(self) -> int:
        """How many peeks await a turn."""
        return len(self._sweep)

    def peek(self, pending: PendingPeek) -> PeekResponse | None:
        """Answer a peek now, or return None and answer it later through `pending.respond`."""
        pending.arrived = self._clock()
        if self._quiet is not None:
            self._quiet.disturbed = True
        self._arriving = pending
        turn = self._sweep.arrive(pending)
        self._arriving = None
        # The budget that this slice drew on is that of the turn of the loop under way: it ends with an
        # activation, which refills it.
        if turn is not Turn.NOT_READY and self._parameters.peek.offload:
            self.request_activation()
        response, self._served = self._served, None
        return response

    def cancel(self, pending: PendingPeek, error: SqlError | None = None) -> None:
        """Remove a pending peek and answer it with `error` (57014); one already answered is left alone."""
        if pending.state is PeekState.WAITING:
            self._sweep.remove(pending)
            pending.state = PeekState.CANCELLED
        elif pending.state in (PeekState.QUEUED, PeekState.WALKING):
            self._offload.cancel(pending)
        elif pending.state is PeekState.QUIET:
            self._quiet = None
            pending.state = PeekState.CANCELLED
        else:
            return
        pending.respond(Failed(error or query_cancelled()))

    def cancel_reads_of(self, collection: int, error: SqlError) -> None:
        """Cancel every pending peek of a collection that goes away."""
        quiet = () if self._quiet is None else (self._quiet.pending,)
        for pending in [p for p in (*self._sweep, *quiet, *self._offload) if p.target == collection]:
            self.cancel(pending, error)

    def active(self) -> list[ActivePeek]:
        """Return the peeks that are not answered yet, those that wait for a turn first."""
        now = self._clock()
        found = [ActivePeek(p, False, 0, 0, now - p.arrived) for p in self._sweep]
        if self._quiet is not None:
            pending, scan = self._quiet.pending, self._quiet.scan
            found.append(ActivePeek(pending, False, scan.positions, scan.count, now - pending.arrived))
        for pending, (positions, rows) in self._offload.progress():
            found.append(ActivePeek(pending, True, positions, rows, now - pending.arrived))
        return found

    def oldest_wait(self, newest: int) -> int:
        """Return the earliest time that a peek still waits to be read at, `newest` where none is earlier."""
        return min((p.spec.timestamp for p in self._sweep), default=newest)

    def request_activation(self) -> None:
        """Have an activation in the next turn of the loop."""
        if not self._activation_requested:
            self._activation_requested = True
            self._schedule(self.activate)

    def activate(self) -> None:
        """Refill the budget, answer the peeks whose walks have ended, and sweep those that wait."""
        self._activation_requested = False
        self._sweep.refill()
        if self.before_sweep is not None:
            self.before_sweep()
        for pending, response in self._offload.collect():
            _respond(pending, response)
        if self._quiet is not None:
            self._go_on(self._quiet)
        if len(self._sweep):
            self._sweep.run()
            if self._sweep.starved:
                self.request_activation()

    def _is_ready(self, pending: PendingPeek) -> bool:
        self._checked_at = self._clock()
        return isinstance(pending.target, tuple) or self._state.upper > pending.spec.timestamp

    def _serve(self, pending: PendingPeek, fuel: Fuel) -> int:
        """Run the inline slice of a ready peek; return the positions visited."""
        start = self._clock()
        pending.frontier_seconds = start - self._checked_at
        positions = 0
        scan: PeekScan | None = None
        ended: PeekScan | None = None
        response: PeekResponse | None
        try:
            snapshot = self._snapshot(pending)
            parameters = self._parameters.peek
            scan = PeekScan(
                pending.spec,
                snapshot,
                parameters.max_result_size,
                self._clock,
                position_limit=parameters.row_iteration_limit,
            )
            granted = fuel.remaining
            if parameters.offload:
                scan.step_seconds, scan.batch_bytes, scan.heaviest = TURN_S, STEP_BYTES, HEAVIEST
                if not pending.inline:
                    fuel = Fuel(0)
                elif parameters.quiet_budget > granted and self._is_alone():
                    # What its first visit leaves of the turn's time is nobody else's.
                    scan.pace, fuel = granted, Fuel(parameters.quiet_budget)
            outcome = scan.step(fuel)
            while not parameters.offload and isinstance(outcome, Suspended):
                outcome = scan.step(fuel)  # it stops for the copies of a row that stands for many
            positions = scan.positions
            if isinstance(outcome, Suspended):
                alone = scan.pace is not None
                walk = QuietWalk(pending, scan, positions, self._clock() - start) if alone else None
                response = self._move(pending, scan, walk)
            elif parameters.offload and (scan.count > granted or takes_long(scan, pending.encoder)):
                # One update that stands for more rows than a slice may handle, or many values to encode.
                response = self._offload.take_over(pending, scan)
            else:
                if isinstance(outcome, Complete):
                    response = build_answer(scan, outcome, pending.encoder, self._clock)
                else:
                    response = Failed(outcome.error)
                pending.state = PeekState.ANSWERED
                ended = scan
        except SqlError as error:
            pending.state = PeekState.ANSWERED
            response = Failed(error)
        except Exception as error:  # noqa: BLE001 - a bug in a walk must cost one peek, not the loop
            pending.state = PeekState.ANSWERED
            response = raised_response(scan, error)
        pending.inline_seconds = self._clock() - start
        pending.inline_positions = positions
        if pending.state is not PeekState.QUIET:
            self._metrics.total_seconds.observe(pending.inline_seconds)
        if ended is not None:
            self._observe_inline(pending, ended)
        if pending is self._arriving:
            self._served = response
        elif response is not None:
            _respond(pending, response)
        return positions

    def _move(self, pending: PendingPeek, scan: PeekScan, walk: QuietWalk | None) -> PeekResponse | None:
        """Keep a scan on the loop where it walks quietly and may go on so, else hand it to the driver."""
        if (
            walk is not None
            and walk.next_visit(self._parameters.peek) is not None
            and not takes_long(scan, pending.encoder)
        ):
            self._quiet = walk
            pending.state = PeekState.QUIET
            self.request_activation()
            return None
        return self._offload.take_over(pending, scan)

    def _is_alone(self) -> bool:
        """Return whether no other peek waits or walks."""
        return not len(self._sweep) and not len(self._offload) and self._quiet is None

    def _go_on(self, walk: QuietWalk) -> None:
        """Give a quiet walk its turn, or offload it where another peek has come."""
        self._quiet = None
        pending, scan = walk.pending, walk.scan
        start = self._clock()
        ended = False
        response: PeekResponse | None
        try:
            if walk.disturbed or not self._is_alone():
                response = self._offload.take_over(pending, scan)
            elif walk.fresh:
                # This activation ends the turn in which it came: sockets are served before it goes on.
                walk.fresh = False
                response = self._move(pending, scan, walk)
            else:
                parameters = self._parameters.peek
                scan.max_result_size = parameters.max_result_size
                scan.position_limit = parameters.row_iteration_limit
                before = scan.positions
                outcome = walk.take_turn(parameters, self._clock)
                pending.inline_positions += scan.positions - before
                if isinstance(outcome, Suspended):
                    response = self._move(pending, scan, walk)
                elif isinstance(outcome, ScanFailed):
                    response, ended = Failed(outcome.error), True
                elif scan.count > parameters.inline_budget or takes_long(scan, pending.encoder):
                    response = self._offload.take_over(pending, scan)
                else:
                    response, ended = build_answer(scan, outcome, pending.encoder, self._clock), True
        except Exception as error:  # noqa: BLE001 - a bug in a walk must cost one peek, not the loop
            response = raised_response(scan, error)
        pending.inline_seconds += self._clock() - start
        if pending.state is not PeekState.QUIET or response is not None:
            self._metrics.total_seconds.observe(pending.inline_seconds)
        if ended:
            self._observe_inline(pending, scan)
        if response is not None:
            pending.state = PeekState.ANSWERED
            _respond(pending, response)

    def _observe_inline(self, pending: PendingPeek, scan: PeekScan) -> None:
        self._metrics.walks_inline += 1
        observe_phases(self._metrics, pending, scan)
        if pending.profile is not None:
            fill_profile(pending.profile, "inline", pending, scan)

    def _snapshot(self, pending: PendingPeek) -> Snapshot:
        target = pending.target
        if isinstance(target, tuple):
            return Snapshot(target, (), pending.spec.timestamp, pending.spec.timestamp + 1)
        snapshot = self._state.snapshot(target)
        if snapshot is None:
            raise SqlError("57014", f'canceling statement because "{pending.spec.collection}" was dropped')
        if pending.spec.timestamp < snapshot.since:
            raise SqlError(
                "22023",
                f'"{pending.spec.collection}" can no longer be read at {pending.spec.timestamp}: its history '
                f"begins at {snapshot.since}",
            )
        own = pending.overlay
        if own is not None:
            return snapshot._replace(oks=(*snapshot.oks, *own.oks), errs=(*snapshot.errs, *own.errs))
        return snapshot
