"""Comparisons of every pair of types, against Python's order of the same values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.expr.scalar import ColumnRef
from layby.types.column import column_from_values
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE_PRECISION,
    INTEGER,
    REAL,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
)
from tests.expr.helpers import applied, call, evaluated, literal, typed

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
KINDS = ((BOOLEAN,), (SMALLINT, INTEGER, BIGINT), (REAL, DOUBLE_PRECISION), (TEXT,), (TIMESTAMP, TIMESTAMPTZ))
PAIRS = [(a, b) for kind in KINDS for a in kind for b in kind]
DAY = 86_400_000_000

SAMPLES: dict[SqlType, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    SMALLINT: st.integers(-3, 3),
    INTEGER: st.one_of(st.integers(-3, 3), st.just(2**31 - 1)),
    BIGINT: st.one_of(st.integers(-3, 3), st.sampled_from([2**31 - 1, 2**63 - 1, -(2**63)])),
    REAL: st.one_of(st.sampled_from([0.1, -0.0, 0.0]), st.floats(width=32)),
    DOUBLE_PRECISION: st.one_of(st.sampled_from([0.1, 0.5, 0.0, float("nan")]), st.floats()),
    TEXT: st.one_of(
        st.sampled_from(["", "a", "ab", "é", "\U0001f600", "￿"]), st.text("ab\u00e9", max_size=3)
    ),
    TIMESTAMP: st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]),
    TIMESTAMPTZ: st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]),
}


def key(type_: SqlType, value: Any) -> Any:
    """What Python orders as SQL orders the value."""
    if type_ is TEXT:
        return value.encode()
    if type_ in (REAL, DOUBLE_PRECISION):
        single = column_from_values(type_, [value]).value(0)
        assert isinstance(single, float)
        return (single != single, 0.0 if single != single else single)
    return value


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(PAIRS), st.sampled_from(list(OPERATORS)))
def test_values_compare_as_python_orders_them(
    data: st.DataObject, types: tuple[SqlType, SqlType], name: str
) -> None:
    left, right = types
    row = st.tuples(st.one_of(st.none(), SAMPLES[left]), st.one_of(st.none(), SAMPLES[right]))
    rows = data.draw(st.lists(row, min_size=1, max_size=8))

    def expected(a: Any, b: Any) -> bool | None:
        return None if a is None or b is None else OPERATORS[name](key(left, a), key(right, b))

    columns = [column_from_values(t, [r[at] for r in rows]) for at, t in enumerate(types)]
    a, b = ColumnRef(0, left), ColumnRef(1, right)
    assert evaluated(call(name, a, b), columns) == [expected(*r) for r in rows]
    constant = rows[0][1]
    compared = call(name, a, literal(constant, right))
    assert evaluated(compared, columns) == [expected(r[0], constant) for r in rows]


def test_nan_equals_itself_and_is_greater_than_infinity() -> None:
    nan, infinity = literal(float("nan")), literal(float("inf"))
    assert applied("=", nan, nan) is True
    assert applied("<>", nan, nan) is False
    assert applied(">", nan, infinity) is True
    assert applied("<", infinity, nan) is True
    assert applied(">=", infinity, nan) is False


def test_a_real_is_compared_in_double_precision() -> None:
    assert applied("=", literal(0.1, REAL), literal(0.1)) is False
    assert applied("=", literal(0.5, REAL), literal(0.5)) is True


@pytest.mark.parametrize(
    ("date", "name", "timestamp", "expected"),
    [
        ("2020-01-02", "=", "2020-01-02 00:00:00", True),
        ("2020-01-02", "<", "2020-01-02 00:00:00.000001", True),
        ("1999-12-31", ">", "1999-12-30 23:59:59", True),
        ("infinity", "=", "infinity", True),
        ("-infinity", "=", "-infinity", True),
        ("5874897-12-31", ">", "294276-12-31 23:59:59", True),
        ("5874897-12-31", "<", "infinity", True),
        ("4714-11-24 BC", ">", "-infinity", True),
    ],
)
def test_a_date_compares_with_a_timestamp_as_its_midnight(
    date: str, name: str, timestamp: str, expected: bool
) -> None:
    commuted = {"=": "=", "<": ">", ">": "<"}[name]
    for type_ in (TIMESTAMP, TIMESTAMPTZ):
        assert applied(name, typed(DATE, date), typed(type_, timestamp)) is expected
        assert applied(commuted, typed(type_, timestamp), typed(DATE, date)) is expected
