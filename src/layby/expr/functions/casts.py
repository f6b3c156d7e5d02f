"""Casts among the types, with the contexts that pg_cast gives them.

Floats become integers by rounding half to even. Every type has a cast to text (its output form, but `true`
and `false` for booleans) on assignment, and one from text (its input form) that has to be written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layby.errors import SqlError
from layby.expr.function import CastContext, Function, Kernel, register_cast
from layby.expr.functions.arithmetic import OUT_OF_RANGE, OVERFLOW, UNDERFLOW, canonical, overflowed
from layby.expr.functions.comparison import midnights
from layby.expr.functions.kernels import Flawed, Total, arrow_to_text, define, partial, total
from layby.expr.functions.text import join
from layby.expr.vector import RowErrors, Vector
from layby.types.column import Array, Column, FixedColumn, TextColumn, text_from_arrow
from layby.types.datetime import (
    DATE_INFINITY,
    DATE_NEGATIVE_INFINITY,
    END_TIMESTAMP,
    TIMESTAMP_INFINITY,
    TIMESTAMP_NEGATIVE_INFINITY,
    USECS_PER_DAY,
)
from layby.types.formats import parse_column, render_column
from layby.types.scalar import (
    ALL,
    BOOLEAN,
    DATE,
    DOUBLE_PRECISION,
    FLOATING,
    INTEGER,
    INTEGRAL,
    REAL,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    SqlType,
)

_IMPLICIT, _ASSIGNMENT, _EXPLICIT = CastContext.IMPLICIT, CastContext.ASSIGNMENT, CastContext.EXPLICIT

DATE_OUT_OF_RANGE_FOR_TIMESTAMP: Final = SqlError("22008", "date out of range for timestamp")


def _convert(dtype: np.dtype[np.generic] | None) -> Total:
    return lambda values: values.astype(dtype)


def _narrow(target: SqlType) -> Callable[[Array], Flawed]:
    dtype, error = target.dtype, OUT_OF_RANGE[target]

    def compute(values: Array) -> Flawed:
        narrow = values.astype(dtype)
        return narrow, [(narrow != values, error)]

    return compute


def _round(target: SqlType) -> Callable[[Array], Flawed]:
    dtype, error = np.dtype(target.dtype), OUT_OF_RANGE[target]
    bound = float(2 ** (8 * target.size - 1))

    def compute(values: Array) -> Flawed:
        rounded = np.rint(values.astype(np.float64))
        outside = ~((rounded >= -bound) & (rounded < bound))
        return np.where(outside, 0.0, rounded).astype(dtype), [(outside, error)]

    return compute


def _to_real(values: Array) -> Flawed:
    narrow = values.astype(np.float32)
    return canonical(narrow), [
        (overflowed(narrow, values), OVERFLOW),
        ((narrow == 0) & (values != 0), UNDERFLOW),
    ]


def _date_to_timestamp(days: Array) -> Flawed:
    outside = (days >= END_TIMESTAMP // USECS_PER_DAY) & (days != DATE_INFINITY)
    return midnights(days), [(outside, DATE_OUT_OF_RANGE_FOR_TIMESTAMP)]


def _timestamp_to_date(micros: Array) -> Array:
    days = micros // USECS_PER_DAY
    days = np.where(micros == TIMESTAMP_INFINITY, DATE_INFINITY, days)
    return np.where(micros == TIMESTAMP_NEGATIVE_INFINITY, DATE_NEGATIVE_INFINITY, days).astype(np.int32)


def _spelled(args: Sequence[Vector], _length: int) -> Vector:
    """Show booleans as `true` and `false`, as their cast does; their output form is `t` and `f`."""
    column = cast("FixedColumn", args[0].column)
    shown = pc.if_else(pa.array(column.values), "true", "false")
    if column.valid is not None:
        shown = pc.if_else(pa.array(column.valid), shown, pa.scalar(None, pa.string()))
    return Vector(text_from_arrow(shown, TEXT))


def _shown(args: Sequence[Vector], _length: int) -> Vector:
    return Vector(render_column(args[0].column))


def _retyped(args: Sequence[Vector], _length: int) -> Vector:
    column = cast("TextColumn", args[0].column)
    return Vector(TextColumn(TEXT, column.offsets, column.data, column.valid))


def _read(target: SqlType) -> Kernel:
    def kernel(args: Sequence[Vector], _length: int) -> Vector:
        column, failed = parse_column(target, cast("TextColumn", args[0].column))
        return Vector(column, _errors_of(failed, column))

    return kernel


def _errors_of(failed: dict[int, SqlError], column: Column) -> RowErrors | None:
    if not failed:
        return None
    codes = np.zeros(len(column), np.int32)
    codes[list(failed)] = np.arange(1, len(failed) + 1)
    return RowErrors(codes, list(failed.values()))


def _register(source: SqlType, target: SqlType, kernel: Kernel, context: CastContext) -> None:
    register_cast(Function("cast", (source,), target, kernel), context)


def _register_numbers() -> None:
    for source in INTEGRAL:
        for target in INTEGRAL - {source}:
            if target.size > source.size:
                _register(source, target, total(target, _convert(target.dtype)), _IMPLICIT)
            else:
                _register(source, target, partial(target, _narrow(target)), _ASSIGNMENT)
        for target in FLOATING:
            _register(source, target, total(target, _convert(target.dtype)), _IMPLICIT)
            _register(target, source, partial(source, _round(source)), _ASSIGNMENT)
    _register(REAL, DOUBLE_PRECISION, total(DOUBLE_PRECISION, _convert(DOUBLE_PRECISION.dtype)), _IMPLICIT)
    _register(DOUBLE_PRECISION, REAL, partial(REAL, _to_real), _ASSIGNMENT)
    _register(INTEGER, BOOLEAN, total(BOOLEAN, lambda values: values != 0), _EXPLICIT)
    _register(BOOLEAN, INTEGER, total(INTEGER, _convert(INTEGER.dtype)), _EXPLICIT)


def _register_times() -> None:
    for target in (TIMESTAMP, TIMESTAMPTZ):
        _register(DATE, target, partial(target, _date_to_timestamp), _IMPLICIT)
        _register(target, DATE, total(DATE, _timestamp_to_date), _ASSIGNMENT)
    _register(TIMESTAMP, TIMESTAMPTZ, total(TIMESTAMPTZ, lambda micros: micros), _IMPLICIT)
    _register(TIMESTAMPTZ, TIMESTAMP, total(TIMESTAMP, lambda micros: micros), _ASSIGNMENT)


def _joined_with(shown: Kernel, *, after: bool) -> Kernel:
    joined = arrow_to_text((lambda other, text: join(text, other)) if after else join)

    def kernel(args: Sequence[Vector], length: int) -> Vector:
        other, text = (args[1], args[0]) if after else (args[0], args[1])
        made = shown([other], 1 if other.constant else length)
        return joined([Vector(made.column, None, other.constant), text], length)

    return kernel


def _register_text() -> None:
    for type_ in ALL:
        if type_ in (TEXT, UNKNOWN):
            continue
        shown = _spelled if type_ is BOOLEAN else _shown
        _register(type_, TEXT, shown, _ASSIGNMENT)
        _register(TEXT, type_, _read(type_), _EXPLICIT)
        define("||", (type_, TEXT), TEXT, _joined_with(shown, after=False))
        define("||", (TEXT, type_), TEXT, _joined_with(shown, after=True))
    _register(UNKNOWN, TEXT, _retyped, _IMPLICIT)


def register_all() -> None:
    """Register the casts, and `||` of text with what is cast to text for it."""
    _register_numbers()
    _register_times()
    _register_text()
