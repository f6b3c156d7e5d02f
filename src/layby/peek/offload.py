"""The offload driver: takes suspended scans over from the serving loop and sees them to their answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from layby.config import SystemParameters
from layby.errors import SqlError
from layby.metrics import PeekMetrics
from layby.peek.answer import Failed, PeekResponse, Stashed
from layby.peek.pending import PeekState, PendingPeek
from layby.peek.permits import PeekPermits, Ticket, permit_bound
from layby.peek.pinned import PinnedBatches
from layby.peek.pool import WalkPool
from layby.peek.profile import PeekProfile
from layby.peek.scan import PeekScan
from layby.peek.shared_walk import MOST_TOGETHER, SharedWalk
from layby.peek.stash import Stash
from layby.peek.walk import Walk, WalkLimits


class _Taken:
    """A peek that the driver has taken over, its walk, and its place among the permits.

    The ticket travels with the scan: `OffloadDriver._let_go` releases both together, on every way out.
    """

    __slots__ = ("granted_at", "held", "pending", "taken_at", "ticket", "walk")

    def __init__(self, pending: PendingPeek, walk: Walk, taken_at: float) -> None:
        self.pending = pending
        self.walk = walk
        self.ticket: Ticket | None = None
        self.taken_at = taken_at
        self.granted_at = taken_at
        self.held = walk.scan.nbytes
        """Bytes of the rows that it has found; 0 once it has its permit."""


class OffloadDriver:
    """Gives each scan a permit, a place on the walk pool, and its peek the answer.

    Runs on the serving loop; only `Walk.step` runs elsewhere. Finished walks wait in `_ended` for the next
    sweep, which collects all of them and draws no budget for it.
    """

    def __init__(
        self,
        pool: WalkPool,
        parameters: SystemParameters,
        metrics: PeekMetrics,
        clock: Callable[[], float],
        request_activation: Callable[[], None],
        stash: Stash | None = None,
    ) -> None:
        """Without a `stash` every answer is held in memory."""
        self._pool = pool
        self._parameters = parameters
        self._metrics = metrics
        self._clock = clock
        self._request_activation = request_activation
        self._stash = stash
        self._permits = PeekPermits(permit_bound(parameters.peek.permit_fraction, pool.size))
        self._pinned = PinnedBatches()
        self._queued_rows_bytes = 0
        self._taken: dict[PendingPeek, _Taken] = {}
        self._ended: deque[_Taken] = deque()
        parameters.on_change.append(self._parameters_changed)

    @property
    def permits(self) -> PeekPermits:
        """The permits in force."""
        return self._permits

    @property
    def pinned(self) -> PinnedBatches:
        """The batches that taken-over scans hold."""
        return self._pinned

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[PendingPeek]:
        return iter(self._taken)

    def progress(self) -> Iterator[tuple[PendingPeek, tuple[int, int]]]:
        """Yield every peek taken over with the positions visited and the rows found so far."""
        for pending, taken in self._taken.items():
            yield pending, taken.walk.progress

    def take_over(self, pending: PendingPeek, scan: PeekScan) -> Failed | None:
        """Own `scan` from now on. A full permit queue is answered at once (53400)."""
        # Where it goes on, nobody waits for the end of a step.
        scan.step_seconds = scan.pace = scan.batch_bytes = scan.heaviest = None
        target = None
        if self._stash is not None and pending.takes_stashed and pending.spec.streams:
            target = self._stash.target()
        walk = Walk(scan, pending.encoder, self._limits, clock=self._clock, stash=target)
        taken = _Taken(pending, walk, self._clock())
        self._pinned.pin(scan.batches)
        self._queued_rows_bytes += taken.held
        self._taken[pending] = taken
        pending.state = PeekState.QUEUED
        try:
            ticket = self._permits.acquire(lambda: self._granted(taken), self._parameters.peek.max_queued)
        except SqlError as error:
            self._let_go(taken)
            pending.state = PeekState.ANSWERED
            return Failed(error)
        finally:
            self._export()
        if pending in self._taken:
            taken.ticket = ticket
        else:  # the pool could not even begin with it
            ticket.release()
            self._export()
        return None

    def cancel(self, pending: PendingPeek) -> None:
        """Give a peek up: one in the queue leaves it now, one that walks within one granularity."""
        taken = self._taken.get(pending)  # None: its walk has ended, and the next sweep drops the answer
        if taken is not None:
            taken.walk.cancel()
            if pending.state is PeekState.QUEUED:
                self._let_go(taken)
                self._export()
        pending.state = PeekState.CANCELLED

    def collect(self) -> list[tuple[PendingPeek, PeekResponse]]:
        """Return the peeks whose walks have ended since the last call, with their answers."""
        answers = []
        while self._ended:
            taken = self._ended.popleft()
            pending = taken.pending
            response = taken.walk.response
            if response is not None and pending.state is PeekState.WALKING:
                pending.state = PeekState.ANSWERED
                self._observe(taken)
                answers.append((pending, response))
            elif isinstance(response, Stashed) and self._stash is not None:
                self._stash.discard(response)
        return answers

    def _limits(self) -> WalkLimits:
        return WalkLimits.of(self._parameters.peek)

    def _granted(self, taken: _Taken) -> None:
        together = [taken, *self._companions(taken)]
        for each in together:
            self._leave_queue(each)
            each.granted_at = self._clock()
            self._metrics.permit_wait_seconds.observe(each.granted_at - each.taken_at)
            each.pending.state = PeekState.WALKING
        if len(together) == 1:
            self._pool.submit(taken.walk, lambda: self._done(together))
        else:
            self._metrics.shared_walks += len(together)
            walk = SharedWalk([each.walk for each in together], self._limits, clock=self._clock)
            self._pool.submit(walk, lambda: self._done(together))

    def _companions(self, taken: _Taken) -> list[_Taken]:
        """Take waiting walks that can go with one that has its permit out of the queue: they need none."""
        if not self._parameters.peek.shared_walks or not self._permits.queued:
            return []
        found = [
            other
            for other in self._taken.values()
            if other.pending.state is PeekState.QUEUED
            and other is not taken
            and taken.walk.scan.shares_walk_with(other.walk.scan)
        ][: MOST_TOGETHER - 1]
        for other in found:
            if other.ticket is not None:
                other.ticket.release()
                other.ticket = None
        return found

    def _done(self, together: list[_Taken]) -> None:
        """Walks of those that go together are over, on whatever way: their batches are free again.

        The permit stays with those that are left.
        """
        for taken in [each for each in together if each.walk.over]:
            together.remove(taken)
            if together and taken.ticket is not None:
                together[0].ticket, taken.ticket = taken.ticket, None
            self._let_go(taken)
            self._account_stash(taken.walk)
            self._ended.append(taken)
        self._export()
        self._request_activation()

    def _account_stash(self, walk: Walk) -> None:
        """See to the parts that a walk wrote; one that raised may have died before it deleted its own."""
        if self._stash is None:
            return
        if isinstance(walk.response, Stashed):
            self._stash.hold(walk.response)
        elif walk.raised and walk.stash is not None:
            self._stash.clear(walk.stash)

    def _leave_queue(self, taken: _Taken) -> None:
        self._queued_rows_bytes -= taken.held
        taken.held = 0

    def _let_go(self, taken: _Taken) -> None:
        if self._taken.pop(taken.pending, None) is not None:
            self._leave_queue(taken)
            self._pinned.unpin(taken.walk.scan.batches)
            if taken.ticket is not None:
                taken.ticket.release()

    def _observe(self, taken: _Taken) -> None:
        walk, metrics = taken.walk, self._metrics
        metrics.offload_seconds.observe(self._clock() - taken.taken_at)
        if not walk.raised:
            metrics.walks_offloaded += 1
            metrics.stashed += isinstance(walk.response, Stashed)
            observe_phases(metrics, taken.pending, walk.scan)
            profile = taken.pending.profile
            if profile is not None:
                profile.permit_wait_seconds = taken.granted_at - taken.taken_at
                profile.offload_seconds = self._clock() - taken.taken_at
                fill_profile(profile, "offloaded", taken.pending, walk.scan)

    def _export(self) -> None:
        metrics, permits = self._metrics, self._permits
        metrics.permits_granted = permits.granted_total
        metrics.permits_in_use = permits.in_use
        metrics.permits_queued = permits.queued
        metrics.pinned_bytes = self._pinned.nbytes
        metrics.queued_rows_bytes = self._queued_rows_bytes

    def _parameters_changed(self) -> None:
        self._permits.resize(permit_bound(self._parameters.peek.permit_fraction, self._pool.size))
        self._export()


def observe_phases(metrics: PeekMetrics, pending: PendingPeek, scan: PeekScan) -> None:
    """Observe each phase of a walk that ended, once, over all its slices."""
    times = scan.times
    metrics.frontier_check_seconds.observe(pending.frontier_seconds)
    metrics.seek_fulfillment_seconds.observe(pending.frontier_seconds + pending.inline_seconds)
    metrics.error_scan_seconds.observe(times.errors)
    metrics.cursor_setup_seconds.observe(times.setup)
    metrics.row_iteration_seconds.observe(times.rows)
    metrics.row_iteration_rows.observe(scan.positions)
    metrics.result_sort_seconds.observe(times.sort)
    metrics.result_sort_rows.observe(scan.count)
    metrics.row_collection_seconds.observe(times.collection)


def fill_profile(profile: PeekProfile, substrate: str, pending: PendingPeek, scan: PeekScan) -> None:
    """Note what a walk that ended on `substrate` came to."""
    profile.substrate = substrate
    profile.inline_positions = pending.inline_positions
    profile.offloaded_positions = scan.positions - pending.inline_positions
    profile.rows = scan.count
    profile.frontier_seconds = pending.frontier_seconds
    profile.inline_seconds = pending.inline_seconds
    profile.times = scan.times
