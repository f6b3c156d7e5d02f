"""Reads: from a select plan to a peek of the serving worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from layby.adapter.environment import Environment
from layby.adapter.execution import Execution
from layby.adapter.jobs import ArrangeRuns, Instantiate
from layby.adapter.outcome import EncoderFor, RowsOutcome
from layby.adapter.own_writes import OwnWrites, overlay
from layby.compute.arrangement import Arranged, ArrangementDesc, Updates
from layby.expr.packed import PackedMfp
from layby.memory.arena import HEAP
from layby.peek.answer import Failed, PeekResponse, RowEncoder, Rows
from layby.peek.pending import Asker, PendingPeek
from layby.peek.profile import PeekProfile
from layby.peek.spec import PeekSpec
from layby.sql.apart import Instantiated, session_names
from layby.sql.instantiate import instantiate, instantiate_source, recipe
from layby.sql.params import MANY, BoundParams, PackedParams
from layby.sql.plan import (
    ColumnsSource,
    PackedRecipe,
    SelectPlan,
    SeriesSource,
    TableSource,
    ValuesSource,
)
from layby.trace.batch import Batch
from layby.trace.series import constant_batch, series_batch
from layby.types.column import Column
from layby.types.relation import WIDE

if TYPE_CHECKING:
    from layby.adapter.session import Session

_LARGE_OVERLAY = 4_096
_LARGE_OVERLAY_BYTES = 1 << 18
"""Values of a transaction's own writes, and bytes of them, from which on they are arranged away from the
loop: 0.3 ms."""


def select(
    session: Session, plan: SelectPlan, params: BoundParams, encoder_for: EncoderFor, execution: Execution
) -> None:
    """Run a SELECT."""
    desc = plan.columns
    encoder = encoder_for(desc)

    def answered(response: PeekResponse) -> None:
        if isinstance(response, Failed):
            execution.fail(response.error)
            return
        count = response.count
        tag = f"SELECT {count}"
        if isinstance(response, Rows):
            execution.finish(RowsOutcome(desc, tag, count, response.encoded, response.columns))
        else:
            reader = session.open_stashed(response, encoder)
            execution.finish(RowsOutcome(desc, tag, count, None, stash=reader))

    read(session, plan, params, encoder, execution, answered, takes_stashed=True)


def read(
    session: Session,
    plan: SelectPlan,
    params: BoundParams,
    encoder: RowEncoder | None,
    execution: Execution,
    then: Callable[[PeekResponse], None],
    *,
    takes_stashed: bool = False,
    profile: PeekProfile | None = None,
    made: Instantiated | None = None,
) -> None:
    """Run a select plan; `then` gets its answer, maybe before this returns. Raises SqlError.

    The answer is `Stashed` only where `takes_stashed` says that `then` can do with that. `profile` is filled
    in before `then` is called. `made` is what the plan and its parameters came to, where that is known.
    """
    source = plan.source
    if made is not None:
        ready, values = made.ready, made.values
        inline = not (plan.is_heavy or made.is_large or isinstance(ready.mfp, PackedMfp))
    elif (
        isinstance(params, PackedParams)
        or len(params) > MANY
        or plan.recipe is not None
        or (isinstance(source, ValuesSource) and plan.has_heavy_values)
    ):
        go_on = partial(read, session, plan, params, encoder, execution, then)
        go_on = partial(go_on, takes_stashed=takes_stashed, profile=profile)
        _instantiate_apart(session, plan, params, execution, go_on)
        return
    else:
        environment = Environment(session)
        ready = instantiate(plan, params, environment)
        values = None if isinstance(source, TableSource) else instantiate_source(source, params, environment)
        inline = not plan.is_heavy
    coordinator = session.coordinator
    target: int | tuple[Batch, ...]
    timestamp = coordinator.state.upper - 1
    own: OwnWrites | None = None
    desc: ArrangementDesc | None = None
    if isinstance(source, TableSource):
        table = source.table
        name = table.name if source.index is None else source.index.name
        if table.rows is not None:
            target = (constant_batch(table.rows(), table.desc.types),)
        else:
            transaction = session.block.transaction
            desc = coordinator.arrangement(table, source.index)
            target = desc.id
            if transaction is not None:
                timestamp = coordinator.read_time(transaction)
                own = transaction.writes.get(table.id)
    elif isinstance(source, SeriesSource):
        name = "generate_series"
        start, stop, step = cast("tuple[int, int, int]", values)
        target = (series_batch(start, stop, step, source.type),)
    else:
        name = "values"
        count = source.count if isinstance(source, ColumnsSource) else len(source.rows)
        target = (constant_batch(cast("tuple[Column, ...]", values), source.types, count),)
    spec = PeekSpec(
        name, timestamp, ready.constraints, ready.reverse, ready.ordered, ready.mfp, ready.finishing
    )
    pending = PendingPeek(spec, target, encoder, then, takes_stashed=takes_stashed)
    pending.inline = inline and (desc is None or not _sums_wide_rows(session, desc, own))
    pending.profile = profile
    if own is not None and desc is not None:
        _read_over(session, pending, desc, own, execution)
    else:
        _peek(session, pending, execution)


def instantiation(session: Session, plan: SelectPlan, params: BoundParams) -> Instantiate:
    """Return the job that puts an execution's values into a plan."""
    made = plan.recipe or recipe(plan)
    names = made.names if isinstance(made, PackedRecipe) else session_names(made)
    environment = Environment(session)
    return Instantiate(made, params, {name: environment[name] for name in names})


def _instantiate_apart(
    session: Session, plan: SelectPlan, params: BoundParams, execution: Execution, go_on: Callable[..., None]
) -> None:
    """Have an execution's values put into a plan away from the loop, and `go_on` with what is `made`."""

    job = instantiation(session, plan, params)
    session.coordinator.run_part(execution, job, lambda made: go_on(made=made))


def _sums_wide_rows(session: Session, desc: ArrangementDesc, own: OwnWrites | None) -> bool:
    """Return whether a read sums the multiplicities of rows of many columns, by all of which it tells them
    apart: 10 µs a column."""
    if len(desc.stored) <= WIDE:
        return False
    snapshot = session.coordinator.state.snapshot(desc.id)
    return own is not None or snapshot is None or not all(batch.inserts_only for batch in snapshot.oks)


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
    session: Session, pending: PendingPeek, desc: ArrangementDesc, own: OwnWrites, execution: Execution
) -> None:
    """Read with the transaction's own writes laid over the snapshot, arranged like what is read."""
    groups = own.to_arrange(desc.id)
    job = ArrangeRuns(desc, tuple(tuple(run.updates for run in group) for group in groups))

    def go_on(made: tuple[tuple[Updates | None, Arranged], ...]) -> None:
        for group, (updates, arranged) in zip(groups, made, strict=True):
            own.arranged(group, updates, desc.id, arranged)
        pending.overlay = overlay(own.runs(), desc)
        _peek(session, pending, execution)

    new = [run for group in groups for run in group]
    values, nbytes = sum(map(len, new)) * len(desc.stored), sum(run.nbytes for run in new)
    if len(desc.stored) <= WIDE and values < _LARGE_OVERLAY and nbytes < _LARGE_OVERLAY_BYTES:
        go_on(job(HEAP))
    else:
        session.coordinator.hold_reads(session.block.open(), pending.spec.timestamp)
        session.coordinator.run_part(execution, job, go_on)
