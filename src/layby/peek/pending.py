"""Pending peeks: what the serving worker knows of a peek from its arrival to its answer."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from layby.peek.answer import PeekResponse, RowEncoder
from layby.peek.profile import PeekProfile
from layby.peek.spec import PeekSpec
from layby.trace.batch import Batch
from layby.trace.bundle import Snapshot


class PeekState(Enum):
    """Where a peek is."""

    NEW = "new"
    WAITING = "waiting"  # for a turn on the loop, or for its index to reach its time
    QUIET = "quiet"  # walking on the loop for as long as nobody else comes
    QUEUED = "queued"  # for a permit
    WALKING = "walking"
    ANSWERED = "answered"
    CANCELLED = "cancelled"


class Asker(NamedTuple):
    """A number for the peek, the session that asks it, by its process id, and its statement's text."""

    peek: int
    session: int
    query: str


class PendingPeek:
    """One peek. `respond` is called once, on the loop, unless the answer came back from the call itself.

    `target` is the collection to read, or the batches of a constant one. `overlay` are updates of the
    reader's own transaction, arranged like the target and visible at the peek's time. `takes_stashed` says
    that the reader can do with a `Stashed` answer; else it is always `Rows`.
    """

    __slots__ = (
        "arrived",
        "asker",
        "encoder",
        "frontier_seconds",
        "inline",
        "inline_positions",
        "inline_seconds",
        "overlay",
        "profile",
        "respond",
        "spec",
        "state",
        "takes_stashed",
        "target",
    )

    def __init__(
        self,
        spec: PeekSpec,
        target: int | tuple[Batch, ...],
        encoder: RowEncoder | None,
        respond: Callable[[PeekResponse], None],
        overlay: Snapshot | None = None,
        *,
        takes_stashed: bool = False,
    ) -> None:
        self.spec = spec
        self.target = target
        self.encoder = encoder
        self.respond = respond
        self.overlay = overlay
        self.takes_stashed = takes_stashed
        self.inline = True
        """Whether it may start on the serving loop."""
        self.state = PeekState.NEW
        self.arrived = 0.0
        self.frontier_seconds = 0.0
        """What it took to find that its index had reached its time."""
        self.inline_seconds = 0.0
        self.inline_positions = 0
        """Of its slice on the serving loop."""
        self.asker: Asker | None = None
        """Who asks; told for a peek that was not answered at once."""
        self.profile: PeekProfile | None = None
        """What is filled in when the peek's walk ends, where somebody wants to know (EXPLAIN ANALYZE)."""
