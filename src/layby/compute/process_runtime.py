"""The maintenance runtime in a process of its own.

The server keeps every request until it is answered. If the process dies, what was published stays readable;
a new process adopts the published batches, which are all that was applied, and gets the unanswered requests
again, so nothing fails but time. Only a job or a build that several processes died with is given up.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from layby.compute.arrangement import ArrangementDesc
from layby.compute.maintenance import ApplyWrites, CreateArrangement, DropArrangement, Message
from layby.compute.maintenance_process import (
    FRONTIER_SLOT,
    Apply,
    Create,
    Done,
    Drop,
    Dropped,
    JobDone,
    Published,
    Ready,
    RunJob,
    Start,
)
from layby.compute.runtime import Job
from layby.compute.state import ServingState
from layby.errors import InternalError, SqlError
from layby.memory.channel import Channel, ChannelClosedError
from layby.memory.child import Child, run_apart
from layby.memory.control_page import ControlPage
from layby.memory.heap import Idleness, Rest
from layby.memory.shared_arena import SharedArena
from layby.memory.survival import Survival
from layby.metrics import PeekMetrics
from layby.turns import EventLoop

log = logging.getLogger("layby.maintenance")

_HOUSEKEEPING_S: Final = 1.0
_LEAST_PAUSE_S: Final = 0.05
"""Before another attempt at what the system has just refused."""

_Request = Apply | Create | Drop | RunJob


@dataclass(slots=True)
class _Open:
    """A request that is not answered yet, and how many processes died with it."""

    request: _Request
    then: Callable[[object], None]
    deaths: int = 0


class ProcessMaintenanceRuntime:
    """Maintenance in a child process. `submit` and `run_apart` may be called from any thread.

    A thread of its own pickles and sends, so that neither the loop nor the commit thread ever waits for the
    process to read.
    """

    def __init__(
        self,
        state: ServingState,
        compaction_frontier: Callable[[], int],
        loop: EventLoop,
        *,
        nice: int = 5,
        program: str = "layby.compute.maintenance_process",
        most_deaths: int = 8,
        metrics: PeekMetrics | None = None,
    ) -> None:
        """Start the process at the given nice value; `program` is the module that it runs. Raises OSError.

        A job that so many processes have died with is given up: it may be what kills them.
        """
        self.arena = SharedArena()
        self._metrics = metrics or PeekMetrics()
        self._state = state
        self._loop = loop
        self._nice = nice
        self._program = program
        self._most_deaths = most_deaths
        self._page = ControlPage.create()
        self._compaction_frontier = compaction_frontier
        self._page[FRONTIER_SLOT] = compaction_frontier()
        self._tokens = itertools.count(1)
        self._lock = threading.Lock()
        # Guarded by the lock: what is unanswered, in the order of its coming; the arrangements that the
        # process has, each table's shard first; and the process, None while there is none.
        self._open: dict[int, _Open] = {}
        self._known: dict[int, ArrangementDesc] = {}
        self._child: Child | None = None
        self._outgoing: queue.SimpleQueue[tuple[Channel, object] | None] = queue.SimpleQueue()
        self._asked = 0
        """How many requests there were."""
        self._idleness = Idleness()
        self._survival = Survival(time.monotonic)
        self._started_at = 0.0
        self._closed = False
        self._sender = threading.Thread(target=self._send, name="layby-maintenance-send", daemon=True)
        self._sender.start()
        self._adopt(self._new_child())
        self._housekeeping = loop.call_later(_HOUSEKEEPING_S, self._keep_house)

    @property
    def process_id(self) -> int | None:
        """The process under way, None between two."""
        child = self._child
        return None if child is None else child.pid

    @property
    def healthy(self) -> bool:
        """Whether writes are applied, or will be in a moment; from any thread."""
        return self._survival.hopeful

    def submit(self, message: Message) -> None:
        """Send a message to the process, now or after its restart."""
        token = next(self._tokens)
        match message:
            case ApplyWrites(time, writes, applied):
                self._request(Apply(token, time, writes), _with_error(applied))
            case CreateArrangement(desc, created, verify):

                def done(error: object) -> None:
                    if error is None:
                        with self._lock:
                            self._known[desc.id] = desc
                    _with_error(created)(error)

                self._request(Create(token, desc, verify), done)
            case DropArrangement(id_, then):

                def dropped(_: object) -> None:
                    # The process says so too, but one that was started since does not know of it.
                    self._state.drop(id_)
                    if then is not None:
                        then()

                with self._lock:
                    self._known.pop(id_, None)
                self._request(Drop(token, id_), dropped)

    def run_apart(self, job: Job, then: Callable[[object], None]) -> None:
        """Run a job in the process."""
        self._request(RunJob(next(self._tokens), job), then)

    def close(self) -> None:
        """End the process; what is unanswered stays so."""
        self._closed = True
        self._housekeeping.cancel()
        child = self._child
        if child is not None:
            self._loop.remove_reader(child.channel.socket.fileno())
            # Before the sender is waited for: it may itself wait for the process to read.
            child.terminate()
        self._outgoing.put(None)
        self._sender.join()
        if child is not None:
            child.end()

    # Requests

    def _request(self, request: _Request, then: Callable[[object], None]) -> None:
        with self._lock:
            self._asked += 1
            self._open[request.token] = _Open(request, then)
            if self._child is not None:
                self._outgoing.put((self._child.channel, request))

    def _answer(self, token: int, result: object) -> None:
        with self._lock:
            found = self._open.pop(token, None)
            if not self._open:
                self._survival.lives()
        if found is None:
            return
        if result is not None and isinstance(found.request, Apply):
            # Nothing happened at that time. The process says so as well, unless it dies before it can.
            self._state.publish({}, max(self._state.upper, found.request.time + 1))
        found.then(result)

    def _send(self) -> None:
        while (item := self._outgoing.get()) is not None:
            channel, message = item
            try:
                channel.send(message)
            except ChannelClosedError:
                pass  # the loop notices, starts a new process, and sends again what is unanswered
            except Exception as error:
                log.exception("a message to the maintenance process could not be sent")
                self._unsendable(channel, message, InternalError(f"a message cannot be sent: {error}"))
            # What was sent must not be held until there is more to send.
            del item, channel, message

    def _unsendable(self, channel: Channel, message: object, error: InternalError) -> None:
        match message:
            case Apply(token, time):
                # Its time has to pass in its turn all the same.
                empty = Apply(token, time, ())
                with self._lock:
                    found = self._open.get(token)
                    if found is not None:
                        then = found.then
                        self._open[token] = _Open(empty, lambda _: then(error))
                        self._outgoing.put((channel, empty))
            case Create(token) | RunJob(token):
                self._in_loop(lambda: self._answer(token, error))
            case _:
                # Without its start a process is of no use; the next one may come to more memory, say.
                child = self._child
                if child is not None and child.channel is channel:
                    child.process.kill()

    # The process

    def _new_child(self) -> Child:
        """Start a process; on any thread. Raises OSError."""
        return Child(self._program)

    def _adopt(self, child: Child) -> None:
        """Have a new process take over from the one before."""
        self._started_at = time.monotonic()
        with self._lock:
            adopt = []
            for id_, desc in self._known.items():
                snapshot = self._state.snapshot(id_)
                if snapshot is not None:
                    adopt.append((desc, snapshot))
            start = Start(self._page, self._nice, self._state.upper, tuple(adopt))
            self._outgoing.put((child.channel, start))
            for found in self._open.values():
                self._outgoing.put((child.channel, found.request))
            self._child = child
        self._loop.add_reader(child.channel.socket.fileno(), lambda: self._readable(child))

    def _readable(self, child: Child) -> None:
        if child is not self._child:
            return
        try:
            child.channel.read(wait=False)
            while messages := child.channel.received():
                self._take(messages[0])
        except ChannelClosedError:
            self._died(child)
        except Exception:
            # A message is lost; the next process publishes again what it spoke of.
            log.exception("a message of maintenance process %d cannot be read", child.pid)
            self._died(child)

    def _take(self, message: object) -> None:
        match message:
            case Published(snapshots, upper):
                self._state.publish(snapshots, upper)
                self._page[FRONTIER_SLOT] = self._compaction_frontier()
            case Done(token, result) | JobDone(token, result):
                self._answer(token, result)
            case Dropped(id_):
                self._state.drop(id_)
            case Ready():
                with self._lock:
                    if not self._open:
                        self._survival.lives()

    def _died(self, child: Child) -> None:
        """Go on without a process, and have the next one started."""
        if self._closed:
            return
        self._loop.remove_reader(child.channel.socket.fileno())
        child.channel.close()
        self._metrics.maintenance_restarts += 1
        log.error("maintenance process %d died, reads go on, a new one is started", child.pid)
        applied, given_up = [], []
        with self._lock:
            self._child = None
            for token, found in self._open.items():
                found.deaths += 1
                if isinstance(found.request, Apply) and found.request.time < self._state.upper:
                    applied.append(token)  # what was published was applied, though its answer was lost
                elif isinstance(found.request, RunJob | Create) and found.deaths >= self._most_deaths:
                    given_up.append((token, found.request))
        for token in applied:
            self._answer(token, None)
        for token, request in given_up:
            if isinstance(request, Create):
                self._state.drop(request.desc.id)
            self._answer(
                token, InternalError(f"{self._most_deaths} maintenance processes died with this statement")
            )
        pause = self._survival.died(self._started_at)
        run_apart(child.kill, lambda _: self._in_loop(lambda: self._replace(pause)))

    def _in_loop(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is this runtime
            self._loop.call_soon_threadsafe(callback)

    def _replace(self, pause: float) -> None:
        if not self._closed:
            self._loop.call_later(pause, self._launch)

    def _launch(self) -> None:
        if not self._closed:
            run_apart(self._new_child, lambda future: self._in_loop(lambda: self._launched(future)))

    def _launched(self, future: Future[Child]) -> None:
        try:
            child = future.result()
        except OSError as error:
            log.error("a maintenance process cannot be started: %s", error)
            self._replace(max(self._survival.died(time.monotonic()), _LEAST_PAUSE_S))
            return
        if self._closed:
            child.end()
        else:
            self._adopt(child)

    def _keep_house(self) -> None:
        """Tell the process what may be compacted, what is gone here, so that it keeps no memory of it, and
        when it rests."""
        self._page[FRONTIER_SLOT] = self._compaction_frontier()
        rests = not self._open and self._idleness.rests(self._asked)
        child = self._child
        if child is not None and (rests or child.channel.owes_notice):
            self._outgoing.put((child.channel, Rest() if rests else None))
        self._housekeeping = self._loop.call_later(_HOUSEKEEPING_S, self._keep_house)


def _with_error(callback: Callable[[SqlError | None], None]) -> Callable[[object], None]:
    def then(result: object) -> None:
        if result is None or isinstance(result, SqlError):
            callback(result)
        else:
            callback(InternalError(f"maintenance answered {result!r}"))

    return then
