"""Dates and times: arithmetic on dates, `extract`, `date_part`, `date_trunc` and constructors.

Timestamps with time zone are reckoned in UTC. The extremes of a type's range are -infinity and infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isinf, isnan
from typing import Final

import numpy as np

from layby.errors import SqlError
from layby.expr.function import Kernel
from layby.expr.functions.kernels import (
    NULL,
    Flaw,
    Flawed,
    by_row,
    define,
    partial,
    python_values,
    row_errors,
    total,
    validity,
    values_of,
)
from layby.expr.vector import Vector, constant
from layby.types.column import Array, FixedColumn, Mask
from layby.types.datetime import (
    END_DATE,
    END_TIMESTAMP,
    EPOCH_DAYS,
    JULIAN_EPOCH,
    MIN_DATE,
    MIN_TIMESTAMP,
    TIMESTAMP_INFINITY,
    TIMESTAMP_NEGATIVE_INFINITY,
    USECS_PER_DAY,
    USECS_PER_SECOND,
    civil_from_days,
    days_from_civil,
    days_in_month,
)
from layby.types.scalar import (
    BOOLEAN,
    DATE,
    DOUBLE_PRECISION,
    INTEGER,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
)

DATE_OUT_OF_RANGE: Final = SqlError("22008", "date out of range")
TIMESTAMP_OUT_OF_RANGE: Final = SqlError("22008", "timestamp out of range")
INFINITE_DIFFERENCE: Final = SqlError("22008", "cannot subtract infinite dates")

EPOCH_SECONDS: Final = EPOCH_DAYS * 86_400
"""2000-01-01 00:00 UTC in seconds since 1970."""

_UNITS: Final = {
    alias: unit
    for unit, aliases in {
        "microseconds": "microsecond us usec usecs usecond useconds",
        "milliseconds": "millisecond ms msec msecs msecond mseconds",
        "second": "seconds s sec secs",
        "minute": "minutes m min mins",
        "hour": "hours h hr hrs",
        "day": "days d",
        "week": "weeks w",
        "month": "months mon mons",
        "quarter": "qtr",
        "year": "years y yr yrs",
        "decade": "decades dec decs",
        "century": "centuries c cent",
        "millennium": "millennia mil mils",
        "dow": "",
        "isodow": "",
        "doy": "",
        "epoch": "",
        "isoyear": "",
        "julian": "",
        "timezone": "",
        "timezone_hour": "timezone_h",
        "timezone_minute": "timezone_m",
    }.items()
    for alias in (unit, *aliases.split())
}
"""What PostgreSQL takes for a unit, by each of its spellings."""

_TYPE_NAMES: Final = {
    DATE: "date",
    TIMESTAMP: "timestamp without time zone",
    TIMESTAMPTZ: "timestamp with time zone",
}

_MONOTONIC: Final = frozenset({"year", "decade", "century", "millennium", "isoyear", "julian", "epoch"})
"""The fields of an infinite time that are infinite; its others are null."""


class _Moments:
    """Times taken apart: days since 2000-01-01 and microseconds of the day."""

    __slots__ = ("days", "micros")

    def __init__(self, type_: SqlType, values: Array) -> None:
        if type_ is DATE:
            self.days, self.micros = values.astype(np.int64), np.zeros(len(values), np.int64)
        else:
            self.days, self.micros = np.divmod(values, USECS_PER_DAY)

    def civil(self) -> tuple[Array, Array, Array]:
        year, month, day = civil_from_days(self.days)
        return np.asarray(year), np.asarray(month), np.asarray(day)

    def years(self) -> Array:
        return self.civil()[0]


def _first_of(year: Array, month: Array) -> Array:
    return np.asarray(days_from_civil(year, month, np.ones(len(year), np.int64)))


def _weekday(days: Array) -> Array:
    """Return 0 for Monday to 6 for Sunday; 2000-01-01 was a Saturday."""
    return (days + 5) % 7


def _iso_year(days: Array) -> Array:
    """Return the year that the week's Thursday lies in."""
    return np.asarray(civil_from_days(days - _weekday(days) + 3)[0])


