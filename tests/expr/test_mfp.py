"""MFP kernels: the rows that a row-at-a-time filter keeps, and the errors that it would meet."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from layby.errors import SqlError
from layby.expr.mfp import Mfp
from layby.expr.scalar import And, Case, ColumnRef, Expr, In, IsNull, Literal, Not, Or
from layby.types.column import Column, column_from_values
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
    PhysicalValue,
    SqlType,
)
from tests.expr.helpers import Raised, call, evaluated, literal, raised

TYPES = (INTEGER, SMALLINT, TEXT, DOUBLE_PRECISION, BOOLEAN)
N, J, S, F, B = (ColumnRef(at, type_) for at, type_ in enumerate(TYPES))
DIVISION_BY_ZERO = Raised("22012", "division by zero")
OVERFLOW = Raised("22003", "integer out of range")


def filtered(
    predicates: Sequence[Expr], columns: Sequence[Column | None], length: int
) -> list[tuple[int, Raised | None]]:
    """The positions that pass, each with its error."""
    positions, errors = Mfp(len(columns), tuple(predicates), ()).compile().filter(columns, length)
    rows = list(range(length)) if positions is None else positions.tolist()
    if errors is None:
        return [(row, None) for row in rows]
    assert len(errors.codes) == len(rows)
    return [
        (row, raised(errors.errors[code - 1]) if code else None)
        for row, code in zip(rows, errors.codes.tolist(), strict=True)
    ]


def expected(
    predicates: Sequence[Expr], columns: Sequence[Column], length: int
) -> list[tuple[int, Raised | None]]:
    """The same row by row: each predicate on one row at a time, until one is not true."""
    kept: list[tuple[int, Raised | None]] = []
    for row in range(length):
        alone = [column.slice(row, row + 1) for column in columns]
        error = None
        # As PostgreSQL does, a conjunction at the top is taken apart: a null ends it like a false.
        for predicate in [part for p in predicates for part in (p.args if isinstance(p, And) else (p,))]:
            (outcome,) = evaluated(predicate, alone, 1)
            if isinstance(outcome, Raised):
                error = outcome
                break
            if outcome is not True:
                break
        else:
            kept.append((row, None))
        if error is not None:
            kept.append((row, error))
    return kept


def compared(
    column: ColumnRef, values: st.SearchStrategy[PhysicalValue], type_: SqlType
) -> st.SearchStrategy[Expr]:
    operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    straight = st.builds(lambda n, v: call(n, column, Literal(v, type_)), operators, values)
    flipped = st.builds(lambda n, v: call(n, Literal(v, type_), column), operators, values)
    return st.one_of(straight, flipped)


small = st.integers(-2, 2)
words = st.sampled_from(
    ["", "a", "b", "abcdefgh", "abcdefgi", "abcdefghij", "abcdefghijk", "é", "abcdefghijklmnopq"]
)
floats = st.sampled_from([-1.5, 0.0, 2.0, float("inf"), float("nan")])

REMAINDER = And(
    (call(">=", N, literal(-1)), call("=", call("%", literal(2, SMALLINT), J), literal(0, SMALLINT)))
)

predicates = st.one_of(
    compared(N, st.one_of(st.none(), small), INTEGER),
    compared(N, st.one_of(small, st.sampled_from([2**40, -(2**40)])), BIGINT),
    compared(J, st.one_of(small, st.sampled_from([40000, -40000])), INTEGER),
    compared(F, floats, DOUBLE_PRECISION),
    compared(F, st.sampled_from([2.0, -1.5]), REAL),
    compared(S, words, TEXT),
    compared(B, st.sampled_from([True, False, None]), BOOLEAN),
    st.builds(lambda n: call(n, N, J), st.sampled_from(["=", "<", "<>"])),
    st.builds(lambda v: In(N, v), st.lists(st.one_of(st.none(), small), min_size=1, max_size=3).map(tuple)),
    st.builds(lambda v: In(F, v), st.lists(floats, min_size=1, max_size=3).map(tuple)),
    st.builds(lambda v: In(S, v), st.lists(words, min_size=1, max_size=3).map(tuple)),
    st.sampled_from([IsNull(N), Not(IsNull(N)), IsNull(S), B, Not(B), literal(True), literal(None, BOOLEAN)]),
    st.just(call("=", call("/", literal(1), J), literal(1))),
    st.just(call(">", call("+", N, literal(2**31 - 2)), literal(0))),
    st.just(Or((B, call("~~", S, literal("a%"))))),
    st.just(call("=", call("/", literal(1), literal(0)), literal(1))),
    st.just(REMAINDER),
)

rows = st.lists(
    st.tuples(
        st.one_of(st.none(), small),
        st.one_of(st.none(), small),
        st.one_of(st.none(), words),
        st.one_of(st.none(), floats),
        st.one_of(st.none(), st.booleans()),
    ),
    max_size=12,
)


def table(rows: Sequence[Sequence[PhysicalValue]], nulls: bool = True) -> list[Column]:
    columns: list[Column] = []
    for at, type_ in enumerate(TYPES):
        zero: Any = "" if type_.dtype is None else type_.dtype.type(0).item()
        columns.append(
            column_from_values(type_, [zero if row[at] is None and not nulls else row[at] for row in rows])
        )
    return columns


@settings(max_examples=250, deadline=None)
@given(st.lists(predicates, max_size=3), rows, st.booleans())
@example([REMAINDER], [(None, 0, None, None, None)], True).via("a null before an error in a conjunction")
def test_a_filter_keeps_what_filtering_row_by_row_keeps(
    predicates: list[Expr], rows: list[tuple[PhysicalValue, ...]], nulls: bool
) -> None:
    columns = table(rows, nulls)
    assert filtered(predicates, columns, len(rows)) == expected(predicates, columns, len(rows))


@given(words, st.lists(st.one_of(st.none(), words), min_size=1, max_size=30), st.data())
def test_text_is_found_anywhere_in_a_slice(value: str, texts: list[str | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(texts)))
    stop = data.draw(st.integers(start, len(texts)))
    part = column_from_values(TEXT, texts).slice(start, stop)
    equal = call("=", ColumnRef(0, TEXT), literal(value))
    found = [row for row, text in enumerate(texts[start:stop]) if text == value]
    assert [row for row, _ in filtered([equal], [part], stop - start)] == found
    different = call("<>", ColumnRef(0, TEXT), literal(value))
    found = [row for row, text in enumerate(texts[start:stop]) if text is not None and text != value]
    assert [row for row, _ in filtered([different], [part], stop - start)] == found


@settings(deadline=None)
@given(st.lists(words, min_size=1, max_size=6), st.lists(st.one_of(st.none(), words), max_size=30), st.data())
def test_texts_are_found_one_after_the_other_in_one_slice(
    values: list[str], texts: list[str | None], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(texts)))
    part = column_from_values(TEXT, texts).slice(start, len(texts))
    for value in values:
        equal = call("=", ColumnRef(0, TEXT), literal(value))
        found = [row for row, text in enumerate(texts[start:]) if text == value]
        assert [row for row, _ in filtered([equal], [part], len(part))] == found


@pytest.mark.parametrize("size", [8, 9, 16, 17, 100, 5_000])
@pytest.mark.parametrize("copies", [1, 2, 30])
def test_a_long_text_equals_its_copies_alone(size: int, copies: int) -> None:
    value = "".join(chr(97 + at % 26) for at in range(size))
    near = [value[:at] + "?" + value[at + 1 :] for at in (0, 7, size // 2, size - 1)]
    texts = [*[value] * copies, *near, None, value + "x", *near, value[1:]]
    column = column_from_values(TEXT, texts)
    equal = call("=", ColumnRef(0, TEXT), literal(value))
    assert [row for row, _ in filtered([equal], [column], len(texts))] == list(range(copies))


def ints(*values: int | None) -> list[Column | None]:
    return [column_from_values(INTEGER, list(values))]


QUOTIENT = call("=", call("/", literal(6), N), literal(3))


def test_an_error_behind_a_failed_predicate_does_not_count() -> None:
    assert filtered([call("<>", N, literal(0)), QUOTIENT], ints(0, 2, 3), 3) == [(1, None)]


def test_an_error_behind_a_null_predicate_does_not_count() -> None:
    unknown = call("=", N, literal(None, INTEGER))
    assert filtered([unknown, QUOTIENT], ints(0, 2), 2) == []
    assert filtered([And((unknown, QUOTIENT))], ints(0, 2), 2) == []


def test_the_negation_of_what_is_null_does_not_pass() -> None:
    assert filtered([Not(call("=", call("abs", N), literal(1)))], ints(1, None, 2), 3) == [(2, None)]


def test_a_row_that_raises_passes_with_its_error_whatever_follows() -> None:
    assert filtered([QUOTIENT, call("<>", N, literal(0))], ints(0, 2, 3), 3) == [
        (0, DIVISION_BY_ZERO),
        (1, None),
    ]
    assert filtered([QUOTIENT, literal(False)], ints(0, 2, 3), 3) == [(0, DIVISION_BY_ZERO)]


def test_the_first_predicate_that_raises_gives_the_error() -> None:
    overflows = call("<", call("+", N, literal(2**31 - 1)), literal(0))
    inverse = call("=", call("/", literal(1), call("-", N, literal(1))), literal(5))
    assert filtered([overflows, inverse], ints(1, 1), 2) == [(0, OVERFLOW), (1, OVERFLOW)]
    assert filtered([inverse, overflows], ints(1, 5), 2) == [(0, DIVISION_BY_ZERO)]


def test_errors_stay_aligned_while_rows_fall_out() -> None:
    first = call("<", call("/", literal(6), N), literal(3))
    second = call("<>", call("/", literal(6), call("-", N, literal(6))), literal(-6))
    assert filtered([first, second], ints(1, 0, 2, 5, 6, 7, None), 7) == [
        (1, DIVISION_BY_ZERO),
        (4, DIVISION_BY_ZERO),
        (5, None),
    ]


def test_every_row_passing_is_told_without_positions() -> None:
    kernel = Mfp(1, (call(">", N, literal(0)),), ()).compile()
    assert kernel.filter(ints(1, 2), 2) == (None, None)
    assert Mfp(1, (), ()).compile().filter(ints(1), 1) == (None, None)
    positions, errors = kernel.filter(ints(-1, 0), 2)
    assert positions is not None
    assert positions.tolist() == []
    assert positions.dtype == np.int64
    assert errors is None


def test_a_late_predicate_sees_only_the_rows_that_are_left() -> None:
    texts = column_from_values(TEXT, ["1", "x", "2", "y", "3", "z", "w", "v"])
    flags = column_from_values(BOOLEAN, [True, False, True, False, False, False, False, False])
    number = call("=", call("length", ColumnRef(0, TEXT)), literal(1))
    assert filtered([ColumnRef(1, BOOLEAN), number], [texts, flags], 8) == [(0, None), (2, None)]


def test_only_the_columns_that_are_read_have_to_be_there() -> None:
    mfp = Mfp(
        4,
        (call("=", ColumnRef(2, INTEGER), literal(1)), IsNull(call("+", N, literal(1)))),
        (ColumnRef(3, TEXT),),
    )
    assert mfp.output_columns == {3}
    kernel = mfp.compile()
    assert kernel.filter_columns == {0, 2}
    assert kernel.output_columns == {3}
    columns: list[Column | None] = [*ints(None, None, 1), None, *ints(1, 2, 1), None]
    positions, _ = kernel.filter(columns, 3)
    assert positions is not None
    assert positions.tolist() == [0]
    text = column_from_values(TEXT, ["x"])
    assert kernel.project([None, None, None, text], 1) == ((text,), None)


def test_a_plain_projection_hands_the_columns_through() -> None:
    (column,) = ints(1, 2)
    kernel = Mfp(1, (), (N, N)).compile()
    outputs, error = kernel.project([column], 2)
    assert outputs[0] is column
    assert outputs[1] is column
    assert error is None


def test_a_projection_evaluates_its_expressions_and_repeats_constants() -> None:
    kernel = Mfp(1, (), (N, call("+", N, literal(1)), literal("x"), literal(None, TEXT))).compile()
    outputs, error = kernel.project(ints(1, None), 2)
    assert [o.to_list() for o in outputs] == [[1, None], [2, None], ["x", "x"], [None, None]]
    assert error is None
    outputs, error = kernel.project(ints(), 0)
    assert [o.to_list() for o in outputs] == [[], [], [], []]
    assert error is None


def test_a_projection_gives_the_error_of_the_first_row_that_has_one() -> None:
    inverse = call("/", literal(1), N)
    overflow = call("+", N, literal(2**31 - 1))
    kernel = Mfp(1, (), (inverse, overflow)).compile()
    assert error_of(kernel.project(ints(-1, 1, 0), 3)[1]) == OVERFLOW
    assert error_of(kernel.project(ints(-1, 0, 1), 3)[1]) == DIVISION_BY_ZERO
    assert kernel.project(ints(-1), 1)[1] is None


def test_a_constant_that_raises_fails_a_projection_only_of_rows() -> None:
    kernel = Mfp(1, (), (call("/", literal(1), literal(0)),)).compile()
    assert error_of(kernel.project(ints(1), 1)[1]) == DIVISION_BY_ZERO
    assert kernel.project(ints(), 0)[1] is None
    assert filtered([call("=", call("/", literal(1), literal(0)), literal(1))], ints(), 0) == []


def error_of(error: SqlError | None) -> Raised | None:
    return None if error is None else raised(error)


def test_a_case_in_a_projection_raises_only_where_its_branch_is_taken() -> None:
    guarded = Case(((call("=", N, literal(0)), literal(0)),), call("/", literal(6), N), INTEGER)
    outputs, error = Mfp(1, (), (guarded,)).compile().project(ints(0, 3), 2)
    assert outputs[0].to_list() == [0, 2]
    assert error is None


@pytest.mark.parametrize("value", [0.1, 1e39])
def test_a_real_column_is_compared_with_a_double_constant_exactly(value: float) -> None:
    columns: list[Column | None] = [column_from_values(REAL, [0.1, 0.5])]
    assert filtered([call("=", ColumnRef(0, REAL), literal(value))], columns, 2) == []
    assert filtered([call("=", ColumnRef(0, REAL), literal(0.5))], columns, 2) == [(1, None)]


def test_a_date_column_is_compared_with_a_timestamp_as_its_midnight() -> None:
    columns: list[Column | None] = [column_from_values(DATE, [0, 1, None])]
    noon = Literal(43_200_000_000, TIMESTAMP)
    assert filtered([call("<", ColumnRef(0, DATE), noon)], columns, 3) == [(0, None)]


def test_an_mfp_pickles() -> None:
    mfp = Mfp(1, (call("=", N, literal(1)),), (call("+", N, literal(1)),))
    assert pickle.loads(pickle.dumps(mfp)) == mfp
