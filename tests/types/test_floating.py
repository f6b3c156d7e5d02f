from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.types.formats import parse, render
from layby.types.scalar import DOUBLE_PRECISION, REAL, SqlType
from tests.types.helpers import refusal, reread


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1", "1"),
        (" +1.50 ", "1.5"),
        (".5", "0.5"),
        ("5.", "5"),
        ("0.1", "0.1"),
        ("0", "0"),
        ("-0", "-0"),
        ("0e999", "0"),
        ("0.0001", "0.0001"),
        ("0.00012345", "0.00012345"),
        ("0.00001", "1e-05"),
        ("100000000000000", "100000000000000"),
        ("999999999999999", "999999999999999"),
        ("1e15", "1e+15"),
        ("1234567890123456", "1.234567890123456e+15"),
        ("1e20", "1e+20"),
        ("1e100", "1e+100"),
        ("9007199254740993", "9.007199254740992e+15"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("5e-324", "5e-324"),
        ("0x1p3", "8"),
        ("0x1A", "26"),
        ("0x.8", "0.5"),
        ("nan", "NaN"),
        ("-NaN", "NaN"),
        ("nan(abc)", "NaN"),
        ("inf", "Infinity"),
        ("+Infinity", "Infinity"),
        ("-INF", "-Infinity"),
    ],
)
def test_a_double_is_read_and_written(text: str, written: str) -> None:
    assert reread(DOUBLE_PRECISION, text) == written


def test_a_shortest_text_on_the_edge_between_two_doubles_is_not_used() -> None:
    assert reread(DOUBLE_PRECISION, "1e23") == "9.999999999999999e+22"
    assert reread(DOUBLE_PRECISION, "1e22") == "1e+22"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0.1", "0.1"),
        ("1.1", "1.1"),
        ("0.0001", "0.0001"),
        ("0.00001", "1e-05"),
        ("123456", "123456"),
        ("999999", "999999"),
        ("1e6", "1e+06"),
        ("1234567", "1.234567e+06"),
        ("16777217", "1.6777216e+07"),
        ("33554432", "3.3554432e+07"),
        ("8388608.5", "8.388608e+06"),
        ("3.4028235e38", "3.4028235e+38"),
        ("1e-45", "1e-45"),
        ("0x1p3", "8"),
    ],
)
def test_a_real_is_read_and_written(text: str, written: str) -> None:
    assert reread(REAL, text) == written


def test_a_real_is_rounded_once_from_its_decimal_text() -> None:
    one_up, two_up = 1 + 2.0**-23, 1 + 2.0**-22
    halfway = "1.000000178813934326171875"
    assert float(np.float32(float(halfway + "0000000001"))) == two_up
    assert parse(REAL, "1.00000017881393432617187499") == one_up
    assert parse(REAL, halfway) == two_up
    assert parse(REAL, "1.00000005960464477539062500000001") == one_up
    assert parse(REAL, "1.000000059604644775390625") == 1.0


@pytest.mark.parametrize(
    "text", ["", " ", ".", "x", "1e", "1e+", "1_0", "1.5f", "infinit", "0x", "1 2", "--1", "١"]
)
def test_what_is_no_number_is_refused(text: str) -> None:
    assert refusal(DOUBLE_PRECISION, text) == (
        "22P02",
        f'invalid input syntax for type double precision: "{text}"',
    )


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (DOUBLE_PRECISION, "1e400"),
        (DOUBLE_PRECISION, "-1e309"),
        (DOUBLE_PRECISION, "1e-400"),
        (DOUBLE_PRECISION, "0x1p99999"),
        (REAL, "1e39"),
        (REAL, "-3.5e38"),
        (REAL, "1e-46"),
        (REAL, "0x1p200"),
    ],
)
def test_overflow_and_underflow_are_refused(type_: SqlType, text: str) -> None:
    assert refusal(type_, text) == ("22003", f'"{text}" is out of range for type {type_.name}')


@settings(max_examples=300, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_reads_back_from_its_text_and_none_shorter_does(value: float) -> None:
    text = render(DOUBLE_PRECISION, value)
    assert float(text) == value and math.copysign(1, float(text)) == math.copysign(1, value)
    digits = len(text.split("e")[0].replace(".", "").replace("-", "").strip("0"))
    if abs(value) < 2.0**51 and digits > 1:
        assert float(f"{value:.{digits - 2}e}") != value


@settings(max_examples=300, deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_real_reads_back_from_its_text(value: float) -> None:
    text = render(REAL, value)
    assert parse(REAL, text) == value
    if value:
        below = Fraction(float(np.nextafter(np.float32(value), np.float32(0))))
        assert abs(Fraction(text) - Fraction(value)) < abs(Fraction(value) - below)
