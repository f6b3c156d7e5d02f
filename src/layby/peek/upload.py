"""Uploads: the walk's side of the stash, which writes the rows that it finds as parts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from layby.errors import SqlError
from layby.peek.parts import Part, StashHandle, pack
from layby.persist.blob import Blob, BlobError
from layby.types.column import Column
from layby.types.scalar import SqlType

log = logging.getLogger("layby.peek")

PART_BYTES: Final = 1 << 20
"""Most bytes of rows in one part, unless one row has more. A slow reader holds one part in memory, encoded
(two to three times its size), so this is the price of a stashed answer under way."""


class StashTarget(NamedTuple):
    """Where one peek's parts go: under one prefix, which ends with a slash and is no other peek's."""

    blob: Blob
    prefix: str


class Upload:
    """The parts of one answer on their way to the stash. Opened by its first rows: before, there is nothing.

    It ends with `handle` (the parts are the handle's from then on) or with `discard`.
    """

    def __init__(self, target: StashTarget) -> None:
        self._target = target
        self._types: tuple[SqlType, ...] = ()
        self._keys: list[str] = []
        """Every key that may exist: noted before the object is written, as a failed write may leave it."""
        self._parts: list[Part] = []

    @property
    def opened(self) -> bool:
        """Whether anything may have been written."""
        return bool(self._keys)

    @property
    def handle(self) -> StashHandle:
        """The parts written so far."""
        return StashHandle(self._target.blob, self._types, tuple(self._parts))

    def write(self, columns: Sequence[Column], count: int, stopped: Callable[[], bool]) -> bool:
        """Write `count` rows (1 or more) behind those written before.

        `stopped` is asked before each part, and True ends the writing: then this returns False, else True.
        Raises SqlError 58030 where the store fails.
        """
        self._types = tuple(column.type for column in columns)
        for piece, rows in _pieces(columns, count):
            if stopped():
                return False
            key = f"{self._target.prefix}{len(self._keys):06d}.arrow"
            self._keys.append(key)
            data = pack(piece)
            try:
                self._target.blob.put(key, data)
            except BlobError as error:
                raise write_failed(error) from error
            self._parts.append(Part(key, rows, len(data)))
        return True

    def discard(self) -> None:
        """Delete everything written; what cannot be deleted is left to the sweep of the stash."""
        keys, self._keys = self._keys, []
        delete_all(self._target.blob, keys)


def delete_all(blob: Blob, keys: Sequence[str]) -> None:
    """Delete objects of the stash; a failure is logged, and costs nothing but their space."""
    for key in keys:
        try:
            blob.delete(key)
        except BlobError as error:
            log.warning("a part of a stashed answer is left: %s", error)


def write_failed(error: BlobError) -> SqlError:
    """Return the error of a peek whose rows could not be written."""
    return SqlError("58030", "could not write an answer to the stash", detail=str(error))


def read_failed(error: BlobError) -> SqlError:
    """Return the error of an answer whose rows could not be read back."""
    return SqlError("58030", "could not read an answer from the stash", detail=str(error))


def _pieces(columns: Sequence[Column], count: int) -> Iterator[tuple[Sequence[Column], int]]:
    """Halve rows until each piece is small enough, however unequally wide the rows are."""
    if count <= 1 or sum(column.nbytes for column in columns) <= PART_BYTES:
        yield columns, count
        return
    half = count // 2
    yield from _pieces([column.slice(0, half) for column in columns], half)
    yield from _pieces([column.slice(half, count) for column in columns], count - half)
