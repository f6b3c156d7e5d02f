"""INSERT, UPDATE, DELETE and COPY: rows read or received become updates that the transaction keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from layby.adapter.copy_format import header_line
from layby.adapter.copy_in import CopyIn
from layby.adapter.execution import Execution
from layby.adapter.jobs import InsertValues, MakeUpdates, WriteTogether
from layby.adapter.outcome import CommandOutcome, CopyInOutcome, CopyOutOutcome, EncoderFor
from layby.adapter.reads import instantiation, read
from layby.compute.arrangement import Updates
from layby.errors import InternalError, SqlError
from layby.memory.arena import HEAP
from layby.peek.answer import EncodedRows, Failed, PeekResponse, Rows, Stashed
from layby.sql.params import BoundParams
from layby.sql.plan import ColumnsSource, CopyPlan, DeletePlan, InsertPlan, UpdatePlan
from layby.types.relation import WIDE

if TYPE_CHECKING:
    from layby.adapter.session import Session

_LARGE = 4_096
_LARGE_BYTES = 1 << 18
"""Rows, and bytes of them, from which on a statement's rows are checked away from the loop."""


def run(
    session: Session, plan: InsertPlan | UpdatePlan | DeletePlan, params: BoundParams, execution: Execution
) -> None:
    """Run a statement that writes; its rows are kept until the transaction commits."""
    transaction = session.block.open()
    table = plan.table

    def go_on() -> None:
        source = plan.select.source
        wide = len(table.desc.columns) > WIDE
        if wide and isinstance(plan, InsertPlan) and isinstance(source, ColumnsSource):
            # The rows that it writes out may be all that it does: then there is nothing to read.
            job = InsertValues(table, instantiation(session, plan.select, params))
            _keep_apart(session, job, f"INSERT 0 {source.count}", execution, otherwise=read_rows)
        else:
            read_rows()

    def read_rows() -> None:
        read(session, plan.select, params, None, execution, answered)

    def answered(response: PeekResponse) -> None:
        if isinstance(response, Failed):
            execution.fail(response.error)
        elif isinstance(response, Stashed):
            execution.fail(InternalError("a write came to rows in the stash"))
        else:
            execution.attempt(lambda: _keep(session, plan, response, execution))

    if isinstance(plan, InsertPlan):
        go_on()
        return

    def locked() -> None:
        snapshot = transaction.snapshot
        if snapshot is not None and session.coordinator.last_write.get(table.id, 0) > snapshot:
            raise SqlError("40001", "could not serialize access due to concurrent update")
        go_on()

    session.block.lock_tables((table.id,), execution, locked)


def _keep(
    session: Session, plan: InsertPlan | UpdatePlan | DeletePlan, rows: Rows, execution: Execution
) -> None:
    """Turn the rows of a statement's read into updates, checked, and keep them."""
    table, count = plan.table, rows.count
    arity = len(table.desc.columns)
    columns = rows.columns
    match plan:
        case InsertPlan():
            job = MakeUpdates(table, None, columns, count)
        case DeletePlan():
            job = MakeUpdates(table, columns, None, count)
        case UpdatePlan():
            job = MakeUpdates(table, columns[:arity], columns[arity:], count)
    verb = {InsertPlan: "INSERT 0", UpdatePlan: "UPDATE", DeletePlan: "DELETE"}[type(plan)]
    tag = f"{verb} {count}"
    if not count:
        execution.finish(CommandOutcome(tag))
        return
    if count < _LARGE and arity <= WIDE and sum(column.nbytes for column in columns) < _LARGE_BYTES:
        session.block.open().write(table.id, job(HEAP))
        execution.finish(CommandOutcome(tag))
    else:
        _keep_apart(session, job, tag, execution)


def _keep_apart(
    session: Session,
    job: MakeUpdates | InsertValues,
    tag: str,
    execution: Execution,
    otherwise: Callable[[], None] | None = None,
) -> None:
    """Make and check many rows away from the loop, then keep them; `otherwise` is how to go on where the job
    does not make them."""
    transaction = session.block.open()
    due = transaction.due(job.table.id)
    work = WriteTogether(job, tuple(run.updates for run in due)) if due else job

    def made(updates: Updates | None) -> None:
        if updates is not None:
            transaction.write(job.table.id, updates, due)
            execution.finish(CommandOutcome(tag))
        elif otherwise is not None:
            otherwise()

    session.coordinator.run_part(execution, work, made)


def copy(session: Session, plan: CopyPlan, encoder_for: EncoderFor, execution: Execution) -> None:
    """Run COPY: a sink for the client's lines, or the lines of a table or query."""
    select = plan.select
    if select is None:
        _copy_in(session, plan, execution)
        return
    encoder = encoder_for(select.columns, plan.options)
    header = header_line([c.name for c in select.columns], plan.options) if plan.options.header else b""

    def answered(response: PeekResponse) -> None:
        if isinstance(response, Failed):
            execution.fail(response.error)
            return
        tag, width = f"COPY {response.count}", len(select.columns)
        if isinstance(response, Stashed):
            reader = session.open_stashed(response, encoder)
            execution.finish(CopyOutOutcome(tag, width, EncodedRows(b"", (), 0), header, reader))
        elif response.encoded is None:
            execution.fail(InternalError("COPY came to rows that are not encoded"))
        else:
            execution.finish(CopyOutOutcome(tag, width, response.encoded, header))

    read(session, select, (), encoder, execution, answered, takes_stashed=True)


def _copy_in(session: Session, plan: CopyPlan, execution: Execution) -> None:
    transaction, table = session.block.open(), plan.table
    if table is None:
        raise InternalError("COPY FROM names no table")

    def received(updates: Updates) -> None:
        transaction.write(table.id, updates)
        execution.finish(CommandOutcome(f"COPY {len(updates.diffs)}"))

    sink = CopyIn(session, table, plan, received, execution.fail)
    outcome = CopyInOutcome(len(plan.columns), sink)
    # The sink's own outcome follows later, by the same callback; so this one does not end the execution.
    execution.cancel = sink.abort
    execution.announce(outcome)
