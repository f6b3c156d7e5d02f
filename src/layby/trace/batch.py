"""Batches: immutable sorted runs of updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from layby.memory.arena import Arena
from layby.memory.channel import Shared
from layby.memory.sealed import FEW, sealed
from layby.trace.column_search import ColumnSearch, ColumnSearches
from layby.trace.consolidate import consolidate_updates, is_constant
from layby.trace.layout import Layout
from layby.trace.width import WideRows, wide_rows
from layby.types.column import Column, TextColumn
from layby.types.scalar import FLOATING

MIN_TIME: Final = -(1 << 63)
MAX_TIME: Final = (1 << 63) - 1

Numbers = NDArray[np.int64]


class Batch(Shared):
    """Updates of one layout, sorted by all columns in row order and then by time, no two of them alike.

    It holds what happened at times from `lower` on and before `upper`; times below `since` have been
    advanced to it. `times` and `diffs` that are all one value are stored once (stride 0): a bulk load costs
    no 16 bytes a row for them. Immutable, so any thread may read it; it pickles by value.
    """

    __slots__ = (
        "_nbytes",
        "_searches",
        "columns",
        "diffs",
        "inserts_only",
        "layout",
        "lower",
        "max_time",
        "min_time",
        "since",
        "splits_zeros",
        "times",
        "upper",
        "wide",
    )

    def __init__(
        self,
        layout: Layout,
        columns: Sequence[Column],
        times: Numbers,
        diffs: Numbers,
        lower: int,
        upper: int,
        since: int,
        wide: WideRows | None = None,
        nbytes: int | None = None,
    ) -> None:
        """`columns` may be sealed; then `nbytes` tells their size without opening them."""
        self.layout = layout
        self.columns = columns
        self.times = times
        self.diffs = diffs
        self.lower = lower
        self.upper = upper
        self.since = since
        self.wide = wide
        """The rows that weigh more than one position, None where there are none."""
        stored = times[:1] if times.strides == (0,) else times
        self.min_time = int(stored.min()) if len(stored) else upper
        """The earliest time of an update; `upper` where there is none."""
        self.max_time = int(stored.max()) if len(stored) else lower
        """The latest time of an update; `lower` where there is none."""
        self.inserts_only = bool(((diffs[:1] if diffs.strides == (0,) else diffs) == 1).all())
        """Whether every diff is +1, so that no row can be cancelled by another."""
        self.splits_zeros = any(t in FLOATING for t in layout.types[: max(len(layout.key) - 1, 0)])
        """Whether a float is followed by another key column (`constraints.split_zeros`)."""
        self._searches: Sequence[ColumnSearch] | None = None
        self._nbytes = nbytes

    def __len__(self) -> int:
        return len(self.times)

    def __repr__(self) -> str:
        return f"Batch({len(self)} updates, [{self.lower}, {self.upper}), since {self.since})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by value, with what is stored once; many columns sealed, whoever only hands them on."""
        numbers = (_stored(self.times), _stored(self.diffs), len(self))
        bounds = (self.lower, self.upper, self.since)
        nbytes = self.nbytes if len(self.columns) > FEW else None
        return _unpickle, (self.layout, sealed(self.columns), *numbers, *bounds, self.wide, nbytes)

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers, counted once."""
        if self._nbytes is None:
            numbers = _stored(self.times).nbytes + _stored(self.diffs).nbytes
            self._nbytes = sum(c.nbytes for c in self.columns) + numbers
        return self._nbytes

    @property
    def searches(self) -> Sequence[ColumnSearch]:
        """What finds values in each column, made once: all together, of many columns as they are wanted."""
        if self._searches is None:
            made = ColumnSearches(self.columns, self.layout.orderings)
            self._searches = made if len(made) > FEW else tuple(made)
        return self._searches


def repeated(value: int, length: int) -> Numbers:
    """Return `value` `length` times, stored once."""
    return np.broadcast_to(np.array(value, np.int64), (length,))


def build_batch(
    layout: Layout,
    columns: Sequence[Column],
    times: Numbers | int,
    diffs: Numbers | int,
    lower: int,
    upper: int,
    since: int,
    arena: Arena,
    *,
    length: int | None = None,
) -> Batch:
    """Sort and consolidate updates in any order, and seal them as a batch in `arena`.

    One number for `times` or `diffs` stands for all rows; `length` is then needed where the layout has no
    columns. Rows that are sorted already are found out in one pass and adopted.
    """
    if length is None:
        arrays = [a for a in (times, diffs) if not isinstance(a, int)]
        length = len(columns[0]) if columns else len(arrays[0])
    all_times = repeated(times, length) if isinstance(times, int) else times
    all_diffs = repeated(diffs, length) if isinstance(diffs, int) else diffs
    updates = consolidate_updates(columns, layout.orderings, all_times, all_diffs)
    return seal_batch(layout, *updates, lower, upper, since, arena)


def seal_batch(
    layout: Layout,
    columns: Sequence[Column],
    times: Numbers,
    diffs: Numbers,
    lower: int,
    upper: int,
    since: int,
    arena: Arena,
) -> Batch:
    """Seal updates that are sorted and consolidated: place their buffers in `arena`."""
    placed: list[Column] = []
    for number, column in enumerate(columns):
        if isinstance(column, TextColumn):
            if number < len(layout.key):
                column.prefixes  # noqa: B018 - made now, so that they lie in the arena and no reader pays
            else:
                column = column.without_prefixes()
        placed.append(column.place(arena))
    wide = wide_rows(columns)
    return Batch(
        layout,
        tuple(placed),
        _placed(times, arena),
        _placed(diffs, arena),
        lower,
        upper,
        since,
        None if wide is None else wide.place(arena),
    )


def _placed(values: Numbers, arena: Arena) -> Numbers:
    if is_constant(values):
        return repeated(int(values[0]) if len(values) else 0, len(values))
    return cast("Numbers", arena.place(values))


def _stored(values: Numbers) -> Numbers:
    return values[:1].copy() if values.strides == (0,) else values


def _unpickle(
    layout: Layout,
    columns: Sequence[Column],
    times: Numbers,
    diffs: Numbers,
    length: int,
    lower: int,
    upper: int,
    since: int,
    wide: WideRows | None,
    nbytes: int | None,
) -> Batch:
    if len(times) < length:
        times = repeated(int(times[0]), length)
    if len(diffs) < length:
        diffs = repeated(int(diffs[0]), length)
    return Batch(layout, columns, times, diffs, lower, upper, since, wide, nbytes)
