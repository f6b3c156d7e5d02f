"""Executions: one statement under way in a session, which ends once, now or later."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from layby.adapter.outcome import FailureOutcome, OnOutcome, Outcome
from layby.errors import InternalError, SqlError

log = logging.getLogger("layby.session")


class Timer(Protocol):
    """A call that an event loop has been asked for."""

    def cancel(self) -> object:
        """Want it no more."""


class Execution:
    """Joins the two ways an outcome takes: returned from the call, or by callback once that has returned.

    `cancel` is what ends the part under way (a pending peek, a wait for a lock); None where it cannot be
    ended any more, as a commit. `timeout` is called off when the statement ends.
    """

    __slots__ = ("_deferred", "_on_outcome", "cancel", "ended", "result", "timeout")

    def __init__(self, on_outcome: OnOutcome) -> None:
        self._on_outcome = on_outcome
        self._deferred = False
        self.ended = False
        self.result: Outcome | None = None
        self.cancel: Callable[[SqlError], None] | None = None
        self.timeout: Timer | None = None

    def defer(self) -> Outcome | None:
        """Return the outcome if it is there; if not, the callback gets it."""
        self._deferred = True
        result, self.result = self.result, None  # COPY's holds the sink, which holds this execution
        return result

    def finish(self, outcome: Outcome) -> None:
        """End the statement; what comes after its end (it was cancelled) is dropped."""
        if self.ended:
            return
        self.ended = True
        self.cancel = None
        if self.timeout is not None:
            self.timeout.cancel()
        # It leads back to the session, which keeps this execution: a cycle, and what a session holds when its
        # client goes would stay in memory.
        on_outcome, self._on_outcome = self._on_outcome, _ignore
        if self._deferred:
            on_outcome(outcome)
        else:
            self.result = outcome

    def announce(self, outcome: Outcome) -> None:
        """Hand out an outcome that does not end the statement: COPY waits for the client's data."""
        if self._deferred:
            self._on_outcome(outcome)
        else:
            self.result = outcome

    def attempt(self, step: Callable[..., None], *arguments: object) -> None:
        """Run a part of the statement that a callback brought: what it raises ends the statement, not the
        caller, who serves others; nothing is run for a statement that has ended."""
        if self.ended:
            return
        try:
            step(*arguments)
        except SqlError as error:
            self.fail(error)
        except Exception as error:
            log.exception("a statement raised")
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the statement with an error."""
        if not isinstance(error, SqlError):
            error = InternalError(f"{type(error).__name__}: {error}")
        self.finish(FailureOutcome(error))


def _ignore(_: Outcome) -> None:
    """Do nothing: the outcome has been told."""
