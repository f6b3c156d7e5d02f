"""Orderings: sorting by columns against Python's own sort."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.types.column import FixedColumn, column_from_values
from layby.types.ordering import ASCENDING, DESCENDING, Ordering, sort_groups, sort_indices, sort_keys
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    DOUBLE_PRECISION,
    INTEGER,
    REAL,
    TEXT,
    PhysicalValue,
    SqlType,
)
from tests.trace.model import columns_of, compare, identity, layouts, orderings, row_key, rows


def in_order(type_: SqlType, ordering: Ordering, values: list[PhysicalValue]) -> list[PhysicalValue]:
    column = column_from_values(type_, values)
    return column.take(sort_indices([column], [ordering])).to_list()


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_rows_sort_as_python_sorts_them_and_stably(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    order = data.draw(st.lists(orderings, min_size=len(layout.types), max_size=len(layout.types)))
    of = data.draw(st.lists(rows(layout), min_size=1, max_size=30))
    key = row_key(order)
    expected = sorted(range(len(of)), key=lambda i: key(of[i]))
    assert sort_indices(columns_of(layout, of), order).tolist() == expected


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_groups_start_where_a_row_differs_bit_by_bit(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    of = data.draw(st.lists(rows(layout), min_size=1, max_size=30))
    indices, starts = sort_groups(columns_of(layout, of), layout.orderings, len(of))
    of = of if indices is None else [of[i] for i in indices]
    expected = [i == 0 or identity(of[i]) != identity(of[i - 1]) for i in range(len(of))]
    assert starts.tolist() == expected


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_sort_keys_compare_as_the_values_do(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    ordering = data.draw(orderings)
    of = data.draw(st.lists(rows(layout), min_size=2, max_size=20))
    keys = sort_keys(columns_of(layout, of)[0], ordering)
    items = [tuple(key[i].item() for key in keys) for i in range(len(of))]
    for i in range(len(of) - 1):
        wanted = compare(of[i][:1], of[i + 1][:1], [ordering])
        assert (items[i] > items[i + 1]) - (items[i] < items[i + 1]) == wanted


@pytest.mark.parametrize("span", [100, 2**40, 2**52, 2**63 - 1])
@pytest.mark.parametrize("ordering", [ASCENDING, DESCENDING])
def test_many_rows_sort_alike_whether_their_keys_fit_one_word_or_not(span: int, ordering: Ordering) -> None:
    random = np.random.default_rng(span)
    first = random.integers(-span, span, 5000)
    second = random.integers(0, 4, 5000).astype(np.int32)
    columns = [FixedColumn(INTEGER, second), FixedColumn(BIGINT, first)]
    sign = -1 if ordering.descending else 1
    a, b = first.tolist(), second.tolist()
    expected = sorted(range(5000), key=lambda i: (b[i], sign * a[i], i))
    assert sort_indices(columns, [ASCENDING, ordering]).tolist() == expected


def test_many_texts_that_share_long_prefixes_sort_by_bytes() -> None:
    random = np.random.default_rng(5)
    values = [f"{'x' * int(n)}{m}" for n, m in random.integers(0, 90, (2000, 2))]
    column = column_from_values(TEXT, list(values))
    expected = sorted(range(2000), key=lambda i: (values[i].encode(), i))
    assert sort_indices([column], [ASCENDING]).tolist() == expected


def test_a_sorted_input_keeps_its_places() -> None:
    column = column_from_values(BIGINT, [1, 2, 2, 3])
    assert sort_groups([column], [ASCENDING], 4)[0] is None
    assert sort_indices([column], [ASCENDING]).tolist() == [0, 1, 2, 3]


def test_nulls_go_last_going_up_and_first_going_down() -> None:
    assert in_order(INTEGER, ASCENDING, [None, 2, 1]) == [1, 2, None]
    assert in_order(INTEGER, DESCENDING, [1, 2, None]) == [None, 2, 1]
    assert in_order(INTEGER, Ordering(nulls_first=True), [2, None, 1]) == [None, 1, 2]
    assert in_order(INTEGER, Ordering(descending=True), [1, None, 2]) == [2, 1, None]


@pytest.mark.parametrize("type_", [REAL, DOUBLE_PRECISION])
def test_floats_sort_nan_last_and_minus_zero_before_zero(type_: SqlType) -> None:
    got = in_order(type_, ASCENDING, [math.nan, 0.0, math.inf, -0.0, -math.inf, -1.0, 1.0])
    assert [repr(v) for v in got] == ["-inf", "-1.0", "-0.0", "0.0", "1.0", "inf", "nan"]


def test_a_nan_whose_sign_bit_is_set_is_still_the_greatest() -> None:
    values = np.array([0xFFF8000000000000, 0x3FF0000000000000], np.uint64).view(np.float64)
    assert sort_indices([FixedColumn(DOUBLE_PRECISION, values)], [ASCENDING]).tolist() == [1, 0]


def test_the_least_integer_sorts_last_going_down() -> None:
    assert in_order(BIGINT, DESCENDING, [-(2**63), 2**63 - 1, 0]) == [2**63 - 1, 0, -(2**63)]


def test_false_sorts_before_true() -> None:
    assert in_order(BOOLEAN, ASCENDING, [True, False]) == [False, True]
    assert in_order(BOOLEAN, DESCENDING, [False, True]) == [True, False]


def test_text_sorts_by_code_point_not_by_length_or_case() -> None:
    assert in_order(TEXT, ASCENDING, ["b", "é", "B", "ab", ""]) == ["", "B", "ab", "b", "é"]
