"""Text input of date, timestamp and timestamptz, as PostgreSQL reads it with DateStyle `ISO, MDY`.

The text is cut into tokens, each token says something of the date, the time or the zone, and at the end all
that was said must make one value. The session's zone is UTC.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Final

from layby.errors import SqlError
from layby.types.datetime import (
    DATE_INFINITY,
    DATE_NEGATIVE_INFINITY,
    END_DATE,
    END_TIMESTAMP,
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
from layby.types.scalar import DATE, TIMESTAMPTZ, SqlType
from layby.types.syntax import WHITESPACE, invalid_syntax

_TOKEN: Final = re.compile(
    r"""
    (?P<skip>[ \t\n\v\f\r,]+)
    | (?P<time>\d+:\d+(?::(?:\d+(?:\.\d*)?)?|\.\d*)?)
    | (?P<named>(?:\d+([-/.])[a-z]{3,}\4\d+|[a-z]{3,}([-/.])\d+\5\d+))
    | (?P<date>\d+([-/.])\d+\7\d+)
    | (?P<offset>[+-]\d+(?::\d+){0,2})
    | (?P<julian>j\d+)
    | (?P<clock>t\d{4}(?:\d\d(?:\.\d*)?)?(?![\d:]))
    | (?P<t>t(?=\d))
    | (?P<posix>[a-z]{3,}[+-]\d+(?::\d+){0,2})
    | (?P<word>[a-z]+(?:[0-9]+[a-z]+)?(?:[/_+-]+[a-z0-9]+)*)
    | (?P<number>\d+(?:\.\d*)?)
    """,
    re.ASCII | re.VERBOSE,
)

_MONTH_NAMES: Final = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_MONTHS: Final = (
    {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
    | {name[:3]: number for number, name in enumerate(_MONTH_NAMES, 1)}
    | {"sept": 9}
)
_WEEKDAYS: Final = frozenset(
    {"sun", "sunday", "mon", "monday", "tue", "tues", "tuesday", "wed", "weds", "wednesday"}
    | {"thu", "thur", "thurs", "thursday", "fri", "friday", "sat", "saturday"}
)

_ABBREVIATIONS: Final = {
    "utc": 0.0,
    "uct": 0.0,
    "ut": 0.0,
    "gmt": 0.0,
    "z": 0.0,
    "zulu": 0.0,
    "wet": 0.0,
    "est": -5.0,
    "edt": -4.0,
    "cst": -6.0,
    "cdt": -5.0,
    "mst": -7.0,
    "mdt": -6.0,
    "pst": -8.0,
    "pdt": -7.0,
    "akst": -9.0,
    "akdt": -8.0,
    "hst": -10.0,
    "ast": -4.0,
    "adt": -3.0,
    "nst": -3.5,
    "ndt": -2.5,
    "bst": 1.0,
    "cet": 1.0,
    "cest": 2.0,
    "eet": 2.0,
    "eest": 3.0,
    "ist": 2.0,
    "idt": 3.0,
    "sast": 2.0,
    "jst": 9.0,
    "kst": 9.0,
    "hkt": 8.0,
    "sgt": 8.0,
    "ict": 7.0,
    "awst": 8.0,
    "acst": 9.5,
    "acdt": 10.5,
    "aest": 10.0,
    "aedt": 11.0,
    "nzst": 12.0,
    "nzdt": 13.0,
}
"""Hours east of Greenwich of the abbreviations in wide use, as in PostgreSQL's set `Default`."""

_LONGEST_ZONE_HOURS: Final = 15

Zone = int | zoneinfo.ZoneInfo
"""Seconds east of Greenwich, or rules."""


class _Malformed(Exception):  # noqa: N818 - never leaves this module
    """The text is no date or time."""


class _FieldOverflow(Exception):  # noqa: N818 - never leaves this module
    """A field is out of its range; `is_month_or_day` where another DateStyle might read it."""

    def __init__(self, is_month_or_day: bool = False) -> None:
        self.is_month_or_day = is_month_or_day


