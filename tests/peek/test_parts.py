"""Parts: columns come back from an Arrow file as they went in."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.peek.parts import pack, unpack
from layby.persist.blob import BlobError
from layby.types.column import Column, FixedColumn, column_from_values
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE_PRECISION,
    INTEGER,
    REAL,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    PhysicalValue,
    SqlType,
)

_INTEGERS = {SMALLINT: 15, INTEGER: 31, BIGINT: 63, DATE: 31, TIMESTAMP: 63, TIMESTAMPTZ: 63}


def values_of(type_: SqlType) -> st.SearchStrategy[PhysicalValue]:
    some: st.SearchStrategy[PhysicalValue]
    if type_ in _INTEGERS:
        bits = _INTEGERS[type_]
        some = st.integers(-(2**bits), 2**bits - 1)
    elif type_ is BOOLEAN:
        some = st.booleans()
    elif type_ is TEXT:
        some = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
    else:
        some = st.floats(width=32 if type_ is REAL else 64)
    return st.one_of(st.none(), some)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[SqlType], list[list[PhysicalValue]]]:
    types = draw(
        st.lists(st.sampled_from([*_INTEGERS, BOOLEAN, TEXT, REAL, DOUBLE_PRECISION]), min_size=1, max_size=4)
    )
    count = draw(st.integers(0, 8))
    return types, [draw(st.lists(values_of(t), min_size=count, max_size=count)) for t in types]


def shown(columns: Sequence[Column]) -> list[list[str]]:
    """Return all values as text: a NaN equals itself, and -0.0 is not 0.0."""
    return [[repr(value) for value in column.to_list()] for column in columns]


@given(tables(), st.data())
@settings(max_examples=60, deadline=None)
def test_columns_of_every_type_and_slices_of_them_come_back(
    table: tuple[list[SqlType], list[list[PhysicalValue]]], data: st.DataObject
) -> None:
    types, values = table
    start = data.draw(st.integers(0, len(values[0])))
    stop = data.draw(st.integers(start, len(values[0])))
    columns = [column_from_values(t, v) for t, v in zip(types, values, strict=True)]
    for sliced in ([c.slice(start, stop) for c in columns], [c.slice(start, stop) for c in columns[::-1]]):
        back = unpack(bytes(pack(sliced)), [c.type for c in sliced])
        assert [c.type for c in back] == [c.type for c in sliced]
        assert shown(back) == shown(sliced)


def test_a_null_comes_back_over_a_zero_and_a_nan_is_no_null() -> None:
    column = column_from_values(DOUBLE_PRECISION, [None, math.nan, 1.5])
    (back,) = unpack(bytes(pack([column])), [DOUBLE_PRECISION])
    assert isinstance(back, FixedColumn)
    assert back.valid is not None
    assert back.valid.tolist() == [False, True, True]
    assert [repr(v) for v in back.values.tolist()] == ["0.0", "nan", "1.5"]


def test_columns_in_reverse_or_of_one_value_repeated_come_back() -> None:
    backwards = FixedColumn(INTEGER, np.arange(5, dtype=np.int32)[::-1])
    repeated = FixedColumn(INTEGER, np.broadcast_to(np.int32(7), (5,)))
    back = unpack(bytes(pack([backwards, repeated])), [INTEGER, INTEGER])
    assert [c.to_list() for c in back] == [[4, 3, 2, 1, 0], [7, 7, 7, 7, 7]]


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
def test_a_file_that_is_not_whole_is_refused(cut: int) -> None:
    data = bytes(pack([column_from_values(TEXT, ["abc", None])]))
    with pytest.raises(BlobError, match="a part of the answer is damaged"):
        unpack(data[:cut], [TEXT])
