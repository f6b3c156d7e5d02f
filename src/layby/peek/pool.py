"""Walk pools: what runs offloaded walks."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from layby.peek.shared_walk import SharedWalk
from layby.peek.walk import Walk

Work = Walk | SharedWalk
"""What a pool runs: one walk, or several that go together."""


class WalkPool(Protocol):
    """Runs walks, each to its end where it was put.

    `submit` never blocks; `done` is called on the serving loop when walks of the work have ended, whatever
    their end: once where it is one walk, and where they are several at least when the last is over. The
    permits keep the walks under way at `size` at most, so a pool needs no queue of its own to be fair.
    """

    @property
    def size(self) -> int:
        """How many walks can run at once."""

    def submit(self, walk: Work, done: Callable[[], None]) -> None:
        """Run `walk`."""

    @property
    def healthy(self) -> bool:
        """Whether walks are run, or will be in a moment; from any thread."""

    def close(self) -> None:
        """Stop once the walks under way have ended."""


class ThreadWalkPool:
    """Walks on threads of this process, which share its GIL with the serving loop.

    numpy and Arrow release the GIL in their kernels, and the server's switch interval is 0.5 ms.
    """

    def __init__(self, size: int, deliver: Callable[[Callable[[], None]], None]) -> None:
        """Start `size` threads. `deliver` calls a function on the serving loop, from any thread."""
        self._deliver = deliver
        self._queue: queue.SimpleQueue[tuple[Work, Callable[[], None]] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"layby-walk-{i}", daemon=True) for i in range(size)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def size(self) -> int:
        """The number of threads."""
        return len(self._threads)

    def submit(self, walk: Work, done: Callable[[], None]) -> None:
        """Hand `walk` to a thread (42 µs there and back)."""
        self._queue.put((walk, done))

    @property
    def healthy(self) -> bool:
        """Whether the threads run."""
        return all(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """End the threads once their walks have ended."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            walk, done = item
            while not walk.over:
                if walk.step():
                    self._deliver(done)
            del item, walk, done  # an idle thread must not hold the memory of its last walk


class SteppedWalkPool:
    """Runs one step of one walk when told to: what tests of interleavings drive."""

    def __init__(self, size: int = 1) -> None:
        self._size = size
        self.walks: deque[tuple[Work, Callable[[], None]]] = deque()

    @property
    def size(self) -> int:
        """The size that the permits are reckoned from."""
        return self._size

    def submit(self, walk: Work, done: Callable[[], None]) -> None:
        """Keep `walk` until it is stepped."""
        self.walks.append((walk, done))

    @property
    def healthy(self) -> bool:
        """True."""
        return True

    def walk(self, at: int = 0) -> Walk:
        """Return the walk at place `at`, the first of those that go together."""
        return self.walks[at][0].walks[0]

    def step(self, at: int = 0) -> bool:
        """Step what is at place `at` once; True where it is over then, and its `done` has been called."""
        walk, done = self.walks[at]
        if walk.step():
            if walk.over:
                del self.walks[at]
            done()
        return walk.over

    def run(self) -> None:
        """Step every walk to its end, in the order of their coming."""
        while self.walks:
            self.step()

    def close(self) -> None:
        """Do nothing: there is nothing to stop."""
