"""The types real and double precision: text format.

The text is the shortest that reads back as the same value, laid out as PostgreSQL 12 and later do it. Two
habits of it differ from Python's `repr`: the exponent form starts at 1e15 (real: 1e6), and a shortest text
that lies exactly between two values (`1e23`) is not used, since not every reader rounds it to even.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from layby.errors import SqlError
from layby.types.column import Mask, TextColumn
from layby.types.integer import filled
from layby.types.scalar import REAL, SqlType
from layby.types.syntax import WHITESPACE, invalid_syntax

_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?", re.ASCII | re.IGNORECASE)
_HEX: Final = re.compile(
    r"[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?", re.ASCII | re.IGNORECASE
)
_SPECIAL: Final = re.compile(r"([+-]?)(?:(inf(?:inity)?)|nan(?:\([0-9a-z_]*\))?)", re.ASCII | re.IGNORECASE)
_NOT_ZERO: Final = re.compile(r"[+-]?(?:0x)?[0.]*[1-9a-df]", re.ASCII | re.IGNORECASE)

_PLAIN_FROM_EXPONENT: Final = -4
_PLAIN_BELOW_EXPONENT: Final = {4: 6, 8: 15}
"""The decimal exponents that are written without one, by the type's size."""

_KERNEL_FROM: Final = 1.0001e-4
_KERNEL_BELOW: Final = 1e9
"""Between these the kernel's layout of a double is PostgreSQL's as well; it takes to exponents at 1e10."""

_BETWEEN_FROM: Final = {4: 2.0**21, 8: 2.0**51}
"""From here on a text as short as a shortest one can lie exactly halfway between two values."""


def parse_float(type_: SqlType, text: str) -> float:
    """Return the value of one text, rounded to the type; raises 22P02 and 22003."""
    stripped = text.strip(WHITESPACE)
    special = _SPECIAL.fullmatch(stripped)
    if special is not None:
        if special[2] is None:
            return math.nan
        return -math.inf if special[1] == "-" else math.inf
    try:
        if _DECIMAL.fullmatch(stripped) is not None:
            value = float(stripped)
            if type_ is REAL:
                value = _round_to_real(value, stripped)
        elif _HEX.fullmatch(stripped) is not None:
            value = float.fromhex(stripped)
            if type_ is REAL:
                value = _to_real(value)
        else:
            raise invalid_syntax(type_, text)
    except OverflowError:
        value = math.inf
    if math.isinf(value) or (value == 0.0 and _NOT_ZERO.match(stripped) is not None):
        raise SqlError("22003", f'"{stripped}" is out of range for type {type_.name}')
    return value


def _to_real(value: float) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(value))


def _round_to_real(value: float, text: str) -> float:
    """Round the decimal `text`, which reads as the double `value`, to a real in one step.

    Rounding the double again errs only where the double lies halfway between two reals and the text beside
    it: then the text decides.
    """
    rounded = _to_real(value)
    if rounded == value or math.isinf(value):
        return rounded
    with np.errstate(over="ignore"):
        other = float(np.nextafter(np.float32(rounded), np.float32(math.copysign(math.inf, value - rounded))))
    if math.isinf(rounded) or math.isinf(other) or Fraction(rounded) + Fraction(other) != 2 * Fraction(value):
        return rounded
    exact = Decimal(text)
    if exact == Decimal(value):
        return rounded
    return max(rounded, other) if exact > Decimal(value) else min(rounded, other)


def parse_floats(type_: SqlType, texts: TextColumn) -> tuple[NDArray[Any], Mask | None]:
    """Parse plain decimal texts: values, and a mask of the rows left to `parse_float` (None: none).

    Raises `pyarrow.ArrowInvalid` where a text is anything else. Zeros and infinities are doubtful, since
    the kernel does not tell underflow and overflow.
    """
    values = filled(texts.arrow.cast(pa.from_numpy_dtype(type_.dtype)))
    doubtful = (values == 0) | np.isinf(values)
    if texts.valid is not None:
        doubtful &= texts.valid
    if np.isnan(values).any():
        values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    return values, doubtful if doubtful.any() else None


