"""Whole columns against single values: `parse` and `render` are themselves held to literals elsewhere."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.errors import SqlError
from layby.types.column import FixedColumn, TextColumn, column_from_values, text_from_arrow
from layby.types.formats import parse, parse_column, render, render_column
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
from tests.cycles import nothing_in_cycles

PIECES = {
    BOOLEAN: ["t", "f", "T", "true", "off", "1", "0", "x", "", " t", "on", "N", "é"],
    INTEGER: ["0", "7", "-3", "+4", " 5", "0x1F", "2147483648", "-2147483648", "", "x", "1_0", "007", "-0"],
    SMALLINT: ["32767", "32768", "-5", "a"],
    BIGINT: ["9223372036854775807", "9223372036854775808", "12", "-"],
    DOUBLE_PRECISION: [
        *["0", "-0", "1.5", "1e400", "1e-400", "0.0", "nan", "-nan", "inf", "+2", " 3", "x", "0x10"],
        *["1e5", ".5", "5.", "nan(1)", ""],
    ],
    REAL: ["0.1", "1e39", "1e-46", "16777217", "1.00000017881393432617187499", "x", "0"],
    DATE: [
        *["2024-01-31", "2024-02-30", "0000-01-01", "0001-01-01", "9999-12-31", "10000-01-01", "Jan 5 2024"],
        *["infinity", "", "2024-01-31 05:00", "20240131", "2024-1-1"],
    ],
    TIMESTAMP: [
        *["2024-01-31", "2024-01-31 05", "2024-01-31 05:00", "2024-01-31T05:00:00", "2024-01-31 05:00:00.5"],
        *["2024-01-31 05:00:00.1234567", "2024-01-31 05:00:00+02", "2024-01-31 24:00:00", "-infinity", "x"],
        *["2024-01-31 05:00:60", "0044-03-15 12:00:00 BC", "2024-02-30 00:00:00", "0000-12-31 23:59:59", ""],
    ],
    TIMESTAMPTZ: [
        *["2024-01-31 05:00:00+00", "2024-01-31 05:00:00Z", "2024-01-31 05:00:00-05", "infinity", "", "x"],
        *["2024-01-31 05:00:00+15", "2024-01-31 05:00:00+16", "2024-01-31 05:00:00+23"],
        *["2024-01-31 05:00:00-29", "2024-01-31 05:00+00", "2024-01-31 05:00:00", "2024-01-31 05+00"],
        *["2024-01-31 05:00:00.25+05:30", "2024-01-31 05:00:00 PST", "0001-01-01 00:00:00+05"],
        *["9999-12-31 23:59:59-05", "0000-12-31 23:00:00-05", "0001-01-01 00:00:00+00"],
    ],
    TEXT: ["", "a", "a\0b", "é"],
}


def outcome(type_: SqlType, text: str | None) -> object:
    """What the scalar parser makes of a text, NaN and the sign of zero told apart."""
    if text is None:
        return None
    try:
        return comparable(parse(type_, text))
    except SqlError as error:
        return (error.sqlstate, error.message, error.hint)


def comparable(value: PhysicalValue) -> object:
    return struct.pack("!d", value) if isinstance(value, float) else value


def texts_of(values: list[str | None]) -> TextColumn:
    return text_from_arrow(pa.array(values, pa.large_string()), TEXT)


def check_parsed(type_: SqlType, texts: list[str | None]) -> None:
    padded = ["?", *texts, "?"]
    column, errors = parse_column(type_, texts_of(padded).slice(1, len(texts) + 1))
    values = column.to_list()
    found: list[object] = []
    for row, value in enumerate(values):
        error = errors.get(row)
        found.append(comparable(value) if error is None else (error.sqlstate, error.message, error.hint))
    assert found == [outcome(type_, text) for text in texts]
    assert set(errors) <= set(range(len(texts)))
    if isinstance(column, FixedColumn):
        assert column.values.dtype == type_.dtype
        assert not any(column.values[i] for i, text in enumerate(texts) if text is None)


@pytest.mark.parametrize("type_", list(PIECES), ids=repr)
def test_each_text_alone_is_parsed_in_a_column_as_by_itself(type_: SqlType) -> None:
    for text in PIECES[type_]:
        check_parsed(type_, [text])
        check_parsed(type_, [text, None, text])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_column_of_texts_is_parsed_as_its_texts_are(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(list(PIECES)))
    some = st.one_of(st.none(), st.sampled_from(PIECES[type_]), st.text("0123456789-+:. eE", max_size=6))
    check_parsed(type_, data.draw(st.lists(some, max_size=20)))


def test_one_odd_row_among_many_plain_ones_is_found() -> None:
    texts: list[str | None] = [str(i) for i in range(5000)]
    texts[7], texts[3001], texts[4000], texts[4999] = None, "x", " +42 ", "99999999999"
    column, errors = parse_column(INTEGER, texts_of(texts))
    assert {row: error.message for row, error in errors.items()} == {
        3001: 'invalid input syntax for type integer: "x"',
        4999: 'value "99999999999" is out of range for type integer',
    }
    values = column.to_list()
    assert values[:8] == [0, 1, 2, 3, 4, 5, 6, None]
    assert values[4000] == 42
    assert values[4001:4999] == list(range(4001, 4999))


def test_overflow_is_found_in_any_part_of_a_column() -> None:
    texts: list[str | None] = ["1.5"] * 300
    texts[0], texts[250] = "x", "1e400"
    column, errors = parse_column(DOUBLE_PRECISION, texts_of(texts))
    assert {row: error.sqlstate for row, error in errors.items()} == {0: "22P02", 250: "22003"}
    assert column.to_list()[1:250] == [1.5] * 249


def test_parsing_a_column_leaves_nothing_in_cycles() -> None:
    odd = [str(n) for n in range(1_000)]
    odd[500] = "x"
    texts = column_from_values(TEXT, odd)
    assert isinstance(texts, TextColumn)
    with nothing_in_cycles():
        assert list(parse_column(INTEGER, texts)[1]) == [500]


def test_a_column_of_no_rows_or_only_nulls_has_no_errors() -> None:
    for type_ in PIECES:
        assert parse_column(type_, texts_of([]))[0].to_list() == []
        column, errors = parse_column(type_, texts_of([None, None]))
        assert (column.to_list(), errors) == ([None, None], {})


def value_strategy(type_: SqlType) -> st.SearchStrategy[PhysicalValue]:
    if type_ is BOOLEAN:
        return st.booleans()
    if type_ is TEXT:
        return st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=5)
    if type_ in (DOUBLE_PRECISION, REAL):
        numbers = st.integers(-(10**7), 10**7) | st.integers(10**10, 10**16)
        plain = numbers.map(lambda n: n / 64 if type_ is DOUBLE_PRECISION else float(np.float32(n / 64)))
        some = st.floats() if type_ is DOUBLE_PRECISION else st.floats(width=32)
        return some.map(lambda v: math.nan if math.isnan(v) else v) | plain
    if type_ is DATE:
        edges = [2**31 - 1, -(2**31), -2451545, 2145031948, -730119, -730120, 2921939, 2921940]
        return st.integers(-2451545, 2145031948) | st.integers(-40000, 40000) | st.sampled_from(edges)
    if type_ in (TIMESTAMP, TIMESTAMPTZ):
        edges = [2**63 - 1, -(2**63), -211813488000000000, 9223371331199999999, -1, 0]
        seconds = st.integers(-(10**9), 10**9).map(lambda n: n * 1_000_000)
        near = st.integers(-(10**15), 10**15)
        return st.integers(edges[2], edges[3]) | near | seconds | st.sampled_from(edges)
    bound = 1 << (8 * type_.size - 1)
    return st.integers(-bound, bound - 1)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_column_is_rendered_as_its_values_are_and_parses_back(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(list(PIECES)))
    values = data.draw(st.lists(st.none() | value_strategy(type_), max_size=20))
    column = column_from_values(type_, values)
    texts = render_column(column)
    assert texts.type is TEXT
    assert texts.to_list() == [None if v is None else render(type_, v) for v in values]
    assert not any(texts.raw(i) for i, v in enumerate(values) if v is None)
    back, errors = parse_column(type_, texts)
    assert not errors
    assert [comparable(v) for v in back.to_list()] == [comparable(v) for v in values]


def test_a_slice_is_rendered_alone() -> None:
    column = column_from_values(INTEGER, [1, None, 3, 4])
    assert render_column(column.slice(1, 3)).to_list() == [None, "3"]
    words = column_from_values(TEXT, ["a", None, "c"])
    assert render_column(words.slice(1, 3)).to_list() == [None, "c"]
