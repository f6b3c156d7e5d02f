from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.errors import SqlError
from layby.types import datetime_input
from layby.types.datetime import civil_from_days, days_from_civil, days_in_month
from layby.types.formats import parse, render
from layby.types.scalar import DATE, TIMESTAMP, TIMESTAMPTZ, SqlType
from tests.types.helpers import refusal, reread

EPOCH = date(2000, 1, 1)
HINT = 'Perhaps you need a different "datestyle" setting.'


@settings(max_examples=300)
@given(st.dates())
def test_the_calendar_is_that_of_the_standard_library(day: date) -> None:
    days = (day - EPOCH).days
    assert days_from_civil(day.year, day.month, day.day) == days
    assert civil_from_days(days) == (day.year, day.month, day.day)


def test_arrays_of_dates_are_computed_as_single_ones_are() -> None:
    days = np.arange(-800_000, 800_000, 7, dtype=np.int64)
    year, month, day = civil_from_days(days)
    known = [EPOCH + timedelta(int(d)) for d in days.tolist() if -730_119 <= d <= 2_921_939]
    at = np.flatnonzero(days >= -730_119)
    assert [d.year for d in known] == year[at].tolist()
    assert [d.month for d in known] == month[at].tolist()
    assert [d.day for d in known] == day[at].tolist()
    assert np.array_equal(days_from_civil(year, month, day), days)


def test_the_calendar_repeats_every_400_years() -> None:
    assert civil_from_days(-146_097 * 10) == (-2000, 1, 1)
    assert days_from_civil(-2000, 2, 29) + 1 == days_from_civil(-2000, 3, 1)


