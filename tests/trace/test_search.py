"""Seeks: what a range finds in a batch, against a filter over its rows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.trace.constraints import Bound, KeyRange, split_zeros
from layby.trace.layout import Layout
from layby.trace.search import row_position, rows_equal, seek
from layby.types.ordering import ASCENDING, DESCENDING, Ordering
from layby.types.scalar import BIGINT, DOUBLE_PRECISION, INTEGER, REAL, SMALLINT, TEXT, PhysicalValue
from tests.trace.model import (
    VALUES,
    Row,
    batch_of,
    columns_of,
    compare,
    identity,
    layouts,
    matches,
    row_key,
    rows,
    updates_of,
    values,
)

NUMBERS: list[PhysicalValue] = [
    0.5,
    -0.5,
    -0.0,
    1e30,
    -1e30,
    math.nan,
    math.inf,
    -math.inf,
    2**70,
    -(2**70),
    0.1,
]


@st.composite
def key_ranges(draw: st.DrawFn, layout: Layout) -> KeyRange:
    """A range over the key, of values that its columns hold or that only compare with them."""

    def wanted(column: int, *, null: bool) -> PhysicalValue:
        type_ = layout.types[column]
        pool = VALUES[type_] if type_ is TEXT else [*VALUES[type_], *NUMBERS]
        return draw(st.sampled_from([*pool, None] if null else pool))

    length = draw(st.integers(0, len(layout.key)))
    prefix = tuple(wanted(i, null=True) for i in range(length))
    if length == len(layout.key):
        return KeyRange(prefix)
    bounds = [
        Bound(wanted(length, null=False), draw(st.booleans())) if draw(st.booleans()) else None
        for _ in range(2)
    ]
    return KeyRange(prefix, *bounds)


@given(st.data())
@settings(max_examples=250, deadline=None)
def test_a_seek_finds_the_rows_that_match_as_sql_compares(data: st.DataObject) -> None:
    layout = data.draw(layouts(least_key=1))
    of = data.draw(st.lists(rows(layout), max_size=25, unique_by=identity))
    key_range = data.draw(key_ranges(layout))
    batch = batch_of(layout, [(row, 0, 1) for row in of])
    found = []
    for part in split_zeros((key_range,), layout):
        start, stop = seek(batch, part)
        assert 0 <= start <= stop <= len(batch)
        found += [identity(r) for r, _, _ in updates_of(batch, start, stop)]
    every = [r for r, _, _ in updates_of(batch)]
    assert found == [identity(r) for r in every if matches(r, key_range)]


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_a_row_of_another_batch_has_its_place(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    of = data.draw(st.lists(rows(layout), max_size=25))
    row = data.draw(rows(layout))
    batch = batch_of(layout, [(r, i, 1) for i, r in enumerate(of)])
    every = sorted(of, key=row_key(layout.orderings))
    columns = columns_of(layout, [row])
    lo = data.draw(st.integers(0, len(every)))
    hi = data.draw(st.integers(lo, len(every)))
    before = sum(compare(r, row, layout.orderings) < 0 for r in every[lo:hi])
    upto = sum(compare(r, row, layout.orderings) <= 0 for r in every[lo:hi])
    assert row_position(batch, columns, 0, "left", lo, hi) == lo + before
    assert row_position(batch, columns, 0, "right", lo, hi) == lo + upto


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_rows_are_equal_bit_by_bit_or_not_at_all(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    a, b = data.draw(rows(layout)), data.draw(rows(layout))
    got = rows_equal(columns_of(layout, [a]), 0, columns_of(layout, [b]), 0)
    assert got == (identity(a) == identity(b))
    assert rows_equal(columns_of(layout, [a]), 0, columns_of(layout, [a]), 0)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_seek_stays_within_the_part_it_is_given(data: st.DataObject) -> None:
    layout = data.draw(layouts(least_key=1))
    of = data.draw(st.lists(rows(layout), max_size=20))
    wanted = data.draw(values(layout.types[0]))
    batch = batch_of(layout, [(row, i, 1) for i, row in enumerate(of)])
    lo = data.draw(st.integers(0, len(batch)))
    hi = data.draw(st.integers(lo, len(batch)))
    key_range = KeyRange((wanted,))
    start, stop = seek(batch, key_range, lo, hi)
    every = [r for r, _, _ in updates_of(batch)]
    expected = [i for i in range(lo, hi) if matches(every[i], key_range)]
    assert list(range(start, stop)) == expected


def single(type_: object, found: list[PhysicalValue], ordering: Ordering, key_range: KeyRange) -> list[str]:
    layout = Layout((type_,), (ordering,))  # type: ignore[arg-type]
    batch = batch_of(layout, [((v,), 0, 1) for v in found])
    return [repr(r[0]) for r, _, _ in updates_of(batch, *seek(batch, key_range))]


@pytest.mark.parametrize("ordering", [ASCENDING, DESCENDING])
def test_a_null_key_matches_no_equality_and_no_bound(ordering: Ordering) -> None:
    keys: list[PhysicalValue] = [None, 0, 5]
    assert single(INTEGER, keys, ordering, KeyRange((0,))) == ["0"]
    assert single(INTEGER, keys, ordering, KeyRange((None,))) == ["None"]
    assert single(INTEGER, keys, ordering, KeyRange((), lower=Bound(1, True))) == ["5"]
    assert single(INTEGER, keys, ordering, KeyRange((), upper=Bound(1, True))) == ["0"]


@pytest.mark.parametrize("ordering", [ASCENDING, DESCENDING])
def test_a_number_that_the_column_cannot_hold_still_bounds(ordering: Ordering) -> None:
    keys: list[PhysicalValue] = [-3, 3]
    assert single(SMALLINT, keys, ordering, KeyRange((100000,))) == []
    assert single(SMALLINT, keys, ordering, KeyRange((), upper=Bound(100000, False))) == (
        ["3", "-3"] if ordering.descending else ["-3", "3"]
    )
    assert single(SMALLINT, keys, ordering, KeyRange((2.5,))) == []
    assert single(SMALLINT, keys, ordering, KeyRange((), lower=Bound(2.5, True))) == ["3"]
    assert single(SMALLINT, keys, ordering, KeyRange((3.0,))) == ["3"]
    assert single(SMALLINT, keys, ordering, KeyRange((), lower=Bound(math.nan, True))) == []


@pytest.mark.parametrize("ordering", [ASCENDING, DESCENDING])
def test_both_zeros_are_found_by_either(ordering: Ordering) -> None:
    keys: list[PhysicalValue] = [1.0, -0.0, 0.0, -1.0]
    expected = ["0.0", "-0.0"] if ordering.descending else ["-0.0", "0.0"]
    assert single(DOUBLE_PRECISION, keys, ordering, KeyRange((0.0,))) == expected
    assert single(DOUBLE_PRECISION, keys, ordering, KeyRange((-0.0,))) == expected
    assert single(DOUBLE_PRECISION, keys, ordering, KeyRange((), lower=Bound(-0.0, False))) == ["1.0"]


def test_nan_is_a_value_above_infinity() -> None:
    keys: list[PhysicalValue] = [math.nan, math.inf, 1.0]
    assert single(REAL, keys, ASCENDING, KeyRange((math.nan,))) == ["nan"]
    assert single(REAL, keys, ASCENDING, KeyRange((), lower=Bound(math.inf, False))) == ["nan"]
    assert single(REAL, keys, DESCENDING, KeyRange((), upper=Bound(math.inf, True))) == ["inf", "1.0"]


def test_a_real_is_compared_with_a_double_as_doubles() -> None:
    assert single(REAL, [0.1], ASCENDING, KeyRange((0.1,))) == []
    assert single(REAL, [0.1], ASCENDING, KeyRange((), lower=Bound(0.1, True))) == [repr(0.10000000149011612)]


def test_texts_with_one_prefix_are_told_apart() -> None:
    keys: list[PhysicalValue] = ["12345678", "123456789", "1234567", "123456780"]
    for ordering in (ASCENDING, DESCENDING):
        for key in keys:
            assert single(TEXT, keys, ordering, KeyRange((key,))) == [repr(key)]
        assert single(TEXT, keys, ordering, KeyRange(("12345678a",))) == []


def test_a_zero_before_another_key_column_is_sought_with_both_signs() -> None:
    layout = Layout((DOUBLE_PRECISION, BIGINT), (ASCENDING, ASCENDING))
    constraints = (KeyRange((0.0, 1)), KeyRange((0.0, 2)), KeyRange((3.0, 1)))
    got = [identity(r.prefix) for r in split_zeros(constraints, layout)]
    assert got == [("-0.0", "1"), ("-0.0", "2"), ("0.0", "1"), ("0.0", "2"), ("3.0", "1")]


def test_signs_of_two_columns_vary_in_row_order() -> None:
    layout = Layout((DOUBLE_PRECISION, REAL, BIGINT), (DESCENDING, ASCENDING, ASCENDING))
    got = [identity(r.prefix) for r in split_zeros((KeyRange((0.0, 0.0, 1)),), layout)]
    assert got == [("0.0", "-0.0", "1"), ("0.0", "0.0", "1"), ("-0.0", "-0.0", "1"), ("-0.0", "0.0", "1")]


def test_a_seek_past_a_zero_takes_it_with_its_sign() -> None:
    of: list[Row] = [(-0.0, 1), (-0.0, 2), (0.0, 1), (0.0, 2)]
    for ordering in (ASCENDING, DESCENDING):
        layout = Layout((DOUBLE_PRECISION, BIGINT), (ordering, ASCENDING))
        batch = batch_of(layout, [(row, 0, 1) for row in of])
        for sign in (0.0, -0.0):
            for key_range in (KeyRange((sign, 2)), KeyRange((sign,), lower=Bound(1, False))):
                found = updates_of(batch, *seek(batch, key_range))
                assert [identity(r) for r, _, _ in found] == [(repr(sign), "2")]


def test_zeros_of_different_sign_make_different_rows() -> None:
    layout = Layout((REAL,), ())
    zeros, zero = columns_of(layout, [(0.0,), (-0.0,)]), columns_of(layout, [(-0.0,)])
    assert [rows_equal(zeros, i, zero, 0) for i in (0, 1)] == [False, True]


def test_a_zero_that_is_the_last_sought_is_left_alone() -> None:
    layout = Layout((DOUBLE_PRECISION, BIGINT), (ASCENDING, ASCENDING))
    assert split_zeros((KeyRange((0.0,)),), layout) == (KeyRange((0.0,)),)
