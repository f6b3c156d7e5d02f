"""Batches and consolidation."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.memory.arena import HEAP
from layby.trace.batch import build_batch
from layby.trace.consolidate import consolidate
from layby.trace.layout import Layout
from layby.types.column import FixedColumn, TextColumn, column_from_values
from layby.types.ordering import ASCENDING, DESCENDING
from layby.types.scalar import BIGINT, DOUBLE_PRECISION, INTEGER, TEXT
from tests.trace.model import (
    Update,
    batch_of,
    columns_of,
    identity,
    layouts,
    row_key,
    rows,
    updates_of,
)

LAYOUT = Layout((INTEGER, TEXT), (ASCENDING,))


def consolidated(layout: Layout, updates: list[Update]) -> list[tuple[tuple[str, ...], int, int]]:
    """The model's updates in row order, then time, equal ones summed, zeros dropped."""
    key = row_key(layout.orderings)
    sums: dict[tuple[tuple[str, ...], int], int] = {}
    for row, time, diff in sorted(updates, key=lambda u: (key(u[0]), u[1])):
        sums[identity(row), time] = sums.get((identity(row), time), 0) + diff
    return [(row, time, diff) for (row, time), diff in sums.items() if diff]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_batch_holds_its_updates_sorted_and_summed(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    update = st.tuples(rows(layout), st.integers(0, 2), st.sampled_from([1, 1, -1, 2]))
    updates = data.draw(st.lists(update, max_size=25))
    batch = batch_of(layout, updates)
    got = [(identity(r), t, d) for r, t, d in updates_of(batch)]
    expected = consolidated(layout, updates)
    assert got == expected
    assert len(batch) == len(expected)
    assert batch.inserts_only == all(d == 1 for _, _, d in expected)
    if expected:
        assert (batch.min_time, batch.max_time) == (min(u[1] for u in expected), max(u[1] for u in expected))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_consolidation_without_times_sums_over_all_of_them(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    update = st.tuples(rows(layout), st.just(0), st.sampled_from([1, -1, 2]))
    updates = data.draw(st.lists(update, min_size=1, max_size=25))
    diffs = np.array([u[2] for u in updates])
    indices, sums = consolidate(columns_of(layout, [u[0] for u in updates]), layout.orderings, diffs)
    got = [(identity(updates[i][0]), 0, s) for i, s in zip(indices, sums.tolist(), strict=True)]
    assert got == consolidated(layout, updates)


def test_rows_without_columns_are_all_equal() -> None:
    indices, sums = consolidate([], [], np.array([1, 1, -1]))
    assert (len(indices), sums.tolist()) == (1, [1])


def test_minus_zero_and_zero_are_two_rows() -> None:
    column = column_from_values(DOUBLE_PRECISION, [0.0, -0.0, 0.0])
    indices, sums = consolidate([column], [ASCENDING], np.array([1, 1, 1]))
    assert (indices.tolist(), sums.tolist()) == ([1, 0], [1, 2])


def test_a_pickled_batch_comes_back_whole() -> None:
    layout = Layout((INTEGER, TEXT), (DESCENDING,))
    batch = batch_of(layout, [((i % 7, f"t{i}"), i % 3, 1 + i % 2) for i in range(50)], 0, 9)
    batch.searches  # noqa: B018 - what a reader has made must not hinder it
    back = pickle.loads(pickle.dumps(batch))
    assert updates_of(back) == updates_of(batch)
    assert (back.layout, back.lower, back.upper, back.since) == (layout, 0, 9, 0)
    assert (back.min_time, back.max_time, back.inserts_only) == (0, 2, False)


def test_times_and_diffs_that_are_all_alike_are_stored_once() -> None:
    keys = FixedColumn(BIGINT, np.arange(1000))
    batch = build_batch(Layout((BIGINT,), (ASCENDING,)), [keys], 7, 1, 0, 9, 0, HEAP)
    assert batch.nbytes == 8 * 1000 + 16
    assert batch.times.tolist() == [7] * 1000
    assert batch.inserts_only
    assert len(pickle.dumps(batch)) < 9000
    back = pickle.loads(pickle.dumps(batch))
    assert (back.times.tolist(), back.nbytes) == ([7] * 1000, 8 * 1000 + 16)


def test_alike_times_are_found_where_they_were_given_one_by_one() -> None:
    keys = FixedColumn(BIGINT, np.arange(1000))
    ones = np.ones(1000, np.int64)
    batch = build_batch(Layout((BIGINT,), (ASCENDING,)), [keys], 3 * ones, ones, 0, 9, 0, HEAP)
    assert batch.nbytes == 8 * 1000 + 16


def test_sorted_rows_are_adopted_without_a_copy() -> None:
    keys = np.arange(100).copy()
    layout = Layout((BIGINT,), (ASCENDING,))
    batch = build_batch(layout, [FixedColumn(BIGINT, keys)], 0, 1, 0, 1, 0, HEAP)
    column = batch.columns[0]
    assert isinstance(column, FixedColumn)
    assert column.values is keys


def test_prefixes_are_kept_for_text_keys_alone() -> None:
    layout = Layout((TEXT, TEXT), (ASCENDING,))
    batch = batch_of(layout, [(("b", "y"), 0, 1), (("a", "x"), 0, 1), (("a", "w"), 0, 1)])
    key, other = batch.columns
    assert isinstance(key, TextColumn)
    assert isinstance(other, TextColumn)
    assert (key.unprepared, other.unprepared) == (False, True)
    (sorted_without_key,) = batch_of(Layout((TEXT,), ()), [(("b",), 0, 1), (("a",), 0, 1)]).columns
    assert isinstance(sorted_without_key, TextColumn)
    assert sorted_without_key.unprepared


def test_a_batch_of_nothing_says_so() -> None:
    batch = batch_of(LAYOUT, [((1, "a"), 3, 1), ((1, "a"), 3, -1)], 2, 5)
    assert (len(batch), batch.min_time, batch.max_time, batch.inserts_only) == (0, 5, 2, True)


def test_rows_of_no_columns_are_counted() -> None:
    batch = build_batch(Layout((), ()), [], 0, 1, 0, 1, 0, HEAP, length=3)
    assert updates_of(batch) == [((), 0, 3)]


def test_a_pickled_slice_of_text_carries_no_more_than_its_own_bytes() -> None:
    part = column_from_values(TEXT, [f"value {i}" for i in range(10000)]).slice(500, 503)
    pickled = pickle.dumps(part)
    assert len(pickled) < 2000
    assert pickle.loads(pickled).to_list() == ["value 500", "value 501", "value 502"]
