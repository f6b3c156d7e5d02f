"""The stash: answers too large to hold in memory, from the end of their walk to their last reader.

The walk writes the parts (`upload`); here, on the serving loop, they get their prefix before and are read or
deleted after. Nothing here touches the store itself: reading and deleting are jobs that run apart.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from layby.errors import InternalError, SqlError
from layby.memory.arena import Arena
from layby.metrics import PeekMetrics
from layby.peek.answer import EncodedRows, RowEncoder, Rows, Stashed
from layby.peek.parts import Part, unpack
from layby.peek.upload import StashTarget, delete_all, read_failed
from layby.persist.blob import Blob, BlobError
from layby.types.column import Column
from layby.types.scalar import SqlType

log = logging.getLogger("layby.peek")

RunApart = Callable[[Callable[[Arena], object], Callable[[object], None]], None]
"""Runs a job off the loop, then its second argument on the loop with the result or what was raised."""


class _Encoded(NamedTuple):
    """A part's rows as wire messages, and where each ends."""

    data: NDArray[np.uint8]
    ends: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReadPart:
    """Fetches one part and encodes it. It deletes nothing, so it can be run again where it was lost."""

    blob: Blob
    part: Part
    types: tuple[SqlType, ...]
    encoder: RowEncoder | None

    def __call__(self, arena: Arena) -> _Encoded | tuple[Column, ...]:
        """Return the part's rows, encoded where there is an encoder; raises SqlError 58030."""
        try:
            data = self.blob.get(self.part.key)
            if data is None:
                raise BlobError(f"there is no blob {self.part.key!r}")
            columns = unpack(data, self.types)
        except BlobError as error:
            raise read_failed(error) from error
        if self.encoder is None:
            return tuple(column.place(arena) for column in columns)
        encoded = self.encoder(columns, self.part.count)
        return _Encoded(
            arena.place(np.frombuffer(encoded.data, np.uint8)),
            arena.place(np.asarray(encoded.ends, np.int64)),
        )


@dataclass(frozen=True, slots=True)
class DeleteParts:
    """Deletes objects of the stash."""

    blob: Blob
    keys: tuple[str, ...]

    def __call__(self, arena: Arena) -> None:  # noqa: ARG002 - the shape of every job
        """Delete what is there."""
        delete_all(self.blob, self.keys)


@dataclass(frozen=True, slots=True)
class DeletePrefix:
    """Deletes whatever a walk left that could not do so itself."""

    target: StashTarget

    def __call__(self, arena: Arena) -> None:  # noqa: ARG002 - the shape of every job
        """Delete what is there; a failure is logged."""
        blob, prefix = self.target
        try:
            keys = blob.list_keys(prefix)
        except BlobError as error:
            log.warning("parts of a stashed answer are left: %s", error)
        else:
            delete_all(blob, keys)


class Stash:
    """The stash of one server. Used from the serving loop only."""

    def __init__(self, blob: Blob, run_apart: RunApart, metrics: PeekMetrics) -> None:
        """`blob` is this server's alone: whatever is in it and belongs to no peek may be removed."""
        self._blob = blob
        self._run_apart = run_apart
        self._metrics = metrics
        self._numbers = itertools.count(1)

    def target(self) -> StashTarget:
        """Return a prefix that no other peek has. Nothing is written by that."""
        return StashTarget(self._blob, f"peek-{next(self._numbers)}/")

    def hold(self, stashed: Stashed) -> None:
        """Count the parts of an answer that a walk came to."""
        self._metrics.stash_bytes += sum(part.nbytes for part in stashed.handle.parts)

    def open(self, stashed: Stashed, encoder: RowEncoder | None) -> StashReader:
        """Return the reader of an answer, which sees to its parts from now on.

        `encoder` is that of the peek.
        """
        return StashReader(self, stashed, encoder)

    def discard(self, stashed: Stashed) -> None:
        """Delete the parts of an answer that nobody will read."""
        self.delete(stashed.handle.parts)

    def clear(self, target: StashTarget) -> None:
        """Delete what a walk left that raised or whose process died; it writes no more."""
        self._run_apart(DeletePrefix(target), _logged)

    def fetch(self, job: ReadPart, then: Callable[[object], None]) -> None:
        """Run the reading of a part."""
        self._run_apart(job, then)

    def delete(self, parts: Sequence[Part]) -> None:
        """Delete parts, apart from the loop."""
        if not parts:
            return
        nbytes = sum(part.nbytes for part in parts)

        def deleted(result: object) -> None:
            self._metrics.stash_bytes -= nbytes
            _logged(result)

        self._run_apart(DeleteParts(self._blob, tuple(part.key for part in parts)), deleted)


class StashReader:
    """Brings the rows of a stashed answer, a piece at a time, and deletes each part behind it.

    A piece is only fetched when it is asked for, so that whoever reads slowly holds one in memory.
    """

    def __init__(self, stash: Stash, stashed: Stashed, encoder: RowEncoder | None) -> None:
        self.on_cancel: Callable[[SqlError], None] | None = None
        """Set while a statement of the client draws on the answer: ends it with an error."""
        self.on_closed: Callable[[], None] | None = None
        """Called once, when the reader needs nothing of the stash any more."""
        self._stash = stash
        self._handle = stashed.handle
        self._encoder = encoder
        self._left = deque(stashed.handle.parts)
        self._rest: Rows | None = stashed.rest if stashed.rest.count else None
        self._closed = False

    def fetch(self, then: Callable[[Rows | SqlError], None]) -> bool:
        """Have the next piece brought to `then`, maybe before this returns; False where none is left.

        One fetch at a time. An error (58030) ends the reader. Once it is closed nothing is brought any more.
        """
        if self._left:
            part = self._left[0]
            job = ReadPart(self._handle.blob, part, self._handle.types, self._encoder)
            self._stash.fetch(job, lambda result: self._fetched(part, result, then))
            return True
        rest, self._rest = self._rest, None
        self.close()
        if rest is None:
            return False
        then(rest)
        return True

    def close(self) -> None:
        """Delete what has not been read."""
        if self._closed:
            return
        self._closed = True
        self._stash.delete(tuple(self._left))
        self._left.clear()
        self._rest = None
        on_closed, self.on_closed = self.on_closed, None
        if on_closed is not None:
            on_closed()

    def _fetched(self, part: Part, result: object, then: Callable[[Rows | SqlError], None]) -> None:
        if self._closed:
            return
        if isinstance(result, _Encoded):
            rows = Rows(part.count, (), EncodedRows(result.data.data, result.ends, part.count))
        elif isinstance(result, tuple):
            rows = Rows(part.count, result)
        else:
            self.close()
            if not isinstance(result, SqlError):
                log.error("reading a stashed answer raised %r", result)
                result = InternalError(f"reading a stashed answer raised {type(result).__name__}: {result}")
            then(result)
            return
        self._left.popleft()
        self._stash.delete((part,))
        then(rows)


def _logged(result: object) -> None:
    if isinstance(result, Exception):
        log.error("deleting from the stash raised %r", result)
