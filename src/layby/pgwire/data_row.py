"""Answers as DataRow messages.

A few rows are written in plain Python (about 2 µs a row); many on whole columns, a chunk at a time, so that
the encoder's own memory stays in proportion to a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from layby.peek.answer import EncodedRows
from layby.pgwire.join import Piece, Varying, concatenate, join, matrix
from layby.types.column import Column, FixedColumn, TextColumn
from layby.types.formats import render, render_column
from layby.types.scalar import BOOLEAN, INTEGRAL, SqlType

FEW: Final = 16
"""Rows up to which plain Python is cheaper than the calls of the kernels (about 60 µs together)."""

CHUNK: Final = 32_768
"""Rows joined at a time."""

_length: Final = Struct(">i").pack
_head: Final = Struct(">ciH").pack
_NULL: Final = b"\xff\xff\xff\xff"
_HEAD: Final = np.dtype([("kind", "u1"), ("length", ">i4"), ("count", ">u2")])

_BINARY: Final = {
    "b1": Struct(">?"),
    "i2": Struct(">h"),
    "i4": Struct(">i"),
    "i8": Struct(">q"),
    "f4": Struct(">f"),
    "f8": Struct(">d"),
}
"""The binary format is the value in network order: dates and timestamps are held in PostgreSQL's epoch."""

Write = Callable[[Any], bytes]
"""Writes one value that is not null."""


@dataclass(frozen=True, slots=True)
class DataRowEncoder:
    """Encodes rows whose column i has `types[i]`, in format `formats[i]`: 0 is text, 1 binary."""

    types: tuple[SqlType, ...]
    formats: tuple[int, ...]
    _writers: tuple[Write, ...] | None = field(default=None, init=False, repr=False, compare=False)
    """Made for the first few rows: what encodes many has no need of them."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as types and formats alone."""
        return (DataRowEncoder, (self.types, self.formats))

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        """Encode `count` rows."""
        if count <= FEW:
            return self._few(columns, count)
        chunks = []
        for start in range(0, count, CHUNK):
            stop = min(start + CHUNK, count)
            chunks.append(self._chunk([c.slice(start, stop) for c in columns], stop - start))
        return concatenate(chunks)

    def _few(self, columns: Sequence[Column], count: int) -> EncodedRows:
        writers, width = self._writers, len(self.types)
        if writers is None:
            writers = tuple(_writer(t, f) for t, f in zip(self.types, self.formats, strict=True))
            object.__setattr__(self, "_writers", writers)
        parts: list[bytes] = []
        ends: list[int] = []
        end = 0
        for at in range(count):
            head = len(parts)
            parts.append(b"")
            size = 6
            for column, write in zip(columns, writers, strict=True):
                valid = column.valid
                if valid is not None and not valid[at]:
                    parts.append(_NULL)
                    size += 4
                    continue
                if isinstance(column, FixedColumn):
                    raw = write(column.values.item(at))
                else:
                    raw = cast("TextColumn", column).raw(at)
                parts.append(_length(len(raw)) + raw)
                size += 4 + len(raw)
            parts[head] = _head(b"D", size, width)
            end += size + 1
            ends.append(end)
        return EncodedRows(b"".join(parts), ends, count)

    def _chunk(self, columns: list[Column], count: int) -> tuple[memoryview, NDArray[np.int64]]:
        head = np.empty(count, _HEAD)
        pieces: list[Piece] = [matrix(head)]
        total: int | NDArray[Any] = 6 + 4 * len(columns)
        for column, code in zip(columns, self.formats, strict=True):
            if code and isinstance(column, FixedColumn) and column.valid is None:
                swapped = column.values.astype(column.values.dtype.newbyteorder(">"))
                width = swapped.dtype.itemsize
                pieces += (
                    np.broadcast_to(np.frombuffer(_length(width), np.uint8), (count, 4)),
                    matrix(swapped),
                )
                total = total + width
            else:
                offsets, data, valid = _varying(column, code)
                lengths = offsets[1:] - offsets[:-1]
                if valid is None:
                    total = total + lengths
                else:
                    total = total + np.where(valid, lengths, 0)
                    lengths = np.where(valid, lengths, -1)
                pieces += (matrix(lengths.astype(">i4")), Varying(offsets, data, valid))
        head["kind"] = ord("D")
        head["length"] = total
        head["count"] = len(columns)
        return join(pieces, count)


def _varying(
    column: Column, code: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.bool_] | None]:
    """Return a column's values on the wire as offsets, data and validity."""
    if isinstance(column, TextColumn):
        return column.offsets, column.data, column.valid
    if not code:
        text = render_column(column)
        return text.offsets, text.data, text.valid
    fixed = cast("FixedColumn", column)
    valid = fixed.null_mask() == 0
    width = fixed.values.dtype.itemsize
    swapped = matrix(fixed.values.astype(fixed.values.dtype.newbyteorder(">")))
    offsets = np.zeros(len(fixed) + 1, np.int64)
    np.cumsum(valid * width, out=offsets[1:])
    return offsets, swapped[valid].reshape(-1), valid


def _writer(type_: SqlType, code: int) -> Write:
    """Return the writer of one value of a type; text columns are written from their bytes instead."""
    if type_.dtype is None:
        return str.encode
    if code:
        return _BINARY[type_.dtype.str[1:]].pack
    if type_ is BOOLEAN:
        return _boolean
    if type_ in INTEGRAL:
        return b"%d".__mod__
    return lambda value: render(type_, value).encode()


def _boolean(value: bool) -> bytes:
    return b"t" if value else b"f"
