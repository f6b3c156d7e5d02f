"""Constant folding."""

from __future__ import annotations

import pytest

from layby.expr.fold import fold
from layby.expr.scalar import And, Case, Coalesce, ColumnRef, Expr, In, IsNull, Literal, Not, Or, Param
from layby.types.scalar import BIGINT, BOOLEAN, DOUBLE_PRECISION, INTEGER, TEXT
from tests.expr.helpers import call, cast, literal

A = ColumnRef(0, INTEGER)
P = Param(1, BOOLEAN)
FLAG = ColumnRef(1, BOOLEAN)
TRUE, FALSE, NULL = literal(True), literal(False), literal(None, BOOLEAN)
FAILS = call("=", call("/", literal(1), literal(0)), literal(1))


@pytest.mark.parametrize(
    ("expr", "folded"),
    [
        (call("+", literal(1), call("*", literal(2), literal(3))), literal(7)),
        (call("+", A, call("+", literal(1), literal(2))), call("+", A, literal(3))),
        (call("+", literal(1), literal(None, INTEGER)), literal(None, INTEGER)),
        (cast(literal("42", TEXT), BIGINT), Literal(42, BIGINT)),
        (call("upper", literal("a")), literal("A")),
        (call("concat", literal("a"), literal(1)), literal("a1")),
        (And((TRUE, FLAG)), FLAG),
        (And((TRUE, TRUE)), TRUE),
        (And((FLAG, FALSE, FAILS)), And((FLAG, FALSE))),
        (And((FALSE, FAILS)), FALSE),
        (And((TRUE, NULL)), NULL),
        (Or((FALSE, FLAG)), FLAG),
        (Or((TRUE, FAILS)), TRUE),
        (Or((FALSE, FALSE)), FALSE),
        (Or((FLAG, P)), Or((FLAG, P))),
        (Not(TRUE), FALSE),
        (IsNull(NULL), TRUE),
        (In(literal(1), (1, 2)), TRUE),
        (In(literal(3), (1, None)), NULL),
        (Case(((TRUE, literal(1)),), A, INTEGER), literal(1)),
        (Case(((FALSE, A), (NULL, A)), literal(2), INTEGER), literal(2)),
        (Case(((FLAG, A), (TRUE, literal(1))), literal(2), INTEGER), Case(((FLAG, A),), literal(1), INTEGER)),
        (
            Coalesce((literal(None, INTEGER), A, literal(1), FAILS), INTEGER),
            Coalesce((A, literal(1)), INTEGER),
        ),
        (Coalesce((literal(1), A), INTEGER), literal(1)),
        (Coalesce((literal(None, INTEGER),), INTEGER), literal(None, INTEGER)),
    ],
)
def test_what_depends_on_no_row_is_computed(expr: Expr, folded: Expr) -> None:
    assert fold(expr) == folded


def test_what_raises_stays_to_be_raised_when_a_row_reaches_it() -> None:
    assert fold(FAILS) == FAILS
    guarded = Case(((FLAG, call("/", literal(1), literal(0))),), literal(0), INTEGER)
    assert fold(guarded) == guarded


def test_volatile_functions_are_not_folded() -> None:
    assert fold(call("random")) == call("random")
    sum_ = call("+", call("random"), literal(1.0))
    assert fold(sum_) == sum_
    taken = Case(((TRUE, call("random")),), literal(0.0), DOUBLE_PRECISION)
    assert fold(taken) == call("random")


def test_an_expression_without_constant_parts_comes_back_as_it_is() -> None:
    expr = And((call("=", A, literal(1)), P))
    assert fold(expr) is expr
