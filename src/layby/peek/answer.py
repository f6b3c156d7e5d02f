"""Answers of peeks: rows (as columns, or ready for the wire) or an error, and how they are built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from numpy.typing import NDArray

from layby.errors import SqlError
from layby.expr.finishing import finish
from layby.memory.sealed import sealed
from layby.peek.outcome import Complete
from layby.peek.parts import StashHandle
from layby.peek.scan import PeekScan
from layby.types.column import Column


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """`count` rows as finished wire messages, end to end; row i ends at byte `ends[i]`."""

    data: bytes | memoryview
    ends: Sequence[int] | NDArray[Any]
    count: int


class RowEncoder(Protocol):
    """Turns finished columns into wire messages; a picklable value, so that it runs where the walk ran."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        """Encode `count` rows."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an answer, after finishing: `encoded` where the peek had an encoder, else `columns`."""

    count: int
    columns: Sequence[Column] = ()
    encoded: EncodedRows | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Rows, (self.count, sealed(self.columns), self.encoded)


@dataclass(frozen=True, slots=True)
class Failed:
    """The peek's error; it keeps no frames."""

    error: SqlError

    def __post_init__(self) -> None:
        self.error.forget_frames()


@dataclass(frozen=True, slots=True)
class Stashed:
    """An answer in the stash: the rows of the handle, then `rest`, which never reached it; `count` in all."""

    handle: StashHandle
    rest: Rows
    count: int


PeekResponse = Rows | Failed | Stashed


LONGEST_US: Final = 2_000
"""Microseconds from which on an answer is not built on the serving loop."""


def takes_long(scan: PeekScan, encoder: RowEncoder | None) -> bool:
    """Return whether to build the answer of a scan that has found its rows takes `LONGEST_US` or more.

    As measured with integers, text and timestamps: up to 16 rows 3 µs a column and 0.5 a value, beyond that
    50 µs a column and 0.07 a value, and 1 ms for each MB. Rows that are not encoded cost next to nothing.
    """
    if encoder is None:
        return False
    finishing = scan.spec.finishing
    rows = scan.count if finishing.limit is None else min(scan.count, finishing.limit)
    width = len(finishing.projection)
    values = 3 + rows / 2 if rows <= 16 else 50 + rows / 14
    return width * values + scan.nbytes / 1_000 >= LONGEST_US


def build_answer(
    scan: PeekScan, complete: Complete, encoder: RowEncoder | None, clock: Callable[[], float]
) -> Rows:
    """Sort, cut, project and encode what a scan found; its cost grows with the rows, so it runs where
    the scan ended."""
    spec, times = scan.spec, scan.times
    start = clock()
    columns, count = complete.columns, complete.count
    if count:
        columns, count = finish(spec.finishing, columns, count, ordered=spec.ordered)
    sorted_at = clock()
    encoded = None
    if encoder is not None:
        encoded = encoder(columns, count) if count else EncodedRows(b"", (), 0)
    times.sort += sorted_at - start
    times.collection += clock() - sorted_at
    return Rows(count, columns if encoder is None else (), encoded)
