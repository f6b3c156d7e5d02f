from __future__ import annotations

import pytest

from layby.types.formats import parse, render
from layby.types.scalar import BIGINT, INTEGER, SMALLINT, SqlType
from tests.types.helpers import refusal


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (INTEGER, "1", 1),
        (INTEGER, "+1", 1),
        (INTEGER, "-0", 0),
        (INTEGER, " \t\n\v\f\r7 ", 7),
        (INTEGER, "007", 7),
        (INTEGER, "2147483647", 2147483647),
        (INTEGER, "-2147483648", -2147483648),
        (INTEGER, "-" + "0" * 5000 + "12", -12),
        (SMALLINT, "32767", 32767),
        (SMALLINT, "-32768", -32768),
        (BIGINT, "9223372036854775807", 9223372036854775807),
        (BIGINT, "-9223372036854775808", -9223372036854775808),
    ],
)
def test_a_decimal_number_is_read(type_: SqlType, text: str, value: int) -> None:
    assert parse(type_, text) == value


@pytest.mark.parametrize("text", ["", " ", "-", "x", "1.0", "1e3", "0x1F", "1_000", "+ 1", "1 2", "--1", "١"])
def test_what_is_no_decimal_number_is_refused(text: str) -> None:
    assert refusal(INTEGER, text) == ("22P02", f'invalid input syntax for type integer: "{text}"')


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (SMALLINT, "32768"),
        (SMALLINT, "-32769"),
        (INTEGER, "2147483648"),
        (INTEGER, " -2147483649"),
        (INTEGER, "99999999999"),
        (BIGINT, "9223372036854775808"),
        (BIGINT, "9" * 5000),
    ],
)
def test_a_number_too_large_for_its_type_is_refused(type_: SqlType, text: str) -> None:
    assert refusal(type_, text) == ("22003", f'value "{text}" is out of range for type {type_.name}')


def test_an_integer_is_written_in_decimal() -> None:
    assert render(BIGINT, -9223372036854775808) == "-9223372036854775808"