def _iso_week(days: Array) -> Array:
    thursday = days - _weekday(days) + 3
    year = np.asarray(civil_from_days(thursday)[0])
    return (thursday - _first_of(year, np.ones(len(year), np.int64))) // 7 + 1


def _without_zero(year: Array) -> Array:
    """Return years as they are counted: 1 BC, the astronomical year 0, is -1."""
    return np.where(year > 0, year, year - 1)


def _era(year: Array, length: int) -> Array:
    """Return the century or millennium of a year: the first starts with year 1, and -1 is before it."""
    return np.where(year > 0, (year + length - 1) // length, -((length - year) // length))


_FIELDS: Final[dict[str, Callable[[_Moments], Array]]] = {
    "microseconds": lambda m: m.micros % 60_000_000,
    "milliseconds": lambda m: (m.micros % 60_000_000) / 1000,
    "second": lambda m: (m.micros % 60_000_000) / 1_000_000,
    "minute": lambda m: m.micros // 60_000_000 % 60,
    "hour": lambda m: m.micros // 3_600_000_000,
    "day": lambda m: m.civil()[2],
    "week": lambda m: _iso_week(m.days),
    "month": lambda m: m.civil()[1],
    "quarter": lambda m: (m.civil()[1] - 1) // 3 + 1,
    "year": lambda m: _without_zero(m.years()),
    "decade": lambda m: m.years() // 10,
    "century": lambda m: _era(m.years(), 100),
    "millennium": lambda m: _era(m.years(), 1000),
    "dow": lambda m: (m.days + 6) % 7,
    "isodow": lambda m: _weekday(m.days) + 1,
    "doy": lambda m: m.days - _first_of(m.years(), np.ones(len(m.days), np.int64)) + 1,
    "epoch": lambda m: m.days * 86_400 + EPOCH_SECONDS + m.micros / 1_000_000,
    "isoyear": lambda m: _without_zero(_iso_year(m.days)),
    "julian": lambda m: m.days + JULIAN_EPOCH + m.micros / USECS_PER_DAY,
    "timezone": lambda m: np.zeros(len(m.days)),
    "timezone_hour": lambda m: np.zeros(len(m.days)),
    "timezone_minute": lambda m: np.zeros(len(m.days)),
}

_OF_TIMES: Final = frozenset({"microseconds", "milliseconds", "second", "minute", "hour"})
_OF_ZONES: Final = frozenset({"timezone", "timezone_hour", "timezone_minute"})
_UNITS_OF_TIME: Final = frozenset(_FIELDS) - {"dow", "isodow", "doy", "epoch", "isoyear", "julian"}
"""What `date_trunc` knows as units, though it cannot truncate to all of them."""


def _truncated_year(length: int, first: int) -> Callable[[_Moments], Array]:
    def truncate(moments: _Moments) -> Array:
        year = (moments.years() - first) // length * length + first
        return _first_of(year, np.ones(len(year), np.int64)) * USECS_PER_DAY

    return truncate


def _truncated_time(size: int) -> Callable[[_Moments], Array]:
    return lambda m: m.days * USECS_PER_DAY + m.micros // size * size


def _truncated_quarter(moments: _Moments) -> Array:
    year, month, _ = moments.civil()
    return _first_of(year, (month - 1) // 3 * 3 + 1) * USECS_PER_DAY


_TRUNCATIONS: Final[dict[str, Callable[[_Moments], Array]]] = {
    "microseconds": _truncated_time(1),
    "milliseconds": _truncated_time(1000),
    "second": _truncated_time(1_000_000),
    "minute": _truncated_time(60_000_000),
    "hour": _truncated_time(3_600_000_000),
    "day": _truncated_time(USECS_PER_DAY),
    "week": lambda m: (m.days - _weekday(m.days)) * USECS_PER_DAY,
    "month": lambda m: _first_of(*m.civil()[:2]) * USECS_PER_DAY,
    "quarter": _truncated_quarter,
    "year": _truncated_year(1, 0),
    "decade": _truncated_year(10, 0),
    "century": _truncated_year(100, 1),
    "millennium": _truncated_year(1000, 1),
}

ByUnit = Callable[[str, Array], tuple[Array, Mask | None, list[Flaw]]]
"""Computes a unit of times: values, where they are defined, and flaws. An unknown unit raises `SqlError`."""


def infinite(type_: SqlType, values: Array) -> Mask:
    """Tell which dates or timestamps are -infinity or infinity."""
    limits = np.iinfo(np.dtype(type_.dtype))
    extreme: Mask = (values == limits.max) | (values == limits.min)
    return extreme


def _extract(type_: SqlType, allowed: frozenset[str]) -> ByUnit:
    name = _TYPE_NAMES[type_]

    def compute(text: str, values: Array) -> tuple[Array, Mask | None, list[Flaw]]:
        unit = _unit(text, name, allowed, frozenset(_FIELDS))
        fields = _FIELDS[unit](_Moments(type_, values)).astype(np.float64)
        endless = infinite(type_, values)
        if not endless.any():
            return fields, None, []
        if unit in _MONOTONIC:
            return np.where(endless, np.where(values > 0, np.inf, -np.inf), fields), None, []
        return fields, ~endless, []

    return compute


def _truncate(type_: SqlType) -> ByUnit:
    name = _TYPE_NAMES[type_]

    def compute(text: str, values: Array) -> tuple[Array, Mask | None, list[Flaw]]:
        unit = _unit(text, name, frozenset(_TRUNCATIONS), _UNITS_OF_TIME)
        endless = infinite(type_, values)
        truncated = _TRUNCATIONS[unit](_Moments(type_, values))
        flaws = [((truncated < MIN_TIMESTAMP) & ~endless, TIMESTAMP_OUT_OF_RANGE)]
        return np.where(endless, values, truncated), None, flaws

    return compute


def _unit(text: str, type_name: str, allowed: frozenset[str], known: frozenset[str]) -> str:
    unit = _UNITS.get(text.lower(), "")
    if unit not in known:
        raise SqlError("22023", f'unit "{text.lower()}" not recognized for type {type_name}')
    if unit not in allowed:
        raise SqlError("0A000", f'unit "{text.lower()}" not supported for type {type_name}')
    return unit


def _by_unit(result: SqlType, compute: ByUnit) -> Kernel:
    """Return the kernel of a strict function of a unit's name and times; all rows of one unit go together."""

    def kernel(args: Sequence[Vector], length: int) -> Vector:
        valid = validity(args)
        if valid is NULL:
            return constant(result, None)
        times = np.broadcast_to(values_of(args[1]), length)
        made = np.zeros(length, result.dtype)
        defined = np.ones(length, np.bool_) if valid is None else valid.copy()
        flaws: list[Flaw] = []
        for unit, rows in _rows_by_unit(args[0], length):
            try:
                values, known, failed = compute(unit, times[rows])
            except SqlError as error:
                error.forget_frames()  # which hold the columns, and this list in a cycle
                flaws.append((_spread(True, rows, length), error))
                continue
            flaws += [(_spread(mask, rows, length), error) for mask, error in failed]
            made[rows] = values
            if known is not None:
                defined[rows] &= known
        column = FixedColumn(result, made)
        if not defined.all():
            column = FixedColumn(result, np.where(defined, made, made.dtype.type(0)), defined)
        return Vector(column, row_errors(flaws, valid, length))

    return kernel


def _spread(mask: Mask | bool, rows: slice | list[int], length: int) -> Mask:
    spread = np.zeros(length, np.bool_)
    spread[rows] = mask
    return spread


def _rows_by_unit(units: Vector, length: int) -> list[tuple[str, slice | list[int]]]:
    if units.constant:
        return [(str(units.column.value(0)), slice(0, length))]
    rows: dict[str, list[int]] = {}
    for row, unit in enumerate(python_values(units, length)):
        if isinstance(unit, str):
            rows.setdefault(unit, []).append(row)
    return list(rows.items())


def _shift(days: Array, count: Array) -> Flawed:
    shifted = days.astype(np.int64) + count
    outside = (shifted < MIN_DATE) | (shifted >= END_DATE)
    endless = infinite(DATE, days)
    return np.where(endless, days, shifted).astype(np.int32), [(outside & ~endless, DATE_OUT_OF_RANGE)]


def _difference(a: Array, b: Array) -> Flawed:
    days = a.astype(np.int64) - b
    return days.astype(np.int32), [(infinite(DATE, a) | infinite(DATE, b), INFINITE_DIFFERENCE)]


def _make_date(year: int, month: int, day: int) -> int:
    # years BC are negative: 1 BC is the astronomical year 0
    astronomical = year + 1 if year < 0 else year
    known = year != 0 and 1 <= month <= 12 and 1 <= day <= days_in_month(astronomical, month)
    made = days_from_civil(astronomical, month, day) if known else None
    if made is not None and MIN_DATE <= made < END_DATE:
        return made
    said = "date field value out of range" if made is None else "date out of range"
    raise SqlError("22008", f"{said}: {astronomical}-{month:02}-{day:02}")


def _to_timestamp(seconds: float) -> int:
    if isnan(seconds):
        raise SqlError("22008", "timestamp cannot be NaN")
    if isinf(seconds):
        return TIMESTAMP_INFINITY if seconds > 0 else TIMESTAMP_NEGATIVE_INFINITY
    since = seconds - EPOCH_SECONDS
    if not MIN_TIMESTAMP <= since * USECS_PER_SECOND < END_TIMESTAMP:
        raise SqlError("22008", f'timestamp out of range: "{seconds:g}"')
    return round(since * USECS_PER_SECOND)


def register_all() -> None:
    """Register the functions and operators of dates and times."""
    define("+", (DATE, INTEGER), DATE, partial(DATE, _shift))
    define("+", (INTEGER, DATE), DATE, partial(DATE, lambda count, days: _shift(days, count)))
    define("-", (DATE, INTEGER), DATE, partial(DATE, lambda days, n: _shift(days, -n.astype(np.int64))))
    define("-", (DATE, DATE), INTEGER, partial(INTEGER, _difference))
    dates = frozenset(_FIELDS) - _OF_TIMES - _OF_ZONES
    times = frozenset(_FIELDS) - _OF_ZONES
    for name, type_, allowed in (
        ("extract", DATE, dates),
        ("date_part", DATE, times),
        ("extract", TIMESTAMP, times),
        ("date_part", TIMESTAMP, times),
        ("extract", TIMESTAMPTZ, frozenset(_FIELDS)),
        ("date_part", TIMESTAMPTZ, frozenset(_FIELDS)),
    ):
        kernel = _by_unit(DOUBLE_PRECISION, _extract(type_, allowed))
        define(name, (TEXT, type_), DOUBLE_PRECISION, kernel)
    for type_ in (TIMESTAMP, TIMESTAMPTZ):
        define("date_trunc", (TEXT, type_), type_, _by_unit(type_, _truncate(type_)))
    for type_ in (DATE, TIMESTAMP, TIMESTAMPTZ):
        define("isfinite", (type_,), BOOLEAN, total(BOOLEAN, _finite(type_)))
    define("make_date", (INTEGER, INTEGER, INTEGER), DATE, by_row(DATE, _make_date))
    define("to_timestamp", (DOUBLE_PRECISION,), TIMESTAMPTZ, by_row(TIMESTAMPTZ, _to_timestamp))


def _finite(type_: SqlType) -> Callable[[Array], Mask]:
    return lambda values: ~infinite(type_, values)