def test_a_month_has_its_length() -> None:
    assert [days_in_month(2023, m) for m in range(1, 13)] == [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    assert [days_in_month(year, 2) for year in (1900, 2000, 2024, 0, -4)] == [28, 29, 29, 29, 29]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2024-01-31", "2024-01-31"),
        (" 2024-1-5 ", "2024-01-05"),
        ("2024/01/05", "2024-01-05"),
        ("1/5/2024", "2024-01-05"),
        ("01-05-2024", "2024-01-05"),
        ("5.1.2024", "2024-05-01"),
        ("1/13/24", "2024-01-13"),
        ("1/13/69", "2069-01-13"),
        ("1/13/70", "1970-01-13"),
        ("20240105", "2024-01-05"),
        ("240105", "2024-01-05"),
        ("100000101", "10000-01-01"),
        ("Jan 5 2024", "2024-01-05"),
        ("January 5, 2024", "2024-01-05"),
        ("5 Jan 2024", "2024-01-05"),
        ("2024 jan 5", "2024-01-05"),
        ("sept 5 24", "2024-09-05"),
        ("2024-Jan-05", "2024-01-05"),
        ("05-Jan-2024", "2024-01-05"),
        ("Jan-05-2024", "2024-01-05"),
        ("2024 01 05", "2024-01-05"),
        ("01 05 2024", "2024-01-05"),
        ("J2451545", "2000-01-01"),
        ("0001-01-01 BC", "0001-01-01 BC"),
        ("0044-03-15bc", "0044-03-15 BC"),
        ("1 Jan 0001 ad", "0001-01-01"),
        ("4714-11-24 BC", "4714-11-24 BC"),
        ("5874897-12-31", "5874897-12-31"),
        ("2024-01-05 10:00", "2024-01-05"),
        ("2000-02-29", "2000-02-29"),
        ("epoch", "1970-01-01"),
        ("infinity", "infinity"),
        ("-Infinity", "-infinity"),
    ],
)
def test_a_date_is_read_and_written(text: str, written: str) -> None:
    assert reread(DATE, text) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2013-01-01 05:00:00", "2013-01-01 05:00:00"),
        ("2013-01-01", "2013-01-01 00:00:00"),
        ("2013-01-01T05:00", "2013-01-01 05:00:00"),
        ("2013-01-01t05:00:00.5", "2013-01-01 05:00:00.5"),
        ("2013-01-01 1:2:3.120", "2013-01-01 01:02:03.12"),
        ("2013-01-01 0530", "2013-01-01 05:30:00"),
        ("20130101T053000", "2013-01-01 05:30:00"),
        ("2013-01-01 00:00:00.", "2013-01-01 00:00:00"),
        ("2013-01-01 10:20.5", "2013-01-01 00:10:20.5"),
        ("2013-01-01 5:00 pm", "2013-01-01 17:00:00"),
        ("2013-01-01 12:00 am", "2013-01-01 00:00:00"),
        ("12:00 Jan 1 2013", "2013-01-01 12:00:00"),
        ("Tue Jan 1 00:00:00 2013", "2013-01-01 00:00:00"),
        ("2013-01-01 00:00:60", "2013-01-01 00:01:00"),
        ("2013-01-01 24:00:00", "2013-01-02 00:00:00"),
        ("2013-01-01 00:00:00.9999999", "2013-01-01 00:00:01"),
        ("2013-01-01 00:00:00.0000005", "2013-01-01 00:00:00"),
        ("2013-01-01 00:00:00.1234565", "2013-01-01 00:00:00.123456"),
        ("2013-01-01 05:00:00+02", "2013-01-01 05:00:00"),
        ("0044-03-15 12:00 BC", "0044-03-15 12:00:00 BC"),
        ("294276-12-31 23:59:59.999999", "294276-12-31 23:59:59.999999"),
        ("4714-11-24 BC", "4714-11-24 00:00:00 BC"),
        ("epoch", "1970-01-01 00:00:00"),
        ("infinity", "infinity"),
        ("-infinity", "-infinity"),
    ],
)
def test_a_timestamp_is_read_and_written(text: str, written: str) -> None:
    assert reread(TIMESTAMP, text) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2024-01-01 05:00:00", "2024-01-01 05:00:00+00"),
        ("2024-01-01T05:00:00.250Z", "2024-01-01 05:00:00.25+00"),
        ("2024-01-01 00:00+02", "2023-12-31 22:00:00+00"),
        ("2024-01-01 00:00:00 +02:30", "2023-12-31 21:30:00+00"),
        ("2024-01-01 00:00:00-0830", "2024-01-01 08:30:00+00"),
        ("2024-01-01 00:00:00-08:00:30", "2024-01-01 08:00:30+00"),
        ("2024-01-01 +02", "2023-12-31 22:00:00+00"),
        ("2024-01-01 00:00+15:59", "2023-12-31 08:01:00+00"),
        ("2024-01-01 00:00 PST", "2024-01-01 08:00:00+00"),
        ("2024-01-01 00:00 utc", "2024-01-01 00:00:00+00"),
        ("2024-01-01 00:00 UTC+3", "2024-01-01 03:00:00+00"),
        ("2024-07-01 00:00 Europe/Berlin", "2024-06-30 22:00:00+00"),
        ("2024-01-01 00:00 america/new_york", "2024-01-01 05:00:00+00"),
        ("2024-01-01 00:00 EST5EDT", "2024-01-01 05:00:00+00"),
        ("2024-03-10 02:30 America/New_York", "2024-03-10 07:30:00+00"),
        ("2024-11-03 01:30 America/New_York", "2024-11-03 06:30:00+00"),
        ("10000-07-01 00:00 America/New_York", "10000-07-01 04:00:00+00"),
        ("0044-03-15 12:00:00+00 BC", "0044-03-15 12:00:00+00 BC"),
    ],
)
def test_a_timestamptz_is_read_into_utc_and_written(text: str, written: str) -> None:
    assert reread(TIMESTAMPTZ, text) == written


@pytest.mark.parametrize(
    "text",
    [
        *[
            "",
            " ",
            "x",
            "2024",
            "2024-01",
            "2024-01-05x",
            "1999-01-08T",
            "12:00",
            "bc",
            "Jan 2024",
            "5 2024 Jan",
        ],
        *["+infinity", "inf", "2024-01-05 2024-01-06", "foob 5 2024", "2024-01-05 12:00 13:00", "1 2 3 4"],
        *["2024-01-05 05", "2024-01-05 5pm", "2024-01-05 00:00 xyz", "1:2:3 2024-01-05", "epoch 2024-01-01"],
        *["2024-01-05 00:00 +02 +03", "2024-01-05 bc ad", "Jan Jan 5 2024", "٢٠٢٤-01-01", "2024-13"],
    ],
)
def test_what_is_no_date_is_refused(text: str) -> None:
    assert refusal(DATE, text) == ("22007", f'invalid input syntax for type date: "{text}"')


