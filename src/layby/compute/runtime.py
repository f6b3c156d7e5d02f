"""Maintenance runtimes: where and when the steps of maintenance run."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from layby.compute.arrangement import ArrangementDesc
from layby.compute.maintenance import Maintenance, Message, Publication
from layby.memory.arena import HEAP, Arena
from layby.trace.bundle import Snapshot

log = logging.getLogger("layby.maintenance")


Job = Callable[[Arena], object]
"""Work apart: gets the arena to place its results in."""


class MaintenanceRuntime(Protocol):
    """Runs maintenance: messages in the order of their coming, merging in between, builds beside both."""

    def submit(self, message: Message) -> None:
        """Have a message handled; from any thread."""

    @property
    def arena(self) -> Arena:
        """Where to put what goes into a job or a message, so that it need not be copied there."""

    def run_apart(self, job: Job, then: Callable[[object], None]) -> None:
        """Run a job that readers and commits must not wait for (sorting a large write, say).

        `then` gets its result, or the exception that it raised, on whatever thread. A job may be run again
        where it was lost, so it has no effect but its result, and it can be pickled.
        """

    @property
    def healthy(self) -> bool:
        """Whether writes are applied, or will be in a moment; from any thread."""

    def close(self) -> None:
        """Stop after the messages submitted so far."""


class ThreadMaintenanceRuntime:
    """One thread for messages and merging, and two for jobs apart."""

    def __init__(
        self,
        published: Publication,
        compaction_frontier: Callable[[], int],
        arena: Arena = HEAP,
        adopt: Iterable[tuple[ArrangementDesc, Snapshot]] = (),
    ) -> None:
        """Start the threads, with the arrangements of a maintenance that is gone, if there was one."""
        self.arena = arena
        self._queue: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._jobs = ThreadPoolExecutor(2, thread_name_prefix="layby-build")
        self.maintenance = Maintenance(published, self._build, compaction_frontier, arena)
        for desc, snapshot in adopt:
            self.maintenance.adopt(desc, snapshot)
        self._thread = threading.Thread(target=self._run, name="layby-maintenance", daemon=True)
        self._thread.start()

    def submit(self, message: Message) -> None:
        """Queue a message for the maintenance thread."""
        self._queue.put(message)

    def run_apart(self, job: Job, then: Callable[[object], None]) -> None:
        """Queue a job for the threads apart."""
        self._jobs.submit(_logged, lambda: then(run_job(job, self.arena)))

    @property
    def healthy(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End the threads after what has been submitted."""
        self._jobs.shutdown()
        self._queue.put(None)
        self._thread.join()

    def _build(self, job: Callable[[], Message]) -> None:
        self._jobs.submit(_logged, lambda: self.submit(job()))

    def _run(self) -> None:
        idle = False
        while True:
            try:
                message = self._queue.get(block=idle)
            except queue.Empty:
                idle = self._merged() == 0
                continue
            if message is None:
                return
            idle = False
            _logged(lambda message=message: self.maintenance.handle(message))  # type: ignore[misc]
            del message  # its columns must not be held until the next comes

    def _merged(self) -> int:
        """Merge a little; where that raises, messages go on, and merging is tried again after the next."""
        try:
            return self.maintenance.work()
        except Exception:
            log.exception("merging raised")
            return 0


class SteppedMaintenanceRuntime:
    """Handles one message, or runs one job, when told to: what tests of interleavings drive."""

    def __init__(self, published: Publication, compaction_frontier: Callable[[], int]) -> None:
        self.arena: Arena = HEAP
        self.messages: deque[Message] = deque()
        self.jobs: deque[Callable[[], None]] = deque()
        self.maintenance = Maintenance(published, self._build, compaction_frontier)

    def submit(self, message: Message) -> None:
        """Keep a message until it is stepped."""
        self.messages.append(message)

    def run_apart(self, job: Job, then: Callable[[object], None]) -> None:
        """Keep a job until it is stepped."""
        self.jobs.append(lambda: then(run_job(job, self.arena)))

    def step(self) -> bool:
        """Handle one message, or where there is none run one job; False where there was neither."""
        if self.messages:
            self.maintenance.handle(self.messages.popleft())
        elif self.jobs:
            self.jobs.popleft()()
        else:
            return False
        return True

    def run(self) -> None:
        """Step until nothing is left."""
        while self.step():
            pass

    @property
    def healthy(self) -> bool:
        """True."""
        return True

    def close(self) -> None:
        """Do nothing: there is nothing to stop."""

    def _build(self, job: Callable[[], Message]) -> None:
        self.jobs.append(lambda: self.submit(job()))


def run_job(job: Job, arena: Arena) -> object:
    """Return what a job comes to: its result, or the exception that it raised."""
    try:
        return job(arena)
    except Exception as error:  # noqa: BLE001 - handed to the statement that waits for it
        return error


def _logged(job: Callable[[], None]) -> None:
    """Run a job; what it raises is a bug of ours and must not end the thread that everything depends on."""
    try:
        job()
    except Exception:
        log.exception("maintenance raised")
