"""Text and binary formats of all types: one value at a time, and whole columns at once.

A column is parsed by kernels that know only the common form of a type; the rows that they do not take, or
are not sure of, go through `parse` one distinct text at a time. So both ways agree on every text. A million
integers, doubles or timestamps take less than 0.1 s in the common form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from layby.errors import SqlError
from layby.types.binary import BinaryValues, binary_column, decode_binary, encode_binary
from layby.types.boolean import parse_boolean, parse_booleans, render_boolean, render_booleans
from layby.types.column import Column, FixedColumn, Mask, TextColumn, text_from_arrow
from layby.types.datetime import (
    parse_datetimes,
    render_date,
    render_dates,
    render_timestamp,
    render_timestamps,
)
from layby.types.datetime_input import parse_datetime
from layby.types.floating import parse_float, parse_floats, render_float, render_floats
from layby.types.integer import parse_integer, parse_integers, render_integers
from layby.types.scalar import (
    BOOLEAN,
    DATE,
    FLOATING,
    INTEGRAL,
    TEXT,
    PhysicalValue,
    SqlType,
)
from layby.types.text import invalid_encoding, refuse_nul, rows_with_nul

__all__ = [
    "BinaryValues",
    "binary_column",
    "decode_binary",
    "encode_binary",
    "parse",
    "parse_column",
    "render",
    "render_column",
]

_SPLIT: Final = 16
"""Into how many parts a stretch is cut that a kernel refuses as a whole."""

_ONE_BY_ONE: Final = 64
"""A stretch of so few rows is not cut again: `parse` takes it."""

_TASTE: Final = 8
"""So many rows of a stretch are tried before all of it."""

_Kernel = Callable[[TextColumn], tuple[NDArray[Any], Mask | None]]


def parse(type_: SqlType, text: str) -> PhysicalValue:
    """Return the value that PostgreSQL's input function makes of `text`.

    Raises `SqlError` with PostgreSQL's wording: 22P02 or 22007 (no value of the type), 22003 or 22008 (out
    of range), 22021 (a NUL).
    """
    refuse_nul(text)
    if type_.dtype is None:
        return text
    if type_ in INTEGRAL:
        return parse_integer(type_, text)
    if type_ in FLOATING:
        return parse_float(type_, text)
    if type_ is BOOLEAN:
        return parse_boolean(text)
    return parse_datetime(type_, text)


def render(type_: SqlType, value: PhysicalValue) -> str:
    """Return the text of a value that is not null, as PostgreSQL's output function writes it."""
    if type_.dtype is None:
        return cast("str", value)
    if type_ in INTEGRAL:
        return str(value)
    if type_ in FLOATING:
        return render_float(type_, cast("float", value))
    if type_ is BOOLEAN:
        return render_boolean(cast("bool", value))
    if type_ is DATE:
        return render_date(cast("int", value))
    return render_timestamp(type_, cast("int", value))


def _kernel(type_: SqlType) -> _Kernel:
    if type_ is BOOLEAN:
        return parse_booleans
    if type_ in INTEGRAL:
        return lambda texts: parse_integers(type_, texts)
    if type_ in FLOATING:
        return lambda texts: parse_floats(type_, texts)
    return lambda texts: parse_datetimes(type_, texts)


def parse_column(type_: SqlType, texts: TextColumn) -> tuple[Column, dict[int, SqlError]]:
    """Return the values of a column of texts (null stays null), and the errors by row.

    The value in a row with an error is unspecified. Rows of equal text share one error object.
    """
    if type_.dtype is None:
        errors = dict.fromkeys(rows_with_nul(texts), invalid_encoding(b"\0", 0))
        return TextColumn(type_, texts.offsets, texts.data, texts.valid), errors
    values = np.zeros(len(texts), type_.dtype)
    left = _run_kernel(_kernel(type_), texts, values)
    errors = {}
    if len(left):
        errors = _parse_rows(type_, texts, left, values)
    if texts.valid is not None:
        values[~texts.valid] = 0
    return FixedColumn(type_, values, texts.valid), errors


def _run_kernel(kernel: _Kernel, texts: TextColumn, values: NDArray[Any]) -> NDArray[np.int64]:
    """Fill `values` where the kernel can; return the other rows, in order."""
    left = _run_stretch(kernel, texts, values, 0, len(texts)) if len(texts) else []
    return np.concatenate(left) if left else np.zeros(0, np.int64)


def _run_stretch(
    kernel: _Kernel, texts: TextColumn, values: NDArray[Any], start: int, stop: int
) -> list[NDArray[np.int64]]:
    """Run a kernel over the rows from `start` to `stop`; return those that it did not fill.

    A stretch that it refuses is cut into parts, so that one odd row does not send all to the slow path.
    """
    try:
        if stop - start > _ONE_BY_ONE:
            # A kernel goes on to the end after a refusal, at 0.5 µs for each refused row.
            kernel(texts.slice(start, start + _TASTE))
        values[start:stop], doubtful = kernel(texts.slice(start, stop))
    except pa.ArrowInvalid:
        if stop - start <= _ONE_BY_ONE:
            rows = np.arange(start, stop, dtype=np.int64)
            return [rows if texts.valid is None else rows[texts.valid[start:stop]]]
        left = []
        part = -(-(stop - start) // _SPLIT)
        for at in range(start, stop, part):
            left += _run_stretch(kernel, texts, values, at, min(at + part, stop))
        return left
    return [] if doubtful is None else [np.flatnonzero(doubtful) + start]


def _parse_rows(
    type_: SqlType, texts: TextColumn, rows: NDArray[np.int64], values: NDArray[Any]
) -> dict[int, SqlError]:
    """Parse `rows` into `values`, each distinct text once; return the errors by row."""
    encoded = texts.arrow.take(pa.array(rows)).dictionary_encode()
    codes = encoded.indices.to_numpy()
    distinct = np.zeros(len(encoded.dictionary), values.dtype)
    failed: dict[int, SqlError] = {}
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            distinct[code] = parse(type_, text)
        except SqlError as error:
            # The traceback leads here: a cycle, with the whole column in it.
            failed[code] = error.with_traceback(None)
    values[rows] = distinct[codes]
    if not failed:
        return {}
    bad = np.flatnonzero(np.isin(codes, list(failed)))
    return {row: failed[code] for row, code in zip(rows[bad].tolist(), codes[bad].tolist(), strict=True)}


def render_column(column: Column) -> TextColumn:
    """Return the texts of a column's values as a column of type text; null stays null."""
    if isinstance(column, TextColumn):
        return TextColumn(TEXT, column.offsets, column.data, column.valid)
    assert isinstance(column, FixedColumn)
    type_, values = column.type, column.values
    if type_ in INTEGRAL:
        texts = render_integers(values)
    elif type_ in FLOATING:
        texts = render_floats(type_, values)
    elif type_ is BOOLEAN:
        texts = render_booleans(values)
    elif type_ is DATE:
        texts = render_dates(values)
    else:
        texts = render_timestamps(type_, values)
    if column.valid is not None:
        # An array of nulls: from a scalar the kernel would leave the text's bytes under the null.
        texts = pc.if_else(pa.array(column.valid), texts, pa.nulls(len(column), pa.large_string()))
    return text_from_arrow(texts, TEXT)
