"""Reads: from a select plan to a peek of the serving worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from layby.adapter.environment import Environment
from layby.adapter.execution import Execution
from layby.adapter.jobs import ArrangeRuns, EvaluateValues
from layby.adapter.own_writes import Run, overlay
from layby.compute.arrangement import Arranged, ArrangementDesc
from layby.expr.scalar import with_values
from layby.memory.arena import HEAP
from layby.peek.answer import PeekResponse, RowEncoder
from layby.peek.pending import Asker, PendingPeek
from layby.peek.profile import PeekProfile
from layby.peek.scan import PeekSpec
from layby.sql.instantiate import instantiate, instantiate_columns, instantiate_series, instantiate_values
from layby.sql.plan import ColumnsSource, SelectPlan, SeriesSource, TableSource, ValuesSource
from layby.trace.batch import Batch
from layby.trace.series import constant_batch, series_batch
from layby.types.relation import WIDE
from layby.types.scalar import PhysicalValue

if TYPE_CHECKING:
    from layby.adapter.session import Session

_LARGE_OVERLAY = 4_096
"""Values of a transaction's own writes from which on they are arranged away from the loop: 0.3 ms."""


def read(
    session: Session,
    plan: SelectPlan,
    params: tuple[PhysicalValue, ...],
    encoder: RowEncoder | None,
    execution: Execution,
    then: Callable[[PeekResponse], None],
    *,
    takes_stashed: bool = False,
    profile: PeekProfile | None = None,
) -> None:
    """Run a select plan; `then` gets its answer, maybe before this returns. Raises SqlError.

    The answer is `Stashed` only where `takes_stashed` says that `then` can do with that. `profile` is filled
    in before `then` is called.
    """
    coordinator = session.coordinator
    environment = Environment(session)
    ready = instantiate(plan, params, environment)
    source = plan.source
    target: int | tuple[Batch, ...]
    timestamp = coordinator.state.upper - 1
    own: tuple[Run, ...] = ()
    desc: ArrangementDesc | None = None
    if isinstance(source, TableSource):
        table = source.table
        name = table.name if source.index is None else source.index.name
        if table.rows is not None:
            columns = table.rows()
            target = (constant_batch(columns, table.desc.types),)
        else:
            transaction = session.transaction
            desc = coordinator.arrangement(table, source.index)
            target = desc.id
            if transaction is not None:
                timestamp = coordinator.read_time(transaction)
                own = transaction.written(table.id)
    elif isinstance(source, SeriesSource):
        name = "generate_series"
        start, stop, step = instantiate_series(source, params, environment)
        target = (series_batch(start, stop, step, source.type),)
    elif isinstance(source, ColumnsSource):
        name = "values"
        columns = instantiate_columns(source, params, environment)
        target = (constant_batch(columns, source.types, source.count),)
    else:
        name = "values"
        columns = () if plan.has_heavy_values else instantiate_values(source, params, environment)
        target = (constant_batch(columns, source.types, len(source.rows)),)
    spec = PeekSpec(
        name, timestamp, ready.constraints, ready.reverse, ready.ordered, ready.mfp, ready.finishing
    )
    pending = PendingPeek(spec, target, encoder, then, takes_stashed=takes_stashed)
    sums = desc is not None and _sums_wide_rows(session, desc, own)
    pending.inline = not plan.is_heavy and not sums
    pending.profile = profile
    if own and desc is not None:
        _read_over(session, pending, desc, own, execution)
    elif isinstance(source, ValuesSource) and plan.has_heavy_values:
        rows = tuple(tuple(with_values(cell, params, environment) for cell in row) for row in source.rows)
        _read_apart(session, pending, replace(source, rows=rows), execution)
    else:
        _peek(session, pending, execution)


def _read_apart(session: Session, pending: PendingPeek, source: ValuesSource, execution: Execution) -> None:
    """Read a VALUES list of which evaluating a value may take long."""

    def evaluated(result: object) -> None:
        if isinstance(result, tuple):
            pending.target = (constant_batch(result, source.types, len(source.rows)),)
            execution.attempt(lambda: _peek(session, pending, execution))
        elif isinstance(result, Exception):
            execution.fail(result)

    execution.cancel = execution.fail
    session.coordinator.run_apart(EvaluateValues(source), evaluated)


def _sums_wide_rows(session: Session, desc: ArrangementDesc, own: tuple[Run, ...]) -> bool:
    """Return whether a read sums the multiplicities of rows of many columns, by all of which it tells them
    apart: 10 µs a column."""
    if len(desc.stored) <= WIDE:
        return False
    snapshot = session.coordinator.state.snapshot(desc.id)
    return bool(own) or snapshot is None or not all(batch.inserts_only for batch in snapshot.oks)


def _peek(session: Session, pending: PendingPeek, execution: Execution) -> None:
    worker = session.coordinator.worker
    response = worker.peek(pending)
    if response is not None:
        pending.respond(response)
    else:
        coordinator = session.coordinator
        pending.asker = Asker(coordinator.new_peek_number(), session.process_id, session.query)
        execution.cancel = lambda error: worker.cancel(pending, error)


def _read_over(
    session: Session, pending: PendingPeek, desc: ArrangementDesc, own: tuple[Run, ...], execution: Execution
) -> None:
    """Read with the transaction's own writes laid over the snapshot, arranged like what is read."""
    new = [run for run in own if desc.id not in run.arranged]
    job = ArrangeRuns(desc, tuple(run.updates for run in new))

    def go_on(arranged: tuple[Arranged, ...]) -> None:
        for run, found in zip(new, arranged, strict=True):
            run.arranged[desc.id] = found
        pending.overlay = overlay(own, desc)
        _peek(session, pending, execution)

    def arrived(result: object) -> None:
        if isinstance(result, tuple):
            execution.attempt(lambda: go_on(result))
        elif isinstance(result, Exception):
            execution.fail(result)

    if len(desc.stored) <= WIDE and sum(map(len, new)) * len(desc.stored) < _LARGE_OVERLAY:
        go_on(job(HEAP))
    else:
        execution.cancel = execution.fail
        session.coordinator.hold_reads(session.open_transaction(), pending.spec.timestamp)
        session.coordinator.run_apart(job, arrived)
