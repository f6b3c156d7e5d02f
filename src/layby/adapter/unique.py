"""Unique indexes: whether updates would leave two rows with one key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from layby.errors import SqlError
from layby.expr.scalar import ColumnRef, Expr
from layby.sql.catalog import Index, Table
from layby.sql.names import quoted
from layby.sql.render import sql_text
from layby.trace.batch import Batch
from layby.trace.constraints import KeyRange
from layby.trace.search import seek
from layby.types.column import Column, FixedColumn, TextColumn
from layby.types.formats import render
from layby.types.scalar import PhysicalValue

_SEEK_PER_HASH = 200
"""Seeking one text (10 µs) costs as much as hashing so many."""

_ONE_BY_ONE = 1_000
"""Up to so many keys are sought one by one (about 2 µs a key and batch)."""


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A unique index, and what errors say of it: its table, and its key's columns as SQL text.

    Refuses the contents of the index, where called, so that it runs where the index is built.
    """

    index: Index
    schema: str
    table: str
    columns: tuple[str, ...]

    def __call__(self, batch: Batch) -> SqlError | None:
        """Return the error of building the index over these rows, or None."""
        return duplicate(self, batch)

    def error(self, message: str, key: tuple[PhysicalValue, ...], trouble: str) -> SqlError:
        """Return the error (23505) that a key gives; `trouble` says in the detail what is wrong with it."""
        types = (k.expr.type for k in self.index.keys)
        shown = ("null" if v is None else render(t, v) for t, v in zip(types, key, strict=True))
        return SqlError(
            "23505",
            f'{message} "{self.index.name}"',
            detail=f"Key ({', '.join(self.columns)})=({', '.join(shown)}) {trouble}.",
            schema=self.schema,
            table=self.table,
            constraint=self.index.name,
        )


def unique_key(table: Table, index: Index) -> UniqueKey:
    """Return the unique index of a table as its errors need it."""
    return UniqueKey(index, table.schema, table.name, tuple(_key_text(table, k.expr) for k in index.keys))


def _key_text(table: Table, expr: Expr) -> str:
    if isinstance(expr, ColumnRef):
        return quoted(table.desc.columns[expr.index].name)
    return sql_text(expr, [quoted(column.name) for column in table.desc.columns])


def violation(unique: UniqueKey, delta: Batch, existing: Sequence[Batch]) -> SqlError | None:
    """Return the error (23505) of a write that would leave a key twice, or None.

    `delta` are the write's updates arranged by the index, `existing` all batches before it. A key with a
    NULL is like no other.
    """
    index = unique.index
    positions, sums = _keys(delta, len(index.keys))
    wanted = np.flatnonzero(sums > 0)
    if not len(wanted):
        return None
    positions, sums = positions[wanted], sums[wanted]
    over = np.flatnonzero(sums > 1)
    if not len(over):
        over = np.flatnonzero(sums + _multiplicities(delta, positions, existing, len(index.keys)) > 1)
    if not len(over):
        return None
    key = tuple(delta.columns[i].value(int(positions[over[0]])) for i in range(len(index.keys)))
    return unique.error("duplicate key value violates unique constraint", key, "already exists")


def duplicate(unique: UniqueKey, batch: Batch) -> SqlError | None:
    """Return the error of building a unique index over rows of which two have one key, or None."""
    index = unique.index
    positions, sums = _keys(batch, len(index.keys))
    over = np.flatnonzero(sums > 1)
    if not len(over):
        return None
    key = tuple(batch.columns[i].value(int(positions[over[0]])) for i in range(len(index.keys)))
    return unique.error("could not create unique index", key, "is duplicated")


