"""SET, SHOW, ALTER SYSTEM, EXPLAIN and DISCARD: statements about the server and the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from layby.adapter.analyze import analyze
from layby.adapter.execution import Execution
from layby.adapter.outcome import CommandOutcome, EncoderFor, ResultDesc, RowsOutcome
from layby.adapter.variables import MODES, VARIABLES
from layby.config import PARAMETERS
from layby.errors import SqlError
from layby.sql.explain import explain as explain_lines
from layby.sql.params import BoundParams
from layby.sql.plan import DiscardPlan, ExplainPlan, SetPlan, ShowPlan
from layby.types.column import column_from_values
from layby.types.relation import ColumnDesc
from layby.types.scalar import TEXT

if TYPE_CHECKING:
    from layby.adapter.session import Session


def show(session: Session, plan: ShowPlan, encoder_for: EncoderFor, execution: Execution) -> None:
    """Run SHOW name or SHOW ALL."""
    parameters = session.coordinator.parameters
    if plan.name is None:
        desc = tuple(ColumnDesc(name, TEXT) for name in ("name", "setting", "description"))
        rows = [(v.shown, session.variables.get(n) or "", v.description) for n, v in VARIABLES.items()]
        rows += [(n, parameters.show(n), p.description) for n, p in PARAMETERS.items()]
        _answer(desc, sorted(rows, key=lambda row: row[0].lower()), "SHOW", encoder_for, execution)
        return
    name = plan.name.lower()
    value = session.variables.get(name)
    if value is None:
        value = parameters.show(name)
    shown = VARIABLES[name].shown if name in VARIABLES else name
    _answer((ColumnDesc(shown, TEXT),), [(value,)], "SHOW", encoder_for, execution)


def set_parameter(session: Session, plan: SetPlan, execution: Execution) -> None:
    """Run SET, RESET, ALTER SYSTEM SET and ALTER SYSTEM RESET."""
    parameters, name = session.coordinator.parameters, plan.name
    if plan.system:
        _alter_system(session, plan)
        execution.finish(CommandOutcome("ALTER SYSTEM"))
        return
    tag = "RESET" if plan.value is None else "SET"
    session.block.open()
    if name is None:
        session.variables.reset_all()
    elif name.lower() in VARIABLES:
        if plan.local and not session.block.explicit:
            command = "SET TRANSACTION" if name.lower() in MODES else "SET LOCAL"
            session.notice(f"{command} can only be used in transaction blocks", "25P01", "WARNING")
        local = plan.local or name.lower() in MODES
        session.variables.set(name.lower(), plan.value, local=local)
    elif name.lower() in PARAMETERS:
        parameters.get(name.lower())
        raise SqlError(
            "55P02",
            f'parameter "{name}" cannot be changed in a session',
            hint=f"Use ALTER SYSTEM SET {name} = ...",
        )
    else:
        raise SqlError("42704", f'unrecognized configuration parameter "{name}"')
    execution.finish(CommandOutcome(tag))


def _alter_system(session: Session, plan: SetPlan) -> None:
    parameters, name = session.coordinator.parameters, plan.name
    if session.block.explicit:
        raise SqlError("25001", "ALTER SYSTEM cannot run inside a transaction block")
    if name is not None and name.lower() in VARIABLES:
        raise SqlError("55P02", f'parameter "{name}" is not a system parameter', hint=f"Use SET {name} = ...")
    if plan.value is None:
        parameters.reset(None if name is None else name.lower())
    elif name is not None:
        parameters.set(name.lower(), plan.value)


def explain(
    session: Session, plan: ExplainPlan, params: BoundParams, encoder_for: EncoderFor, execution: Execution
) -> None:
    """Run EXPLAIN and EXPLAIN ANALYZE."""

    def answer(lines: Sequence[str]) -> None:
        rows = [(line,) for line in lines]
        _answer((ColumnDesc("QUERY PLAN", TEXT),), rows, "EXPLAIN", encoder_for, execution)

    if plan.analyze:
        analyze(session, plan, params, encoder_for, execution, answer)
    else:
        answer(explain_lines(plan))


def discard(session: Session, plan: DiscardPlan, execution: Execution) -> None:
    """Run DISCARD, DEALLOCATE, CLOSE ALL and UNLISTEN; `plan.kind` is the command tag."""
    kind = plan.kind
    if kind.startswith("DEALLOCATE"):
        session.prepared.discard_statements(plan.name)
    elif kind.startswith("CLOSE"):
        session.prepared.portals.clear()
    elif kind == "DISCARD ALL":
        if session.block.explicit:
            raise SqlError("25001", "DISCARD ALL cannot run inside a transaction block")
        session.prepared.discard_statements()
        session.prepared.portals.clear()
        session.variables.reset_all()
    execution.finish(CommandOutcome(kind))


def _answer(
    desc: ResultDesc, rows: Sequence[Sequence[str]], tag: str, encoder_for: EncoderFor, execution: Execution
) -> None:
    columns = tuple(column_from_values(TEXT, [row[i] for row in rows]) for i in range(len(desc)))
    encoded = encoder_for(desc)(columns, len(rows))
    execution.finish(RowsOutcome(desc, tag, len(rows), encoded, columns))
