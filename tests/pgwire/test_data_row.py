"""Encoded rows against a model that writes them one value at a time with struct."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from struct import pack

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.peek.answer import EncodedRows
from layby.pgwire import data_row
from layby.pgwire.data_row import DataRowEncoder
from layby.types.column import TextColumn, column_from_values
from layby.types.scalar import (
    ALL,
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
    UNKNOWN,
    PhysicalValue,
    SqlType,
)

_TEXTS: dict[SqlType, dict[PhysicalValue, str]] = {
    BOOLEAN: {True: "t", False: "f"},
    SMALLINT: {0: "0", -32768: "-32768", 32767: "32767"},
    INTEGER: {0: "0", -2147483648: "-2147483648", 42: "42"},
    BIGINT: {0: "0", -9223372036854775808: "-9223372036854775808", 10**18: "1000000000000000000"},
    REAL: {0.0: "0", 1.5: "1.5", -0.25: "-0.25", math.inf: "Infinity", 1e20: "1e+20"},
    DOUBLE_PRECISION: {0.0: "0", 0.1: "0.1", -1e300: "-1e+300", -math.inf: "-Infinity"},
    TEXT: {"": "", "a": "a", "ü\n\t": "ü\n\t", "x" * 300: "x" * 300},
    UNKNOWN: {"": "", "u": "u"},
    DATE: {0: "2000-01-01", 8401: "2023-01-01", -1: "1999-12-31"},
    TIMESTAMP: {0: "2000-01-01 00:00:00", 1_500_000: "2000-01-01 00:00:01.5"},
    TIMESTAMPTZ: {0: "2000-01-01 00:00:00+00", -1: "1999-12-31 23:59:59.999999+00"},
}
"""Values and the texts that PostgreSQL gives them."""

_PACK = {
    BOOLEAN: ">?",
    SMALLINT: ">h",
    INTEGER: ">i",
    BIGINT: ">q",
    REAL: ">f",
    DOUBLE_PRECISION: ">d",
    DATE: ">i",
    TIMESTAMP: ">q",
    TIMESTAMPTZ: ">q",
}

Table = list[list[PhysicalValue]]


def _model(types: Sequence[SqlType], formats: Sequence[int], rows: Table) -> tuple[bytes, list[int]]:
    data, ends = b"", []
    for row in rows:
        body = pack(">h", len(row))
        for type_, code, value in zip(types, formats, row, strict=True):
            if value is None:
                body += pack(">i", -1)
                continue
            raw = pack(_PACK[type_], value) if code and type_ in _PACK else _TEXTS[type_][value].encode()
            body += pack(">i", len(raw)) + raw
        data += b"D" + pack(">i", len(body) + 4) + body
        ends.append(len(data))
    return data, ends


def _encoded(types: Sequence[SqlType], formats: Sequence[int], rows: Table) -> EncodedRows:
    columns = [column_from_values(t, [row[at] for row in rows]) for at, t in enumerate(types)]
    return DataRowEncoder(tuple(types), tuple(formats))(columns, len(rows))


_cells = {t: st.one_of(st.none(), st.sampled_from(list(_TEXTS[t]))) for t in ALL}
_dense = {t: st.sampled_from(list(_TEXTS[t])) for t in ALL}


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[SqlType], list[int], Table]:
    types = draw(st.lists(st.sampled_from(ALL), min_size=0, max_size=4))
    formats = [draw(st.integers(0, 1)) for _ in types]
    cells = [draw(st.sampled_from([_cells, _dense]))[t] for t in types]
    rows = draw(st.lists(st.tuples(*cells).map(list), max_size=6))
    return types, formats, rows


@settings(max_examples=150, deadline=None)
@given(_tables())
def test_a_few_rows_are_as_the_model_has_them(table: tuple[list[SqlType], list[int], Table]) -> None:
    encoded = _encoded(*table)
    data, ends = _model(*table)
    assert (encoded.data, list(encoded.ends), encoded.count) == (data, ends, len(table[2]))


@settings(max_examples=150, deadline=None)
@given(_tables(), st.integers(17, 60))
def test_many_rows_are_as_the_model_has_them(
    table: tuple[list[SqlType], list[int], Table], count: int
) -> None:
    types, formats, few = table
    rows = [few[at % len(few)] for at in range(count)] if few else []
    encoded = _encoded(types, formats, rows)
    data, ends = _model(types, formats, rows)
    assert (encoded.data, list(encoded.ends), encoded.count) == (data, ends, len(rows))


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("type_", ALL)
@pytest.mark.parametrize("nulls", [False, True])
def test_every_type_is_written_over_chunks(
    type_: SqlType, code: int, nulls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_row, "CHUNK", 20)
    values: list[PhysicalValue] = [*_TEXTS[type_], None] if nulls else [*_TEXTS[type_]]
    rows = [[values[at % len(values)], at] for at in range(50)]
    texts = {**_TEXTS, INTEGER: {at: str(at) for at in range(50)} | _TEXTS[INTEGER]}
    with monkeypatch.context() as patch:
        patch.setitem(_TEXTS, INTEGER, texts[INTEGER])
        data, ends = _model([type_, INTEGER], [code, 0], rows)
    encoded = _encoded([type_, INTEGER], [code, 0], rows)
    assert (encoded.data, list(encoded.ends)) == (data, ends)


def test_a_slice_of_a_column_is_written_from_where_it_begins() -> None:
    column = column_from_values(TEXT, [f"value {at}" for at in range(100)]).slice(50, 100)
    numbers = column_from_values(BIGINT, list(range(100))).slice(50, 100)
    for width, code in ((50, 0), (50, 1), (3, 0)):
        encoded = DataRowEncoder((TEXT, BIGINT), (0, code))(
            [column.slice(0, width), numbers.slice(0, width)], width
        )
        expected = b""
        for at in range(50, 50 + width):
            text, number = f"value {at}".encode(), pack(">q", at) if code else str(at).encode()
            body = pack(">hi", 2, len(text)) + text + pack(">i", len(number)) + number
            expected += b"D" + pack(">i", len(body) + 4) + body
        assert encoded.data == expected


def test_not_a_number_is_written() -> None:
    rows: Table = [[math.nan]]
    assert bytes(_encoded([DOUBLE_PRECISION], [0], rows).data)[-7:] == b"\0\0\0\x03NaN"
    many = _encoded([DOUBLE_PRECISION], [1], rows * 20)
    assert bytes(many.data)[-8:] == pack(">d", np.float64("nan"))


def test_an_encoder_crosses_to_another_process() -> None:
    encoder = DataRowEncoder((INTEGER, BOOLEAN, DATE), (0, 1, 0))
    again = pickle.loads(pickle.dumps(encoder))
    assert again == encoder
    columns = [
        column_from_values(INTEGER, [1]),
        column_from_values(BOOLEAN, [True]),
        column_from_values(DATE, [0]),
    ]
    assert again(columns, 1).data == b"D\0\0\0\x1e\0\x03\0\0\0\x011\0\0\0\x01\x01\0\0\0\x0a2000-01-01"


def test_no_rows_are_no_bytes() -> None:
    assert _encoded([INTEGER], [0], []) == EncodedRows(b"", [], 0)


@pytest.mark.parametrize("count", [2, 20])
def test_what_lies_under_a_null_is_not_sent(count: int) -> None:
    valid = np.array([True, False] * (count // 2))
    offsets = np.arange(count + 1, dtype=np.int64) * 3
    column = TextColumn(TEXT, offsets, np.frombuffer(b"yesno!" * (count // 2), np.uint8), valid)
    encoded = DataRowEncoder((TEXT,), (0,))([column], count)
    pair = b"D\0\0\0\x0d\0\x01\0\0\0\x03yes" + b"D\0\0\0\x0a\0\x01\xff\xff\xff\xff"
    assert encoded.data == pair * (count // 2)
