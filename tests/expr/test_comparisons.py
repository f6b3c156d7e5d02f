"""Comparisons evaluated together: what each comes to on a chunk, against a model over Python lists."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.expr.comparisons import AT_ONCE, Comparison, Comparisons
from layby.expr.predicates import compile_test
from layby.expr.scalar import ColumnRef, Literal
from layby.types.column import Column, FixedColumn, Mask, column_from_values
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE_PRECISION,
    INTEGER,
    REAL,
    SMALLINT,
    TIMESTAMP,
    TIMESTAMPTZ,
    PhysicalValue,
    SqlType,
)
from tests.expr.helpers import call

COMPARE = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

TYPES = (SMALLINT, INTEGER, BIGINT, REAL, DOUBLE_PRECISION, DATE, TIMESTAMP, BOOLEAN)

WIDTH = {SMALLINT: 16, INTEGER: 32, DATE: 32, BIGINT: 64, TIMESTAMP: 64}


def whole(bits: int) -> st.SearchStrategy[int]:
    """Numbers of a width: its ends, some in between, and where it has room some with equal lower halves."""
    least, greatest = -(1 << bits - 1), (1 << bits - 1) - 1
    values = {least, least + 1, -2, -1, 0, 1, 2, greatest - 1, greatest}
    if bits == 64:
        values |= {half + n for half in (-(1 << 32), 1 << 32, 5 << 32) for n in (-1, 0, 1)}
    return st.sampled_from(sorted(values))


FLOATS = st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 0.1, 0.5, 1e39, math.inf, math.nan])

VALUES: dict[SqlType, st.SearchStrategy[PhysicalValue]] = {
    **{type_: whole(bits) for type_, bits in WIDTH.items()},
    REAL: FLOATS.map(lambda value: float(np.float32(min(value, 3e38)))),
    DOUBLE_PRECISION: FLOATS,
    BOOLEAN: st.booleans(),
}

OTHERS = {
    SMALLINT: (SMALLINT, INTEGER, BIGINT),
    INTEGER: (SMALLINT, INTEGER, BIGINT),
    BIGINT: (SMALLINT, INTEGER, BIGINT),
    REAL: (REAL, DOUBLE_PRECISION),
    DOUBLE_PRECISION: (REAL, DOUBLE_PRECISION),
    DATE: (DATE,),
    TIMESTAMP: (TIMESTAMP, TIMESTAMPTZ),
    BOOLEAN: (BOOLEAN,),
}
"""The types of the constants that a column is compared with."""


def comparison(name: str, at: int, type_: SqlType, value: PhysicalValue, other: SqlType) -> Comparison | None:
    """What a filter's predicate is compiled to, None where it is no comparison that numpy can make."""
    test = compile_test(call(name, ColumnRef(at, type_), Literal(value, other)))
    return test if isinstance(test, Comparison) else None


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[str, int, PhysicalValue, Comparison] | None:
    """A comparison with its name, its column and its constant."""
    at = draw(st.integers(0, len(TYPES) - 1))
    name = draw(st.sampled_from(list(COMPARE)))
    other = draw(st.sampled_from(OTHERS[TYPES[at]]))
    value = draw(VALUES[TIMESTAMP if other is TIMESTAMPTZ else other])
    made = comparison(name, at, TYPES[at], value, other)
    return None if made is None else (name, at, value, made)


ROWS = st.tuples(*(st.one_of(st.none(), VALUES[type_]) for type_ in TYPES))


def key(value: PhysicalValue) -> tuple[bool, PhysicalValue]:
    """Order as SQL does: NaN equals itself and is the greatest."""
    return (True, 0) if value != value else (False, value)


def passing(name: str, values: Sequence[PhysicalValue], constant: PhysicalValue) -> list[int]:
    """Return the rows that pass."""
    return [row for row, v in enumerate(values) if v is not None and COMPARE[name](key(v), key(constant))]


def columns_of(rows: Sequence[Sequence[PhysicalValue]]) -> list[Column]:
    return [column_from_values(type_, [row[at] for row in rows]) for at, type_ in enumerate(TYPES)]


def lower_half(value: PhysicalValue) -> int:
    assert isinstance(value, int)
    return value % (1 << 32)


class Chunks:
    """Puts chunk after chunk to comparisons, and counts how often they ask for the range of a column."""

    def __init__(self, beginnings: Sequence[Comparison | None]) -> None:
        self.together = Comparisons(beginnings)
        self._filters = range(len(beginnings))
        self.asked = 0
        self._columns: Sequence[Column] = ()

    def may_pass(self, *columns: Column) -> list[bool]:
        return self.evaluate(*columns)[0]

    def evaluate(self, *columns: Column) -> tuple[list[bool], dict[Comparison, Mask]]:
        self._columns = columns
        may_pass, masks = self.together.evaluate(columns, self._range)
        assert may_pass <= set(self._filters)
        return [at in may_pass for at in self._filters], masks

    def _range(self, at: int) -> tuple[int, int]:
        self.asked += 1
        column = self._columns[at]
        assert isinstance(column, FixedColumn)
        assert column.values.dtype.kind == "i"
        return (int(column.values.min()), int(column.values.max())) if len(column) else (0, 0)


