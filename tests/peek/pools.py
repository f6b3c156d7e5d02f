"""The three walk pools behind one face, for the conformance kit: a test says what to wait for, not how."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvloop

from layby.compute.state import ServingState
from layby.compute.worker import ServingWorker
from layby.config import PARAMETERS, PeekParameters, SystemParameters
from layby.memory.child import run_apart
from layby.metrics import PeekMetrics
from layby.peek.answer import PeekResponse, RowEncoder
from layby.peek.pending import PendingPeek
from layby.peek.pool import SteppedWalkPool, ThreadWalkPool, WalkPool
from layby.peek.process_pool import ProcessWalkPool
from layby.peek.spec import PeekSpec
from layby.trace.batch import Batch
from layby.trace.bundle import TraceBundle
from tests.peek.harness import INDEX, spec

KINDS: Final = ("stepped", "threads", "processes")

DEADLINE_S: Final = 60.0
_LOOK_S: Final = 0.002
"""How long the loop runs at most before a condition is looked at again."""


class Walks:
    """A walk pool of some kind, and the loop that its answers come to; shared by the tests of that kind."""

    def __init__(self, kind: str, size: int = 2, **options: Any) -> None:
        self.kind = kind
        self.loop = uvloop.new_event_loop()
        self.metrics = PeekMetrics()
        self._steps = 0
        self._parameters: PeekParameters = SystemParameters().peek
        self.pool: WalkPool
        match kind:
            case "stepped":
                self.pool = SteppedWalkPool(size)
            case "threads":
                self.pool = ThreadWalkPool(size, self._deliver)
            case _:
                self.pool = ProcessWalkPool(
                    size, self.loop, lambda: self._parameters, metrics=self.metrics, **options
                )

    @property
    def processes(self) -> ProcessWalkPool:
        assert isinstance(self.pool, ProcessWalkPool)
        return self.pool

    def show(self, parameters: PeekParameters) -> None:
        """Put parameters in force for the walks of this pool."""
        self._parameters = parameters
        if isinstance(self.pool, ProcessWalkPool):
            self.pool.parameters_changed()

    def run(self) -> None:
        """Let time pass: run what the loop has, and a step of the next walk where walks are stepped."""
        if isinstance(self.pool, SteppedWalkPool) and self.pool.walks:
            self._steps += 1
            self.pool.step(self._steps % len(self.pool.walks))
        timer = self.loop.call_later(_LOOK_S, self.loop.stop)
        self.loop.run_forever()
        timer.cancel()

    def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until a condition holds; fails where it takes too long."""
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end, "it did not come about"
            self.run()

    def close(self) -> None:
        self.pool.close()
        # A process that is being started meanwhile is ended on the loop, which must hear of it in time.
        started = threading.Event()
        run_apart(lambda: None, lambda _: started.set())
        started.wait()
        self.run()
        self.loop.close()

    def _deliver(self, callback: Callable[[], None]) -> None:
        self.loop.call_soon_threadsafe(callback)


@contextmanager
def walks_of(kind: str, size: int = 2, **options: Any) -> Iterator[Walks]:
    """Make a pool for a while."""
    walks = Walks(kind, size, **options)
    try:
        yield walks
    finally:
        walks.close()


class PoolHarness:
    """A serving worker over one index and a pool of any kind."""

    def __init__(self, walks: Walks, bundle: TraceBundle, **parameters: object) -> None:
        """`parameters` without their `compute_index_peek_`."""
        defaults = {"enable_compute_index_peek_offload": "on"}
        for name, value in parameters.items():
            full = f"compute_index_peek_{name}"
            defaults[full if full in PARAMETERS else name] = str(value)
        self.walks = walks
        self.parameters = SystemParameters(defaults)
        self.parameters.on_change.append(lambda: walks.show(self.parameters.peek))
        walks.show(self.parameters.peek)
        self.metrics = PeekMetrics()
        self.state = ServingState(1_000)
        self.state.publish({INDEX: bundle.snapshot()}, 1_000)
        self.worker = ServingWorker(self.state, self.parameters, walks.pool, self.metrics, self._soon)
        self.answers: dict[PendingPeek, PeekResponse] = {}

    def _soon(self, callback: Callable[[], None]) -> None:
        self.walks.loop.call_soon(callback)

    def send(
        self,
        asked: PeekSpec | None = None,
        target: int | tuple[Batch, ...] = INDEX,
        encoder: RowEncoder | None = None,
    ) -> PendingPeek:
        """Send a peek that has to be offloaded; its answer comes to `answers`."""

        def respond(response: PeekResponse) -> None:
            assert peek not in self.answers, "answered twice"
            self.answers[peek] = response

        peek = PendingPeek(asked or spec(), target, encoder, respond)
        assert self.worker.peek(peek) is None
        return peek

    def answer(self, peek: PendingPeek) -> PeekResponse:
        """Wait for the answer to a peek."""
        self.walks.until(lambda: peek in self.answers)
        return self.answers[peek]

    def ask(self, asked: PeekSpec | None = None, encoder: RowEncoder | None = None) -> PeekResponse:
        return self.answer(self.send(asked, encoder=encoder))

    def positions(self, peek: PendingPeek) -> int:
        """Return how far an offloaded peek's walk is."""
        return next((done[0] for found, done in self.worker.offload.progress() if found is peek), 0)

    def until_walking(self, peek: PendingPeek) -> None:
        """Wait until a walk has gone on from where it was handed over."""
        start = self.positions(peek)
        self.walks.until(lambda: self.positions(peek) > start)

    def until_idle(self) -> None:
        """Wait until nothing is walked, queued or pinned."""
        offload = self.worker.offload
        self.walks.until(lambda: not len(offload) and not offload.permits.in_use)
        assert offload.permits.queued == 0
        assert offload.pinned.nbytes == 0
