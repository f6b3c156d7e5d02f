"""Maintenance runtimes: where and when the steps of maintenance run."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from layby.compute.maintenance import Maintenance, Message
from layby.compute.state import ServingState

log = logging.getLogger("layby.maintenance")


class MaintenanceRuntime(Protocol):
    """Runs maintenance: messages in the order of their coming, merging in between, builds beside both."""

    def submit(self, message: Message) -> None:
        """Have a message handled; from any thread."""

    def run_apart(self, job: Callable[[], None]) -> None:
        """Run a job that readers and commits must not wait for (sorting a large write, say)."""

    def close(self) -> None:
        """Stop after the messages submitted so far."""


class ThreadMaintenanceRuntime:
    """One thread for messages and merging, and two for jobs apart."""

    def __init__(self, state: ServingState, compaction_frontier: Callable[[], int]) -> None:
        self._queue: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._jobs = ThreadPoolExecutor(2, thread_name_prefix="layby-build")
        self._maintenance = Maintenance(state, self._build, compaction_frontier)
        self._thread = threading.Thread(target=self._run, name="layby-maintenance", daemon=True)
        self._thread.start()

    def submit(self, message: Message) -> None:
        """Queue a message for the maintenance thread."""
        self._queue.put(message)

    def run_apart(self, job: Callable[[], None]) -> None:
        """Queue a job for the threads apart."""
        self._jobs.submit(_logged, job)

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
                idle = self._maintenance.work() == 0
                continue
            if message is None:
                return
            idle = False
            _logged(lambda message=message: self._maintenance.handle(message))  # type: ignore[misc]


class SteppedMaintenanceRuntime:
    """Handles one message, or runs one job, when told to: what tests of interleavings drive."""

    def __init__(self, state: ServingState, compaction_frontier: Callable[[], int]) -> None:
        self.messages: deque[Message] = deque()
        self.jobs: deque[Callable[[], None]] = deque()
        self.maintenance = Maintenance(state, self._build, compaction_frontier)

    def submit(self, message: Message) -> None:
        """Keep a message until it is stepped."""
        self.messages.append(message)

    def run_apart(self, job: Callable[[], None]) -> None:
        """Keep a job until it is stepped."""
        self.jobs.append(job)

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

    def close(self) -> None:
        """Do nothing: there is nothing to stop."""

    def _build(self, job: Callable[[], Message]) -> None:
        self.jobs.append(lambda: self.submit(job()))


def _logged(job: Callable[[], None]) -> None:
    """Run a job; what it raises is a bug of ours and must not end the thread that everything depends on."""
    try:
        job()
    except Exception:
        log.exception("maintenance raised")
