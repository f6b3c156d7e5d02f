"""Mathematics: rounding, powers, logarithms and trigonometry of double precision, and `random`.

`round`, `ceil` and the like take double precision, as there is no numeric type; `round(x, digits)`, which
PostgreSQL has for numeric only, rounds the shortest decimal form of the number half away from zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from math import isfinite, pi
from typing import Any, Final

import numpy as np

from layby.errors import SqlError
from layby.expr.function import Function, register
from layby.expr.functions.arithmetic import (
    OVERFLOW,
    UNDERFLOW,
    canonical,
    overflowed,
)
from layby.expr.functions.kernels import Flawed, Partial, Total, by_row, define, partial, total
from layby.expr.vector import Vector
from layby.types.column import Array, FixedColumn, Mask
from layby.types.scalar import DOUBLE_PRECISION, INTEGER

_ZERO_TO_NEGATIVE: Final = SqlError("2201F", "zero raised to a negative power is undefined")
_COMPLEX_POWER: Final = SqlError(
    "2201F", "a negative number raised to a non-integer power yields a complex result"
)
_NEGATIVE_ROOT: Final = SqlError("2201F", "cannot take square root of a negative number")
_LOGARITHM_OF_ZERO: Final = SqlError("2201E", "cannot take logarithm of zero")
_NEGATIVE_LOGARITHM: Final = SqlError("2201E", "cannot take logarithm of a negative number")
_OUT_OF_RANGE: Final = SqlError("22003", "input is out of range")

_MOST_DIGITS: Final = 308
"""A double has no digit further from the point that rounding could change or keep."""


def _power(a: Array, b: Array) -> Flawed:
    results = np.power(a, b)
    finite = ~(np.isinf(a) | np.isinf(b))
    lost = (results == 0) & (a != 0) & finite
    return canonical(results), [
        ((a == 0) & (b < 0), _ZERO_TO_NEGATIVE),
        ((a < 0) & np.isfinite(b) & (np.floor(b) != b), _COMPLEX_POWER),
        (overflowed(results, a, b), OVERFLOW),
        (lost, UNDERFLOW),
    ]


def _square_root(a: Array) -> Flawed:
    return canonical(np.sqrt(a)), [(a < 0, _NEGATIVE_ROOT)]


def _exponential(a: Array) -> Flawed:
    results = np.exp(a)
    return results, [
        (overflowed(results, a), OVERFLOW),
        ((results == 0) & ~np.isinf(a), UNDERFLOW),
    ]


def _logarithm(compute: Callable[[Array], Array]) -> Partial:
    def checked(a: Array) -> Flawed:
        return canonical(compute(a)), [(a == 0, _LOGARITHM_OF_ZERO), (a < 0, _NEGATIVE_LOGARITHM)]

    return checked


def _bounded(compute: Callable[[Array], Array], fails: Callable[[Array], Mask]) -> Partial:
    def checked(a: Array) -> Flawed:
        return canonical(compute(a)), [(fails(a), _OUT_OF_RANGE)]

    return checked


def _degrees(a: Array) -> Flawed:
    results = a * (180.0 / pi)
    return results, [(overflowed(results, a), OVERFLOW)]


def _radians(a: Array) -> Flawed:
    results = a * (pi / 180.0)
    return results, [((results == 0) & (a != 0), UNDERFLOW)]


def round_to(value: float, digits: int) -> float:
    """Round half away from zero to `digits` decimals; negative digits round to tens, hundreds and so on."""
    if not isfinite(value) or digits > _MOST_DIGITS:
        return value
    if digits < -_MOST_DIGITS:
        return 0.0
    exponent = Decimal(1).scaleb(-digits)
    exact = Decimal(repr(value))
    if exact.adjusted() < -digits - 1:
        return 0.0
    return float((exact / exponent).to_integral_value(ROUND_HALF_UP) * exponent)


def _random(_args: Sequence[Vector], length: int) -> Vector:
    return Vector(FixedColumn(DOUBLE_PRECISION, _generator.random(length)))


_generator: Final = np.random.default_rng()


def _infinite(values: Array) -> Mask:
    return np.isinf(values)


_TOTAL: dict[str, Total] = {
    "round": np.rint,
    "ceil": np.ceil,
    "ceiling": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "sign": lambda a: np.where(np.isnan(a), 0.0, np.sign(a)),
    "cbrt": np.cbrt,
    "||/": np.cbrt,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
}

_PARTIAL: dict[str, Partial] = {
    "sqrt": _square_root,
    "|/": _square_root,
    "exp": _exponential,
    "ln": _logarithm(np.log),
    "log": _logarithm(np.log10),
    "log10": _logarithm(np.log10),
    "degrees": _degrees,
    "radians": _radians,
    "sin": _bounded(np.sin, _infinite),
    "cos": _bounded(np.cos, _infinite),
    "tan": _bounded(np.tan, _infinite),
    "asin": _bounded(np.arcsin, lambda a: np.abs(a) > 1),
    "acos": _bounded(np.arccos, lambda a: np.abs(a) > 1),
}


def register_all() -> None:
    """Register the mathematical functions."""
    double: Any = (DOUBLE_PRECISION,)
    for name, compute in _TOTAL.items():
        define(name, double, DOUBLE_PRECISION, total(DOUBLE_PRECISION, compute))
    for name, checked in _PARTIAL.items():
        define(name, double, DOUBLE_PRECISION, partial(DOUBLE_PRECISION, checked))
    two = (DOUBLE_PRECISION, DOUBLE_PRECISION)
    for name in ("^", "power", "pow"):
        define(name, two, DOUBLE_PRECISION, partial(DOUBLE_PRECISION, _power))
    define("atan2", two, DOUBLE_PRECISION, total(DOUBLE_PRECISION, np.arctan2))
    define("round", (DOUBLE_PRECISION, INTEGER), DOUBLE_PRECISION, by_row(DOUBLE_PRECISION, round_to))
    define("pi", (), DOUBLE_PRECISION, total(DOUBLE_PRECISION, lambda: np.array([pi])))
    register(Function("random", (), DOUBLE_PRECISION, _random, volatile=True))
