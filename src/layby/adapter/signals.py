"""Signals: pg_cancel_backend and pg_terminate_backend.

They are result columns whose read gives process ids. Once the answer is there each is acted on, row by row,
and gives way to whether that was done, so that `SELECT pg_cancel_backend(session) FROM layby_active_peeks
WHERE age > 10` does what it says, and a row that a WHERE or LIMIT leaves out is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layby.adapter.execution import Execution
from layby.adapter.outcome import EncoderFor, RowsOutcome
from layby.adapter.reads import read
from layby.compute.worker import query_cancelled
from layby.errors import InternalError, SqlError
from layby.peek.answer import Failed, PeekResponse, Rows
from layby.sql.params import BoundParams
from layby.sql.plan import SelectPlan
from layby.types.column import Column, column_from_values
from layby.types.scalar import BOOLEAN, PhysicalValue

if TYPE_CHECKING:
    from layby.adapter.session import Session


def select(
    session: Session, plan: SelectPlan, params: BoundParams, encoder_for: EncoderFor, execution: Execution
) -> None:
    """Run a select that has signals among its columns."""

    def answered(response: PeekResponse) -> None:
        if isinstance(response, Failed):
            execution.fail(response.error)
        elif isinstance(response, Rows):
            execution.attempt(lambda: _act(session, plan, response, encoder_for, execution))
        else:
            execution.fail(InternalError("process ids came to an answer in the stash"))

    read(session, plan, params, None, execution, answered)


def _act(
    session: Session, plan: SelectPlan, rows: Rows, encoder_for: EncoderFor, execution: Execution
) -> None:
    columns: list[Column] = list(rows.columns)
    if rows.count:
        # Row by row, and within a row from the left, as the calls stand.
        kinds = [signal.kind for signal in plan.signals]
        asked = list(zip(*(columns[signal.column].to_list() for signal in plan.signals), strict=True))
        done = [[_signal(session, kind, pid) for kind, pid in zip(kinds, row, strict=True)] for row in asked]
        for at, signal in enumerate(plan.signals):
            columns[signal.column] = column_from_values(BOOLEAN, [row[at] for row in done])
        own = [
            kind for row in asked for kind, pid in zip(kinds, row, strict=True) if pid == session.process_id
        ]
        if "terminate" in own:
            return  # the statement ends with its session
        if own:
            raise query_cancelled()
    encoded = encoder_for(plan.columns)(columns, rows.count)
    execution.finish(RowsOutcome(plan.columns, f"SELECT {rows.count}", rows.count, encoded, tuple(columns)))


def _signal(session: Session, kind: str, process_id: PhysicalValue) -> bool | None:
    """Act on the session of a process id; return whether there is one, None for a NULL."""
    if process_id is None:
        return None
    coordinator = session.coordinator
    target = coordinator.session(int(process_id))
    if target is None:
        session.notice(f"PID {process_id} is not a PostgreSQL backend process", "01000", "WARNING")
        return False
    if kind == "terminate":
        # In a turn of its own: it may be the very session that asks, in the middle of its statement.
        coordinator.loop.call_soon(lambda: target.terminate(terminated()))
    else:
        target.cancel()
    return True


def terminated() -> SqlError:
    """Return the error of a session that an administrator ends."""
    return SqlError("57P01", "terminating connection due to administrator command")
