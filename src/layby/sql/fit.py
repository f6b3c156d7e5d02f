"""Fitting: a value compared with a key of another type, as a value or bound of the key's own type.

The comparison's outcome is the same for every key. A value that no key can equal matches nothing; a bound
beyond all keys of the type either takes in all of them or none.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final

import numpy as np

from layby.trace.constraints import Bound
from layby.types.scalar import (
    BIGINT,
    DATE,
    FLOATING,
    INTEGER,
    INTEGRAL,
    REAL,
    SMALLINT,
    TIMESTAMP,
    TIMESTAMPTZ,
    PhysicalValue,
    SqlType,
)

LIMITS: Final = {
    SMALLINT: (-(2**15), 2**15 - 1),
    INTEGER: (-(2**31), 2**31 - 1),
    BIGINT: (-(2**63), 2**63 - 1),
    DATE: (-(2**31), 2**31 - 1),
    TIMESTAMP: (-(2**63), 2**63 - 1),
    TIMESTAMPTZ: (-(2**63), 2**63 - 1),
}
"""The least and greatest physical values; of dates and times they are the infinities."""

_TIMES: Final = (TIMESTAMP, TIMESTAMPTZ)
_DAY: Final = 86_400_000_000
"""Microseconds."""


class Miss(Enum):
    """No key compares so."""

    MISS = "miss"


MISS: Final = Miss.MISS


def fit_equal(key: SqlType, source: SqlType, value: PhysicalValue) -> PhysicalValue | Miss:
    """Return the key that equals a value (not NULL) of type `source`, or MISS."""
    if key is source:
        return value
    if key in FLOATING:
        if key is REAL and isinstance(value, float):
            near = _to_real(value)
            return near if near == value or math.isnan(value) else MISS
        return value
    below = _floor(key, source, value)
    if below is None:
        return MISS
    whole, exact = below
    low, high = LIMITS[key]
    return whole if exact and low <= whole <= high else MISS


def fit_bound(
    key: SqlType, source: SqlType, value: PhysicalValue, inclusive: bool, lower: bool
) -> Bound | Miss:
    """Return the bound that keeps the same keys as one at a value (not NULL) of type `source`, or MISS."""
    if key is source:
        return Bound(value, inclusive)
    if key in FLOATING:
        return _real_bound(value, inclusive, lower) if key is REAL else Bound(value, inclusive)
    low, high = LIMITS[key]
    below = _floor(key, source, value)
    if below is None:  # NaN is above all
        return MISS if lower else Bound(high, True)
    whole, exact = below
    if not exact:
        # Between `whole` and the next: above it is exclusive, up to it inclusive.
        inclusive = not lower
    if whole < low:
        return Bound(low, True) if lower else MISS
    if whole > high:
        return MISS if lower else Bound(high, True)
    return Bound(whole, inclusive)


def _floor(key: SqlType, source: SqlType, value: PhysicalValue) -> tuple[int, bool] | None:
    """Return the greatest integer of the key's unit not above a value, and whether it equals it."""
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            return (2**64 if value > 0 else -(2**64)), False
        whole = math.floor(value)
        return whole, whole == value
    number = int(value) if isinstance(value, int) else 0
    if key in INTEGRAL or (key in _TIMES and source in _TIMES):
        return number, True
    if number in LIMITS[source]:  # infinities
        return LIMITS[key][LIMITS[source].index(number)], True
    if key is DATE:
        days, rest = divmod(number, _DAY)
        return days, rest == 0
    micros = number * _DAY
    # A date past the last timestamp lies below infinity all the same.
    return (micros, True) if micros < 2**63 - 1 else (2**63 - 2, False)


def _to_real(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _real_bound(value: PhysicalValue, inclusive: bool, lower: bool) -> Bound:
    number = float(value) if value is not None else 0.0
    near = _to_real(number)
    if near == number or math.isnan(number):
        return Bound(number, inclusive)
    return Bound(near, (near > number) == lower)
