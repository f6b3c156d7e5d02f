"""Finishing: ORDER BY, LIMIT, OFFSET and the final projection of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layby.pickling import pickled_as_call
from layby.types.column import Column, FixedColumn, Indices
from layby.types.ordering import Ordering, sort_indices
from layby.types.scalar import FLOATING


@pickled_as_call
@dataclass(frozen=True, slots=True)
class OrderKey:
    """One item of ORDER BY: a column of the MFP's output."""

    column: int
    ordering: Ordering


@pickled_as_call
@dataclass(frozen=True, slots=True)
class Finishing:
    """What is done to the rows of an answer once they are all there.

    `order_by` and `projection` count columns of the MFP's output; the projection drops what only the order
    needed. `limit` None is no limit.
    """

    order_by: tuple[OrderKey, ...]
    limit: int | None
    offset: int
    projection: tuple[int, ...]

    @property
    def needed(self) -> int | None:
        """The rows from the front of the order that the answer is cut from; None for all."""
        return None if self.limit is None else self.limit + self.offset


def finish(
    finishing: Finishing, columns: Sequence[Column], count: int, *, ordered: bool
) -> tuple[tuple[Column, ...], int]:
    """Return the answer's columns and the number of its rows.

    `columns` are the MFP's output, `count` rows of them; `ordered` says that they are in the order already.
    Rows equal in the order keep theirs.
    """
    start = min(finishing.offset, count)
    stop = count if finishing.limit is None else min(start + finishing.limit, count)
    projected = [columns[at] for at in finishing.projection]
    if finishing.order_by and not ordered and count > 1:
        chosen = _order(finishing, columns)[start:stop]
        return tuple([column.take(chosen) for column in projected]), stop - start
    if stop - start == count:
        return tuple(projected), count
    return tuple([column.slice(start, stop) for column in projected]), stop - start


def finish_part(
    finishing: Finishing, columns: Sequence[Column], count: int, before: int
) -> tuple[tuple[Column, ...], int]:
    """Return what the answer has of `count` rows that come after `before` others, and how many these are.

    For rows that arrive in the order of the answer: each part is finished by itself, and LIMIT and OFFSET
    count from the first row of all.
    """
    start = min(max(finishing.offset - before, 0), count)
    needed = finishing.needed
    stop = count if needed is None else min(max(needed - before, start), count)
    projected = [columns[at] for at in finishing.projection]
    if stop - start == count:
        return tuple(projected), count
    return tuple([column.slice(start, stop) for column in projected]), stop - start


def thin(finishing: Finishing, columns: Sequence[Column], count: int) -> tuple[tuple[Column, ...], int]:
    """Return what is left of `count` rows when only those that the answer may still hold are kept.

    These are the first LIMIT + OFFSET in the order, in it, and not projected yet: further rows can be put
    behind them and thinned or finished again, and equal rows keep the order in which they came.
    """
    needed = finishing.needed
    if needed is None or count <= needed:
        return tuple(columns), count
    if not finishing.order_by:
        return tuple([column.slice(0, needed) for column in columns]), needed
    chosen = _order(finishing, columns)[:needed]
    return tuple([column.take(chosen) for column in columns]), needed


def _order(finishing: Finishing, columns: Sequence[Column]) -> Indices:
    keys = finishing.order_by
    return sort_indices([_sortable(columns[key.column]) for key in keys], [key.ordering for key in keys])


def _sortable(column: Column) -> Column:
    """Return a column with -0.0 as 0.0: they are one value to SQL, though two to a batch's order of rows."""
    if isinstance(column, FixedColumn) and column.type in FLOATING:
        return FixedColumn(column.type, column.values + column.values.dtype.type(0), column.valid)
    return column
