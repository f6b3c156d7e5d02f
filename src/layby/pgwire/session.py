"""What a connection needs of the server: sessions, and the coordinator that opens them.

All calls are made on the serving loop. Every method that runs a client's text may raise `SqlError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from layby.adapter.outcome import EncoderFor, Notice, OnOutcome, Outcome, ResultDesc
from layby.compute.runtime import Job
from layby.errors import SqlError
from layby.memory.arena import Arena
from layby.sql.statement_text import StatementText
from layby.types.scalar import PhysicalValue, SqlType


class Script(Protocol):
    """The statements of a simple query that have not been run."""

    def __len__(self) -> int: ...

    def popleft(self) -> Any:
        """Take the next off."""

    def clear(self) -> None:
        """Run no more."""


class PreparedStatements(Protocol):
    """The prepared statements and portals of one session."""

    def prepare(
        self,
        name: str,
        sql: StatementText,
        param_oids: Sequence[int] | NDArray[np.uint32],
        on_prepared: Callable[[SqlError | None], None],
    ) -> bool:
        """Make a prepared statement, or return False and call back later, once, with the error if any."""

    def describe_statement(self, name: str) -> tuple[Sequence[SqlType], ResultDesc | None]:
        """Return a statement's parameter types and result columns."""

    def bind(self, portal: str, statement: str, params: tuple[PhysicalValue, ...]) -> None:
        """Make a portal."""

    def bind_apart(
        self, portal: str, statement: str, job: Job, on_bound: Callable[[tuple[int, ...] | SqlError], None]
    ) -> None:
        """Make a portal of parameters that `job` reads (`ReadBind`); calls back later, once, with the
        result formats or the error."""

    def describe_portal(self, portal: str) -> ResultDesc | None:
        """Return a portal's result columns."""

    def close_statement(self, name: str) -> None:
        """Drop a prepared statement, if there is one of that name."""

    def close_portal(self, name: str) -> None:
        """Drop a portal, if there is one of that name."""


class Session(Protocol):
    """One client's session. `execute_…` and `sync` return the outcome, or None and call back later, once.

    `on_terminated`, which the connection sets, ends the connection with an error, for the server's part.
    """

    on_terminated: Callable[[SqlError], None] | None

    @property
    def process_id(self) -> int:
        """Names the session in a cancel request."""

    @property
    def secret_key(self) -> int:
        """Proves a cancel request: 32 bits."""

    @property
    def status(self) -> bytes:
        """`I` outside a transaction block, `T` in one, `E` in a failed one."""

    @property
    def prepared(self) -> PreparedStatements:
        """Its prepared statements and portals."""

    def reported_parameters(self) -> dict[str, str]:
        """Return the parameters that a client is told at its start."""

    def parse_script(
        self, sql: StatementText, on_parsed: Callable[[Script | SqlError], None]
    ) -> Script | None:
        """Return the statements of a simple query's text, or None and call back later, once."""

    def execute_statement(
        self, parsed: Any, encoder_for: EncoderFor, on_outcome: OnOutcome
    ) -> Outcome | None:
        """Run one statement of a script."""

    def execute_portal(self, portal: str, encoder_for: EncoderFor, on_outcome: OnOutcome) -> Outcome | None:
        """Run a portal to its end."""

    def sync(self, on_outcome: OnOutcome) -> Outcome | None:
        """End the implicit transaction: commit what it wrote."""

    def fail(self) -> None:
        """Note that a message failed: the transaction under way is lost."""

    def cancel(self) -> None:
        """End what is in flight (57014)."""

    def close(self) -> None:
        """End the session: cancel, roll back."""

    def take_notices(self) -> Sequence[Notice]:
        """Return and forget the notices since the last call."""

    def take_parameter_changes(self) -> Sequence[tuple[str, str]]:
        """Return and forget the reported parameters that changed since the last call."""


class Coordinator(Protocol):
    """Opens sessions."""

    @property
    def arena(self) -> Arena:
        """Where to put what is to be read apart, so that it need not be copied there."""

    def connect(self, user: str, database: str, parameters: dict[str, str]) -> Session:
        """Open a session; raises `SqlError` where the client may not have one."""

    def cancel(self, process_id: int, secret_key: int) -> None:
        """Cancel what the session of that id and key has in flight; anything else is ignored."""
