"""Arithmetic, bits and mathematics: against Python's exact integers, and PostgreSQL's odd cases literally."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.expr.scalar import ColumnRef
from layby.types.column import column_from_values
from layby.types.scalar import BIGINT, DOUBLE_PRECISION, INTEGER, REAL, SMALLINT, SqlType
from tests.expr.helpers import Outcome, Raised, applied, call, evaluated, literal

BITS = {SMALLINT: 16, INTEGER: 32, BIGINT: 64}
DIVISION_BY_ZERO = Raised("22012", "division by zero")
OVERFLOW = Raised("22003", "value out of range: overflow")
UNDERFLOW = Raised("22003", "value out of range: underflow")
NAN, INF = float("nan"), float("inf")


def lowest(type_: SqlType) -> int:
    return int(-(2 ** (BITS[type_] - 1)))


def integers(type_: SqlType) -> st.SearchStrategy[int | None]:
    low, high = lowest(type_), -lowest(type_) - 1
    edges = st.sampled_from([low, low + 1, -2, -1, 0, 1, 2, 7, high - 1, high, 3_037_000_500 % high])
    return st.one_of(st.none(), st.integers(low, high), edges)


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


EXACT: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": truncated,
    "%": lambda a, b: a - b * truncated(a, b),
}


def modelled(name: str, type_: SqlType, a: int | None, b: int | None) -> Outcome:
    if a is None or b is None:
        return None
    if b == 0 and name in "/%":
        return DIVISION_BY_ZERO
    result = EXACT[name](a, b)
    if not lowest(type_) <= result < -lowest(type_):
        return Raised("22003", f"{type_.name} out of range")
    return result


@settings(max_examples=250, deadline=None)
@given(st.data(), st.sampled_from(list(EXACT)), st.sampled_from(list(BITS)), st.sampled_from(list(BITS)))
def test_integer_arithmetic_is_exact_or_an_error(
    data: st.DataObject, name: str, left: SqlType, right: SqlType
) -> None:
    if name == "%":
        right = left
    rows = data.draw(st.lists(st.tuples(integers(left), integers(right)), min_size=1, max_size=8))
    result = max(left, right, key=lambda t: BITS[t])
    expected = [modelled(name, result, a, b) for a, b in rows]
    columns = [column_from_values(t, [row[at] for row in rows]) for at, t in enumerate((left, right))]
    expr = call(name, ColumnRef(0, left), ColumnRef(1, right))
    assert expr.type is result
    assert evaluated(expr, columns) == expected
    against_constant = call(name, ColumnRef(0, left), literal(rows[0][1], right))
    assert evaluated(against_constant, columns) == [modelled(name, result, a, rows[0][1]) for a, _ in rows]


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("/", -7, 2, -3),
        ("/", 7, -2, -3),
        ("%", -7, 2, -1),
        ("%", 7, -2, 1),
        ("mod", -7, 2, -1),
        ("/", -(2**31), -1, Raised("22003", "integer out of range")),
        ("%", -(2**31), -1, 0),
        ("*", -(2**31), -1, Raised("22003", "integer out of range")),
        ("-", -(2**31), 1, Raised("22003", "integer out of range")),
        ("/", 1, 0, DIVISION_BY_ZERO),
        ("%", 1, 0, DIVISION_BY_ZERO),
    ],
)
def test_integer_division_truncates_towards_zero(name: str, a: int, b: int, expected: Outcome) -> None:
    assert applied(name, a, b) == expected


@pytest.mark.parametrize("type_", BITS)
def test_the_lowest_integer_has_no_negation_and_no_absolute(type_: SqlType) -> None:
    error = Raised("22003", f"{type_.name} out of range")
    for name in ("-", "abs", "@"):
        assert applied(name, literal(lowest(type_), type_)) == error
        assert applied(name, literal(lowest(type_) + 1, type_)) == -lowest(type_) - 1
    assert applied("+", literal(lowest(type_), type_)) == lowest(type_)


def test_the_result_has_the_wider_type_of_the_arguments() -> None:
    assert call("+", literal(1, SMALLINT), literal(1, BIGINT)).type is BIGINT
    assert call("*", literal(1, SMALLINT), literal(1, INTEGER)).type is INTEGER
    assert call("+", literal(1, SMALLINT), literal(1, SMALLINT)).type is SMALLINT
    assert call("/", literal(1.0, REAL), literal(1.0, REAL)).type is REAL
    assert call("/", literal(1.0, REAL), literal(1.0)).type is DOUBLE_PRECISION


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("/", 1.0, 4.0, 0.25),
        ("/", 1.0, 0.0, DIVISION_BY_ZERO),
        ("/", 1.0, -0.0, DIVISION_BY_ZERO),
        ("/", NAN, 0.0, NAN),
        ("/", INF, 0.0, DIVISION_BY_ZERO),
        ("/", INF, INF, NAN),
        ("/", 1.0, INF, 0.0),
        ("/", 1e308, 1e-10, OVERFLOW),
        ("/", 1e-308, 1e300, UNDERFLOW),
        ("*", 1e308, 10.0, OVERFLOW),
        ("*", 1e-200, 1e-200, UNDERFLOW),
        ("*", 0.0, 1e-200, 0.0),
        ("*", INF, 2.0, INF),
        ("*", INF, 0.0, NAN),
        ("+", 1.7e308, 1.7e308, OVERFLOW),
        ("-", INF, INF, NAN),
        ("-", -1.7e308, 1.7e308, OVERFLOW),
        ("^", 2.0, 10.0, 1024.0),
        ("^", 0.0, -1.0, Raised("2201F", "zero raised to a negative power is undefined")),
        (
            "^",
            -8.0,
            0.5,
            Raised("2201F", "a negative number raised to a non-integer power yields a complex result"),
        ),
        ("^", NAN, 0.0, 1.0),
        ("^", 1.0, NAN, 1.0),
        ("power", 10.0, 400.0, OVERFLOW),
        ("power", 10.0, -400.0, UNDERFLOW),
        ("atan2", 1.0, 1.0, 0.7853981633974483),
    ],
)
def test_float_arithmetic_checks_its_range(name: str, a: float, b: float, expected: Outcome) -> None:
    assert repr(applied(name, a, b)) == repr(expected)


def test_real_arithmetic_stays_real() -> None:
    assert applied("*", literal(3e38, REAL), literal(10.0, REAL)) == OVERFLOW
    assert applied("*", literal(3e38, REAL), literal(10.0)) == pytest.approx(3e39)
    assert applied("+", literal(16777216.0, REAL), literal(1.0, REAL)) == 16777216.0


def test_every_nan_is_the_canonical_one() -> None:
    columns = [column_from_values(DOUBLE_PRECISION, [INF, NAN])]
    difference = call("-", ColumnRef(0, DOUBLE_PRECISION), ColumnRef(0, DOUBLE_PRECISION))
    for row in evaluated(difference, columns):
        assert isinstance(row, float)
        assert math.copysign(1, row) == 1


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("round", 0.5, 0.0),
        ("round", 1.5, 2.0),
        ("round", 2.5, 2.0),
        ("round", -2.5, -2.0),
        ("ceil", 1.1, 2.0),
        ("ceiling", -1.1, -1.0),
        ("floor", -1.1, -2.0),
        ("trunc", -1.9, -1.0),
        ("sign", -3.5, -1.0),
        ("sign", 0.0, 0.0),
        ("sign", NAN, 0.0),
        ("abs", -2.5, 2.5),
        ("-", 2.5, -2.5),
        ("sqrt", 9.0, 3.0),
        ("sqrt", -1.0, Raised("2201F", "cannot take square root of a negative number")),
        ("|/", 9.0, 3.0),
        ("cbrt", 27.0, 3.0),
        ("exp", 0.0, 1.0),
        ("exp", 710.0, OVERFLOW),
        ("exp", -800.0, UNDERFLOW),
        ("exp", -INF, 0.0),
        ("ln", 1.0, 0.0),
        ("ln", 0.0, Raised("2201E", "cannot take logarithm of zero")),
        ("log", 1000.0, 3.0),
        ("log", -1.0, Raised("2201E", "cannot take logarithm of a negative number")),
        ("degrees", math.pi, 180.0),
        ("radians", 180.0, math.pi),
        ("sin", 0.0, 0.0),
        ("sin", INF, Raised("22003", "input is out of range")),
        ("acos", 1.0, 0.0),
        ("asin", 1.5, Raised("22003", "input is out of range")),
    ],
)
def test_mathematical_functions_give_what_postgresql_gives(
    name: str, value: float, expected: Outcome
) -> None:
    assert applied(name, value) == expected


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (1.005, 2, 1.01),
        (2.5, 0, 3.0),
        (-2.5, 0, -3.0),
        (1234.5, -2, 1200.0),
        (1250.0, -2, 1300.0),
        (0.001, 2, 0.0),
        (0.005, 2, 0.01),
        (NAN, 2, NAN),
        (1e300, 400, 1e300),
        (1e300, -400, 0.0),
    ],
)
def test_rounding_to_digits_takes_halves_away_from_zero(value: float, digits: int, expected: float) -> None:
    assert repr(applied("round", value, digits)) == repr(expected)


@pytest.mark.parametrize(
    ("name", "a", "b", "type_", "expected"),
    [
        ("&", 12, 10, INTEGER, 8),
        ("|", 12, 10, INTEGER, 14),
        ("#", 12, 10, INTEGER, 6),
        ("&", -1, 255, BIGINT, 255),
        ("<<", 1, 31, INTEGER, -(2**31)),
        ("<<", 1, 33, INTEGER, 2),
        ("<<", 1, 33, BIGINT, 2**33),
        ("<<", 1, 15, SMALLINT, -(2**15)),
        ("<<", 1, 16, SMALLINT, 0),
        (">>", -8, 1, INTEGER, -4),
    ],
)
def test_bits_shift_and_combine(name: str, a: int, b: int, type_: SqlType, expected: int) -> None:
    second = literal(b, INTEGER if name in ("<<", ">>") else type_)
    assert applied(name, literal(a, type_), second) == expected


def test_bits_invert() -> None:
    assert applied("~", literal(5, SMALLINT)) == -6