def _keys(batch: Batch, arity: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first position of each distinct key without NULLs, and the sum of the key's diffs."""
    count = len(batch)
    if not count:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    first = np.zeros(count, np.bool_)
    first[0] = True
    for column in batch.columns[:arity]:
        first[1:] |= _differs(column)
    starts = np.flatnonzero(first)
    sums = np.add.reduceat(batch.diffs, starts)
    known = np.ones(len(starts), np.bool_)
    for column in batch.columns[:arity]:
        if column.valid is not None:
            known &= column.valid[starts]
    return starts[known], sums[known]


def _differs(column: Column) -> NDArray[np.bool_]:
    """Return whether each value but the first is another than the one before it."""
    differs: NDArray[np.bool_]
    if isinstance(column, FixedColumn):
        differs = column.values[1:] != column.values[:-1]
        if column.values.dtype.kind == "f":
            differs &= ~(np.isnan(column.values[1:]) & np.isnan(column.values[:-1]))
    else:
        values = np.array(column.to_list(), object)
        differs = np.asarray(values[1:] != values[:-1], np.bool_)
    if column.valid is not None:
        differs |= column.valid[1:] != column.valid[:-1]
    return differs


def _multiplicities(
    delta: Batch, positions: NDArray[np.int64], existing: Sequence[Batch], arity: int
) -> NDArray[np.int64]:
    """Return how often each of the delta's keys is there already."""
    sums = np.zeros(len(positions), np.int64)
    many = len(positions) > _ONE_BY_ONE
    for batch in existing:
        if not len(batch):
            continue
        wanted: Sequence[int] | NDArray[np.int64] = range(len(positions))
        if many:
            spans = _first_spans(delta, positions, batch)
            if spans is not None:
                starts, stops, exact = spans
                if exact and arity == 1:
                    so_far = np.concatenate([np.zeros(1, np.int64), np.cumsum(batch.diffs)])
                    sums += so_far[stops] - so_far[starts]
                    continue
                wanted = np.flatnonzero(stops > starts)
        for at in wanted:
            key = tuple(delta.columns[c].value(int(positions[at])) for c in range(arity))
            start, stop = seek(batch, KeyRange(key))
            if stop > start:
                sums[at] += batch.diffs[start:stop].sum()
    return sums


def _first_spans(
    delta: Batch, positions: NDArray[np.int64], batch: Batch
) -> tuple[NDArray[np.int64], NDArray[np.int64], bool] | None:
    """Return where the first column of each of the delta's keys may lie in a batch, and if that is exact.

    All keys are sought in one call, about 0.1 µs each; None where the order of the column does not allow it.
    """
    ordering = batch.layout.key[0]
    if ordering.descending:
        return None
    ours, theirs = delta.columns[0], batch.columns[0]
    if isinstance(ours, FixedColumn) and isinstance(theirs, FixedColumn):
        keys, sorted_values, exact = ours.values[positions], theirs.values, True
    elif isinstance(ours, TextColumn) and isinstance(theirs, TextColumn):
        keys, sorted_values, exact = ours.prefixes[positions], theirs.prefixes, False
    else:
        return None
    offset = 0
    if theirs.valid is not None:
        known = int(np.count_nonzero(theirs.valid))
        offset = len(theirs) - known if ordering.nulls_first else 0
        sorted_values = sorted_values[offset : offset + known]
    starts = np.searchsorted(sorted_values, keys, "left") + offset
    stops = np.searchsorted(sorted_values, keys, "right") + offset
    if isinstance(ours, TextColumn) and isinstance(theirs, TextColumn):
        likely = np.flatnonzero(stops > starts)
        if len(likely):
            low, high = int(starts[likely].min()), int(stops[likely].max())
            if len(likely) * _SEEK_PER_HASH > high - low:
                return *_equal_texts(ours.take(positions), theirs.slice(low, high), low), True
    return starts, stops, exact


def _equal_texts(
    keys: TextColumn, values: TextColumn, offset: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the equals of each key lie among sorted values, by hashing all of them."""
    found = pc.index_in(keys.arrow, value_set=values.arrow)
    firsts = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    changes = pc.fill_null(pc.not_equal(values.arrow[1:], values.arrow[:-1]), True)
    ends = np.append(np.flatnonzero(changes.to_numpy(zero_copy_only=False)) + 1, len(values))
    stops = ends[np.searchsorted(ends, firsts, "right").clip(max=len(ends) - 1)]
    stops[firsts < 0] = -1
    return firsts + offset, stops + offset
