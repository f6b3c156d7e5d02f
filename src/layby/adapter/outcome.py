"""Outcomes: what executing a statement comes to, whatever protocol the client speaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from layby.errors import SqlError
from layby.peek.answer import EncodedRows, RowEncoder, Rows
from layby.sql.plan import CopyOptions
from layby.types.column import Column
from layby.types.relation import ColumnDesc

ResultDesc = tuple[ColumnDesc, ...]


class EncoderFor(Protocol):
    """The protocol's choice of encoder for a result; with `copy`, one for the lines of COPY TO STDOUT."""

    def __call__(self, desc: ResultDesc, copy: CopyOptions | None = None) -> RowEncoder:
        """Return the encoder of rows of `desc`."""


class RowSource(Protocol):
    """The rows of an answer too large for memory, piece by piece (`layby.peek.stash.StashReader`)."""

    on_cancel: Callable[[SqlError], None] | None
    """Set while the client waits for rows of it: what a cancellation calls."""

    def fetch(self, then: Callable[[Rows | SqlError], None]) -> bool:
        """Have the next piece brought to `then`, maybe before this returns; False where none is left."""

    def close(self) -> None:
        """Give up what has not been fetched; nothing is brought any more."""


@dataclass(frozen=True, slots=True)
class RowsOutcome:
    """Rows, and the command tag that follows them; `encoded` where the execution had an encoder.

    With a `stash` the rows are what that brings, piece by piece, and whoever takes the outcome closes it.
    """

    desc: ResultDesc
    tag: str
    count: int
    encoded: EncodedRows | None
    columns: Sequence[Column] = ()
    stash: RowSource | None = None


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """A command tag alone (`INSERT 0 3`, `BEGIN`). An empty tag is the answer to an empty query."""

    tag: str


@dataclass(frozen=True, slots=True)
class FailureOutcome:
    """The statement's error, which keeps no frames; nothing of the statement has taken effect."""

    error: SqlError

    def __post_init__(self) -> None:
        self.error.forget_frames()


class CopyInSink(Protocol):
    """Where COPY FROM STDIN data goes. One of `finish` and `abort` ends it; the outcome comes by callback."""

    def feed(self, data: bytes) -> bool:
        """Take the next piece of the stream (cut anywhere). False asks the sender to pause.

        The sender is told to resume through the `on_ready` given to the sink.
        """

    def finish(self) -> None:
        """End the data: the rows are written, and the statement's outcome follows by its callback."""

    def abort(self, error: SqlError) -> None:
        """Give the copy up, nothing written; the outcome is `error`."""

    on_ready: Callable[[], None] | None


@dataclass(frozen=True, slots=True)
class CopyInOutcome:
    """The statement wants COPY data; its final outcome comes later, by the same callback."""

    column_count: int
    sink: CopyInSink


@dataclass(frozen=True, slots=True)
class CopyOutOutcome:
    """COPY TO STDOUT: `rows.data` holds whole CopyData messages (the encoder has framed them).

    `header` is the line of column names that HEADER asks for, not framed; it comes before the rows. With a
    `stash` the rows are what that brings, as in `RowsOutcome`.
    """

    tag: str
    column_count: int
    rows: EncodedRows
    header: bytes = b""
    stash: RowSource | None = None


Outcome = RowsOutcome | CommandOutcome | FailureOutcome | CopyInOutcome | CopyOutOutcome
OnOutcome = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class Notice:
    """A message beside the outcome: a WARNING or a NOTICE."""

    severity: str
    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None