@settings(max_examples=200, deadline=None)
@given(st.lists(comparisons(), max_size=24), st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=12))
def test_a_filter_may_pass_where_the_model_says_that_a_row_passes_its_beginning(
    drawn: list[tuple[str, int, PhysicalValue, Comparison] | None],
    chunks: list[list[tuple[PhysicalValue, ...]]],
) -> None:
    together = Chunks([None if each is None else each[3] for each in drawn])
    assert together.together.columns == {each[1] for each in drawn if each is not None}
    for rows in chunks:
        columns = columns_of(rows)
        found, masks = together.evaluate(*columns)
        assert len(found) == len(drawn)
        for each, may_pass in zip(drawn, found, strict=True):
            if each is None:
                assert may_pass
                continue
            name, at, constant, made = each
            values = columns[at].to_list()
            expected = passing(name, values, constant)
            assert np.flatnonzero(made(columns)).tolist() == expected
            if may_pass and not expected:
                # The lower half of a wide number, of which a null has none, was taken for the whole.
                assert (name, TYPES[at] in (BIGINT, TIMESTAMP)) == ("=", True)
                assert lower_half(constant) in [lower_half(v) for v in values if v is not None]
                assert made not in masks
            else:
                assert may_pass is bool(expected)
                assert made not in masks or np.flatnonzero(masks[made]).tolist() == expected


def equal(value: int, type_: SqlType = INTEGER) -> Comparison:
    made = comparison("=", 0, type_, value, type_)
    assert made is not None
    return made


def integers(*values: int | None) -> Column:
    return column_from_values(INTEGER, values)


def test_more_constants_than_one_call_takes_are_all_compared() -> None:
    found = Chunks([equal(value) for value in range(3 * AT_ONCE + 1)]).may_pass(
        integers(3 * AT_ONCE, 1, AT_ONCE, None)
    )
    assert [value for value, may_pass in enumerate(found) if may_pass] == [1, AT_ONCE, 3 * AT_ONCE]


def test_what_is_asked_twice_is_one_comparison() -> None:
    assert equal(5) == equal(5)
    assert comparison("=", 0, REAL, 0.0, REAL) == comparison("=", 0, REAL, -0.0, REAL)
    assert equal(5) != equal(6)
    assert comparison("<=", 0, REAL, 1.0, REAL) != comparison(">", 0, REAL, 1.0, REAL)
    chunks = Chunks([equal(5), equal(6), None, equal(5)])
    found, masks = chunks.evaluate(integers(5, 9))
    assert found == [True, False, True, True]
    assert {each: mask.tolist() for each, mask in masks.items()} == {equal(5): [True, False]}
    assert chunks.may_pass(integers(6, 6)) == [False, True, True, False]


@pytest.mark.parametrize(
    ("constants", "found", "known"),
    [((7, 8), [True, False], {7: [True, False]}), ((7, 8, 9), [True, True, False], {})],
)
def test_more_than_two_constants_are_compared_with_the_lower_halves_of_wide_numbers(
    constants: tuple[int, ...], found: list[bool], known: dict[int, list[bool]]
) -> None:
    column = column_from_values(BIGINT, [7, 8 + (1 << 32)])
    may_pass, masks = Chunks([equal(value, BIGINT) for value in constants]).evaluate(column)
    assert may_pass == found
    assert {each.value: mask.tolist() for each, mask in masks.items()} == known


@pytest.mark.parametrize(
    ("name", "value", "least", "greatest"),
    [
        ("=", 5, 5, 5),
        ("<", 5, -math.inf, 4),
        ("<=", 5, -math.inf, 5),
        (">", 5, 6, math.inf),
        (">=", 5, 5, math.inf),
        ("<>", 5, -math.inf, math.inf),
        ("<", -(2**63), -math.inf, -(2**63) - 1),
        (">", 2**63 - 1, 2**63, math.inf),
    ],
)
def test_nothing_beyond_its_bounds_passes_a_comparison(
    name: str, value: int, least: float, greatest: float
) -> None:
    made = comparison(name, 0, BIGINT, value, BIGINT)
    assert made is not None
    assert made.bounds == (least, greatest)


@pytest.mark.parametrize("type_", [REAL, BOOLEAN])
def test_what_does_not_count_in_whole_numbers_has_no_bounds(type_: SqlType) -> None:
    made = comparison("=", 0, type_, True if type_ is BOOLEAN else 1.0, type_)
    assert made is not None
    assert made.bounds == (-math.inf, math.inf)


def looks(constants: Sequence[int], chunks: Sequence[Sequence[int]]) -> list[int]:
    """Return after each chunk how often the range had been looked at."""
    together, counts = Chunks([equal(value) for value in constants]), []
    for values in chunks:
        together.may_pass(integers(*values))
        counts.append(together.asked)
    return counts


def test_the_range_is_looked_at_in_each_chunk_while_it_rules_something_out() -> None:
    assert looks([1, 5], [[0, 2]] * 12) == list(range(1, 13))


def test_a_range_that_rules_nothing_out_is_looked_at_in_every_eighth_chunk() -> None:
    assert looks([1, 5], [[0, 9]] * 18) == [1] * 8 + [2] * 8 + [3] * 2


def test_the_range_is_looked_at_again_once_it_rules_something_out() -> None:
    chunks = [[0, 9]] * 8 + [[0, 2]] * 3 + [[0, 9]] * 3
    assert looks([1, 5], chunks) == [1] * 8 + [2, 3, 4] + [5] * 3
