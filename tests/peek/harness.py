"""The harness of the peek tests: real objects, stepped by hand, on any of the walk pools."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from layby.compute.runtime import run_job
from layby.compute.state import ServingState
from layby.compute.worker import ServingWorker
from layby.config import SystemParameters
from layby.expr.finishing import Finishing, OrderKey
from layby.expr.mfp import Mfp
from layby.expr.scalar import ColumnRef, Expr
from layby.memory.arena import HEAP, Arena
from layby.metrics import PeekMetrics
from layby.peek.answer import Failed, PeekResponse, RowEncoder, Rows
from layby.peek.pending import PendingPeek
from layby.peek.spec import PeekSpec
from layby.peek.stash import Stash
from layby.persist.blob import Blob
from layby.trace.bundle import ErrorUpdate, TraceBundle
from layby.trace.constraints import Constraints, KeyRange
from layby.trace.layout import Layout
from layby.types.column import column_from_values
from layby.types.ordering import ASCENDING, Ordering
from layby.types.scalar import BIGINT, PhysicalValue, SqlType
from tests.peek.gates import Bench, SteppedBench

Row = tuple[PhysicalValue, ...]
Update = tuple[Row, int, int]

PAIR = Layout((BIGINT, BIGINT), (ASCENDING,))
"""Rows (k, v), keyed by k."""

INDEX = 7
"""The collection that tests read."""


def append(bundle: TraceBundle, updates: Sequence[Update], upper: int) -> None:
    """Add updates to a bundle as one batch."""
    columns = [column_from_values(t, [u[0][i] for u in updates]) for i, t in enumerate(bundle.layout.types)]
    times = np.array([u[1] for u in updates], np.int64)
    diffs = np.array([u[2] for u in updates], np.int64)
    bundle.append(columns, times, diffs, upper, length=len(updates))


def append_error(bundle: TraceBundle, message: str, time: int, diff: int, upper: int) -> None:
    """Add one update of the error trace as a batch of its own."""
    columns = [column_from_values(t, []) for t in bundle.layout.types]
    none = np.zeros(0, np.int64)
    bundle.append(columns, none, none, upper, [ErrorUpdate("22012", message, time, diff)], length=0)


def pairs(*rows: tuple[int, int], time: int = 1, diff: int = 1) -> list[Update]:
    """Return updates of (k, v) rows."""
    return [(row, time, diff) for row in rows]


def bundle_of(*batches: Sequence[Update], layout: Layout = PAIR) -> TraceBundle:
    """Return a bundle with one batch for each argument; batch i holds updates at time i + 1."""
    bundle = TraceBundle(layout, upper=0)
    for number, updates in enumerate(batches):
        append(bundle, updates, max((u[1] for u in updates), default=number) + 1)
    return bundle


def finishing(
    arity: int,
    order_by: Sequence[tuple[int, Ordering]] = (),
    limit: int | None = None,
    offset: int = 0,
) -> Finishing:
    """Return a finishing that keeps all columns."""
    return Finishing(tuple(OrderKey(c, o) for c, o in order_by), limit, offset, tuple(range(arity)))


def spec(
    timestamp: int = 100,
    *,
    types: Sequence[SqlType] = PAIR.types,
    constraints: Constraints | None = None,
    predicates: Sequence[Expr] = (),
    outputs: Sequence[Expr] | None = None,
    finish: Finishing | None = None,
    reverse: bool = False,
    ordered: bool = False,
) -> PeekSpec:
    """Return what a peek asks; without more, all columns of all rows."""
    chosen = tuple(ColumnRef(i, t) for i, t in enumerate(types)) if outputs is None else tuple(outputs)
    mfp = Mfp(len(types), tuple(predicates), chosen)
    return PeekSpec("test", timestamp, constraints, reverse, ordered, mfp, finish or finishing(len(chosen)))


def keys(*wanted: int) -> Constraints:
    """Return constraints on the keys of `PAIR`."""
    return tuple(KeyRange((k,)) for k in wanted)


def rows_of(response: PeekResponse | None) -> list[Row]:
    """Return the rows of an answer that has columns."""
    assert isinstance(response, Rows), response
    return list(zip(*(c.to_list() for c in response.columns), strict=True)) if response.count else []


def error_of(response: PeekResponse | None) -> tuple[str, str]:
    """Return SQLSTATE and message of a failed answer."""
    assert isinstance(response, Failed), response
    return response.error.sqlstate, response.error.message


class StandingClock:
    """A clock that a test moves, in seconds; a walk in another process has the time of its handing over.

    With a `tick` each look at it takes that long.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.tick = 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


