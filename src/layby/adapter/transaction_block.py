"""Transaction blocks: how the transaction of a session begins, fails and ends, and its savepoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from layby.adapter.catalog_change import CatalogChange, Undo
from layby.adapter.execution import Execution
from layby.adapter.locks import LockMode
from layby.adapter.outcome import CommandOutcome
from layby.adapter.transaction import Transaction, in_failed_block
from layby.adapter.variables import MODES, SessionVariables
from layby.errors import SqlError
from layby.sql.catalog import Catalog
from layby.sql.plan import TransactionPlan

if TYPE_CHECKING:
    from layby.adapter.coordinator import Coordinator


class TransactionBlock:
    """The transaction that a session is in, if any.

    A statement that needs one opens an implicit one, which the next Sync ends. BEGIN makes it a block. A
    block in which a statement has failed takes only what ends it or goes back to a savepoint.
    """

    __slots__ = ("_on_end", "_process_id", "_variables", "coordinator", "transaction")

    def __init__(
        self,
        coordinator: Coordinator,
        process_id: int,
        variables: SessionVariables,
        on_end: Callable[[], None],
    ) -> None:
        """Begin with none. A transaction sets `variables`, the session's, back when it ends, and then calls
        `on_end`."""
        self.coordinator = coordinator
        self._process_id = process_id
        self._variables = variables
        self._on_end = on_end
        self.transaction: Transaction | None = None

    @property
    def explicit(self) -> bool:
        """Whether BEGIN has been said."""
        return self.transaction is not None and self.transaction.explicit

    @property
    def failed(self) -> bool:
        """Whether a statement of the block has failed."""
        return self.transaction is not None and self.transaction.failed

    @property
    def catalog(self) -> Catalog:
        """What statements are planned under."""
        return self.coordinator.catalog_for(self.transaction)

    def refuse_if_failed(self, kind: str) -> None:
        """Raise SqlError 25P02 for a statement that a failed block does not take; `kind` is its name in the
        grammar."""
        transaction = self.transaction
        if transaction is not None and transaction.failed and kind != "transaction_stmt":
            raise in_failed_block()

    def open(self) -> Transaction:
        """Return the transaction under way, an implicit one begun if there is none."""
        if self.transaction is None:
            variables = self._variables
            self.transaction = Transaction(self._process_id, explicit=False)
            variables.begin()
            for mode in MODES:
                default = variables.get(f"default_{mode}")
                if default != variables.get(mode):
                    variables.set(mode, default, local=True)
        return self.transaction

    def lock_tables(self, tables: Sequence[int], execution: Execution, then: Callable[[], None]) -> None:
        """Hold tables exclusively until the transaction ends, and go on with the statement once they are.

        A statement that is cancelled meanwhile waits no more.
        """
        coordinator, owner = self.coordinator, self.open().owner

        def give_up(error: SqlError) -> None:
            coordinator.locks.withdraw(owner)
            execution.fail(error)

        def locked() -> None:
            execution.cancel = None
            then()

        execution.cancel = give_up
        coordinator.lock(owner, tables, LockMode.EXCLUSIVE, lambda: execution.attempt(locked), execution.fail)

    def run(
        self, plan: TransactionPlan, execution: Execution, notice: Callable[[str, str, str], None]
    ) -> None:
        """Run a statement that begins or ends a block or is about a savepoint.

        `notice` tells the client a message, its SQLSTATE and its severity.
        """
        tag = plan.kind.upper()
        if plan.kind in ("begin", "start transaction"):
            self._begin(plan, notice)
            execution.finish(CommandOutcome(tag))
            return
        if plan.savepoint is not None:
            self._savepoint(plan.kind, plan.savepoint)
            execution.finish(CommandOutcome("ROLLBACK" if plan.kind == "rollback to" else tag))
            return
        if not self.explicit:
            if plan.chain:
                raise SqlError("25P01", f"{tag} AND CHAIN can only be used in transaction blocks")
            notice("there is no transaction in progress", "25P01", "WARNING")
        if plan.kind == "rollback" or self.failed:
            self._end_block(self.roll_back, chain=plan.chain)
            execution.finish(CommandOutcome("ROLLBACK"))
        else:
            self.commit(execution, tag, chain=plan.chain)

    def commit(self, execution: Execution, tag: str, *, chain: bool = False) -> None:
        """Commit what there is, and finish `execution` with the tag, or with the error it came to.

        `chain` begins the next block once it is committed.
        """
        transaction = self.transaction
        if transaction is None:
            execution.finish(CommandOutcome(tag))
            return
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
        self.coordinator.commit(transaction, done)

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

    def roll_back(self) -> None:
        """Roll the transaction under way back."""
        if self.transaction is not None:
            self._rolled_back(self.transaction)

    def _begin(self, plan: TransactionPlan, notice: Callable[[str, str, str], None]) -> None:
        if self.failed:
            raise in_failed_block()
        if self.explicit:
            notice("there is already a transaction in progress", "25001", "WARNING")
        else:
            self.open().explicit = True
        if plan.isolation is not None:
            self._variables.set("transaction_isolation", plan.isolation, local=True)
        if plan.read_only is not None:
            mode = "on" if plan.read_only else "off"
            self._variables.set("transaction_read_only", mode, local=True)

    def _savepoint(self, kind: str, name: str) -> None:
        transaction = self.transaction
        if transaction is None or not transaction.explicit:
            shown = "SAVEPOINT" if kind == "savepoint" else f"{kind.upper()} SAVEPOINT"
            raise SqlError("25P01", f"{shown} can only be used in transaction blocks")
        if kind == "rollback to":
            self._roll_back_to(transaction, name)
        elif transaction.failed:
            raise in_failed_block()
        elif kind == "savepoint":
            transaction.set_savepoint(name)
        else:
            transaction.release_savepoint(name)

    def _roll_back_to(self, transaction: Transaction, name: str) -> None:
        savepoint, undo = transaction.roll_back_to(name)
        self._take_back(undo)
        self.coordinator.locks.release_but(transaction.owner, savepoint.held)

    def _end_block(self, end: Callable[[], None], *, chain: bool) -> None:
        """End a block by `end`, and with `chain` begin the next with its modes."""
        variables = self._variables
        modes = {mode: variables.get(mode) for mode in MODES} if chain else {}
        end()
        if chain:
            self.open().explicit = True
        for mode, value in modes.items():
            variables.set(mode, value, local=True)

    def _rolled_back(self, transaction: Transaction) -> None:
        self._abort(transaction)
        self._end(transaction, committed=False)

    def _abort(self, transaction: Transaction) -> None:
        """Take back what a transaction did; a failed block keeps nothing from others while its client
        has yet to end it."""
        undo, transaction.undo = transaction.undo, []
        self._take_back(undo)
        transaction.at_commit.clear()
        transaction.writes.clear()
        self._let_go(transaction)

    def _take_back(self, undo: Sequence[Undo]) -> None:
        if undo:
            change = CatalogChange(self.coordinator)
            for take_back in reversed(undo):
                take_back(change)
            change.apply()

    def _end(self, transaction: Transaction, *, committed: bool) -> None:
        if self.transaction is transaction:
            self.transaction = None
            self._on_end()
        self._variables.end(committed=committed)
        self._let_go(transaction)

    def _let_go(self, transaction: Transaction) -> None:
        self.coordinator.end_reads(transaction)
        self.coordinator.locks.release_all(transaction.owner)
