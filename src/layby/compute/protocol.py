"""The replica's protocol: what a controller tells a replica to do, and what the replica answers.

Commands are plain values, in the order of their sending; each is idempotent against what its predecessors
have made, so that a reduced history of them (`history`) stands for all. What a table's rows are does not
travel here: writes reach the maintenance runtime by the way of commits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from layby.compute.arrangement import ArrangementDesc
from layby.errors import SqlError
from layby.peek import answer
from layby.peek.answer import RowEncoder
from layby.peek.spec import PeekSpec
from layby.trace.batch import Batch
from layby.trace.bundle import Snapshot


@dataclass(frozen=True, slots=True)
class CreateInstance:
    """The first command. `name` is that of the data: a replica that served another one starts over."""

    name: str


@dataclass(frozen=True, slots=True)
class UpdateConfiguration:
    """Values of system parameters; those not named keep theirs."""

    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CreateDataflow:
    """Keep an arrangement from now on; answered by a `Status`. A table's shard comes before its indexes.

    `verify` looks at what was built, and may refuse it. It takes no part in whether an arrangement fits: one
    that stands has been verified.
    """

    desc: ArrangementDesc
    verify: Callable[[Batch], SqlError | None] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AllowCompaction:
    """A collection will not be read before `frontier` any more; None: not at all, it is dropped."""

    collection: int
    frontier: int | None


@dataclass(frozen=True, slots=True)
class Peek:
    """Read a collection; answered by one `PeekResponse` of the number, which is never used again.

    Until then it keeps the collection readable at its timestamp.
    """

    number: int
    collection: int
    spec: PeekSpec
    encoder: RowEncoder | None = None
    overlay: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class CancelPeek:
    """The controller wants no answer any more."""

    number: int


@dataclass(frozen=True, slots=True)
class InitializationComplete:
    """The history that a new connection begins with is at its end: what it does not name is not wanted."""


Command = (
    CreateInstance
    | UpdateConfiguration
    | CreateDataflow
    | AllowCompaction
    | Peek
    | CancelPeek
    | InitializationComplete
)


@dataclass(frozen=True, slots=True)
class Frontiers:
    """All collections are complete below `upper`, and none is compacted beyond `since`."""

    upper: int
    since: int


@dataclass(frozen=True, slots=True)
class PeekResponse:
    """The answer of a peek; of one that was cancelled an error (57014)."""

    number: int
    response: answer.PeekResponse


@dataclass(frozen=True, slots=True)
class Status:
    """A dataflow can be read, or with an error: it does not exist."""

    collection: int
    error: SqlError | None


Answer = Frontiers | PeekResponse | Status