class _Reading:
    """What the tokens read so far have said."""

    __slots__ = ("before_christ", "day_number", "era", "half", "month_at", "numbers", "time", "ymd", "zone")

    def __init__(self) -> None:
        self.ymd: tuple[str, int, str] | None = None
        """Year (as written), month, day (as written)."""
        self.day_number: int | None = None
        """Days since 2000-01-01, where the date was given as a Julian day."""
        self.numbers: list[str] = []
        """The numbers of a date written in words, in their order."""
        self.month_at: tuple[int, int] | None = None
        """The month named, and how many numbers stood before it."""
        self.time: tuple[int, int, int, int] | None = None
        """Hour, minute, second, microsecond."""
        self.zone: Zone | None = None
        self.half: str | None = None
        self.era: str | None = None

    @property
    def date_begun(self) -> bool:
        return self.date_done or bool(self.numbers) or self.month_at is not None

    @property
    def date_done(self) -> bool:
        return self.ymd is not None or self.day_number is not None

    def set_date(self, year: str, month: int, day: str) -> None:
        if self.date_begun or self.time is not None:
            raise _Malformed
        self.ymd = (year, month, day)

    def set_time(self, hour: int, minute: int, second: int, fraction: str) -> None:
        if self.time is not None:
            raise _Malformed
        # Rounded as PostgreSQL rounds it: half to even, in double precision.
        usecs = round(float("0." + fraction) * USECS_PER_SECOND) if fraction else 0
        self.time = (hour, minute, second, usecs)

    def set_zone(self, zone: Zone) -> None:
        if self.zone is not None or not self.date_begun:
            raise _Malformed
        self.zone = zone

    # One method a kind of token, by the names of the groups of `_TOKEN`.

    def read_time(self, token: str) -> None:
        """`hh:mm`, `hh:mm:ss`, with a fraction; `mm:ss.f` where there is one colon and a fraction."""
        plain, _, fraction = token.partition(".")
        parts = [int(part or 0) for part in plain.split(":")]
        if len(parts) == 3:
            self.set_time(parts[0], parts[1], parts[2], fraction)
        elif "." in token:
            self.set_time(0, parts[0], parts[1], fraction)
        else:
            self.set_time(parts[0], parts[1], 0, "")

    def read_date(self, token: str) -> None:
        """Three numbers: the year first where it has three digits or more, else month, day, year."""
        first, second, third = re.split("[-/.]", token)
        if len(first) >= 3:
            self.set_date(first, int(second), third)
        else:
            self.set_date(third, int(first), second)

    def read_named(self, token: str) -> None:
        """`31-Jan-2024`, `2024-Jan-31`, `Jan-31-2024`."""
        first, second, third = re.split("[-/.]", token)
        if first.isdigit():
            month = _MONTHS.get(second)
            year, day = (first, third) if len(first) >= 3 else (third, first)
        else:
            month = _MONTHS.get(first)
            year, day = third, second
        if month is None:
            raise _Malformed
        self.set_date(year, month, day)

    def read_offset(self, token: str) -> None:
        """`+hh`, `+hhmm`, `+hh:mm`, `+hh:mm:ss`: east of Greenwich."""
        self.set_zone(_offset(token))

    def read_julian(self, token: str) -> None:
        """`J2451545`."""
        if self.date_begun:
            raise _Malformed
        self.day_number = int(token[1:]) - JULIAN_EPOCH

    def read_clock(self, token: str) -> None:
        """`T053000`, after a date."""
        if not self.date_done:
            raise _Malformed
        self._digits_of_time(token[1:])

    def read_t(self, _token: str) -> None:
        """The `T` between a date and a time."""
        if not self.date_done or self.time is not None:
            raise _Malformed

    def read_posix(self, token: str) -> None:
        """`UTC+3`: west of Greenwich, as POSIX has it."""
        at = max(token.rfind("+"), token.rfind("-"))
        if token[:at] in _MONTHS:
            raise _Malformed
        east = _offset(token[at:])
        self.set_zone(-east)

    def read_number(self, token: str) -> None:
        """A time after a date (`053000`), a date without separators, or a part of a date in words."""
        plain = token.partition(".")[0]
        if self.date_done:
            self._digits_of_time(token)
        elif "." in token:
            raise _Malformed
        elif self.date_begun or len(plain) < 6:
            self.numbers.append(token)
        elif len(plain) == 6:
            self.set_date(plain[:2], int(plain[2:4]), plain[4:])
        elif len(plain) >= 8:
            self.set_date(plain[:-4], int(plain[-4:-2]), plain[-2:])
        else:
            raise _FieldOverflow(is_month_or_day=True)

    def _digits_of_time(self, token: str) -> None:
        plain, _, fraction = token.partition(".")
        if len(plain) not in (4, 6):
            raise _Malformed
        self.set_time(int(plain[:2]), int(plain[2:4]), int(plain[4:] or 0), fraction)

    def read_word(self, token: str) -> None:
        """A month, a weekday, am and pm, AD and BC, or a time zone."""
        if token in _MONTHS:
            if self.date_done or self.month_at is not None:
                raise _Malformed
            self.month_at = (_MONTHS[token], len(self.numbers))
        elif token in _WEEKDAYS:
            if self.date_begun:
                raise _Malformed
        elif token in ("am", "pm"):
            if self.half is not None or self.time is None:
                raise _Malformed
            self.half = token
        elif token in ("ad", "bc"):
            if self.era is not None or not self.date_begun:
                raise _Malformed
            self.era = token
        else:
            self.set_zone(_named_zone(token))

    def date(self) -> int:
        """Return the days since 2000-01-01."""
        if self.day_number is not None:
            return self.day_number
        year_text, month, day_text = self.ymd if self.ymd is not None else self._date_in_words()
        if len(year_text) > 9 or len(day_text) > 9:
            raise _FieldOverflow
        year, day = int(year_text), int(day_text)
        if self.era == "bc":
            if year == 0:
                raise _FieldOverflow
            year = 1 - year
        elif len(year_text) <= 2:
            year += 2000 if year < 70 else 1900
        elif year == 0:
            raise _FieldOverflow
        if not (1 <= month <= 12 and 1 <= day <= 31):
            raise _FieldOverflow(is_month_or_day=True)
        if day > days_in_month(year, month):
            raise _FieldOverflow
        return days_from_civil(year, month, day)

    def _date_in_words(self) -> tuple[str, int, str]:
        numbers = self.numbers
        if self.month_at is not None:
            month, before = self.month_at
            if len(numbers) != 2 or before > 1:
                raise _Malformed
            first_is_year = len(numbers[0]) >= 3
            year, day = numbers if first_is_year else (numbers[1], numbers[0])
            return year, month, day
        if len(numbers) != 3:
            raise _Malformed
        if len(numbers[0]) >= 3:
            return numbers[0], int(numbers[1]), numbers[2]
        return numbers[2], int(numbers[0]), numbers[1]

    def time_of_day(self) -> int:
        """Return the microseconds since midnight: up to those of 24:00:00, or of a leap second."""
        if self.time is None:
            return 0
        hour, minute, second, usecs = self.time
        if self.half is not None:
            if hour > 12:
                raise _FieldOverflow
            hour = hour % 12 + (12 if self.half == "pm" else 0)
        if minute > 59 or second > 60 or hour > 24 or (hour == 24 and (minute or second or usecs)):
            raise _FieldOverflow
        return ((hour * 60 + minute) * 60 + second) * USECS_PER_SECOND + usecs