class Harness:
    """A serving worker over one index, with walks stepped, a clock that stands, and turns taken by hand."""

    def __init__(
        self,
        bundle: TraceBundle,
        *,
        pool_size: int = 1,
        upper: int = 1_000,
        blob: Blob | None = None,
        bench: Bench | None = None,
        **parameters: object,
    ) -> None:
        """With a `blob` there is a stash, and peeks take stashed answers; without a `bench` the pool is the
        stepped one."""
        defaults = {
            "enable_compute_index_peek_offload": "on",
            "enable_compute_index_peek_shared_walks": "off",
        }
        names = {
            "offload": "enable_compute_index_peek_offload",
            "inline_budget": "compute_index_peek_inline_budget",
            "activation_budget": "compute_index_peek_activation_budget",
            "granularity": "compute_index_peek_yield_granularity",
            "fraction": "compute_index_peek_permit_fraction",
            "quiet_budget": "compute_index_peek_quiet_budget",
            "max_queued": "compute_index_peek_max_queued",
            "shared": "enable_compute_index_peek_shared_walks",
            "max_result_size": "max_result_size",
            "iteration_limit": "compute_peek_row_iteration_limit",
            "stash_on": "enable_compute_peek_response_stash",
            "stash_threshold": "peek_response_stash_threshold_bytes",
        }
        for name, value in parameters.items():
            defaults[names[name]] = str(value)
        self.parameters = SystemParameters(defaults)
        self.metrics = PeekMetrics()
        self.bench = bench or SteppedBench()
        self.pool = self.bench.pool(pool_size, self.parameters)
        self.state = ServingState(upper)
        self.bundle = bundle
        self.state.publish({INDEX: bundle.snapshot()}, upper)
        self.turns: list[Callable[[], None]] = []
        self.clock = StandingClock()
        self.jobs: deque[Callable[[], None]] = deque()
        """What runs apart from the loop, until `run_jobs`."""
        self.stash = None if blob is None else Stash(blob, self._run_apart, self.metrics)
        self.worker = ServingWorker(
            self.state,
            self.parameters,
            self.pool,
            self.metrics,
            self.turns.append,
            self.clock,
            self.stash,
        )
        self.answers: dict[PendingPeek, PeekResponse] = {}

    @property
    def now(self) -> float:
        """What the clock shows, in seconds."""
        return self.clock.now

    @now.setter
    def now(self, now: float) -> None:
        self.clock.now = now

    def pending(self, asked: PeekSpec | None = None, encoder: RowEncoder | None = None) -> PendingPeek:
        """Return a peek that notes its later answer in `answers`."""

        def respond(response: PeekResponse) -> None:
            assert peek not in self.answers, "answered twice"
            self.answers[peek] = response

        peek = PendingPeek(asked or spec(), INDEX, encoder, respond, takes_stashed=self.stash is not None)
        return peek

    def peek(self, asked: PeekSpec | None = None) -> tuple[PendingPeek, PeekResponse | None]:
        """Send a peek; return it and the answer of the call itself."""
        peek = self.pending(asked)
        return peek, self.worker.peek(peek)

    def _run_apart(self, job: Callable[[Arena], object], then: Callable[[object], None]) -> None:
        self.jobs.append(lambda: then(run_job(job, HEAP)))

    def run_jobs(self) -> None:
        """Run everything that waits to run apart."""
        while self.jobs:
            self.jobs.popleft()()

    def turn(self) -> bool:
        """Take one turn of the loop: what was scheduled before it; False where there was nothing."""
        turns, self.turns[:] = list(self.turns), []
        for callback in turns:
            callback()
        return bool(turns)

    def settle(self) -> None:
        """Take turns and run walks until nothing is left to do."""
        while self.turn() or self.pool.walks:
            self.pool.run()

    def ask(self, asked: PeekSpec | None = None) -> PeekResponse:
        """Send a peek and see it to its answer."""
        peek, response = self.peek(asked)
        if response is None:
            self.settle()
            response = self.answers[peek]
        return response


class HarnessOn:
    """Makes harnesses on one bench, whose walks end when the next is made."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def __call__(self, bundle: TraceBundle, **options: Any) -> Harness:
        """Take what `Harness` takes."""
        return Harness(bundle, bench=self.bench, **options)