def render_float(type_: SqlType, value: float) -> str:
    """Return the shortest text that reads back as `value`."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if type_.size == 8 and abs(value) < 1e15:
        # The common case, where `repr` differs in nothing but the `.0` of whole numbers.
        return repr(value).removesuffix(".0")
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return sign + "0"
    digits, exponent = _shortest(value, type_.size)
    if _PLAIN_FROM_EXPONENT <= exponent < _PLAIN_BELOW_EXPONENT[type_.size]:
        return sign + _plain(digits, exponent)
    fraction = "." + digits[1:] if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _plain(digits: str, exponent: int) -> str:
    """Lay out `d.ddd × 10**exponent` without an exponent."""
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    if len(digits) <= exponent + 1:
        return digits.ljust(exponent + 1, "0")
    return digits[: exponent + 1] + "." + digits[exponent + 1 :]


def _shortest(value: float, size: int) -> tuple[str, int]:
    """Return the digits, without zeros at the end, and the exponent of the shortest `d.dd × 10**exponent`."""
    magnitude = abs(value)
    if size == 4:
        text = np.format_float_scientific(np.float32(magnitude), unique=True, trim="-")
    else:
        text = repr(magnitude)
    _, figures, power = Decimal(text).as_tuple()
    assert isinstance(power, int)
    digits = "".join(map(str, figures))
    exponent = power + len(digits) - 1
    digits = digits.rstrip("0") or "0"
    if magnitude >= _BETWEEN_FROM[size]:
        return _inside(magnitude, size, digits, exponent)
    return digits, exponent


def _inside(magnitude: float, size: int, digits: str, exponent: int) -> tuple[str, int]:
    """Return `digits`, or others where they lie on the edge of the interval that rounds to `magnitude`."""
    kind: type[np.floating[Any]] = np.float32 if size == 4 else np.float64
    exact = Fraction(magnitude)
    ulp_below = exact - Fraction(float(np.nextafter(kind(magnitude), kind(0))))
    with np.errstate(over="ignore"):
        above = float(np.nextafter(kind(magnitude), kind(np.inf)))
    ulp_above = ulp_below if math.isinf(above) else Fraction(above) - exact
    low, high = exact - ulp_below / 2, exact + ulp_above / 2
    if low < int(digits) * Fraction(10) ** (exponent - len(digits) + 1) < high:
        return digits, exponent
    for count in range(len(digits), 18):
        unit = Fraction(10) ** (exponent - count + 1)
        down = exact // unit
        fits = [n for n in (down, down + 1) if low < n * unit < high]
        if fits:
            text = str(min(fits, key=lambda n: abs(n * unit - exact)))
            return text.rstrip("0"), exponent + len(text) - count
    return digits, exponent


def render_floats(type_: SqlType, values: NDArray[Any]) -> Any:
    """Return the texts of `values` as a `pyarrow` string array.

    Whole numbers go through the integer kernel, others of middling magnitude through the float kernel
    (0.2 µs a value); what needs an exponent is rendered one by one (2 µs).
    """
    magnitude = np.abs(values)
    limit = 10.0 ** _PLAIN_BELOW_EXPONENT[type_.size]
    whole = (magnitude < limit) & (np.trunc(values) == values) & ((values != 0) | ~np.signbit(values))
    plain = ~whole & (magnitude >= _KERNEL_FROM) & (magnitude < min(limit, _KERNEL_BELOW))
    parts: list[tuple[NDArray[np.int64], Any]] = []
    at = np.flatnonzero(whole)
    if len(at):
        parts.append((at, pa.array(values[at].astype(np.int64)).cast(pa.large_string())))
    at = np.flatnonzero(plain)
    if len(at):
        parts.append((at, pa.array(values[at]).cast(pa.large_string())))
    at = np.flatnonzero(~(whole | plain))
    if len(at):
        texts = [render_float(type_, v) for v in values[at].tolist()]
        parts.append((at, pa.array(texts, pa.large_string())))
    return merged(parts, len(values))


def merged(parts: list[tuple[NDArray[np.int64], Any]], count: int) -> Any:
    """Return the `count` texts whose row numbers and `pyarrow` string arrays are the parts."""
    if len(parts) == 1:
        return parts[0][1]
    if not parts:
        return pa.array([], pa.large_string())
    source = np.empty(count, np.int64)
    source[np.concatenate([rows for rows, _ in parts])] = np.arange(count)
    return pc.take(pa.concat_arrays([texts for _, texts in parts]), pa.array(source))
