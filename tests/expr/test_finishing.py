"""Finishing: order, cut and projection, against Python's sort of the same rows."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from layby.expr.finishing import Finishing, OrderKey, finish, finish_part, thin
from layby.types.column import Column, column_from_values, concat
from layby.types.ordering import ASCENDING, DESCENDING, Ordering
from layby.types.scalar import INTEGER, TEXT

Row = tuple[int | None, str | None]


def columns_of(rows: list[Row]) -> list[Column]:
    return [column_from_values(INTEGER, [r[0] for r in rows]), column_from_values(TEXT, [r[1] for r in rows])]


def rows_of(columns: tuple[Column, ...]) -> list[tuple[Any, ...]]:
    return list(zip(*[c.to_list() for c in columns], strict=True))


def ordered(rows: list[Row], order: tuple[OrderKey, ...]) -> list[Row]:
    """Sort by one key after the other, the least significant first."""
    result = list(rows)
    for key in reversed(order):
        down, first = key.ordering.descending, key.ordering.nulls_first
        known = [r for r in result if r[key.column] is not None]
        nulls = [r for r in result if r[key.column] is None]
        value: Any = lambda r: r[key.column]  # noqa: E731, B023 - used before the key changes
        known = sorted(known, key=value, reverse=down)
        result = nulls + known if first else known + nulls
    return result


order_keys = st.builds(OrderKey, st.integers(0, 1), st.builds(Ordering, st.booleans(), st.booleans()))
finishings = st.builds(
    Finishing,
    st.lists(order_keys, max_size=2).map(tuple),
    st.one_of(st.none(), st.integers(0, 6)),
    st.integers(0, 4),
    st.sampled_from([(0, 1), (1,), (1, 0, 1)]),
)
tables = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.one_of(st.none(), st.sampled_from(["", "a", "b"]))),
    max_size=12,
)


def finished(finishing: Finishing, rows: list[Row]) -> list[tuple[Any, ...]]:
    stop = None if finishing.limit is None else finishing.offset + finishing.limit
    cut = ordered(rows, finishing.order_by)[finishing.offset : stop]
    return [tuple(row[at] for at in finishing.projection) for row in cut]


@settings(max_examples=150, deadline=None)
@given(finishings, tables)
def test_finishing_sorts_cuts_and_projects(finishing: Finishing, rows: list[Row]) -> None:
    columns, count = finish(finishing, columns_of(rows), len(rows), ordered=False)
    assert rows_of(columns) == finished(finishing, rows)
    assert count == len(finished(finishing, rows))


@settings(max_examples=150, deadline=None)
@given(finishings, tables, tables)
def test_thinning_on_the_way_does_not_change_the_answer(
    finishing: Finishing, rows: list[Row], more: list[Row]
) -> None:
    kept, count = thin(finishing, columns_of(rows), len(rows))
    together = [concat([a, b]) for a, b in zip(kept, columns_of(more), strict=True)]
    columns, _ = finish(finishing, together, count + len(more), ordered=False)
    assert rows_of(columns) == finished(finishing, rows + more)


def test_thinning_keeps_limit_and_offset_rows_of_all_columns() -> None:
    finishing = Finishing((OrderKey(0, DESCENDING),), 1, 1, (1,))
    kept, count = thin(finishing, columns_of([(1, "a"), (3, "b"), (2, "c"), (None, "d")]), 4)
    assert count == 2
    assert rows_of(kept) == [(None, "d"), (3, "b")]


def test_rows_that_are_ordered_already_are_only_cut() -> None:
    finishing = Finishing((OrderKey(0, ASCENDING),), 2, 1, (0,))
    columns, count = finish(finishing, columns_of([(9, "a"), (7, "b"), (8, "c")]), 3, ordered=True)
    assert rows_of(columns) == [(7,), (8,)]
    assert count == 2


def test_without_a_limit_nothing_is_thinned() -> None:
    columns = columns_of([(2, "a"), (1, "b")])
    kept, count = thin(Finishing((OrderKey(0, ASCENDING),), None, 3, (0,)), columns, 2)
    assert kept == tuple(columns)
    assert count == 2


def test_an_offset_past_the_end_leaves_nothing() -> None:
    columns, count = finish(Finishing((), 5, 10, (0, 1)), columns_of([(1, "a")]), 1, ordered=False)
    assert count == 0
    assert rows_of(columns) == []


def test_an_answer_that_is_cut_nowhere_hands_its_columns_through() -> None:
    columns = columns_of([(1, "a"), (2, "b")])
    found, count = finish(Finishing((), 2, 0, (1, 0)), columns, 2, ordered=False)
    assert found[0] is columns[1]
    assert found[1] is columns[0]
    assert count == 2


@given(
    tables,
    st.one_of(st.none(), st.integers(0, 6)),
    st.integers(0, 4),
    st.sampled_from([(0, 1), (1,), (1, 0, 1)]),
    st.lists(st.integers(0, 12), max_size=3),
)
@settings(max_examples=100, deadline=None)
def test_parts_finished_one_by_one_are_the_answer_of_them_all(
    rows: list[Row],
    limit: int | None,
    offset: int,
    projection: tuple[int, ...],
    cuts: list[int],
) -> None:
    finishing = Finishing((), limit, offset, projection)
    bounds = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    found: list[tuple[Any, ...]] = []
    for start, stop in itertools.pairwise(bounds):
        columns, count = finish_part(finishing, columns_of(rows[start:stop]), stop - start, start)
        assert [len(column) for column in columns] == [count] * len(projection)
        found += rows_of(columns)
    kept = rows[offset:] if limit is None else rows[offset : offset + limit]
    assert found == [tuple(row[at] for at in projection) for row in kept]
