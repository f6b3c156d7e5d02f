"""ORs of equalities as membership: what they come to on a column, row by row."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.expr.evaluate import evaluate
from layby.expr.membership import FEW, gathered
from layby.expr.mfp import Mfp
from layby.expr.scalar import And, ColumnRef, Expr, In, Literal, Not, Or, Param
from layby.types.column import column_from_values
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE_PRECISION,
    INTEGER,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    PhysicalValue,
    SqlType,
)
from tests.expr.helpers import call, outcomes

VALUES: dict[SqlType, list[PhysicalValue]] = {
    SMALLINT: [None, -(2**15), -1, 0, 1, 2, 2**15 - 1],
    INTEGER: [None, -(2**31), -1, 0, 1, 2**15, 2**31 - 1],
    BIGINT: [None, -(2**63), -1, 0, 1, 2**31, 2**63 - 1],
    DOUBLE_PRECISION: [None, -math.inf, -0.0, 0.0, 0.5, 1.0, math.nan],
    TEXT: [None, "", "a", "b", "é", "ab"],
    DATE: [None, -1, 0, 1],
    BOOLEAN: [None, True, False],
}
PAIRS = [(a, a) for a in VALUES] + [
    (a, b) for a in (SMALLINT, INTEGER, BIGINT) for b in (SMALLINT, INTEGER, BIGINT)
]


def equalities(subject: Expr, type_: SqlType, values: list[PhysicalValue]) -> Or:
    return Or(tuple(call("=", subject, Literal(value, type_)) for value in values))


@settings(deadline=None)
@given(st.sampled_from(PAIRS), st.data(), st.booleans())
def test_it_is_true_false_and_null_where_the_or_is(
    pair: tuple[SqlType, SqlType], data: st.DataObject, negated: bool
) -> None:
    type_, other = pair
    several = st.lists(st.sampled_from(VALUES[other]), min_size=FEW + 1, max_size=3 * FEW)
    column = column_from_values(type_, VALUES[type_])
    expr: Expr = equalities(ColumnRef(0, type_), other, data.draw(several))
    if negated:
        expr = Not(expr)
    expected = outcomes(evaluate(expr, (column,), len(column)), len(column))
    assert outcomes(evaluate(gathered(expr), (column,), len(column)), len(column)) == expected


NUMBER = ColumnRef(0, INTEGER)
MANY: list[PhysicalValue] = list(range(FEW + 1))


@pytest.mark.parametrize("type_", [SMALLINT, INTEGER, BIGINT])
def test_many_equalities_become_one_membership(type_: SqlType) -> None:
    expr = And((equalities(NUMBER, type_, MANY), call(">", NUMBER, Literal(3, INTEGER))))
    found = gathered(expr)
    assert isinstance(found, And)
    assert found.args[0] == In(NUMBER, tuple(MANY))


@pytest.mark.parametrize(
    "expr",
    [
        equalities(NUMBER, INTEGER, MANY[:-1]),
        equalities(NUMBER, BIGINT, [*MANY, 2**31]),
        equalities(ColumnRef(0, DATE), TIMESTAMP, MANY),
        Or((*equalities(NUMBER, INTEGER, MANY).args, call("=", ColumnRef(1, INTEGER), Literal(1, INTEGER)))),
        Or((*equalities(NUMBER, INTEGER, MANY).args, call("<", NUMBER, Literal(1, INTEGER)))),
        Or((*equalities(NUMBER, INTEGER, MANY).args, call("=", NUMBER, NUMBER))),
        equalities(call("random"), DOUBLE_PRECISION, list(map(float, range(FEW + 1)))),
    ],
    ids=["few", "beyond the type", "another type", "two columns", "no equality", "no constant", "volatile"],
)
def test_what_is_no_membership_stays(expr: Expr) -> None:
    assert gathered(expr) is expr


def test_an_execution_of_many_parameters_filters_by_membership() -> None:
    tests = tuple(call("=", NUMBER, Param(n + 1, INTEGER)) for n in range(FEW + 1))
    filled = Mfp(1, (Or(tests),), (NUMBER,)).with_values(MANY, {})
    assert filled.predicates == (In(NUMBER, tuple(MANY)),)
