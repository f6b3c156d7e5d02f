"""Pending peeks: what the serving worker knows of a peek from its arrival to its answer."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from layby.peek.answer import PeekResponse, RowEncoder
from layby.peek.scan import PeekSpec
from layby.trace.batch import Batch
from layby.trace.bundle import Snapshot


class PeekState(Enum):
    """Where a peek is."""

    NEW = "new"
    WAITING = "waiting"  # for a turn on the loop, or for its index to reach its time
    QUEUED = "queued"  # for a permit
    WALKING = "walking"
    ANSWERED = "answered"
    CANCELLED = "cancelled"


class PendingPeek:
    """One peek. `respond` is called once, on the loop, unless the answer came back from the call itself.

    `target` is the collection to read, or the batches of a constant one. `overlay` are updates of the
    reader's own transaction, arranged like the target and visible at the peek's time.
    """

    __slots__ = ("arrived", "encoder", "overlay", "respond", "spec", "state", "target")

    def __init__(
        self,
        spec: PeekSpec,
        target: int | tuple[Batch, ...],
        encoder: RowEncoder | None,
        respond: Callable[[PeekResponse], None],
        overlay: Snapshot | None = None,
    ) -> None:
        self.spec = spec
        self.target = target
        self.encoder = encoder
        self.respond = respond
        self.overlay = overlay
        self.state = PeekState.NEW
        self.arrived = 0.0
