"""PostgreSQL's binary formats: numbers in network byte order, text as it is."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from layby.errors import SqlError
from layby.types.column import Column, FixedColumn, Mask, TextColumn
from layby.types.datetime import (
    DATE_INFINITY,
    DATE_NEGATIVE_INFINITY,
    END_DATE,
    END_TIMESTAMP,
    MIN_DATE,
    MIN_TIMESTAMP,
    TIMESTAMP_INFINITY,
    TIMESTAMP_NEGATIVE_INFINITY,
)
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE_PRECISION,
    INTEGER,
    REAL,
    SMALLINT,
    TIMESTAMP,
    TIMESTAMPTZ,
    PhysicalValue,
    SqlType,
)
from layby.types.syntax import incorrect_binary, insufficient_data
from layby.types.text import decode_text, refuse_nul

_LAYOUTS: Final = {
    BOOLEAN: struct.Struct("!?"),
    SMALLINT: struct.Struct("!h"),
    INTEGER: struct.Struct("!i"),
    BIGINT: struct.Struct("!q"),
    REAL: struct.Struct("!f"),
    DOUBLE_PRECISION: struct.Struct("!d"),
    DATE: struct.Struct("!i"),
    TIMESTAMP: struct.Struct("!q"),
    TIMESTAMPTZ: struct.Struct("!q"),
}


@dataclass(frozen=True, slots=True)
class BinaryValues:
    """Encoded values of a column: value `i` is `data[offsets[i]:offsets[i + 1]]`, empty under a null.

    `valid` is None where nothing is null.
    """

    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]
    valid: Mask | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def arrow(self) -> Any:
        """The same values as a `pyarrow.LargeBinaryArray`, without copying the data."""
        mask = None if self.valid is None else pa.py_buffer(np.packbits(self.valid, bitorder="little"))
        buffers = [mask, pa.py_buffer(np.ascontiguousarray(self.offsets)), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)


def decode_binary(type_: SqlType, data: bytes) -> PhysicalValue:
    """Return the value of one binary datum.

    Raises 08P01 (too short), 22P03 (too long), 22008 (a date or timestamp out of range) and 22021.
    """
    layout = _LAYOUTS.get(type_)
    if layout is None:
        return decode_text(data)
    if len(data) < layout.size:
        raise insufficient_data()
    if len(data) > layout.size:
        raise incorrect_binary()
    value: bool | int | float = layout.unpack(data)[0]
    if type_ is DATE:
        if not (MIN_DATE <= value < END_DATE or value in (DATE_INFINITY, DATE_NEGATIVE_INFINITY)):
            raise SqlError("22008", "date out of range")
    elif type_ in (TIMESTAMP, TIMESTAMPTZ):
        infinite = value in (TIMESTAMP_INFINITY, TIMESTAMP_NEGATIVE_INFINITY)
        if not (MIN_TIMESTAMP <= value < END_TIMESTAMP or infinite):
            raise SqlError("22008", "timestamp out of range")
    elif value != value:
        return math.nan
    return value


def encode_binary(type_: SqlType, value: PhysicalValue) -> bytes:
    """Return one value, not null, as a binary datum."""
    layout = _LAYOUTS.get(type_)
    if layout is not None:
        return layout.pack(value)
    assert isinstance(value, str)
    refuse_nul(value)
    return value.encode()


def binary_column(column: Column) -> BinaryValues:
    """Return `encode_binary` of every value: a byte swap for fixed widths, nothing at all for text."""
    valid = column.valid
    if isinstance(column, TextColumn):
        return BinaryValues(column.offsets, column.data, valid)
    assert isinstance(column, FixedColumn)
    values = column.values
    size = values.dtype.itemsize
    if valid is None:
        offsets = np.arange(0, size * (len(values) + 1), size, dtype=np.int64)
    else:
        values = values[valid]
        offsets = np.zeros(len(valid) + 1, np.int64)
        np.cumsum(valid, out=offsets[1:])
        offsets *= size
    swapped = np.ascontiguousarray(values.astype(values.dtype.newbyteorder(">")))
    return BinaryValues(offsets, swapped.view(np.uint8).reshape(-1), valid)
