"""Arrangements: how the updates of a table become the sorted batches of one of its indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layby.expr.evaluate import evaluate
from layby.expr.scalar import ColumnRef, Expr, compact, expanded, plain_columns
from layby.memory.arena import Arena
from layby.memory.sealed import FEW, sealed
from layby.trace.batch import Batch, build_batch
from layby.trace.bundle import ERRS_LAYOUT
from layby.trace.layout import Layout
from layby.types.column import Column, column_from_values
from layby.types.scalar import TEXT


@dataclass(frozen=True, slots=True)
class ArrangementDesc:
    """One arrangement of a table: an index, or the table's shard (all its columns, no key).

    `stored` are expressions over the table's columns, one a stored column.
    """

    id: int
    table_id: int
    name: str
    stored: tuple[Expr, ...]
    layout: Layout

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrangement, (self.id, self.table_id, self.name, compact(self.stored), self.layout)


def _arrangement(
    id_: int, table_id: int, name: str, stored: tuple[int | Expr, ...], layout: Layout
) -> ArrangementDesc:
    return ArrangementDesc(id_, table_id, name, expanded(stored, layout.types), layout)


@dataclass(frozen=True, slots=True)
class Updates:
    """Updates of one table without their time: its columns, and the diff of each row.

    The columns may be sealed; then `known_nbytes` is their size.
    """

    columns: Sequence[Column]
    diffs: NDArray[np.int64]
    known_nbytes: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        nbytes = self.nbytes if len(self.columns) > FEW else None
        return Updates, (sealed(self.columns), self.diffs, nbytes)

    @property
    def nbytes(self) -> int:
        """The bytes of all columns."""
        return sum(c.nbytes for c in self.columns) if self.known_nbytes is None else self.known_nbytes


@dataclass(frozen=True, slots=True)
class Arranged:
    """Updates sorted for one arrangement, at one time: rows, and errors of rows whose key raised."""

    oks: Batch
    errs: Batch


def shard(id_: int, table_id: int, name: str, types: Sequence[Any]) -> ArrangementDesc:
    """Describe a table's shard."""
    types = tuple(types)
    return ArrangementDesc(id_, table_id, name, plain_columns(types), Layout(types, ()))


def arrange(
    desc: ArrangementDesc,
    updates: Updates,
    times: NDArray[np.int64],
    lower: int,
    upper: int,
    arena: Arena,
) -> Arranged:
    """Sort updates for an arrangement, evaluating its key expressions.

    A row whose key raises goes to the errors instead, with the same time and diff, so it leaves them again
    when the row is deleted.
    """
    count = len(updates.diffs)
    diffs = updates.diffs
    stored: list[Column] = []
    errors: list[tuple[str, str]] = []
    failed: NDArray[np.bool_] | None = None
    error_of = np.zeros(0, np.int64)
    for expr in desc.stored:
        if isinstance(expr, ColumnRef):
            stored.append(updates.columns[expr.index])
            continue
        vector = evaluate(expr, updates.columns, count)
        column = vector.column
        if vector.constant:
            column = column.take(np.zeros(count, np.int64))
        stored.append(column)
        if vector.errors is not None:
            codes = np.broadcast_to(vector.errors.codes, count)
            if failed is None:
                failed, error_of = np.zeros(count, np.bool_), np.zeros(count, np.int64)
            fresh = (codes > 0) & ~failed
            error_of[fresh] = codes[fresh] - 1 + len(errors)
            errors.extend((e.sqlstate, e.message) for e in vector.errors.errors)
            failed |= fresh
    if failed is None or not failed.any():
        return Arranged(
            build_batch(desc.layout, tuple(stored), times, diffs, lower, upper, lower, arena),
            _errors(desc, [], times[:0], diffs[:0], lower, upper, arena),
        )
    kept = np.flatnonzero(~failed)
    raised = np.flatnonzero(failed)
    return Arranged(
        build_batch(
            desc.layout,
            tuple(c.take(kept) for c in stored),
            times[kept],
            diffs[kept],
            lower,
            upper,
            lower,
            arena,
        ),
        _errors(
            desc, [errors[i] for i in error_of[raised]], times[raised], diffs[raised], lower, upper, arena
        ),
    )


def stamp(arranged: Arranged, time: int, lower: int) -> Arranged:
    """Return updates that were sorted before their commit, at the time of the commit."""
    return Arranged(_stamped(arranged.oks, time, lower), _stamped(arranged.errs, time, lower))


def _stamped(batch: Batch, time: int, lower: int) -> Batch:
    times = np.broadcast_to(np.int64(time), len(batch))
    return Batch(
        batch.layout, batch.columns, times, batch.diffs, lower, time + 1, lower, batch.wide, batch.nbytes
    )


def _errors(
    desc: ArrangementDesc,
    errors: list[tuple[str, str]],
    times: NDArray[np.int64],
    diffs: NDArray[np.int64],
    lower: int,
    upper: int,
    arena: Arena,
) -> Batch:
    columns = (
        column_from_values(TEXT, [sqlstate for sqlstate, _ in errors]),
        column_from_values(TEXT, [f'index "{desc.name}": {message}' for _, message in errors]),
    )
    return build_batch(ERRS_LAYOUT, columns, times, diffs, lower, upper, lower, arena)
