"""Sessions: what one client is and has under way, whatever protocol it speaks."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from layby.adapter import ddl, dml, settings, signals
from layby.adapter.execution import Execution
from layby.adapter.literals import ShapedStatement
from layby.adapter.long_texts import (
    LONGEST_AT_ONCE,
    LongScript,
    ScriptPart,
    known_plan,
    moved,
    plan_apart,
    split_apart,
)
from layby.adapter.outcome import CommandOutcome, EncoderFor, FailureOutcome, Notice, OnOutcome, Outcome
from layby.adapter.prepared import Portal, PreparedStatements
from layby.adapter.reads import select
from layby.adapter.runner import StatementRunner
from layby.adapter.transaction_block import TransactionBlock
from layby.adapter.variables import VARIABLES, SessionVariables
from layby.errors import SqlError
from layby.peek.answer import RowEncoder, Stashed
from layby.peek.stash import StashReader
from layby.sql.context import TooLongError
from layby.sql.params import BoundParams
from layby.sql.parse import ParsedStatement
from layby.sql.plan import (
    CopyPlan,
    CreateIndexPlan,
    CreateTablePlan,
    DeletePlan,
    DiscardPlan,
    DropPlan,
    ExplainPlan,
    InsertPlan,
    Plan,
    PlannedStatement,
    SelectPlan,
    SetPlan,
    ShowPlan,
    TransactionPlan,
    UpdatePlan,
)
from layby.sql.statement_text import StatementText, shown
from layby.types.scalar import PhysicalValue

if TYPE_CHECKING:
    from layby.adapter.coordinator import Coordinator

log = logging.getLogger("layby.session")


Script = deque[ParsedStatement | ShapedStatement] | deque[ScriptPart] | LongScript
"""The statements of a simple query that have not been run."""


class Session:
    """One client's session. All calls are made on the serving loop.

    `execute_...` and `sync` return the outcome, or None and call back later, once.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        process_id: int,
        secret_key: int,
        user: str,
        parameters: dict[str, str],
    ) -> None:
        """Open a session; `parameters` are those of the client's startup message."""
        self.coordinator = coordinator
        self.process_id = process_id
        self.secret_key = secret_key
        self.user = user
        self.variables = SessionVariables()
        portals: dict[str, Portal] = {}
        self.block = TransactionBlock(coordinator, process_id, self.variables, portals.clear)
        self._runner = StatementRunner(self.block, self.variables)
        self.prepared = PreparedStatements(self.block, self._runner, portals)
        self.notices: list[Notice] = []
        self.query = ""
        """The text of the statement under way, or of the last one."""
        self.on_terminated: Callable[[SqlError], None] | None = None
        """What ends the client's connection with an error; None for a session that has none."""
        self._readers: dict[StashReader, None] = {}
        """Of the stashed answers that the client has not had to their end."""
        for name, value in parameters.items():
            if name.lower() in VARIABLES:
                try:
                    self.variables.start_with(name.lower(), value)
                except SqlError as error:
                    # Drivers send settings of their machine (a time zone, say) unasked; refusing the
                    # connection for one would lock them out.
                    self.notices.append(Notice("WARNING", error.sqlstate, error.message, error.detail))

    # What a client is told

    @property
    def status(self) -> bytes:
        """`I` outside a transaction block, `T` in one, `E` in a failed one."""
        transaction = self.block.transaction
        if transaction is None or not transaction.explicit:
            return b"I"
        return b"E" if transaction.failed else b"T"

    def reported_parameters(self) -> dict[str, str]:
        """Return the parameters that a client is told at its start."""
        return {**self.variables.reported(), "session_authorization": self.user}

    def take_notices(self) -> list[Notice]:
        """Return and forget the notices since the last call."""
        if not self.notices:
            return []
        taken, self.notices = self.notices, []
        return taken

    def take_parameter_changes(self) -> list[tuple[str, str]]:
        """Return and forget the reported parameters that changed since the last call."""
        if not self.variables.changes:
            return []
        taken, self.variables.changes = self.variables.changes, {}
        return list(taken.items())

    # Execution

    def parse_script(
        self, sql: StatementText, on_parsed: Callable[[Script | SqlError], None]
    ) -> Script | None:
        """Return the statements of a simple query's text, or for a long one None, and call back later.

        Raises, or calls back with, SqlError 42601.
        """
        if isinstance(sql, str) and len(sql) <= LONGEST_AT_ONCE:
            return deque(self.coordinator.statements.parse_simple(sql))
        known = known_plan(self.block, sql)
        if known is not None:
            return deque([ScriptPart(sql, 0, known, self.coordinator.catalog)])
        self._runner.ask(lambda execution, then: split_apart(self.block, sql, execution, then), on_parsed)
        return None

    def execute_statement(
        self,
        parsed: ParsedStatement | ShapedStatement | ScriptPart,
        encoder_for: EncoderFor,
        on_outcome: OnOutcome,
    ) -> Outcome | None:
        """Run one statement of a script."""
        if isinstance(parsed, ScriptPart):
            return self._execute_part(parsed, encoder_for, on_outcome)
        try:
            self.block.refuse_if_failed(parsed.kind)
            params: tuple[PhysicalValue, ...] = ()
            if isinstance(parsed, ShapedStatement):
                planned, params = self._plan_shaped(parsed)
            else:
                planned = self.coordinator.statements.plan(parsed, self.block.catalog)
        except SqlError as error:
            return self._failed(error)
        except TooLongError:
            return self._execute_apart(parsed, encoder_for, on_outcome)
        self.query = parsed.text
        return self._runner.run(
            lambda execution: self._run_planned(planned, params, encoder_for, execution), on_outcome
        )

    def execute_portal(self, portal: str, encoder_for: EncoderFor, on_outcome: OnOutcome) -> Outcome | None:
        """Run a portal to its end."""
        try:
            found = self.prepared.portal(portal)
            parsed = found.prepared.parsed
            if parsed is None:
                return CommandOutcome("")
            self.block.refuse_if_failed(parsed.kind)
            planned = self.prepared.plan(found.prepared)
        except SqlError as error:
            return self._failed(error)
        self.query = parsed.text

        if planned is None:
            return self._runner.run(
                lambda execution: self.prepared.plan_apart(
                    found.prepared,
                    execution,
                    lambda made: self._dispatch(made.plan, found.params, encoder_for, execution),
                ),
                on_outcome,
            )
        return self._runner.run(
            lambda execution: self._dispatch(planned.plan, found.params, encoder_for, execution), on_outcome
        )

    def sync(self, on_outcome: OnOutcome) -> Outcome | None:
        """End the implicit transaction, if one is open: commit what it wrote."""
        block, transaction = self.block, self.block.transaction
        if transaction is None or not transaction.explicit:
            self.prepared.portals.clear()
        if transaction is None or transaction.explicit:
            return CommandOutcome("")
        return self._runner.run(lambda execution: block.commit(execution, ""), on_outcome)

    def fail(self) -> None:
        """Note that a message failed: an implicit transaction is rolled back, a block has failed."""
        self.block.fail()

    def cancel(self, error: SqlError | None = None) -> None:
        """End what is in flight (57014), an answer on its way from the stash included.

        What cannot be ended any more goes on.
        """
        error = error or SqlError("57014", "canceling statement due to user request")
        if self._runner.cancel(error):
            return
        for reader in list(self._readers):
            if reader.on_cancel is not None:
                reader.on_cancel(error)

    def terminate(self, error: SqlError) -> None:
        """End the session and its client's connection, which is told `error` (57P01)."""
        if self.on_terminated is not None:
            self.on_terminated(error)
        elif self._runner.under_way is not None:
            self._runner.under_way.fail(error)
        self.close()

    def close(self) -> None:
        """End the session: cancel what is in flight and roll back."""
        runner = self._runner
        if runner.closed:
            return
        runner.closed = True
        self.cancel()
        for reader in list(self._readers):
            reader.close()
        if runner.under_way is None or runner.under_way.ended:
            self.block.roll_back()
        # What cannot be ended any more (a commit) goes on, and the transaction ends with it.
        self.coordinator.forget(self)

    # For the modules that run statements

    def open_stashed(self, stashed: Stashed, encoder: RowEncoder | None) -> StashReader:
        """Return the reader of an answer; it is closed with the session at the latest."""
        reader = self.coordinator.open_stashed(stashed, encoder)
        if self._runner.closed:
            reader.close()
        else:
            self._readers[reader] = None
            reader.on_closed = lambda: self._readers.pop(reader, None)
        return reader

    def notice(self, message: str, sqlstate: str = "00000", severity: str = "NOTICE") -> None:
        """Tell the client something beside the answer."""
        self.notices.append(Notice(severity, sqlstate, message))

    # Private

    def _execute_part(
        self, part: ScriptPart, encoder_for: EncoderFor, on_outcome: OnOutcome
    ) -> Outcome | None:
        """Run one statement of a long script."""
        coordinator = self.coordinator
        if isinstance(part.text, str) and len(part.text) <= LONGEST_AT_ONCE:

            def placed(outcome: Outcome) -> Outcome:
                if isinstance(outcome, FailureOutcome):
                    moved(outcome.error, part.offset)
                return outcome

            try:
                (parsed,) = coordinator.statements.parse_simple(part.text)
            except SqlError as error:
                return placed(self._failed(error))
            outcome = self.execute_statement(parsed, encoder_for, lambda o: on_outcome(placed(o)))
            return None if outcome is None else placed(outcome)
        ready = part.planned
        if ready is None or part.base is not coordinator.catalog:
            return self._execute_long(part.text, part.offset, encoder_for, on_outcome)
        self.query = shown(part.text)
        return self._runner.run(
            lambda execution: self._run_planned(ready, (), encoder_for, execution), on_outcome
        )

    def _execute_apart(
        self,
        parsed: ParsedStatement | ShapedStatement,
        encoder_for: EncoderFor,
        on_outcome: OnOutcome,
    ) -> Outcome | None:
        """Run a statement whose plan takes long to make."""
        if isinstance(parsed, ParsedStatement):
            return self._execute_long(parsed.text, parsed.offset, encoder_for, on_outcome)
        shaped, shape = parsed, parsed.shape.parsed

        def begin(execution: Execution) -> None:
            def planned(_kind: str, found: PlannedStatement | None) -> None:
                assert found is not None
                params = shaped.values(found)
                if params is None:
                    as_written()
                else:
                    self._run_planned(found, params, encoder_for, execution)

            def as_written() -> None:
                self._plan_long(shaped.text, 0, encoder_for, execution)

            plan_apart(self.block, shape.text, shaped.types, execution, planned, refused=as_written)

        self.query = shaped.text
        return self._runner.run(begin, on_outcome)

    def _execute_long(
        self, text: StatementText, offset: int, encoder_for: EncoderFor, on_outcome: OnOutcome
    ) -> Outcome | None:
        """Run a statement that is planned apart; `offset` are the characters of its script before it."""
        self.query = shown(text)
        return self._runner.run(
            lambda execution: self._plan_long(text, offset, encoder_for, execution), on_outcome
        )

    def _plan_long(
        self, text: StatementText, offset: int, encoder_for: EncoderFor, execution: Execution
    ) -> None:
        def planned(_kind: str, found: PlannedStatement | None) -> None:
            if found is not None:
                self._run_planned(found, (), encoder_for, execution)

        plan_apart(self.block, text, (), execution, planned, offset)

    def _run_planned(
        self, planned: PlannedStatement, params: BoundParams, encoder_for: EncoderFor, execution: Execution
    ) -> None:
        if len(planned.params) != len(params):
            raise SqlError("42P02", "there is no parameter $1")
        self._dispatch(planned.plan, params, encoder_for, execution)

    def _plan_shaped(self, shaped: ShapedStatement) -> tuple[PlannedStatement, tuple[PhysicalValue, ...]]:
        """Return the plan of a statement's shape and its literals, or the plan of its text and none."""
        statements = self.coordinator.statements
        catalog = self.block.catalog
        try:
            planned = statements.plan(shaped.shape.parsed, catalog, shaped.types)
            params = shaped.values(planned)
            if params is not None:
                return planned, params
        except SqlError as error:
            log.debug("told again in terms of the statement's own text: %s", error)
        return statements.plan(statements.parse(shaped.text)[0], catalog), ()

    def _dispatch(
        self, plan: Plan, params: BoundParams, encoder_for: EncoderFor, execution: Execution
    ) -> None:
        if isinstance(plan, SelectPlan):
            run = signals.select if plan.signals else select
            run(self, plan, params, encoder_for, execution)
            return
        written = _written_by(plan)
        if written is not None:
            self.block.open()
            if self.variables.get("transaction_read_only") == "on":
                raise SqlError("25006", f"cannot execute {written} in a read-only transaction")
        match plan:
            case InsertPlan() | UpdatePlan() | DeletePlan():
                dml.run(self, plan, params, execution)
            case CopyPlan():
                dml.copy(self, plan, encoder_for, execution)
            case CreateTablePlan():
                ddl.create_table(self, plan, execution)
            case CreateIndexPlan():
                ddl.create_index(self, plan, execution)
            case DropPlan():
                ddl.drop(self, plan, execution)
            case ExplainPlan():
                settings.explain(self, plan, params, encoder_for, execution)
            case ShowPlan():
                settings.show(self, plan, encoder_for, execution)
            case SetPlan():
                settings.set_parameter(self, plan, execution)
            case TransactionPlan():
                self.block.run(plan, execution, self.notice)
            case DiscardPlan():
                settings.discard(self, plan, execution)

    def _failed(self, error: SqlError) -> Outcome:
        self.fail()
        return FailureOutcome(error)


def _written_by(plan: Plan) -> str | None:
    """Return how a statement that writes is named, None for one that only reads."""
    match plan:
        case InsertPlan():
            return "INSERT"
        case UpdatePlan():
            return "UPDATE"
        case DeletePlan():
            return "DELETE"
        case CopyPlan(select=None):
            return "COPY FROM"
        case CreateTablePlan():
            return "CREATE TABLE"
        case CreateIndexPlan():
            return "CREATE INDEX"
        case DropPlan(kind=kind):
            return f"DROP {kind.upper()}"
    return None