@pytest.mark.parametrize("type_", [DATE, TIMESTAMP, TIMESTAMPTZ])
@pytest.mark.parametrize(
    "text",
    ["1 " * 154, "1" * 154, "2024-01-01 10:00:00." + "0" * 140, "2024-01-01" + ":" * 154, "a," * 1_000_000],
)
def test_a_text_of_more_characters_than_postgresql_holds_is_no_date_or_time(
    type_: SqlType, text: str
) -> None:
    assert refusal(type_, text)[0] == "22007"


def test_white_space_does_not_count() -> None:
    written = "2024-05-31" + " " * 100_000 + "10:00:00"
    assert render(TIMESTAMP, parse(TIMESTAMP, written)) == "2024-05-31 10:00:00"


def test_no_token_is_looked_at_of_a_text_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datetime_input, "_TOKEN", None)
    assert refusal(TIMESTAMP, "1 " * 1_000)[0] == "22007"


def test_the_messages_name_the_types_as_postgresql_does() -> None:
    assert refusal(TIMESTAMP, "x")[1] == 'invalid input syntax for type timestamp: "x"'
    assert refusal(TIMESTAMPTZ, "x")[1] == 'invalid input syntax for type timestamp with time zone: "x"'


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2023-02-30", None),
        ("1900-02-29", None),
        ("feb 30 2023", None),
        ("0000-01-01", None),
        ("0000-01-01 BC", None),
        ("99999999999-01-01", None),
        ("2024-01-05 24:00:01", None),
        ("2024-01-05 00:60", None),
        ("2024-01-05 00:00:61", None),
        ("2024-01-05 25:00", None),
        ("2024-01-05 13:00 pm", None),
        ("13/1/2024", HINT),
        ("99-01-05", HINT),
        ("2023-13-01", HINT),
        ("2023-00-01", HINT),
        ("2023-01-32", HINT),
        ("2024005", HINT),
    ],
)
def test_a_field_out_of_range_is_refused(text: str, hint: str | None) -> None:
    with pytest.raises(SqlError) as caught:
        parse(DATE, text)
    error = caught.value
    assert (error.sqlstate, error.message, error.hint) == (
        "22008",
        f'date/time field value out of range: "{text}"',
        hint,
    )


@pytest.mark.parametrize(
    ("type_", "text", "kind"),
    [
        (DATE, "5874898-01-01", "date"),
        (DATE, "4714-11-23 BC", "date"),
        (TIMESTAMP, "294277-01-01", "timestamp"),
        (TIMESTAMP, "4714-11-23 BC", "timestamp"),
        (TIMESTAMPTZ, "294276-12-31 23:00:00-01", "timestamp"),
        (TIMESTAMPTZ, "4714-11-24 00:00:00+01 BC", "timestamp"),
    ],
)
def test_a_value_beyond_the_calendar_is_refused(type_: SqlType, text: str, kind: str) -> None:
    assert refusal(type_, text) == ("22008", f'{kind} out of range: "{text}"')


def test_a_zone_too_far_from_greenwich_is_refused() -> None:
    text = "2024-01-01 00:00+16"
    assert refusal(TIMESTAMP, text) == ("22009", f'time zone displacement out of range: "{text}"')


def test_a_zone_that_nobody_knows_is_refused() -> None:
    assert refusal(TIMESTAMPTZ, "2024-01-01 00:00 Foo/Bar") == ("22023", 'time zone "foo/bar" not recognized')


@settings(max_examples=200)
@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-8, minutes=-30))])))
def test_what_the_standard_library_writes_is_read_as_it_means(value: datetime) -> None:
    usecs = (value - datetime(2000, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert parse(TIMESTAMPTZ, value.isoformat()) == usecs


@settings(max_examples=200)
@given(st.datetimes())
def test_a_timestamp_is_written_as_the_standard_library_does(value: datetime) -> None:
    usecs = (value - datetime(2000, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001 - has no zone
    expected = f"{value.year:04d}" + value.strftime("-%m-%d %H:%M:%S")
    if value.microsecond:
        expected += f".{value.microsecond:06d}".rstrip("0")
    assert render(TIMESTAMP, usecs) == expected
    assert render(TIMESTAMPTZ, usecs) == expected + "+00"
