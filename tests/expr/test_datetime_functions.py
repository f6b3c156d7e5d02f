"""Date and time functions: against Python's calendar, and PostgreSQL's answers outside of it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.expr.scalar import ColumnRef
from layby.types.column import column_from_values
from layby.types.scalar import DATE, INTEGER, TEXT, TIMESTAMP, TIMESTAMPTZ
from tests.expr.helpers import Outcome, Raised, applied, call, evaluated, literal, shown, typed

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


def fields(moment: datetime) -> dict[str, float]:
    year, week, weekday = moment.isocalendar()
    return {
        "year": moment.year,
        "month": moment.month,
        "day": moment.day,
        "hour": moment.hour,
        "minute": moment.minute,
        "second": moment.second + moment.microsecond / 1e6,
        "milliseconds": moment.second * 1000 + moment.microsecond / 1000,
        "microseconds": moment.second * 1_000_000 + moment.microsecond,
        "week": week,
        "isoyear": year,
        "isodow": weekday,
        "dow": weekday % 7,
        "doy": moment.timetuple().tm_yday,
        "quarter": (moment.month + 2) // 3,
        "decade": moment.year // 10,
        "century": (moment.year + 99) // 100,
        "millennium": (moment.year + 999) // 1000,
    }


def truncations(moment: datetime) -> dict[str, datetime]:
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight.replace(day=1)
    new_year = first.replace(month=1)
    return {
        "microseconds": moment,
        "milliseconds": moment.replace(microsecond=moment.microsecond // 1000 * 1000),
        "second": moment.replace(microsecond=0),
        "minute": moment.replace(second=0, microsecond=0),
        "hour": moment.replace(minute=0, second=0, microsecond=0),
        "day": midnight,
        "week": midnight - timedelta(days=moment.weekday()),
        "month": first,
        "quarter": first.replace(month=(moment.month - 1) // 3 * 3 + 1),
        "year": new_year,
        "decade": new_year.replace(year=moment.year // 10 * 10),
        "century": new_year.replace(year=(moment.year - 1) // 100 * 100 + 1),
        "millennium": new_year.replace(year=(moment.year - 1) // 1000 * 1000 + 1),
    }


moments = st.lists(
    st.datetimes(timezones=st.just(UTC)).filter(lambda d: d.year > 10),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(moments)
def test_fields_and_truncations_are_those_of_the_calendar(times: list[datetime]) -> None:
    for type_ in (TIMESTAMP, TIMESTAMPTZ):
        columns = [column_from_values(type_, [*map(micros, times), None])]
        column = ColumnRef(0, type_)
        for unit in fields(times[0]):
            expected: list[float | None] = [*[fields(t)[unit] for t in times], None]
            assert evaluated(call("extract", literal(unit), column), columns) == pytest.approx(expected)
        for unit in truncations(times[0]):
            cut = [*[micros(truncations(t)[unit]) for t in times], None]
            assert evaluated(call("date_trunc", literal(unit), column), columns) == cut
    columns = [column_from_values(DATE, [(t.date() - date(2000, 1, 1)).days for t in times])]
    for unit in ("year", "doy", "week", "isodow", "quarter"):
        expected = [fields(t)[unit] for t in times]
        assert evaluated(call("extract", literal(unit), ColumnRef(0, DATE)), columns) == expected


@pytest.mark.parametrize(
    ("unit", "time", "expected"),
    [
        ("year", "0044-03-15 10:00:00 BC", -44.0),
        ("century", "0044-03-15 10:00:00 BC", -1.0),
        ("century", "0001-01-01 00:00:00", 1.0),
        ("decade", "0001-12-31 00:00:00 BC", 0.0),
        ("decade", "0044-03-15 10:00:00 BC", -5.0),
        ("millennium", "2001-01-01 00:00:00", 3.0),
        ("epoch", "1999-12-31 23:59:59.5", 946684799.5),
        ("julian", "2000-01-01 12:00:00", 2451545.5),
        ("year", "infinity", float("inf")),
        ("epoch", "-infinity", float("-inf")),
        ("month", "infinity", None),
        ("YEARS", "2020-02-29 12:34:56.789", 2020.0),
        ("msec", "2020-02-29 12:34:56.789", 56789.0),
        (
            "foo",
            "2020-02-29 00:00:00",
            Raised("22023", 'unit "foo" not recognized for type timestamp without time zone'),
        ),
        (
            "timezone",
            "2020-02-29 00:00:00",
            Raised("0A000", 'unit "timezone" not supported for type timestamp without time zone'),
        ),
    ],
)
def test_extract_gives_what_postgresql_gives(unit: str, time: str, expected: Outcome) -> None:
    assert applied("extract", unit, typed(TIMESTAMP, time)) == expected
    assert applied("date_part", unit, typed(TIMESTAMP, time)) == expected


def test_a_date_has_no_hour_to_extract_but_date_part_takes_its_midnight() -> None:
    day = typed(DATE, "2020-02-29")
    assert applied("extract", "hour", day) == Raised("0A000", 'unit "hour" not supported for type date')
    assert applied("date_part", "hour", day) == 0.0
    assert applied("extract", "timezone", typed(TIMESTAMPTZ, "2020-02-29 00:00:00+00")) == 0.0


@pytest.mark.parametrize(
    ("unit", "time", "expected"),
    [
        ("decade", "0044-03-15 10:00:00 BC", "0051-01-01 00:00:00 BC"),
        ("century", "0044-03-15 10:00:00 BC", "0100-01-01 00:00:00 BC"),
        ("hour", "infinity", "infinity"),
        ("year", "4714-11-24 00:00:00 BC", Raised("22008", "timestamp out of range")),
        (
            "dow",
            "2000-01-01 00:00:00",
            Raised("22023", 'unit "dow" not recognized for type timestamp without time zone'),
        ),
        (
            "timezone",
            "2000-01-01 00:00:00",
            Raised("0A000", 'unit "timezone" not supported for type timestamp without time zone'),
        ),
    ],
)
def test_date_trunc_gives_what_postgresql_gives(unit: str, time: str, expected: str | Raised) -> None:
    assert shown("date_trunc", unit, typed(TIMESTAMP, time)) == expected


def test_a_unit_may_differ_from_row_to_row() -> None:
    units = column_from_values(TEXT, ["year", "month", None, "foo", "year"])
    days = column_from_values(DATE, [0, 31, 0, 0, None])
    assert evaluated(call("extract", ColumnRef(0, TEXT), ColumnRef(1, DATE)), [units, days]) == [
        2000.0,
        2.0,
        None,
        Raised("22023", 'unit "foo" not recognized for type date'),
        None,
    ]


def test_dates_move_by_days_and_differ_in_days() -> None:
    leap = typed(DATE, "2020-02-29")
    assert shown("+", leap, 1) == "2020-03-01"
    assert shown("+", 366, leap) == "2021-03-01"
    assert shown("-", leap, 60) == "2019-12-31"
    assert applied("-", leap, typed(DATE, "2019-12-31")) == 60
    assert applied("-", typed(DATE, "5874897-12-31"), typed(DATE, "4714-11-24 BC")) == 2147483493


def test_dates_do_not_leave_their_range() -> None:
    outside = Raised("22008", "date out of range")
    assert applied("+", typed(DATE, "5874897-12-31"), 1) == outside
    assert applied("-", typed(DATE, "4714-11-24 BC"), 1) == outside
    assert applied("-", typed(DATE, "2000-01-01"), -(2**31)) == outside
    assert shown("+", typed(DATE, "infinity"), 5) == "infinity"
    endless = Raised("22008", "cannot subtract infinite dates")
    assert applied("-", typed(DATE, "infinity"), typed(DATE, "2000-01-01")) == endless


@pytest.mark.parametrize(
    ("year", "month", "day", "expected"),
    [
        (2013, 7, 15, "2013-07-15"),
        (2020, 2, 29, "2020-02-29"),
        (-44, 3, 15, "0044-03-15 BC"),
        (-1, 2, 29, "0001-02-29 BC"),
        (2019, 2, 29, Raised("22008", "date field value out of range: 2019-02-29")),
        (2020, 13, 1, Raised("22008", "date field value out of range: 2020-13-01")),
        (0, 1, 1, Raised("22008", "date field value out of range: 0-01-01")),
        (5874898, 1, 1, Raised("22008", "date out of range: 5874898-01-01")),
    ],
)
def test_make_date_checks_its_fields(year: int, month: int, day: int, expected: str | Raised) -> None:
    assert shown("make_date", year, month, day) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "1970-01-01 00:00:00+00"),
        (1284352323.25, "2010-09-13 04:32:03.25+00"),
        (-1.5, "1969-12-31 23:59:58.5+00"),
        (float("inf"), "infinity"),
        (float("nan"), Raised("22008", "timestamp cannot be NaN")),
        (1e19, Raised("22008", 'timestamp out of range: "1e+19"')),
    ],
)
def test_to_timestamp_counts_seconds_from_1970(seconds: float, expected: str | Raised) -> None:
    assert shown("to_timestamp", seconds) == expected


def test_infinite_times_are_not_finite() -> None:
    assert applied("isfinite", typed(DATE, "2020-01-01")) is True
    assert applied("isfinite", typed(DATE, "infinity")) is False
    assert applied("isfinite", typed(TIMESTAMP, "-infinity")) is False
    assert call("-", literal(0, DATE), literal(0, DATE)).type is INTEGER
