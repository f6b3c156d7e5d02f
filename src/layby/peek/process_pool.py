"""The walk pool of processes: no walk shares the serving loop's GIL.

One process a permit, started before the first need by executing a new interpreter (nothing is forked from a
threaded parent). Batches are read where they lie, in shared memory; a cancellation is a store to a shared
page; answers come back as segments of finished wire bytes. A hand-over there and back costs 51 µs. A process
that dies costs the peek that it walked and is replaced, later and later where its successors die at once;
what it was given and had not begun, another takes.

Nothing here waits for a process: what its socket does not take at once follows when it does, and processes
are reaped and replaced on another thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from layby.config import PeekParameters
from layby.errors import InternalError
from layby.memory.channel import ChannelClosedError
from layby.memory.child import Child, run_apart
from layby.memory.control_page import ControlPage
from layby.memory.heap import Idleness, Rest
from layby.memory.serving_core import ServingCore
from layby.memory.shared_arena import SharedArena
from layby.memory.survival import Survival
from layby.metrics import PeekMetrics
from layby.peek.answer import EncodedRows, Failed, PeekResponse, Rows, Stashed
from layby.peek.companion import with_companions
from layby.peek.pool import Work
from layby.peek.walk import Walk
from layby.peek.walk_process import (
    FIRST_WALKER_SLOT,
    GRANULARITY_SLOT,
    POSITION_LIMIT_SLOT,
    PROGRESS_NUMBER_SLOT,
    PROGRESS_POSITIONS_SLOT,
    PROGRESS_ROWS_SLOT,
    RESULT_SIZE_SLOT,
    STASH_THRESHOLD_SLOT,
    TAKEN_SLOT,
    Ready,
    Setup,
    WalkEnded,
    WalkPart,
    WalkRequest,
    WalkResult,
)
from layby.turns import EventLoop, Timer

log = logging.getLogger("layby.peek")

HARD_STOP_S: Final = 5.0
"""How long a walk may go on after its cancellation before its process is killed: far longer than one
granularity takes, even on a busy machine."""

_LEAST_PAUSE_S: Final = 0.05
"""Before another attempt at what the system has just refused."""

_HOUSEKEEPING_S: Final = 1.0
"""How often idle processes keep house."""

_MOST_GIVEN: Final = 3
"""To how many processes work is given that die before they begin it: it may be what they die of."""


@dataclass(slots=True, eq=False)
class _Errand:
    """Work that waits for a process or has one."""

    work: Work
    done: Callable[[], None]
    given: int = 0
    """To how many processes it has been sent."""


class _Walker:
    """One walk process, and the work that it has."""

    def __init__(self, slot: int, page: ControlPage, nice: int, core: ServingCore, program: str) -> None:
        self.started_at = time.monotonic()
        self.child = Child(program)
        self.channel = self.child.channel
        self.slot = slot
        self.number = 0
        self.errand: _Errand | None = None
        self.idleness = Idleness()
        self.progress: ControlPage | None = None
        """Where the process shows how far its walk is; None until it has told."""
        self.channel.send(Setup(page, slot, nice, core.page))

    @property
    def has_begun(self) -> bool:
        """Whether the process has taken the last request that it was given."""
        return self.progress is not None and self.progress[TAKEN_SLOT] == self.number


class ProcessWalkPool:
    """Runs walks in processes. Used from the serving loop only."""

    def __init__(
        self,
        size: int,
        loop: EventLoop,
        parameters: Callable[[], PeekParameters],
        *,
        nice: int = 10,
        hard_stop_s: float = HARD_STOP_S,
        program: str = "layby.peek.walk_process",
        metrics: PeekMetrics | None = None,
        serving_core: ServingCore | None = None,
    ) -> None:
        """Start `size` processes at the given nice value; `program` is the module that they run.

        They give way on `serving_core`.
        """
        self.size = size
        """How many walks can run at once; fewer for the moment where a process is being replaced."""
        self._loop = loop
        self._parameters = parameters
        self._nice = nice
        self._hard_stop_s = hard_stop_s
        self._serving_core = serving_core or ServingCore.create()
        self._program = program
        self._page = ControlPage.create()
        self._arena = SharedArena()
        self._waiting: deque[_Errand] = deque()
        self._walkers: list[_Walker] = []
        self._idle: deque[_Walker] = deque()
        self._number = 0
        self._handing_over = False
        self._survival = Survival(time.monotonic)
        self._closed = False
        self._metrics = metrics or PeekMetrics()
        self.parameters_changed()
        for at in range(size):
            self._adopt(self._new_walker(FIRST_WALKER_SLOT + at))
        self._housekeeping: Timer = loop.call_later(_HOUSEKEEPING_S, self._keep_house)

    @property
    def healthy(self) -> bool:
        """Whether walks are run, or will be in a moment; from any thread."""
        return self._survival.hopeful or any(w.progress is not None for w in list(self._walkers))

    @property
    def process_ids(self) -> list[int]:
        """The processes under way."""
        return [walker.child.pid for walker in self._walkers]

    def parameters_changed(self) -> None:
        """Show the parameters in force to the walks under way."""
        parameters = self._parameters()
        self._page[GRANULARITY_SLOT] = parameters.yield_granularity
        self._page[RESULT_SIZE_SLOT] = parameters.max_result_size
        self._page[POSITION_LIMIT_SLOT] = parameters.row_iteration_limit
        self._page[STASH_THRESHOLD_SLOT] = parameters.stash_threshold_bytes if parameters.stash else -1

    def submit(self, work: Work, done: Callable[[], None]) -> None:
        """Hand `work` to an idle process, or keep it for the next that is."""
        errand = _Errand(work, done)
        self._waiting.append(errand)
        self._let_wait(errand)
        self._hand_over()

    def close(self) -> None:
        """End the processes; walks under way are given up."""
        self._closed = True
        self._housekeeping.cancel()
        for walker in self._walkers:
            self._stop_watching(walker)
            walker.child.terminate()
        for walker in self._walkers:
            walker.child.end()
        self._walkers.clear()
        self._idle.clear()

    def _new_walker(self, slot: int) -> _Walker:
        """Start a process; on any thread. Raises OSError."""
        return _Walker(slot, self._page, self._nice, self._serving_core, self._program)

    def _adopt(self, walker: _Walker) -> None:
        self._walkers.append(walker)
        self._idle.append(walker)
        self._loop.add_reader(walker.channel.socket.fileno(), lambda: self._readable(walker))

    def _stop_watching(self, walker: _Walker) -> None:
        descriptor = walker.channel.socket.fileno()
        self._loop.remove_reader(descriptor)
        self._loop.remove_writer(descriptor)

    def _let_wait(self, errand: _Errand) -> None:
        for walk in errand.work.walks:
            walk.on_cancel = lambda: self._withdraw(errand)

    def _withdraw(self, errand: _Errand) -> None:
        """Take work of which all is cancelled out of what waits for a process."""
        if errand in self._waiting and all(walk.cancelled for walk in errand.work.walks):
            self._waiting.remove(errand)
            for walk in errand.work.walks:
                _answer(walk, None)
            errand.done()

    def _hand_over(self) -> None:
        """Give the walks that wait to idle processes."""
        # The end of one walk may bring the next while this runs: that one is taken here too, not within.
        if self._handing_over:
            return
        self._handing_over = True
        try:
            while self._waiting and self._idle:
                self._give(self._idle.popleft(), self._waiting.popleft())
        finally:
            self._handing_over = False

    def _give(self, walker: _Walker, errand: _Errand) -> None:
        work = errand.work
        self._number += 1
        walker.number, walker.errand = self._number, errand
        self._page[walker.slot] = sum(walk.cancelled << bit for bit, walk in enumerate(work.walks))
        for bit, walk in enumerate(work.walks):
            walk.on_cancel = self._canceller(walker, self._number, bit)
            walk.progress_elsewhere = _progress(walker, walk, bit)
        try:
            for walk in work.walks:
                walk.scan.place_found(self._arena)
            self._send(walker, WalkRequest(self._number, _parts(work.walks)))
            errand.given += 1
        except ChannelClosedError:
            self._died(walker)
        except Exception as error:
            log.exception("a walk could not be handed over")
            for walk in work.walks:
                _fail(walk, f"a walk could not be handed over: {error}")
            self._over(walker)

    def _send(self, walker: _Walker, message: object) -> None:
        walker.channel.send(message, wait=False)
        if walker.channel.unsent:
            self._loop.add_writer(walker.channel.socket.fileno(), lambda: self._writable(walker))

    def _writable(self, walker: _Walker) -> None:
        try:
            walker.channel.flush()
        except ChannelClosedError:
            self._died(walker)
        else:
            if not walker.channel.unsent:
                self._loop.remove_writer(walker.channel.socket.fileno())

    def _canceller(self, walker: _Walker, number: int, bit: int) -> Callable[[], None]:
        def cancel() -> None:
            self._page[walker.slot] |= 1 << bit
            self._loop.call_later(self._hard_stop_s, lambda: self._hard_stop(walker, number))

        return cancel

    def _hard_stop(self, walker: _Walker, number: int) -> None:
        errand = walker.errand
        if errand is None or walker.number != number or self._closed:
            return
        # A pass goes on for those of its walks that are not cancelled; the last one to be sets a timer too.
        if all(walk.cancelled or walk.over for walk in errand.work.walks):
            log.error("walk process %d did not stop within %g s, killed", walker.child.pid, self._hard_stop_s)
            walker.child.process.kill()

    def _readable(self, walker: _Walker) -> None:
        try:
            walker.channel.read(wait=False)
            while messages := walker.channel.received():
                message = messages[0]
                if isinstance(message, Ready):
                    walker.progress = message.page
                elif message is not None:  # else only housekeeping came with it
                    self._ended(walker, message)
        except ChannelClosedError:
            self._died(walker)
        except Exception:
            # A message is lost, and with it the walk that it spoke of.
            log.exception("a message of walk process %d cannot be read", walker.child.pid)
            self._died(walker, begun=True)

    def _ended(self, walker: _Walker, ended: WalkEnded) -> None:
        errand = walker.errand
        if errand is None or ended.number != walker.number:
            return
        for at, result in ended.results.items():
            walk = errand.work.walks[at]
            walk.raised = result.raised
            walk.scan.positions = result.positions
            walk.scan.times = result.times
            walk.scan.found_rows(result.found)
            _answer(walk, _response(result))
        self._over(walker)

    def _over(self, walker: _Walker) -> None:
        """Walks of a process have been answered; where all have, it is idle."""
        errand = walker.errand
        if errand is not None:
            if errand.work.over:
                walker.errand = None
                self._idle.append(walker)
            errand.done()
        self._hand_over()

    def _died(self, walker: _Walker, *, begun: bool = False) -> None:
        """Replace a process that died, and answer its walk; where it had not begun that, another takes it.

        `begun` says that it may have, and may be alive until it is killed.
        """
        if walker not in self._walkers:
            return
        self._stop_watching(walker)
        walker.channel.close()
        self._walkers.remove(walker)
        if walker in self._idle:
            self._idle.remove(walker)
        self._metrics.walk_process_restarts += 1
        log.error("walk process %d died, replaced", walker.child.pid)
        pause = self._survival.died(walker.started_at)
        run_apart(walker.child.kill, lambda _: self._in_loop(lambda: self._replace(walker.slot, pause)))
        errand, walker.errand = walker.errand, None
        if errand is None:
            return
        if not (begun or walker.has_begun) and errand.given < _MOST_GIVEN:
            self._waiting.appendleft(errand)
            self._let_wait(errand)
            self._withdraw(errand)
            self._hand_over()
            return
        for walk in errand.work.walks:
            if not walk.over:
                _fail(walk, f'the process that walked "{walk.scan.spec.collection}" died')
        errand.done()

    def _in_loop(self, callback: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            # The loop is closed, and so is this pool, which ends here what was just started.
            callback()

    def _replace(self, slot: int, pause: float) -> None:
        if not self._closed:
            self._loop.call_later(pause, lambda: self._launch(slot))

    def _launch(self, slot: int) -> None:
        if not self._closed:
            run_apart(
                lambda: self._new_walker(slot),
                lambda future: self._in_loop(lambda: self._launched(slot, future)),
            )

    def _launched(self, slot: int, future: Future[_Walker]) -> None:
        try:
            walker = future.result()
        except (OSError, ChannelClosedError) as error:
            log.error("a walk process cannot be started: %s", error)
            self._replace(slot, max(self._survival.died(time.monotonic()), _LEAST_PAUSE_S))
            return
        if self._closed:
            walker.child.end()
            return
        self._adopt(walker)
        self._hand_over()

    def _keep_house(self) -> None:
        """Tell idle processes what is gone here, so that they keep no memory of it, and when they rest."""
        for walker in list(self._idle):
            rests = walker.idleness.rests(walker.number)
            if rests or walker.channel.owes_notice:
                try:
                    self._send(walker, Rest() if rests else None)
                except ChannelClosedError:
                    self._died(walker)
        self._housekeeping = self._loop.call_later(_HOUSEKEEPING_S, self._keep_house)


def _parts(walks: Sequence[Walk]) -> tuple[WalkPart, ...]:
    """Return what walks that go together cross as; what they have in common crosses once."""
    if len(walks) == 1:
        [walk] = walks
        return (WalkPart(walk.scan, walk.encoder, walk.stash),)
    first = walks[0].encoder
    scans = with_companions([walk.scan for walk in walks])
    return tuple(
        WalkPart(scan, first if walk.encoder == first else walk.encoder, walk.stash)
        for walk, scan in zip(walks, scans, strict=True)
    )


def _answer(walk: Walk, response: PeekResponse | None) -> None:
    walk.response = response
    walk.over = True
    walk.on_cancel = walk.progress_elsewhere = None


def _fail(walk: Walk, message: str) -> None:
    walk.raised = True
    _answer(walk, Failed(InternalError(message)))


def _response(result: WalkResult) -> PeekResponse | None:
    """Return a result's answer with the encoded rows that came in a segment, where they did."""
    response = result.response
    if isinstance(response, Rows):
        return _with_wire(response, result)
    if isinstance(response, Stashed):
        return replace(response, rest=_with_wire(response.rest, result))
    return response


def _with_wire(rows: Rows, result: WalkResult) -> Rows:
    if result.wire is None:
        return rows
    data, ends = result.wire
    return Rows(rows.count, (), EncodedRows(data.data, ends, rows.count))


def _progress(walker: _Walker, walk: Walk, at: int) -> Callable[[], tuple[int, int]]:
    """Return what tells how far `walk`, which has just been handed over, is in its process."""
    number, scan = walker.number, walk.scan

    def progress() -> tuple[int, int]:
        page = walker.progress
        if page is None or page[PROGRESS_NUMBER_SLOT] != number:
            return scan.positions, scan.count
        return page[PROGRESS_POSITIONS_SLOT], page[PROGRESS_ROWS_SLOT + at]

    return progress
