"""Runs the statements of a session, one at a time, in its transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from layby.adapter.execution import Execution
from layby.adapter.outcome import CommandOutcome, FailureOutcome, OnOutcome, Outcome
from layby.adapter.transaction_block import TransactionBlock
from layby.adapter.variables import SessionVariables, milliseconds
from layby.errors import SqlError

_Answer = TypeVar("_Answer")


class StatementRunner:
    """Begins statements and other work of a session that may take its time, and ends what is under way.

    The transaction fails with a statement, and is rolled back if the session has ended meanwhile.
    """

    __slots__ = ("_block", "_variables", "closed", "under_way")

    def __init__(self, block: TransactionBlock, variables: SessionVariables) -> None:
        self._block = block
        self._variables = variables
        self.under_way: Execution | None = None
        """Or the last one."""
        self.closed = False
        """The session has ended, and nobody takes an outcome."""

    def run(self, step: Callable[[Execution], None], on_outcome: OnOutcome) -> Outcome | None:
        """Begin a statement with `step`; return its outcome, or None and call back later, once."""

        def later(outcome: Outcome) -> None:
            if self.closed:
                self._block.roll_back()
                return
            if isinstance(outcome, FailureOutcome):
                self._block.fail()
            on_outcome(outcome)

        self.under_way = execution = Execution(later)
        execution.attempt(step, execution)
        outcome = execution.defer()
        if not execution.ended:
            self._start_timeout(execution)
        elif isinstance(outcome, FailureOutcome):
            self._block.fail()
        return outcome

    def ask(
        self,
        step: Callable[[Execution, Callable[[_Answer], None]], None],
        on_answer: Callable[[_Answer | SqlError], None],
    ) -> None:
        """Begin what is no statement with `step`, which gets what to call with the answer, in a later turn.

        Calls back with that or with an error, once, or raises the error that `step` raises.
        """
        answers: list[_Answer] = []

        def begin(execution: Execution) -> None:
            def answer(value: _Answer) -> None:
                answers.append(value)
                execution.finish(CommandOutcome(""))

            step(execution, answer)

        def ended(outcome: Outcome) -> None:
            on_answer(outcome.error if isinstance(outcome, FailureOutcome) else answers[0])

        outcome = self.run(begin, ended)
        if isinstance(outcome, FailureOutcome):
            raise outcome.error

    def cancel(self, error: SqlError) -> bool:
        """End what is under way, unless that cannot be ended any more; False where nothing is."""
        execution = self.under_way
        if execution is None or execution.ended:
            return False
        if execution.cancel is not None:
            execution.cancel(error)
        return True

    def _start_timeout(self, execution: Execution) -> None:
        timeout = milliseconds(self._variables.get("statement_timeout") or "0")
        if timeout:

            def expire() -> None:
                if self.under_way is execution:
                    self.cancel(SqlError("57014", "canceling statement due to statement timeout"))

            execution.timeout = self._block.coordinator.loop.call_later(timeout / 1000, expire)
