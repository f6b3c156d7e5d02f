"""The types date, timestamp and timestamptz: civil-calendar arithmetic and text output.

Dates are days and timestamps microseconds since 2000-01-01 (00:00 UTC), in PostgreSQL's range (4714 BC to
5874897 AD for dates, to 294276 AD for timestamps), which Python's `datetime` does not span; so the calendar
is computed here, in integers, by the same expressions for one `int` and for a numpy array. Years are
astronomical: year 0 is 1 BC. The calendar is the proleptic Gregorian one.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from layby.types.column import Mask, TextColumn
from layby.types.floating import merged
from layby.types.integer import filled
from layby.types.scalar import DATE, TIMESTAMPTZ, SqlType

USECS_PER_SECOND: Final = 1_000_000
USECS_PER_MINUTE: Final = 60 * USECS_PER_SECOND
USECS_PER_HOUR: Final = 60 * USECS_PER_MINUTE
USECS_PER_DAY: Final = 24 * USECS_PER_HOUR

EPOCH_DAYS: Final = 10_957
"""Days from 1970-01-01 to 2000-01-01."""
JULIAN_EPOCH: Final = 2_451_545
"""The Julian day of 2000-01-01."""

DATE_INFINITY: Final = 2**31 - 1
DATE_NEGATIVE_INFINITY: Final = -(2**31)
MIN_DATE: Final = -JULIAN_EPOCH
"""4714-11-24 BC, the first date."""
END_DATE: Final = 2_145_031_949
"""The day after 5874897-12-31, the last date."""

TIMESTAMP_INFINITY: Final = 2**63 - 1
TIMESTAMP_NEGATIVE_INFINITY: Final = -(2**63)
MIN_TIMESTAMP: Final = MIN_DATE * USECS_PER_DAY
END_TIMESTAMP: Final = 106_751_983 * USECS_PER_DAY
"""294277-01-01 00:00:00, the first instant out of range."""

Integers = TypeVar("Integers", int, NDArray[np.int64])

_MARCH_EPOCH: Final = 730_425
"""Days from 0000-03-01, from which the leap-day rule is regular, to 2000-01-01."""


def days_from_civil(year: Integers, month: Integers, day: Integers) -> Integers:
    """Return the days since 2000-01-01 of a civil date (`month` 1 to 12, `day` from 1).

    Arrays are int64 and of one shape.
    """
    # The year begins in March, so that the leap day is its last and month lengths follow a straight line.
    from_march = (month + 9) % 12
    of = year - 1 + (month + 9) // 12
    days: Integers = 365 * of + of // 4 - of // 100 + of // 400 + (153 * from_march + 2) // 5 + day - 1
    return days - _MARCH_EPOCH


def civil_from_days(days: Integers) -> tuple[Integers, Integers, Integers]:
    """Return year, month (1 to 12) and day (1 to 31) of days since 2000-01-01; the inverse of the above."""
    since = days + _MARCH_EPOCH
    era = since // 146_097
    in_era = since - era * 146_097
    of = (in_era - in_era // 1460 + in_era // 36_524 - in_era // 146_096) // 365
    in_year = in_era - (365 * of + of // 4 - of // 100)
    from_march = (5 * in_year + 2) // 153
    day = in_year - (153 * from_march + 2) // 5 + 1
    month = (from_march + 2) % 12 + 1
    year = of + era * 400 + (from_march + 2) // 12
    return year, month, day


def days_in_month(year: int, month: int) -> int:
    """Return the length of a month."""
    if month == 2:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return 29 if leap else 28
    return 30 if month in (4, 6, 9, 11) else 31


def render_date(days: int) -> str:
    """Return a date as ISO 8601 writes it, with ` BC` where it is."""
    if days == DATE_INFINITY:
        return "infinity"
    if days == DATE_NEGATIVE_INFINITY:
        return "-infinity"
    date, era = _date_and_era(days)
    return date + era


def _date_and_era(days: int) -> tuple[str, str]:
    year, month, day = civil_from_days(days)
    if year <= 0:
        return f"{1 - year:04d}-{month:02d}-{day:02d}", " BC"
    return f"{year:04d}-{month:02d}-{day:02d}", ""


def render_timestamp(type_: SqlType, value: int) -> str:
    """Return a timestamp with the fraction it has; a timestamptz in UTC, with the suffix `+00`."""
    if value == TIMESTAMP_INFINITY:
        return "infinity"
    if value == TIMESTAMP_NEGATIVE_INFINITY:
        return "-infinity"
    days, usecs = divmod(value, USECS_PER_DAY)
    seconds, fraction = divmod(usecs, USECS_PER_SECOND)
    date, era = _date_and_era(days)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    part = f".{fraction:06d}".rstrip("0") if fraction else ""
    zone = "+00" if type_ is TIMESTAMPTZ else ""
    return f"{date} {clock}{part}{zone}{era}"


_FIRST_KERNEL_DAY: Final = days_from_civil(1, 1, 1)
_END_KERNEL_DAY: Final = days_from_civil(10_000, 1, 1)
"""The years of four digits after Christ, which the kernels write and read as PostgreSQL does."""


def render_dates(values: NDArray[Any]) -> Any:
    """Return the texts of dates as a `pyarrow` string array."""
    plain = (values >= _FIRST_KERNEL_DAY) & (values < _END_KERNEL_DAY)
    parts: list[tuple[NDArray[np.int64], Any]] = []
    at = np.flatnonzero(plain)
    if len(at):
        shifted = (values[at] + EPOCH_DAYS).astype(np.int32)
        parts.append((at, pa.array(shifted).cast(pa.date32()).cast(pa.large_string())))
    at = np.flatnonzero(~plain)
    if len(at):
        parts.append((at, pa.array([render_date(v) for v in values[at].tolist()], pa.large_string())))
    return merged(parts, len(values))


def render_timestamps(type_: SqlType, values: NDArray[Any]) -> Any:
    """Return the texts of timestamps as a `pyarrow` string array."""
    plain = (values >= _FIRST_KERNEL_DAY * USECS_PER_DAY) & (values < _END_KERNEL_DAY * USECS_PER_DAY)
    whole = plain & (values % USECS_PER_SECOND == 0)
    fractional = plain & ~whole
    parts: list[tuple[NDArray[np.int64], Any]] = []
    suffix = "+00" if type_ is TIMESTAMPTZ else ""
    shift = EPOCH_DAYS * USECS_PER_DAY
    at = np.flatnonzero(whole)
    if len(at):
        seconds = pa.array((values[at] + shift) // USECS_PER_SECOND, pa.timestamp("s"))
        parts.append((at, _with_suffix(seconds.cast(pa.large_string()), suffix)))
    at = np.flatnonzero(fractional)
    if len(at):
        texts = pa.array(values[at] + shift, pa.timestamp("us")).cast(pa.large_string())
        parts.append((at, _with_suffix(pc.ascii_rtrim(texts, "0"), suffix)))
    at = np.flatnonzero(~plain)
    if len(at):
        slow = [render_timestamp(type_, v) for v in values[at].tolist()]
        parts.append((at, pa.array(slow, pa.large_string())))
    return merged(parts, len(values))


def _with_suffix(texts: Any, suffix: str) -> Any:
    if not suffix:
        return texts
    return pc.binary_join_element_wise(
        texts, pa.scalar(suffix, pa.large_string()), pa.scalar("", pa.large_string())
    )


def parse_datetimes(type_: SqlType, texts: TextColumn) -> tuple[NDArray[Any], Mask | None]:
    """Parse ISO texts of four-digit years: values, and a mask of the rows left to `parse_datetime`.

    Timestamptz texts have no zone, or every one of them has `Z` or a zone such as `-05`. Raises
    `pyarrow.ArrowInvalid` where a text is anything else.
    """
    if type_ is DATE:
        days = filled(texts.arrow.cast(pa.date32()).cast(pa.int32())) - np.int32(EPOCH_DAYS)
        doubtful = days < _FIRST_KERNEL_DAY
        return days, doubtful if doubtful.any() else None
    lengths = np.diff(texts.offsets)
    if type_ is TIMESTAMPTZ and _all_with_zone(texts, lengths):
        usecs = texts.arrow.cast(pa.timestamp("us", "UTC"))
        doubtful = np.zeros(len(texts), np.bool_)
    else:
        usecs = texts.arrow.cast(pa.timestamp("us"))
        # The kernel reads `2024-01-31 05` as five o'clock; to PostgreSQL it is no timestamp.
        doubtful = lengths == len("2024-01-31 05")
    values = filled(usecs.cast(pa.int64())) - EPOCH_DAYS * USECS_PER_DAY
    # The kernel has a year 0. With a zone it may begin or end a day away from here.
    doubtful |= values < (_FIRST_KERNEL_DAY + 1) * USECS_PER_DAY
    return values, doubtful if doubtful.any() else None


def _all_with_zone(texts: TextColumn, lengths: NDArray[np.int64]) -> bool:
    """Tell whether every text that is not null has a time and then `Z`, or whole hours as in `-05`."""
    rows = slice(None) if texts.valid is None else texts.valid
    if not len(texts) or (lengths[rows] < len("2024-01-31 05:00:00Z")).any():
        return False
    ends = texts.offsets[1:][rows]
    sign, tens, units = (texts.data[ends - back] for back in (3, 2, 1))
    # PostgreSQL ends at fifteen hours; the kernel, which goes on to 23, checks that these are digits.
    near = (tens == ord("0")) | ((tens == ord("1")) & (units <= ord("5")))
    hours = ((sign == ord("+")) | (sign == ord("-"))) & near
    return bool((hours | (units == ord("Z"))).all())
