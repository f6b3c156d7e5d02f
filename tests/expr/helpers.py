"""Shorthand for expressions over Python values, and the results of evaluating them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import layby.expr.functions  # noqa: F401 - registers the functions
from layby.errors import SqlError
from layby.expr.evaluate import evaluate
from layby.expr.function import Function, cast_between, overloads, variadic
from layby.expr.scalar import Call, ColumnRef, Expr, Literal
from layby.expr.vector import Vector
from layby.types.column import Column, column_from_values
from layby.types.formats import parse, render
from layby.types.scalar import BOOLEAN, DOUBLE_PRECISION, INTEGER, TEXT, PhysicalValue, SqlType


@dataclass(frozen=True)
class Raised:
    """The error of a row, to be compared with an expected one."""

    sqlstate: str
    message: str


Outcome = PhysicalValue | Raised


def function(name: str, *types: SqlType) -> Function:
    made = variadic(name, types)
    return made or next(f for f in overloads(name) if f.args == types)


def cast_function(source: SqlType, target: SqlType) -> Function:
    found = cast_between(source, target)
    assert found is not None
    return found[0]


def call(name: str, *args: Expr) -> Call:
    return Call(function(name, *[arg.type for arg in args]), args)


def cast(arg: Expr, target: SqlType) -> Call:
    return Call(cast_function(arg.type, target), (arg,))


def literal(value: PhysicalValue, type_: SqlType | None = None) -> Literal:
    return Literal(value, type_ or _natural(value))


def typed(type_: SqlType, text: str | None) -> Literal:
    """A constant from its text form."""
    return Literal(None if text is None else parse(type_, text), type_)


def outcomes(vector: Vector, length: int) -> list[Outcome]:
    """The value or the error of every row."""
    values: list[Outcome] = list(vector.expanded(length).to_list())
    if vector.errors is not None:
        codes = vector.errors.codes.tolist()
        for row, code in enumerate(codes * length if vector.constant else codes):
            if code:
                values[row] = raised(vector.errors.errors[code - 1])
    return values


def raised(error: SqlError) -> Raised:
    return Raised(error.sqlstate, error.message)


def evaluated(expr: Expr, columns: Sequence[Column], length: int | None = None) -> list[Outcome]:
    count = len(columns[0]) if length is None else length
    return outcomes(evaluate(expr, columns, count), count)


def applied(name: str, *args: PhysicalValue | Literal) -> Outcome:
    """The outcome of a function on constants, which are also tried as columns of one row."""
    constants = [arg if isinstance(arg, Literal) else literal(arg) for arg in args]
    return computed(call(name, *constants))


def computed(expr: Call) -> Outcome:
    (folded,) = evaluated(expr, (), 1)
    columns = [column_from_values(arg.type, [arg.value]) for arg in expr.args if isinstance(arg, Literal)]
    references = tuple(ColumnRef(at, arg.type) for at, arg in enumerate(expr.args))
    (row,) = evaluated(Call(expr.function, references), columns, 1)
    assert repr(row) == repr(folded)
    return folded


def shown(name: str, *args: PhysicalValue | Literal) -> str | Raised | None:
    """The outcome as text, where its physical value says little."""
    constants = [arg if isinstance(arg, Literal) else literal(arg) for arg in args]
    expr = call(name, *constants)
    found = computed(expr)
    return found if found is None or isinstance(found, Raised) else render(expr.type, found)


def _natural(value: PhysicalValue) -> SqlType:
    match value:
        case bool():
            return BOOLEAN
        case int():
            return INTEGER
        case float():
            return DOUBLE_PRECISION
        case _:
            return TEXT
