"""Evaluation against a row-at-a-time interpreter, and the cases that it must get right by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.errors import InternalError
from layby.expr.evaluate import evaluate
from layby.expr.scalar import (
    And,
    Call,
    Case,
    Coalesce,
    ColumnRef,
    Expr,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Param,
)
from layby.types.column import Column, column_from_values
from layby.types.scalar import BOOLEAN, INTEGER, TEXT, PhysicalValue
from tests.expr.helpers import Outcome, Raised, call, cast, evaluated, literal

A = ColumnRef(0, INTEGER)
B = ColumnRef(1, INTEGER)
S = ColumnRef(2, TEXT)
DIVISION_BY_ZERO = Raised("22012", "division by zero")
OUT_OF_RANGE = Raised("22003", "integer out of range")
ONE_BY_ZERO = call("/", literal(1), literal(0))
FAILS = call("=", call("/", literal(1), B), literal(1))
TRUE, FALSE, NULL = literal(True), literal(False), literal(None, BOOLEAN)


class RowError(Exception):
    def __init__(self, raised: Raised) -> None:
        super().__init__(raised.message)
        self.raised = raised


def interpret(expr: Expr, row: Sequence[PhysicalValue]) -> PhysicalValue:
    """Evaluate one row as SQL says, looking at nothing that need not be looked at."""
    match expr:
        case ColumnRef(index=index):
            return row[index]
        case Literal(value=value):
            return value
        case And(args=args):
            return _logic(args, row, decisive=False)
        case Or(args=args):
            return _logic(args, row, decisive=True)
        case Not(arg=arg):
            value = interpret(arg, row)
            return None if value is None else not value
        case IsNull(arg=arg):
            return interpret(arg, row) is None
        case In(arg=arg, values=values):
            value = interpret(arg, row)
            if value is None:
                return None
            return True if value in values else None if None in values else False
        case Case(branches=branches, otherwise=otherwise):
            for condition, result in branches:
                if interpret(condition, row):
                    return interpret(result, row)
            return interpret(otherwise, row)
        case Coalesce(args=args):
            for arg in args:
                value = interpret(arg, row)
                if value is not None:
                    return value
            return None
        case Call(function=function, args=args):
            taken = [interpret(arg, row) for arg in args]
            return None if None in taken else FUNCTIONS[function.name](*taken)
        case _:
            raise AssertionError(expr)


def _logic(args: Sequence[Expr], row: Sequence[PhysicalValue], *, decisive: bool) -> bool | None:
    unknown = False
    for arg in args:
        value = interpret(arg, row)
        if value is decisive:
            return decisive
        unknown = unknown or value is None
    return None if unknown else not decisive


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise RowError(DIVISION_BY_ZERO)
    return int(a / b)


def _add(a: int, b: int) -> int:
    if not -(2**31) <= a + b < 2**31:
        raise RowError(OUT_OF_RANGE)
    return a + b


FUNCTIONS: dict[str, Callable[..., PhysicalValue]] = {
    "/": _divide,
    "+": _add,
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "length": len,
    "||": lambda a, b: a + b,
}


def interpreted(expr: Expr, rows: Sequence[Sequence[PhysicalValue]]) -> list[Outcome]:
    found: list[Outcome] = []
    for row in rows:
        try:
            found.append(interpret(expr, row))
        except RowError as error:
            found.append(error.raised)
    return found


small = st.integers(-2, 2)
numbers = st.one_of(st.none(), small, st.just(2**31 - 1))
words = st.one_of(st.none(), st.sampled_from(["", "a", "ab", "é"]))
rows = st.lists(st.tuples(numbers, numbers, words), min_size=0, max_size=12)


def _expressions() -> tuple[st.SearchStrategy[Expr], st.SearchStrategy[Expr], st.SearchStrategy[Expr]]:
    booleans: st.SearchStrategy[Expr] = st.deferred(lambda: _booleans)
    integers: st.SearchStrategy[Expr] = st.deferred(lambda: _integers)
    texts: st.SearchStrategy[Expr] = st.deferred(lambda: _texts)

    def case(results: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        branches = st.lists(st.tuples(booleans, results), min_size=1, max_size=2).map(tuple)
        return st.builds(lambda b, o: Case(b, o, o.type), branches, results)

    def coalesce(args: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        several = st.lists(args, min_size=1, max_size=3).map(tuple)
        return several.map(lambda a: Coalesce(a, a[0].type))

    several = st.lists(booleans, min_size=1, max_size=3).map(tuple)
    _booleans = st.one_of(
        st.sampled_from([TRUE, FALSE, NULL]),
        st.builds(lambda n, a, b: call(n, a, b), st.sampled_from(["=", "<"]), integers, integers),
        st.builds(lambda a, b: call("=", a, b), texts, texts),
        st.builds(And, several),
        st.builds(Or, several),
        st.builds(Not, booleans),
        st.builds(IsNull, st.one_of(integers, texts)),
        st.builds(In, integers, st.lists(st.one_of(st.none(), small), min_size=1, max_size=3).map(tuple)),
        st.builds(In, texts, st.lists(words, min_size=1, max_size=3).map(tuple)),
        case(booleans),
    )
    _integers = st.one_of(
        st.sampled_from([A, B]),
        numbers.map(lambda v: literal(v, INTEGER)),
        st.builds(lambda n, a, b: call(n, a, b), st.sampled_from(["+", "/"]), integers, integers),
        texts.map(lambda t: call("length", t)),
        case(integers),
        coalesce(integers),
    )
    _texts = st.one_of(
        st.just(S),
        words.map(lambda v: literal(v, TEXT)),
        st.builds(lambda a, b: call("||", a, b), st.just(S), words.map(lambda v: literal(v, TEXT))),
        case(texts),
        coalesce(texts),
    )
    return _booleans, _integers, _texts


def table(rows: Sequence[Sequence[PhysicalValue]]) -> list[Column]:
    return [
        column_from_values(type_, [row[at] for row in rows])
        for at, type_ in enumerate((INTEGER, INTEGER, TEXT))
    ]


@settings(max_examples=250, deadline=None)
@given(st.one_of(*_expressions()), rows)
def test_an_expression_evaluates_on_columns_as_it_does_row_by_row(
    expr: Expr, rows: list[tuple[PhysicalValue, ...]]
) -> None:
    assert evaluated(expr, table(rows), len(rows)) == interpreted(expr, rows)


def one(expr: Expr, a: int | None = None, b: int | None = 0) -> Outcome:
    return evaluated(expr, [column_from_values(INTEGER, [v]) for v in (a, b)], 1)[0]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (And((TRUE, NULL)), None),
        (And((FALSE, NULL)), False),
        (And((NULL, FALSE)), False),
        (And((NULL, NULL)), None),
        (Or((TRUE, NULL)), True),
        (Or((NULL, TRUE)), True),
        (Or((FALSE, NULL)), None),
        (Not(NULL), None),
        (IsNull(NULL), True),
        (IsNull(FALSE), False),
    ],
)
def test_logic_has_three_values(expr: Expr, expected: bool | None) -> None:
    assert one(expr) == expected


def test_an_error_behind_a_false_and_argument_does_not_count() -> None:
    assert one(And((FALSE, FAILS))) is False


def test_an_error_before_a_false_and_argument_counts() -> None:
    assert one(And((FAILS, FALSE))) == DIVISION_BY_ZERO


def test_an_error_behind_a_null_and_argument_counts() -> None:
    assert one(And((NULL, FAILS))) == DIVISION_BY_ZERO


def test_an_error_behind_a_true_or_argument_does_not_count() -> None:
    assert one(Or((TRUE, FAILS))) is True


def test_an_error_behind_a_false_or_argument_counts() -> None:
    assert one(Or((FALSE, FAILS))) == DIVISION_BY_ZERO


def test_rows_of_one_chunk_are_guarded_each_by_itself() -> None:
    columns = [column_from_values(INTEGER, [None] * 3), column_from_values(INTEGER, [0, 1, None])]
    assert evaluated(And((call("<>", B, literal(0)), FAILS)), columns) == [False, True, None]
    assert evaluated(Or((call("=", B, literal(0)), FAILS)), columns) == [True, True, None]


def test_errors_of_different_arguments_stand_side_by_side() -> None:
    overflows = call("=", call("+", A, literal(1)), literal(0))
    columns = [column_from_values(INTEGER, [2**31 - 1, 0, -1]), column_from_values(INTEGER, [1, 0, 1])]
    assert evaluated(And((FAILS, overflows)), columns) == [OUT_OF_RANGE, DIVISION_BY_ZERO, True]
    both = call("+", call("/", literal(1), B), call("+", A, literal(1)))
    assert evaluated(both, columns) == [OUT_OF_RANGE, DIVISION_BY_ZERO, 1]


def test_only_the_branch_of_a_case_that_is_taken_can_raise() -> None:
    guarded = Case(((call("=", B, literal(0)), literal(-1)),), call("/", literal(6), B), INTEGER)
    columns = [column_from_values(INTEGER, [None, None, None]), column_from_values(INTEGER, [0, 2, None])]
    assert evaluated(guarded, columns) == [-1, 3, None]


def test_a_condition_of_a_case_raises_where_those_before_it_are_not_true() -> None:
    case = Case(((call("=", B, literal(5)), literal(1)), (FAILS, literal(2))), literal(3), INTEGER)
    columns = [column_from_values(INTEGER, [None] * 3), column_from_values(INTEGER, [5, 0, 1])]
    assert evaluated(case, columns) == [1, DIVISION_BY_ZERO, 2]


def test_a_constant_branch_that_raises_does_so_only_where_it_is_taken() -> None:
    case = Case(((call("=", B, literal(0)), ONE_BY_ZERO),), literal(3), INTEGER)
    columns = [column_from_values(INTEGER, [None] * 2), column_from_values(INTEGER, [0, 1])]
    assert evaluated(case, columns) == [DIVISION_BY_ZERO, 3]


def test_an_argument_of_coalesce_behind_one_that_is_not_null_cannot_raise() -> None:
    expr = Coalesce((A, ONE_BY_ZERO), INTEGER)
    assert one(expr, a=7) == 7
    assert one(expr, a=None) == DIVISION_BY_ZERO


def test_the_first_error_in_the_order_of_evaluation_wins() -> None:
    overflow = call("+", literal(2**31 - 1), literal(1))
    assert one(call("+", overflow, ONE_BY_ZERO)) == OUT_OF_RANGE
    assert one(call("+", ONE_BY_ZERO, overflow)) == DIVISION_BY_ZERO


def test_an_error_of_an_argument_counts_though_another_is_null() -> None:
    assert one(call("+", literal(None, INTEGER), ONE_BY_ZERO)) == DIVISION_BY_ZERO
    assert one(call("+", A, call("/", literal(1), B))) == DIVISION_BY_ZERO


def test_a_null_argument_gives_null_and_cannot_raise() -> None:
    assert one(call("/", literal(1), A)) is None
    assert one(call("/", A, B)) is None
    assert one(call("/", A, literal(0))) is None


def test_in_with_a_null_among_the_values_is_never_false() -> None:
    columns = [column_from_values(INTEGER, [1, 2, None])]
    assert evaluated(In(A, (1, None)), columns) == [True, None, None]
    assert evaluated(In(A, (1, 3)), columns) == [True, False, None]


def test_in_finds_a_value_among_many() -> None:
    columns = [column_from_values(INTEGER, [5, 41, 42, None])]
    assert evaluated(In(A, tuple(range(0, 100, 2))), columns) == [False, False, True, None]


def test_a_constant_expression_is_held_once() -> None:
    vector = evaluate(call("+", literal(1), literal(2)), (), 1000)
    assert vector.constant
    assert vector.column.to_list() == [3]


def test_random_gives_each_row_its_own_value() -> None:
    values = evaluated(call("random"), (), 100)
    assert len(set(values)) > 90
    assert all(isinstance(v, float) and 0 <= v < 1 for v in values)


def test_slots_under_nulls_hold_zero() -> None:
    column = evaluate(call("+", A, literal(5)), [column_from_values(INTEGER, [1, None])], 2).column
    assert column.to_list() == [6, None]
    assert getattr(column, "values").tolist() == [6, 0]  # noqa: B009 - the kind of column is what is asked


def test_errors_by_row_keep_their_own_messages() -> None:
    texts = column_from_values(TEXT, ["1", "x", None, "y"])
    assert evaluated(cast(ColumnRef(0, TEXT), INTEGER), [texts]) == [
        1,
        Raised("22P02", 'invalid input syntax for type integer: "x"'),
        None,
        Raised("22P02", 'invalid input syntax for type integer: "y"'),
    ]


def test_a_parameter_without_a_value_is_our_bug() -> None:
    with pytest.raises(InternalError):
        evaluate(Param(1, INTEGER), (), 1)
