"""Arithmetic: `+ - * / %`, signs and `abs` of numbers, with PostgreSQL's result types and range checks.

Integers never wrap: a result outside its type is an error, as is a float that overflows to infinity or
underflows to zero. Integer division and remainder truncate towards zero.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from layby.errors import SqlError
from layby.expr.functions.kernels import Flawed, Partial, define, partial, total
from layby.types.column import Array, Mask
from layby.types.scalar import BIGINT, DOUBLE_PRECISION, INTEGER, REAL, SMALLINT, SqlType

OUT_OF_RANGE: Final = {
    type_: SqlError("22003", f"{type_.name} out of range") for type_ in (SMALLINT, INTEGER, BIGINT)
}
DIVISION_BY_ZERO: Final = SqlError("22012", "division by zero")
OVERFLOW: Final = SqlError("22003", "value out of range: overflow")
UNDERFLOW: Final = SqlError("22003", "value out of range: underflow")

_WIDE_PRODUCT: Final = 1 << 31
"""Factors of 64 bits within this bound on both sides cannot overflow; only others are checked by division."""


def _add(result: SqlType) -> Partial:
    dtype, error = result.dtype, OUT_OF_RANGE[result]

    def compute(a: Array, b: Array) -> Flawed:
        a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
        sums = a + b
        return sums, [(((a ^ sums) & (b ^ sums)) < 0, error)]

    return compute


def _subtract(result: SqlType) -> Partial:
    dtype, error = result.dtype, OUT_OF_RANGE[result]

    def compute(a: Array, b: Array) -> Flawed:
        a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
        differences = a - b
        return differences, [(((a ^ b) & (a ^ differences)) < 0, error)]

    return compute


def _multiply(result: SqlType) -> Partial:
    dtype, error = result.dtype, OUT_OF_RANGE[result]

    def narrow(a: Array, b: Array) -> Flawed:
        wide = a.astype(np.int64) * b
        products = wide.astype(dtype)
        return products, [(products != wide, error)]

    def wide(a: Array, b: Array) -> Flawed:
        a, b = a.astype(np.int64, copy=False), b.astype(np.int64, copy=False)
        products = a * b
        if _small(a) and _small(b):
            return products, []
        lowest = np.iinfo(np.int64).min
        nonzero = (a != 0) & (b != 0)
        divisor = np.where(nonzero & (a != -1), a, 1)
        undone = np.where(a == -1, -products, products // divisor)
        wrapped = nonzero & ((undone != b) | ((a == -1) & (b == lowest)))
        return products, [(wrapped, error)]

    return wide if result is BIGINT else narrow


def _small(values: Array) -> bool:
    return not len(values) or (int(values.min()) > -_WIDE_PRODUCT and int(values.max()) < _WIDE_PRODUCT)


def _divide(result: SqlType) -> Partial:
    dtype, error = result.dtype, OUT_OF_RANGE[result]
    lowest = np.iinfo(np.dtype(dtype)).min

    def compute(a: Array, b: Array) -> Flawed:
        a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
        zero, negating = b == 0, b == -1
        divisor = np.where(zero | negating, dtype.type(1), b) if dtype is not None else b
        floor = a // divisor
        # numpy rounds down: a negative quotient that is not exact is one too low
        inexact = (floor * divisor != a) & ((a < 0) != (divisor < 0))
        quotients = floor + inexact
        quotients = np.where(negating, -a, quotients).astype(dtype, copy=False)
        return quotients, [(zero, DIVISION_BY_ZERO), (negating & (a == lowest), error)]

    return compute


def _remainder(a: Array, b: Array) -> Flawed:
    zero = b == 0
    # the remainder by 1 and -1 is 0; -1 itself would overflow the processor's division of the lowest integer
    divisor = np.where(zero | (b == -1), b.dtype.type(1), b)
    return np.fmod(a, divisor), [(zero, DIVISION_BY_ZERO)]


def _negate(result: SqlType) -> Partial:
    lowest = np.iinfo(np.dtype(result.dtype)).min
    return lambda a: (-a, [(a == lowest, OUT_OF_RANGE[result])])


def _absolute(result: SqlType) -> Partial:
    lowest = np.iinfo(np.dtype(result.dtype)).min
    return lambda a: (np.abs(a), [(a == lowest, OUT_OF_RANGE[result])])


def canonical(values: Array) -> Array:
    """Return floats with every NaN the canonical one (x86 makes NaNs with the sign bit set)."""
    odd = np.isnan(values)
    return np.where(odd, values.dtype.type(np.nan), values) if odd.any() else values


def overflowed(results: Array, *inputs: Array) -> Mask:
    """Tell where a float result is infinite though no input is."""
    infinite = np.isinf(results)
    if infinite.any():
        for values in inputs:
            infinite = infinite & ~np.isinf(values)
    return infinite


def _float_add(a: Array, b: Array) -> Flawed:
    sums = a + b
    return canonical(sums), [(overflowed(sums, a, b), OVERFLOW)]


def _float_subtract(a: Array, b: Array) -> Flawed:
    differences = a - b
    return canonical(differences), [(overflowed(differences, a, b), OVERFLOW)]


def _float_multiply(a: Array, b: Array) -> Flawed:
    products = a * b
    lost = (products == 0) & (a != 0) & (b != 0)
    return canonical(products), [(overflowed(products, a, b), OVERFLOW), (lost, UNDERFLOW)]


def _float_divide(a: Array, b: Array) -> Flawed:
    quotients = a / b
    lost = (quotients == 0) & (a != 0) & ~np.isinf(b)
    zero = (b == 0) & ~np.isnan(a)
    return canonical(quotients), [
        (zero, DIVISION_BY_ZERO),
        (overflowed(quotients, a) & (b != 0), OVERFLOW),
        (lost, UNDERFLOW),
    ]


_WIDTHS = (SMALLINT, INTEGER, BIGINT)


def _register_integers() -> None:
    for left in _WIDTHS:
        for right in _WIDTHS:
            result = max(left, right, key=lambda t: t.size)
            for name, make in (("+", _add), ("-", _subtract), ("*", _multiply), ("/", _divide)):
                define(name, (left, right), result, partial(result, make(result)))
    for type_ in _WIDTHS:
        for name in ("%", "mod"):
            define(name, (type_, type_), type_, partial(type_, _remainder))
        define("-", (type_,), type_, partial(type_, _negate(type_)))
        define("+", (type_,), type_, total(type_, lambda a: a))
        for name in ("abs", "@"):
            define(name, (type_,), type_, partial(type_, _absolute(type_)))


def _register_floats() -> None:
    operators = (
        ("+", _float_add),
        ("-", _float_subtract),
        ("*", _float_multiply),
        ("/", _float_divide),
    )
    for left in (REAL, DOUBLE_PRECISION):
        for right in (REAL, DOUBLE_PRECISION):
            result = REAL if left is right is REAL else DOUBLE_PRECISION
            for name, compute in operators:
                define(name, (left, right), result, partial(result, compute))
    for type_ in (REAL, DOUBLE_PRECISION):
        define("-", (type_,), type_, total(type_, lambda a: canonical(-a)))
        define("+", (type_,), type_, total(type_, lambda a: a))
        for name in ("abs", "@"):
            define(name, (type_,), type_, total(type_, np.abs))


def register_all() -> None:
    """Register arithmetic on integers and floats."""
    _register_integers()
    _register_floats()
