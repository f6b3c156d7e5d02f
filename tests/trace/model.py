"""The naive model: rows as tuples, updates as a list, everything computed from scratch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cmp_to_key
from typing import Any

import numpy as np
from hypothesis import strategies as st

from layby.memory.arena import HEAP
from layby.trace.batch import Batch, build_batch
from layby.trace.constraints import Bound, KeyRange
from layby.trace.layout import Layout
from layby.types.column import Column, column_from_values
from layby.types.ordering import Ordering
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    DOUBLE_PRECISION,
    INTEGER,
    REAL,
    SMALLINT,
    TEXT,
    PhysicalValue,
    SqlType,
)

Row = tuple[PhysicalValue, ...]
Update = tuple[Row, int, int]

FLOATS: list[PhysicalValue] = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, -1.5]
VALUES: dict[SqlType, list[PhysicalValue]] = {
    BOOLEAN: [False, True],
    SMALLINT: [-32768, -1, 0, 1, 32767],
    INTEGER: [-(2**31), -1, 0, 1, 2, 2**31 - 1],
    BIGINT: [-(2**63), -1, 0, 1, 2**63 - 1],
    REAL: FLOATS,
    DOUBLE_PRECISION: [*FLOATS, 5e-324],
    TEXT: [
        "",
        "a",
        "b",
        "é",
        "\U0001f600",
        "same_pre",
        "same_prefix",
        "same_prefiy",
        "z" * 70,
        "z" * 70 + "a",
    ],
}

orderings = st.builds(Ordering, st.booleans(), st.booleans())


def values(type_: SqlType) -> st.SearchStrategy[PhysicalValue]:
    """A value of the type or NULL, from few, so that rows collide."""
    return st.sampled_from([*VALUES[type_], None])


@st.composite
def layouts(draw: st.DrawFn, least_key: int = 0) -> Layout:
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    key = draw(st.lists(orderings, min_size=least_key, max_size=len(types)))
    return Layout(tuple(types), tuple(key))


def rows(layout: Layout) -> st.SearchStrategy[Row]:
    return st.tuples(*(values(t) for t in layout.types))


def compare_values(a: PhysicalValue, b: PhysicalValue) -> int:
    """SQL's order of two values that are not NULL; equal zeros are equal."""
    if isinstance(a, str) and isinstance(b, str):
        left, right = a.encode(), b.encode()
        return (left > right) - (left < right)
    x: Any = a
    y: Any = b
    if x != x or y != y:
        return int(x != x) - int(y != y)
    return int(x > y) - int(x < y)


def compare(a: Row, b: Row, order: Sequence[Ordering]) -> int:
    """Row order: column by column, and -0.0 before 0.0."""
    for x, y, ordering in zip(a, b, order, strict=True):
        if x is None or y is None:
            if x is y:
                continue
            return -1 if (x is None) == ordering.nulls_first else 1
        result = compare_values(x, y)
        if not result and isinstance(x, float) and isinstance(y, float) and x == 0:
            result = int(math.copysign(1, x) - math.copysign(1, y)) // 2
        if result:
            return -result if ordering.descending else result
    return 0


def row_key(order: Sequence[Ordering]) -> Any:
    return cmp_to_key(lambda a, b: compare(a, b, order))


def identity(row: Row) -> tuple[str, ...]:
    """What tells rows apart bit by bit: `repr` keeps the sign of zeros and makes NaN equal to itself."""
    return tuple(map(repr, row))


def matches(row: Row, key_range: KeyRange) -> bool:
    """Whether a row lies in a range, as SQL compares values."""
    for value, wanted in zip(row, key_range.prefix, strict=False):
        if value is None or wanted is None:
            if value is not wanted:
                return False
        elif compare_values(value, wanted):
            return False
    if key_range.lower is None and key_range.upper is None:
        return True
    value = row[len(key_range.prefix)]
    if value is None:
        return False
    return _within(key_range.lower, value, 1) and _within(key_range.upper, value, -1)


def _within(bound: Bound | None, value: PhysicalValue, sign: int) -> bool:
    if bound is None:
        return True
    side = sign * compare_values(value, bound.value)
    return side > 0 or (side == 0 and bound.inclusive)


def columns_of(layout: Layout, of: Sequence[Row]) -> list[Column]:
    return [column_from_values(t, [r[i] for r in of]) for i, t in enumerate(layout.types)]


def batch_of(layout: Layout, updates: Sequence[Update], lower: int = 0, upper: int = 100) -> Batch:
    times = np.array([u[1] for u in updates], np.int64)
    diffs = np.array([u[2] for u in updates], np.int64)
    columns = columns_of(layout, [u[0] for u in updates])
    return build_batch(layout, columns, times, diffs, lower, upper, 0, HEAP)


def updates_of(batch: Batch, start: int = 0, stop: int | None = None) -> list[Update]:
    """The updates of a part of a batch, through slices of its columns."""
    stop = len(batch) if stop is None else stop
    lists = [c.slice(start, stop).to_list() for c in batch.columns]
    of: Iterable[Row] = zip(*lists, strict=True) if lists else [()] * (stop - start)
    times, diffs = batch.times[start:stop].tolist(), batch.diffs[start:stop].tolist()
    return list(zip(of, times, diffs, strict=True))


def contents(updates: Iterable[Update], at: int) -> dict[tuple[str, ...], int]:
    """The rows and their multiplicities at a time, those of zero left out."""
    sums: dict[tuple[str, ...], int] = {}
    for row, time, diff in updates:
        if time <= at:
            sums[identity(row)] = sums.get(identity(row), 0) + diff
    return {row: count for row, count in sums.items() if count}
