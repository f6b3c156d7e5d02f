from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from layby.errors import SqlError
from layby.types.column import column_from_values
from layby.types.formats import binary_column, decode_binary, encode_binary
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

VALUES: list[tuple[SqlType, PhysicalValue, bytes]] = [
    (BOOLEAN, True, b"\1"),
    (BOOLEAN, False, b"\0"),
    (SMALLINT, -2, b"\xff\xfe"),
    (INTEGER, 258, b"\0\0\1\2"),
    (BIGINT, -1, b"\xff" * 8),
    (REAL, 1.5, b"\x3f\xc0\0\0"),
    (DOUBLE_PRECISION, -2.0, b"\xc0\0\0\0\0\0\0\0"),
    (TEXT, "é", b"\xc3\xa9"),
    (TEXT, "", b""),
    (DATE, 1, b"\0\0\0\1"),
    (DATE, 2**31 - 1, b"\x7f\xff\xff\xff"),
    (DATE, -(2**31), b"\x80\0\0\0"),
    (TIMESTAMP, 256, b"\0\0\0\0\0\0\1\0"),
    (TIMESTAMPTZ, 2**63 - 1, b"\x7f" + b"\xff" * 7),
]


@pytest.mark.parametrize(("type_", "value", "data"), VALUES)
def test_a_value_has_its_network_form(type_: SqlType, value: PhysicalValue, data: bytes) -> None:
    assert encode_binary(type_, value) == data
    decoded = decode_binary(type_, data)
    assert decoded == value and type(decoded) is type(value)


def test_any_byte_but_zero_is_true() -> None:
    assert decode_binary(BOOLEAN, b"\x07") is True


def test_every_nan_is_read_as_the_one_that_columns_hold() -> None:
    decoded = decode_binary(DOUBLE_PRECISION, b"\xff\xf8\0\0\0\0\0\1")
    assert isinstance(decoded, float) and math.isnan(decoded)
    assert struct.pack("!d", decoded) == b"\x7f\xf8\0\0\0\0\0\0"


@pytest.mark.parametrize(
    ("type_", "size"), [(BOOLEAN, 1), (SMALLINT, 2), (INTEGER, 4), (REAL, 4), (BIGINT, 8)]
)
def test_a_wrong_size_is_refused(type_: SqlType, size: int) -> None:
    with pytest.raises(SqlError) as short:
        decode_binary(type_, b"\0" * (size - 1))
    assert (short.value.sqlstate, short.value.message) == ("08P01", "insufficient data left in message")
    with pytest.raises(SqlError) as long:
        decode_binary(type_, b"\0" * (size + 1))
    assert (long.value.sqlstate, long.value.message) == ("22P03", "incorrect binary data format")


@pytest.mark.parametrize(
    ("type_", "number", "message"),
    [
        (DATE, -2451546, "date out of range"),
        (DATE, 2145031949, "date out of range"),
        (TIMESTAMP, -211813488000000001, "timestamp out of range"),
        (TIMESTAMPTZ, 9223371331200000000, "timestamp out of range"),
    ],
)
def test_a_date_or_timestamp_out_of_range_is_refused(type_: SqlType, number: int, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        decode_binary(type_, struct.pack("!i" if type_ is DATE else "!q", number))
    assert (caught.value.sqlstate, caught.value.message) == ("22008", message)


@pytest.mark.parametrize(("data", "shown"), [(b"\xff", "0xff"), (b"a\0", "0x00")])
def test_binary_text_must_be_utf8_without_nul(data: bytes, shown: str) -> None:
    with pytest.raises(SqlError) as caught:
        decode_binary(TEXT, data)
    assert caught.value.sqlstate == "22021"
    assert caught.value.message == f'invalid byte sequence for encoding "UTF8": {shown}'


@pytest.mark.parametrize("type_", list(dict.fromkeys(t for t, _, _ in VALUES)), ids=repr)
def test_a_column_is_encoded_as_its_values_are(type_: SqlType) -> None:
    pairs = [(value, data) for t, value, data in VALUES if t is type_]
    values: list[PhysicalValue] = [None, *(value for value, _ in pairs), None]
    column = column_from_values(type_, values)
    encoded = binary_column(column)
    assert encoded.arrow.to_pylist() == [None, *(data for _, data in pairs), None]
    assert np.diff(encoded.offsets).tolist() == [0, *(len(data) for _, data in pairs), 0]
    inner = binary_column(column.slice(1, len(values) - 1))
    assert inner.arrow.to_pylist() == [data for _, data in pairs]
    whole = binary_column(column_from_values(type_, [value for value, _ in pairs]))
    assert whole.valid is None and whole.arrow.to_pylist() == [data for _, data in pairs]
    assert len(binary_column(column.slice(0, 0))) == 0
