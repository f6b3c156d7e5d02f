"""Sessions: prepared statements, portals and the transaction of one client, whatever protocol it speaks."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from layby.adapter import ddl, dml, settings, signals
from layby.adapter.execution import Execution
from layby.adapter.literals import ShapedStatement, suits
from layby.adapter.locks import LockMode
from layby.adapter.long_texts import (
    LONGEST_AT_ONCE,
    LongScript,
    LongStatement,
    ScriptPart,
    in_failed_block,
    moved,
    plan_apart,
    split_apart,
)
from layby.adapter.outcome import (
    CommandOutcome,
    EncoderFor,
    FailureOutcome,
    Outcome,
    ResultDesc,
    RowsOutcome,
)
from layby.adapter.reads import read
from layby.adapter.transaction import Transaction
from layby.adapter.variables import MODES, VARIABLES, SessionVariables, milliseconds
from layby.compute.runtime import Job
from layby.errors import SqlError
from layby.peek.answer import Failed, PeekResponse, RowEncoder, Rows, Stashed
from layby.peek.stash import StashReader
from layby.sql.context import TooLongError
from layby.sql.params import MANY, BoundParams, PackedParams
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
from layby.types.scalar import BY_OID, UNKNOWN, PhysicalValue, SqlType
from layby.types.type_list import TypeList

if TYPE_CHECKING:
    from layby.adapter.coordinator import Coordinator

log = logging.getLogger("layby.session")


@dataclass(frozen=True, slots=True)
class Notice:
    """A message beside the answer."""

    severity: str
    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None


class Script(Protocol):
    """The statements of a simple query that have not been run."""

    def __len__(self) -> int: ...

    def popleft(self) -> ParsedStatement | ShapedStatement | ScriptPart:
        """Take the next off."""

    def clear(self) -> None:
        """Run no more."""


class ReadBind(NamedTuple):
    """What a Bind that is read apart comes to: its parameters and its result formats."""

    params: PackedParams
    formats: tuple[int, ...]


@dataclass(slots=True)
class _Prepared:
    """A prepared statement; `parsed` is None for an empty text. `planned` may be of an older catalog."""

    parsed: ParsedStatement | LongStatement | None
    param_types: Sequence[SqlType | None]
    planned: PlannedStatement | None


@dataclass(slots=True)
class _Portal:
    prepared: _Prepared
    params: BoundParams


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
        self.transaction: Transaction | None = None
        self.notices: list[Notice] = []
        self.query = ""
        """The text of the statement under way, or of the last one."""
        self.on_terminated: Callable[[SqlError], None] | None = None
        """What ends the client's connection with an error; None for a session that has none."""
        self._prepared: dict[str, _Prepared] = {}
        self._portals: dict[str, _Portal] = {}
        self._execution: Execution | None = None
        self._readers: dict[StashReader, None] = {}
        """Of the stashed answers that the client has not had to their end."""
        self._closed = False
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
        transaction = self.transaction
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

    # Statements and portals

    def parse_script(
        self, sql: StatementText, on_parsed: Callable[[Script | SqlError], None]
    ) -> Script | None:
        """Return the statements of a simple query's text, or for a long one None, and call back later.

        Raises, or calls back with, SqlError 42601.
        """
        statements = self.coordinator.statements
        if isinstance(sql, str) and len(sql) <= LONGEST_AT_ONCE:
            return deque(statements.parse_simple(sql))
        known = self._known(sql)
        if known is not None:
            return deque([ScriptPart(sql, 0, known, self.coordinator.catalog)])

        def ended(outcome: Outcome) -> None:
            on_parsed(outcome.error if isinstance(outcome, FailureOutcome) else parts[0])

        def split(script: LongScript) -> None:
            parts.append(script)
            execution.finish(CommandOutcome(""))

        parts: list[LongScript] = []
        execution = self._begin_execution(ended)
        execution.attempt(lambda: split_apart(self, sql, execution, split))
        outcome = self._deferred(execution)
        if isinstance(outcome, FailureOutcome):
            raise outcome.error
        return None

    def prepare(
        self,
        name: str,
        sql: StatementText,
        param_oids: Sequence[int] | NDArray[np.uint32],
        on_prepared: Callable[[SqlError | None], None],
    ) -> bool:
        """Make a prepared statement of one statement's text; raises what parsing and planning raise.

        Returns False for a long text or many types, and calls back later, with what was raised.
        """
        if name and name in self._prepared:
            raise SqlError("42P05", f'prepared statement "{name}" already exists')
        self._prepared.pop(name, None)
        types = _parameter_types(param_oids)
        if not isinstance(sql, str) or len(sql) > LONGEST_AT_ONCE or len(types) > MANY:
            known = self._known(sql, types)
            if known is None:
                self._prepare_apart(name, sql, types, on_prepared)
                return False
            self._prepared[name] = _Prepared(LongStatement(sql, _kind(known)), types, known)
            return True
        statements = self.coordinator.statements.parse(sql)
        if len(statements) > 1:
            raise SqlError("42601", "cannot insert multiple commands into a prepared statement")
        prepared = _Prepared(statements[0] if statements else None, types, None)
        if statements:
            (parsed,) = statements
            self._refuse_in_failed_block(parsed)
            try:
                prepared.planned = self.coordinator.statements.plan(
                    parsed, self.coordinator.catalog_for(self.transaction), types
                )
            except TooLongError:
                self._prepare_apart(name, parsed.text, types, on_prepared, parsed.offset)
                return False
        self._prepared[name] = prepared
        return True

    def describe_statement(self, name: str) -> tuple[Sequence[SqlType], ResultDesc | None]:
        """Return a statement's parameter types and result columns; raises SqlError 26000."""
        planned = self._planned(self._statement(name))
        return ((), None) if planned is None else (planned.params, planned.columns)

    def bind(self, portal: str, statement: str, params: BoundParams) -> None:
        """Make a portal; raises SqlError 26000, 42P03, or 08P01 for a wrong number of parameters."""
        prepared = self._statement(statement)
        expected = 0 if prepared.planned is None else len(prepared.planned.params)
        if len(params) != expected:
            raise SqlError(
                "08P01",
                f"bind message supplies {len(params)} parameters, but prepared statement "
                f'"{statement}" requires {expected}',
            )
        if portal and portal in self._portals:
            raise SqlError("42P03", f'cursor "{portal}" already exists')
        self._portals[portal] = _Portal(prepared, params)

    def bind_apart(
        self, portal: str, statement: str, job: Job, on_bound: Callable[[tuple[int, ...] | SqlError], None]
    ) -> None:
        """Make a portal of parameters that are read apart: `job` comes to a `ReadBind`, or raises.

        Calls back later, once, with the Bind's result formats, or what was raised there or by `bind`.
        """

        def ended(outcome: Outcome) -> None:
            on_bound(outcome.error if isinstance(outcome, FailureOutcome) else formats[0])

        def read(result: Any) -> None:
            if not isinstance(result, ReadBind):
                raise result
            self.bind(portal, statement, result.params)
            formats.append(result.formats)
            execution.finish(CommandOutcome(""))

        formats: list[tuple[int, ...]] = []
        execution = self._begin_execution(ended)
        execution.cancel = execution.fail
        self.coordinator.run_apart(job, lambda result: execution.attempt(lambda: read(result)))
        outcome = self._deferred(execution)
        if isinstance(outcome, FailureOutcome):
            raise outcome.error

    def describe_portal(self, portal: str) -> ResultDesc | None:
        """Return a portal's result columns; raises SqlError 34000."""
        planned = self._planned(self._portal(portal).prepared)
        return None if planned is None else planned.columns

    def close_statement(self, name: str) -> None:
        """Drop a prepared statement, if there is one of that name."""
        self._prepared.pop(name, None)

    def close_portal(self, name: str) -> None:
        """Drop a portal, if there is one of that name."""
        self._portals.pop(name, None)

    def discard_statements(self, name: str | None = None) -> None:
        """Drop one prepared statement (26000 where there is none of that name), or all."""
        if name is None:
            self._prepared.clear()
        elif self._prepared.pop(name, None) is None:
            raise SqlError("26000", f'prepared statement "{name}" does not exist')

    def discard_portals(self) -> None:
        """Drop all portals."""
        self._portals.clear()

    # Execution

    def execute_statement(
        self,
        parsed: ParsedStatement | ShapedStatement | ScriptPart,
        encoder_for: EncoderFor,
        on_outcome: Callable[[Outcome], None],
    ) -> Outcome | None:
        """Run one statement of a script."""
        if isinstance(parsed, ScriptPart):
            return self._execute_part(parsed, encoder_for, on_outcome)
        try:
            self._refuse_in_failed_block(parsed)
            params: tuple[PhysicalValue, ...] = ()
            if isinstance(parsed, ShapedStatement):
                planned, params = self._plan_shaped(parsed)
            else:
                catalog = self.coordinator.catalog_for(self.transaction)
                planned = self.coordinator.statements.plan(parsed, catalog)
            if len(planned.params) != len(params):
                raise SqlError("42P02", "there is no parameter $1")
        except SqlError as error:
            return self._failed(error)
        except TooLongError:
            return self._execute_apart(parsed, encoder_for, on_outcome)
        self.query = parsed.text
        return self._run(planned, params, encoder_for, on_outcome)

    def execute_portal(
        self, portal: str, encoder_for: EncoderFor, on_outcome: Callable[[Outcome], None]
    ) -> Outcome | None:
        """Run a portal to its end."""
        try:
            found = self._portal(portal)
            if found.prepared.parsed is None:
                return CommandOutcome("")
            self._refuse_in_failed_block(found.prepared.parsed)
            planned = self._planned(found.prepared)
            if isinstance(found.prepared.parsed, LongStatement) and self._is_stale(planned):
                return self._execute_stale(found, encoder_for, on_outcome)
        except SqlError as error:
            return self._failed(error)
        if planned is None:
            return CommandOutcome("")
        self.query = found.prepared.parsed.text
        return self._run(planned, found.params, encoder_for, on_outcome)

    def sync(self, on_outcome: Callable[[Outcome], None]) -> Outcome | None:
        """End the implicit transaction, if one is open: commit what it wrote."""
        if self._portals and (self.transaction is None or not self.transaction.explicit):
            self._portals.clear()
        transaction = self.transaction
        if transaction is None or transaction.explicit:
            return CommandOutcome("")
        execution = self._begin_execution(on_outcome)
        self.commit(transaction, execution, "")
        outcome = execution.defer()
        if outcome is None:
            self._start_timeout(execution)
        return outcome

    def fail(self) -> None:
        """Note that a message failed: an implicit transaction is rolled back, a block has failed."""
        transaction = self.transaction
        if transaction is None or transaction.failed:
            return
        if transaction.explicit:
            if transaction.savepoints:  # from the last of which on the block may be taken up again
                self._roll_back_to(transaction, transaction.savepoints[-1].name)
            else:
                self._abort(transaction)
            transaction.failed = True
        else:
            self._rolled_back(transaction)

    def cancel(self, error: SqlError | None = None) -> None:
        """End what is in flight (57014), an answer on its way from the stash included.

        What cannot be ended any more goes on.
        """
        error = error or SqlError("57014", "canceling statement due to user request")
        execution = self._execution
        if execution is not None and not execution.ended:
            if execution.cancel is not None:
                execution.cancel(error)
            return
        for reader in list(self._readers):
            if reader.on_cancel is not None:
                reader.on_cancel(error)

    def terminate(self, error: SqlError) -> None:
        """End the session and its client's connection, which is told `error` (57P01)."""
        if self.on_terminated is not None:
            self.on_terminated(error)
        elif self._execution is not None:
            self._execution.fail(error)
        self.close()

    def close(self) -> None:
        """End the session: cancel what is in flight and roll back."""
        if self._closed:
            return
        self._closed = True
        self.cancel()
        for reader in list(self._readers):
            reader.close()
        if self._execution is None or self._execution.ended:
            self._execution = None  # it calls back here
            self.roll_back()
        # What cannot be ended any more (a commit) goes on, and the transaction ends with it.
        self.coordinator.forget(self)

    # For the modules that run statements

    def open_transaction(self) -> Transaction:
        """Return the transaction under way, an implicit one begun if there is none."""
        if self.transaction is None:
            self.transaction = Transaction(self.process_id, explicit=False)
            self.variables.begin()
            for mode in MODES:
                default = self.variables.get(f"default_{mode}")
                if default != self.variables.get(mode):
                    self.variables.set(mode, default, local=True)
        return self.transaction

    def commit(
        self, transaction: Transaction, execution: Execution, tag: str, *, chain: bool = False
    ) -> None:
        """Commit a transaction and finish `execution` with the tag, or with the error it came to.

        `chain` begins the next block once it is committed.
        """
        coordinator = self.coordinator
        execution.cancel = None

        def done(error: SqlError | None) -> None:
            if error is not None:
                self._rolled_back(transaction)
                execution.fail(error)
                return
            for finish in transaction.at_commit:
                finish()
            self._end_block(lambda: self._end(transaction, committed=True), chain=chain)
            execution.finish(CommandOutcome(tag))

        if transaction.writes:

            def give_up(error: SqlError) -> None:
                if transaction.owner.waits_for is not None:
                    done(error)

            execution.cancel = give_up
        coordinator.commit(transaction, done)

    def lock_tables(
        self,
        transaction: Transaction,
        tables: Sequence[int],
        execution: Execution,
        then: Callable[[], None],
    ) -> None:
        """Hold tables exclusively until the transaction ends, and go on with the statement once they are.

        A statement that is cancelled meanwhile waits no more.
        """
        coordinator = self.coordinator

        def give_up(error: SqlError) -> None:
            coordinator.locks.withdraw(transaction.owner)
            execution.fail(error)

        def locked() -> None:
            execution.cancel = None
            then()

        execution.cancel = give_up
        coordinator.lock(
            transaction.owner,
            tables,
            LockMode.EXCLUSIVE,
            lambda: execution.attempt(locked),
            execution.fail,
        )

    def open_stashed(self, stashed: Stashed, encoder: RowEncoder | None) -> StashReader:
        """Return the reader of an answer; it is closed with the session at the latest."""
        reader = self.coordinator.open_stashed(stashed, encoder)
        if self._closed:
            reader.close()
        else:
            self._readers[reader] = None
            reader.on_closed = lambda: self._readers.pop(reader, None)
        return reader

    def roll_back(self) -> None:
        """Roll the transaction under way back."""
        if self.transaction is not None:
            self._rolled_back(self.transaction)

    def notice(self, message: str, sqlstate: str = "00000", severity: str = "NOTICE") -> None:
        """Tell the client something beside the answer."""
        self.notices.append(Notice(severity, sqlstate, message))

    # Private

    def _run(
        self,
        planned: PlannedStatement,
        params: BoundParams,
        encoder_for: EncoderFor,
        on_outcome: Callable[[Outcome], None],
    ) -> Outcome | None:
        execution = self._begin_execution(on_outcome)
        execution.attempt(lambda: self._dispatch(planned.plan, params, encoder_for, execution))
        return self._deferred(execution)

    def _deferred(self, execution: Execution) -> Outcome | None:
        """Return the outcome that an execution has come to in the call that began it, if it has."""
        outcome = execution.defer()
        if not execution.ended:
            self._start_timeout(execution)
        elif isinstance(outcome, FailureOutcome):
            self.fail()
        return outcome

    # Long texts

    def _execute_part(
        self, part: ScriptPart, encoder_for: EncoderFor, on_outcome: Callable[[Outcome], None]
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
        if ready is not None and part.base is coordinator.catalog:
            self.query = shown(part.text)
            execution = self._begin_execution(on_outcome)
            execution.attempt(lambda: self._run_planned(ready, (), encoder_for, execution))
            return self._deferred(execution)
        return self._execute_long(part.text, part.offset, encoder_for, on_outcome)

    def _execute_apart(
        self,
        parsed: ParsedStatement | ShapedStatement,
        encoder_for: EncoderFor,
        on_outcome: Callable[[Outcome], None],
    ) -> Outcome | None:
        """Run a statement whose plan takes long to make."""
        if isinstance(parsed, ParsedStatement):
            return self._execute_long(parsed.text, parsed.offset, encoder_for, on_outcome)
        shaped, shape = parsed, parsed.shape.parsed

        def planned(_kind: str, found: PlannedStatement | None) -> None:
            assert found is not None
            try:
                params = shaped.values(found) if suits(found) else None
            except SqlError as error:
                log.debug("told again in terms of the statement's own text: %s", error)
                params = None
            if params is None:
                as_written()
            else:
                self._run_planned(found, params, encoder_for, execution)

        def as_written() -> None:
            self._plan_long(shaped.text, 0, encoder_for, execution)

        execution = self._begin_execution(on_outcome)
        self.query = shaped.text
        execution.attempt(
            lambda: plan_apart(self, shape.text, shaped.types, execution, planned, refused=as_written)
        )
        return self._deferred(execution)

    def _execute_long(
        self, text: StatementText, offset: int, encoder_for: EncoderFor, on_outcome: Callable[[Outcome], None]
    ) -> Outcome | None:
        """Run a statement that is planned apart; `offset` are the characters of its script before it."""
        execution = self._begin_execution(on_outcome)
        self.query = shown(text)
        execution.attempt(lambda: self._plan_long(text, offset, encoder_for, execution))
        return self._deferred(execution)

    def _plan_long(
        self, text: StatementText, offset: int, encoder_for: EncoderFor, execution: Execution
    ) -> None:
        def planned(_kind: str, found: PlannedStatement | None) -> None:
            if found is not None:
                self._run_planned(found, (), encoder_for, execution)

        plan_apart(self, text, (), execution, planned, offset)

    def _run_planned(
        self,
        planned: PlannedStatement,
        params: BoundParams,
        encoder_for: EncoderFor,
        execution: Execution,
    ) -> None:
        execution.cancel = None
        if len(planned.params) != len(params):
            raise SqlError("42P02", "there is no parameter $1")
        self._dispatch(planned.plan, params, encoder_for, execution)

    def _prepare_apart(
        self,
        name: str,
        sql: StatementText,
        types: Sequence[SqlType | None],
        on_prepared: Callable[[SqlError | None], None],
        offset: int = 0,
    ) -> None:
        def ended(outcome: Outcome) -> None:
            on_prepared(outcome.error if isinstance(outcome, FailureOutcome) else None)

        def planned(kind: str, found: PlannedStatement | None) -> None:
            statement = None if found is None else LongStatement(sql, kind)
            self._prepared[name] = _Prepared(statement, types, found)
            execution.finish(CommandOutcome(""))

        execution = self._begin_execution(ended)
        execution.attempt(lambda: plan_apart(self, sql, types, execution, planned, offset))
        outcome = self._deferred(execution)
        if isinstance(outcome, FailureOutcome):
            raise outcome.error

    def _known(self, sql: StatementText, types: Sequence[SqlType | None] = ()) -> PlannedStatement | None:
        """Return the plan of a long text if it is kept, and may be run."""
        if self.transaction is not None and self.transaction.failed:
            return None
        return self.coordinator.statements.known(sql, self.coordinator.catalog_for(self.transaction), types)

    def _execute_stale(
        self, portal: _Portal, encoder_for: EncoderFor, on_outcome: Callable[[Outcome], None]
    ) -> Outcome | None:
        """Run a portal of a long text whose plan is of an older catalog, planned again apart."""
        prepared, old = portal.prepared, portal.prepared.planned
        assert isinstance(prepared.parsed, LongStatement)
        assert old is not None

        def planned(_kind: str, fresh: PlannedStatement | None) -> None:
            assert fresh is not None
            execution.cancel = None
            if fresh.columns != old.columns:
                raise _result_changed()
            prepared.planned = fresh
            self._dispatch(fresh.plan, portal.params, encoder_for, execution)

        execution = self._begin_execution(on_outcome)
        text = prepared.parsed.source
        self.query = prepared.parsed.text
        known = self._known(text, old.params)
        if known is None:
            execution.attempt(lambda: plan_apart(self, text, old.params, execution, planned))
        else:
            execution.attempt(lambda: planned("", known))
        return self._deferred(execution)

    def _is_stale(self, planned: PlannedStatement | None) -> bool:
        version = self.coordinator.catalog_for(self.transaction).version
        return planned is not None and planned.catalog_version != version

    def _plan_shaped(self, shaped: ShapedStatement) -> tuple[PlannedStatement, tuple[PhysicalValue, ...]]:
        """Return the plan of a statement's shape and its literals, or the plan of its text and none."""
        statements = self.coordinator.statements
        catalog = self.coordinator.catalog_for(self.transaction)
        try:
            planned = statements.plan(shaped.shape.parsed, catalog, shaped.types)
            if suits(planned):
                return planned, shaped.values(planned)
        except SqlError as error:
            log.debug("told again in terms of the statement's own text: %s", error)
        return statements.plan(statements.parse(shaped.text)[0], catalog), ()

    def _begin_execution(self, on_outcome: Callable[[Outcome], None]) -> Execution:
        def later(outcome: Outcome) -> None:
            if self._closed:
                self.roll_back()
                return
            if isinstance(outcome, FailureOutcome):
                self.fail()
            on_outcome(outcome)

        self._execution = execution = Execution(later)
        return execution

    def _select(
        self,
        plan: SelectPlan,
        params: BoundParams,
        encoder_for: EncoderFor,
        execution: Execution,
    ) -> None:
        desc = plan.columns
        if plan.signals:
            signals.select(self, plan, params, encoder_for, execution)
            return

        def answered(response: PeekResponse) -> None:
            if isinstance(response, Failed):
                execution.finish(FailureOutcome(response.error))
                return
            count = response.count
            tag = f"SELECT {count}"
            if isinstance(response, Rows):
                execution.finish(RowsOutcome(desc, tag, count, response.encoded, response.columns))
            else:
                reader = self.open_stashed(response, encoder)
                execution.finish(RowsOutcome(desc, tag, count, None, stash=reader))

        encoder = encoder_for(desc)
        read(self, plan, params, encoder, execution, answered, takes_stashed=True)

    def _dispatch(
        self,
        plan: Plan,
        params: BoundParams,
        encoder_for: EncoderFor,
        execution: Execution,
    ) -> None:
        if isinstance(plan, SelectPlan):
            self._select(plan, params, encoder_for, execution)
            return
        written = _written_by(plan)
        if written is not None:
            self.open_transaction()
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
                self._transaction(plan, execution)
            case DiscardPlan():
                settings.discard(self, plan, execution)

    def _transaction(self, plan: TransactionPlan, execution: Execution) -> None:
        transaction = self.transaction
        in_block = transaction is not None and transaction.explicit
        tag = plan.kind.upper()
        if plan.kind in ("begin", "start transaction"):
            if transaction is not None and transaction.failed:
                raise in_failed_block()
            if in_block:
                self.notice("there is already a transaction in progress", "25001", "WARNING")
            else:
                self.open_transaction().explicit = True
            if plan.isolation is not None:
                self.variables.set("transaction_isolation", plan.isolation, local=True)
            if plan.read_only is not None:
                mode = "on" if plan.read_only else "off"
                self.variables.set("transaction_read_only", mode, local=True)
            execution.finish(CommandOutcome(tag))
            return
        if plan.savepoint is not None:
            self._savepoint(plan.kind, plan.savepoint, execution)
            return
        if not in_block:
            if plan.chain:
                raise SqlError("25P01", f"{tag} AND CHAIN can only be used in transaction blocks")
            self.notice("there is no transaction in progress", "25P01", "WARNING")
        if transaction is None:
            execution.finish(CommandOutcome(tag))
        elif plan.kind == "rollback" or transaction.failed:
            self._end_block(lambda: self._rolled_back(transaction), chain=plan.chain)
            execution.finish(CommandOutcome("ROLLBACK"))
        else:
            self.commit(transaction, execution, tag, chain=plan.chain)

    def _savepoint(self, kind: str, name: str, execution: Execution) -> None:
        transaction = self.transaction
        tag = "ROLLBACK" if kind == "rollback to" else kind.upper()
        if transaction is None or not transaction.explicit:
            shown = "ROLLBACK TO SAVEPOINT" if kind == "rollback to" else tag
            shown = "RELEASE SAVEPOINT" if kind == "release" else shown
            raise SqlError("25P01", f"{shown} can only be used in transaction blocks")
        if kind == "rollback to":
            self._roll_back_to(transaction, name)
        elif transaction.failed:
            raise in_failed_block()
        elif kind == "savepoint":
            transaction.set_savepoint(name)
        else:
            transaction.release_savepoint(name)
        execution.finish(CommandOutcome(tag))

    def _roll_back_to(self, transaction: Transaction, name: str) -> None:
        savepoint = transaction.roll_back_to(name)
        self.coordinator.locks.release_but(transaction.owner, savepoint.held)

    def _end_block(self, end: Callable[[], None], *, chain: bool) -> None:
        """End a block by `end`, and with `chain` begin the next with its modes."""
        modes = {mode: self.variables.get(mode) for mode in MODES} if chain else {}
        end()
        if chain:
            self.open_transaction().explicit = True
        for mode, value in modes.items():
            self.variables.set(mode, value, local=True)

    def _rolled_back(self, transaction: Transaction) -> None:
        self._abort(transaction)
        self._end(transaction, committed=False)

    def _abort(self, transaction: Transaction) -> None:
        """Take back what a transaction did; a failed block keeps nothing from others while its client
        has yet to end it."""
        undo, transaction.undo = transaction.undo, []
        for take_back in reversed(undo):
            take_back()
        transaction.at_commit.clear()
        transaction.writes.clear()
        self.coordinator.end_reads(transaction)
        self.coordinator.locks.release_all(transaction.owner)

    def _end(self, transaction: Transaction, *, committed: bool) -> None:
        if self.transaction is transaction:
            self.transaction = None
            self._portals.clear()
        self.variables.end(committed=committed)
        self.coordinator.end_reads(transaction)
        self.coordinator.locks.release_all(transaction.owner)

    def _failed(self, error: SqlError) -> Outcome:
        self.fail()
        return FailureOutcome(error)

    def _refuse_in_failed_block(self, parsed: ParsedStatement | ShapedStatement | LongStatement) -> None:
        transaction = self.transaction
        if transaction is not None and transaction.failed and parsed.kind != "transaction_stmt":
            raise in_failed_block()

    def _statement(self, name: str) -> _Prepared:
        found = self._prepared.get(name)
        if found is None:
            message = f'prepared statement "{name}"' if name else "unnamed prepared statement"
            raise SqlError("26000", f"{message} does not exist")
        return found

    def _portal(self, name: str) -> _Portal:
        found = self._portals.get(name)
        if found is None:
            raise SqlError("34000", f'portal "{name}" does not exist')
        return found

    def _planned(self, prepared: _Prepared) -> PlannedStatement | None:
        """Return the plan under the catalog in force; raises SqlError 0A000 where the result changed.

        That of a long text as it is: it is made again when it is executed.
        """
        planned = prepared.planned
        if planned is None or prepared.parsed is None:
            return None
        if isinstance(prepared.parsed, LongStatement):
            return planned
        catalog = self.coordinator.catalog_for(self.transaction)
        if planned.catalog_version != catalog.version:
            # The types of the parameters stay those that the client was told.
            try:
                fresh = self.coordinator.statements.plan(prepared.parsed, catalog, planned.params)
            except TooLongError:
                prepared.parsed = LongStatement(prepared.parsed.text, prepared.parsed.kind)
                return planned
            if fresh.columns != planned.columns:
                raise _result_changed()
            prepared.planned = planned = fresh
        return planned

    def _start_timeout(self, execution: Execution) -> None:
        timeout = milliseconds(self.variables.get("statement_timeout") or "0")
        if timeout:

            def expire() -> None:
                if self._execution is execution:
                    self.cancel(SqlError("57014", "canceling statement due to statement timeout"))

            execution.timeout = self.coordinator.loop.call_later(timeout / 1000, expire)


def _result_changed() -> SqlError:
    return SqlError("0A000", "cached plan must not change result type")


def _kind(planned: PlannedStatement) -> str:
    """Return what has to be known of a statement's kind in the grammar: whether it ends a block."""
    return "transaction_stmt" if isinstance(planned.plan, TransactionPlan) else ""


def _parameter_types(oids: Sequence[int] | NDArray[np.uint32]) -> Sequence[SqlType | None]:
    """Return the types that a client declared, None (of many: UNKNOWN) where it left one open."""
    if isinstance(oids, np.ndarray):
        return TypeList.with_oids(oids, settings.parameter_type)
    types: list[SqlType | None] = []
    for oid in oids:
        type_ = None if oid == 0 else BY_OID.get(oid)
        if oid and type_ is None:
            type_ = settings.parameter_type(oid)
        types.append(None if type_ is UNKNOWN else type_)
    return tuple(types)


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
