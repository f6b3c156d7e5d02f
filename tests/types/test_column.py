"""Columns against plain lists."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.memory.arena import HeapArena
from layby.types.column import Column, FixedColumn, TextColumn, column_from_values, concat, empty_column
from layby.types.scalar import ALL, BOOLEAN, DOUBLE_PRECISION, INTEGER, TEXT, PhysicalValue, SqlType

Values = list[PhysicalValue]

ELEMENTS: dict[SqlType, st.SearchStrategy[PhysicalValue]] = {
    INTEGER: st.integers(-5, 5),
    BOOLEAN: st.booleans(),
    DOUBLE_PRECISION: st.sampled_from([0.0, 1.5, -2.25]),
    TEXT: st.sampled_from(["", "a", "é", "abcdefghi", "zz"]),
}


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[SqlType, Values]:
    type_ = draw(st.sampled_from(list(ELEMENTS)))
    return type_, draw(st.lists(st.none() | ELEMENTS[type_], max_size=12))


def check(column: Column, values: Values) -> None:
    """Hold a column to the list it stands for, and to its invariants."""
    assert len(column) == len(values)
    assert column.to_list() == values
    assert [column.value(i) for i in range(len(values))] == values
    assert column.null_mask().tolist() == [v is None for v in values]
    for at, value in enumerate(values):
        if value is None and isinstance(column, FixedColumn):
            assert not column.values[at]
        if isinstance(column, TextColumn):
            assert column.raw(at) == (value or "").encode()  # type: ignore[union-attr]


@settings(max_examples=80, deadline=None)
@given(typed_values(), st.data())
def test_slices_and_takes_are_those_of_a_list(typed: tuple[SqlType, Values], data: st.DataObject) -> None:
    type_, values = typed
    column = column_from_values(type_, values)
    check(column, values)
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    part, part_values = column.slice(start, stop), values[start:stop]
    check(part, part_values)
    check(part.place(HeapArena()), part_values)
    if part_values:
        indices = data.draw(st.lists(st.integers(0, len(part_values) - 1), max_size=8))
        check(part.take(np.array(indices, np.int64)), [part_values[i] for i in indices])
    keep = data.draw(st.lists(st.booleans(), min_size=len(part_values), max_size=len(part_values)))
    check(part.filter(np.array(keep, np.bool_)), [v for v, k in zip(part_values, keep, strict=True) if k])


@settings(max_examples=50, deadline=None)
@given(typed_values(), st.data())
def test_columns_end_to_end_are_lists_end_to_end(typed: tuple[SqlType, Values], data: st.DataObject) -> None:
    type_, values = typed
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=3)))
    column = column_from_values(type_, values)
    edges = [0, *cuts, len(values)]
    parts = [column.slice(a, b) for a, b in pairwise(edges)]
    check(concat(parts), values)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=10), max_size=10), st.data())
def test_prefixes_are_the_first_eight_bytes_and_follow_the_values(
    values: list[str | None], data: st.DataObject
) -> None:
    column = column_from_values(TEXT, values)
    assert isinstance(column, TextColumn)
    expected = [int.from_bytes((v or "").encode()[:8].ljust(8, b"\0"), "big") for v in values]
    assert column.prefixes.tolist() == expected
    start = data.draw(st.integers(0, len(values)))
    assert column.slice(start, len(values)).prefixes.tolist() == expected[start:]
    joined = concat([column, column.slice(start, len(values))])
    assert isinstance(joined, TextColumn)
    assert joined.prefixes.tolist() == expected + expected[start:]
    order = np.arange(len(values))[::-1].copy()
    taken = column.take(order)
    assert isinstance(taken, TextColumn)
    assert taken.prefixes.tolist() == expected[::-1]


def test_a_mask_without_nulls_is_dropped_when_placed() -> None:
    for values in ([None, 1], [None, "x"]):
        column = column_from_values(TEXT if values[1] == "x" else INTEGER, values)
        assert column.slice(1, 2).place(HeapArena()).valid is None


@pytest.mark.parametrize("type_", ALL, ids=repr)
def test_an_empty_column_has_its_type_and_no_values(type_: SqlType) -> None:
    column = empty_column(type_)
    assert column.type is type_
    assert column.to_list() == []


@pytest.mark.parametrize("type_", ALL, ids=repr)
def test_a_type_is_the_same_object_after_pickling(type_: SqlType) -> None:
    assert pickle.loads(pickle.dumps(type_)) is type_
