"""The maintenance runtime in a process of its own.

The server keeps every request until it is answered. If the process dies, what was published stays readable;
a new process adopts the published batches, which are all that was applied, and gets the unanswered requests
again, so nothing fails but time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import queue
import threading
from collections.abc import Callable
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
    RunJob,
    Start,
)
from layby.compute.runtime import Job
from layby.compute.state import ServingState
from layby.errors import InternalError, SqlError
from layby.memory.channel import Channel, ChannelClosedError
from layby.memory.child import Child
from layby.memory.control_page import ControlPage
from layby.memory.shared_arena import SharedArena
from layby.trace.batch import Batch

log = logging.getLogger("layby.maintenance")

_HOUSEKEEPING_S: Final = 1.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0

_Request = Apply | Create | RunJob


class ProcessMaintenanceRuntime:
    """Maintenance in a child process. `submit` and `run_apart` may be called from any thread.

    A thread of its own pickles and sends, so that neither the loop nor the commit thread ever waits for the
    process to read.
    """

    def __init__(
        self,
        state: ServingState,
        compaction_frontier: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        *,
        nice: int = 5,
    ) -> None:
        self.arena = SharedArena()
        self.restarts = 0
        """How many times the process died and was replaced."""
        self._state = state
        self._loop = loop
        self._nice = nice
        self._page = ControlPage.create()
        self._compaction_frontier = compaction_frontier
        self._page[FRONTIER_SLOT] = compaction_frontier()
        self._tokens = itertools.count(1)
        self._lock = threading.Lock()
        # Guarded by the lock: what is unanswered, in the order of its coming, and the arrangements that the
        # process has, each table's shard first.
        self._open: dict[int, tuple[_Request, Callable[[object], None]]] = {}
        self._known: dict[int, ArrangementDesc] = {}
        self._outgoing: queue.SimpleQueue[tuple[Channel, object] | None] = queue.SimpleQueue()
        self._pause_s = _FIRST_PAUSE_S
        self._closed = False
        self._sender = threading.Thread(target=self._send, name="layby-maintenance-send", daemon=True)
        self._sender.start()
        self._child = self._start()
        self._housekeeping = loop.call_later(_HOUSEKEEPING_S, self._keep_house)

    @property
    def process_id(self) -> int:
        """The process under way."""
        return self._child.pid

    def submit(self, message: Message) -> None:
        """Send a message to the process, now or after its restart."""
        match message:
            case ApplyWrites(time, writes, applied):
                self._request(Apply(next(self._tokens), time, writes), _with_error(applied))
            case CreateArrangement(desc, created, verify):
                token = next(self._tokens)

                def done(error: object) -> None:
                    if error is None:
                        with self._lock:
                            self._known[desc.id] = desc
                    _with_error(created)(error)

                self._request(Create(token, desc, verify), done)
            case DropArrangement(id_):
                with self._lock:
                    self._known.pop(id_, None)
                    self._outgoing.put((self._child.channel, Drop(id_)))

    def run_apart(self, job: Job, then: Callable[[object], None]) -> None:
        """Run a job in the process."""
        self._request(RunJob(next(self._tokens), job), then)

    def close(self) -> None:
        """End the process; what is unanswered stays so."""
        self._closed = True
        self._housekeeping.cancel()
        self._loop.remove_reader(self._child.channel.socket.fileno())
        self._outgoing.put(None)
        self._sender.join()
        self._child.end()

    def _request(self, request: _Request, then: Callable[[object], None]) -> None:
        with self._lock:
            self._open[request.token] = (request, then)
            self._outgoing.put((self._child.channel, request))

    def _send(self) -> None:
        while (item := self._outgoing.get()) is not None:
            channel, message = item
            try:
                channel.send(message)
            except ChannelClosedError:
                continue  # the loop notices, starts a new process, and sends again what is unanswered
            except Exception as error:
                log.exception("a message to the maintenance process could not be sent")
                if isinstance(message, Apply | Create | RunJob):
                    self._answer(message.token, InternalError(f"a message cannot be sent: {error}"))

    def _start(self) -> Child:
        child = Child("layby.compute.maintenance_process", (Batch,))
        with self._lock:
            adopt = []
            for id_, desc in self._known.items():
                snapshot = self._state.snapshot(id_)
                if snapshot is not None:
                    adopt.append((desc, snapshot))
            start = Start(self._page, self._nice, self._state.upper, tuple(adopt))
            self._outgoing.put((child.channel, start))
            for request, _ in self._open.values():
                self._outgoing.put((child.channel, request))
            self._child = child
        self._loop.add_reader(child.channel.socket.fileno(), self._readable, child)
        return child

    def _readable(self, child: Child) -> None:
        if child is not self._child:
            return
        try:
            child.channel.read(wait=False)
            while messages := child.channel.received():
                self._take(messages[0])
        except ChannelClosedError:
            self._died(child)

    def _take(self, message: object) -> None:
        match message:
            case Published(snapshots, upper):
                self._pause_s = _FIRST_PAUSE_S
                self._state.publish(snapshots, upper)
                self._page[FRONTIER_SLOT] = self._compaction_frontier()
            case Done(token, result) | JobDone(token, result):
                self._answer(token, result)
            case Dropped(id_):
                self._state.drop(id_)

    def _answer(self, token: int, result: object) -> None:
        with self._lock:
            found = self._open.pop(token, None)
        if found is not None:
            found[1](result)

    def _died(self, child: Child) -> None:
        if self._closed:
            return
        self._loop.remove_reader(child.channel.socket.fileno())
        child.channel.close()
        code = child.kill()
        self.restarts += 1
        log.error("maintenance process %d ended with %d, reads go on, a new one is started", child.pid, code)
        # What was published was applied, though its answer was lost.
        with self._lock:
            applied = [
                token
                for token, (request, _) in self._open.items()
                if isinstance(request, Apply) and request.time < self._state.upper
            ]
        for token in applied:
            self._answer(token, None)
        self._loop.call_later(self._pause_s, self._restart)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _restart(self) -> None:
        if not self._closed:
            self._start()

    def _keep_house(self) -> None:
        """Tell the process what may be compacted, and what is gone here, so that it keeps no memory of it."""
        self._page[FRONTIER_SLOT] = self._compaction_frontier()
        if self._child.channel.owes_notice:
            self._outgoing.put((self._child.channel, None))
        self._housekeeping = self._loop.call_later(_HOUSEKEEPING_S, self._keep_house)


def _with_error(callback: Callable[[SqlError | None], None]) -> Callable[[object], None]:
    def then(result: object) -> None:
        if result is None or isinstance(result, SqlError):
            callback(result)
        else:
            callback(InternalError(f"maintenance answered {result!r}"))

    return then