def _offset(token: str) -> int:
    """Return the seconds of `+hh`, `+hhmm`, `+hh:mm` or `+hh:mm:ss`; raises 22009."""
    sign = -1 if token[0] == "-" else 1
    digits = token[1:]
    if ":" not in digits and len(digits) >= 3:
        parts = [int(digits[:-2]), int(digits[-2:])]
    else:
        parts = [int(part) for part in digits.split(":")]
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    if hours > _LONGEST_ZONE_HOURS or minutes > 59 or seconds > 59:
        raise SqlError("22009", "time zone displacement out of range")
    return sign * (hours * 3600 + minutes * 60 + seconds)


@cache
def _zone_names() -> dict[str, str]:
    return {name.lower(): name for name in zoneinfo.available_timezones()}


def _named_zone(token: str) -> Zone:
    hours = _ABBREVIATIONS.get(token)
    if hours is not None:
        return int(hours * 3600)
    name = _zone_names().get(token)
    if name is not None:
        return zoneinfo.ZoneInfo(name)
    if "/" in token:
        raise SqlError("22023", f'time zone "{token}" not recognized')
    raise _Malformed


def _seconds_east(zone: Zone, days: int, usecs: int) -> int:
    """Return how far the zone's clock is ahead of UTC when it shows this date and time.

    Where it never shows it the rules from before the change hold, and where it shows it twice those after:
    the smaller offset in both cases. Outside Python's years the year is one of the same length near by.
    """
    if isinstance(zone, int):
        return zone
    days += usecs // USECS_PER_DAY
    year, month, day = civil_from_days(days)
    if not 2 <= year <= 9998:
        year = year % 400 + (400 if year < 2 else 9200)
    seconds = usecs % USECS_PER_DAY // USECS_PER_SECOND
    local = datetime(year, month, day, seconds // 3600, seconds // 60 % 60, seconds % 60, tzinfo=zone)
    offsets = [at.utcoffset() for at in (local, local.replace(fold=1))]
    return min(int(offset.total_seconds()) for offset in offsets if offset is not None)


_READERS: Final[dict[str, Callable[[_Reading, str], None]]] = {
    "time": _Reading.read_time,
    "date": _Reading.read_date,
    "named": _Reading.read_named,
    "offset": _Reading.read_offset,
    "julian": _Reading.read_julian,
    "clock": _Reading.read_clock,
    "t": _Reading.read_t,
    "posix": _Reading.read_posix,
    "number": _Reading.read_number,
    "word": _Reading.read_word,
}


def _read(text: str) -> _Reading:
    reading = _Reading()
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise _Malformed
        at = token.end()
        kind = token.lastgroup
        if kind is not None and kind != "skip":
            _READERS[kind](reading, token[0])
    if not reading.date_begun:
        raise _Malformed
    return reading


_MOST: Final = 153
"""Characters that a date or time has at most, without white space: those of PostgreSQL's buffer."""

_WORD: Final = re.compile(rf"[^ \t\n\v\f\r,]{{1,{_MOST + 1}}}")


def _is_too_long(text: str) -> bool:
    """Return whether a text has more characters than any date or time; one of megabytes is soon seen to."""
    length = 0
    for word in _WORD.finditer(text):
        length += word.end() - word.start()
        if length > _MOST:
            return True
    return False


def parse_datetime(type_: SqlType, text: str) -> int:
    """Return the value of one text: days of a date, microseconds of a timestamp (UTC of a timestamptz).

    Raises 22007, 22008, 22009 (a zone too far from Greenwich) and 22023 (an unknown zone).
    """
    if len(text) > _MOST and _is_too_long(text):
        raise invalid_syntax(type_, text, "22007")
    lowered = text.strip(WHITESPACE).lower()
    is_date = type_ is DATE
    if lowered == "infinity":
        return DATE_INFINITY if is_date else TIMESTAMP_INFINITY
    if lowered == "-infinity":
        return DATE_NEGATIVE_INFINITY if is_date else TIMESTAMP_NEGATIVE_INFINITY
    if lowered == "epoch":
        lowered = "1970-01-01"
    try:
        reading = _read(lowered)
        days, usecs = reading.date(), reading.time_of_day()
    except _Malformed:
        raise invalid_syntax(type_, text, "22007") from None
    except _FieldOverflow as overflow:
        hint = 'Perhaps you need a different "datestyle" setting.' if overflow.is_month_or_day else None
        raise SqlError("22008", f'date/time field value out of range: "{text}"', hint=hint) from None
    except SqlError as error:
        if error.sqlstate == "22009":
            raise SqlError("22009", f'{error.message}: "{text}"') from None
        raise
    if is_date:
        if not MIN_DATE <= days < END_DATE:
            raise SqlError("22008", f'date out of range: "{text}"')
        return days
    value = days * USECS_PER_DAY + usecs
    if type_ is TIMESTAMPTZ and reading.zone is not None:
        value -= _seconds_east(reading.zone, days, usecs) * USECS_PER_SECOND
    if not MIN_TIMESTAMP <= value < END_TIMESTAMP:
        raise SqlError("22008", f'timestamp out of range: "{text}"')
    return value
