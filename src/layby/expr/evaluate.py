"""Evaluation of scalar expressions on whole columns: three-valued logic, errors kept by row.

Every argument is evaluated on every row, and what a row-at-a-time evaluation would not have reached is taken
out of the errors afterwards: an error counts only where its argument counts. That costs less than compacting
columns for each branch, and no expression has side effects. Once every row is decided, the arguments after
are not evaluated at all. Constants are held once and reach a kernel as arrays of one value, which numpy
broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from layby.errors import InternalError
from layby.expr.membership import is_member, member_set
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
    SessionValue,
)
from layby.expr.vector import RowErrors, Vector, constant, then
from layby.types.column import Column, FixedColumn, Mask, concat
from layby.types.scalar import BOOLEAN, SqlType

Columns = Sequence[Column | None]
"""The input of an expression: only the columns that it reads have to be there."""


def evaluate(expr: Expr, columns: Columns, length: int) -> Vector:
    """Evaluate `expr` on `length` rows of `columns`.

    Nothing is raised for a value: errors come back by row. An unbound parameter or session value is an
    `InternalError`.
    """
    with np.errstate(all="ignore"):
        return _EVALUATORS[type(expr)](expr, columns, length)


def _evaluate(expr: Expr, columns: Columns, length: int) -> Vector:
    return _EVALUATORS[type(expr)](expr, columns, length)


def _column(expr: ColumnRef, columns: Columns, _length: int) -> Vector:
    return Vector(cast("Column", columns[expr.index]))


def _literal(expr: Literal, _columns: Columns, _length: int) -> Vector:
    return constant(expr.type, expr.value)


def _call(expr: Call, columns: Columns, length: int) -> Vector:
    function = expr.function
    args = [_EVALUATORS[type(arg)](arg, columns, length) for arg in expr.args]
    once = not function.volatile and all(arg.constant for arg in args)
    result = function.kernel(args, 1 if once else length)
    errors: RowErrors | None = None
    for arg in args:
        if arg.errors is not None:
            errors = then(errors, arg.errors)
    if errors is not None:
        errors = errors.then(result.errors)
        if not once and len(errors.codes) != length:
            errors = RowErrors(np.repeat(errors.codes, length), errors.errors)
        return Vector(result.expanded(1 if once else length), errors, once)
    result.constant = once or result.constant
    return result


def _boolean(vector: Vector) -> tuple[Mask, Mask | None]:
    column = cast("FixedColumn", vector.column)
    return column.values, column.valid


def _logic(args: Sequence[Expr], columns: Columns, length: int, decisive: bool) -> Vector:
    """AND (`decisive` False) and OR (`decisive` True): an argument of the decisive value decides its row."""
    open_ = np.ones(1, np.bool_)  # rows that no argument has decided
    decided = np.zeros(1, np.bool_)
    unknown = np.zeros(1, np.bool_)
    errors: RowErrors | None = None
    once = True
    for arg in args:
        vector = _evaluate(arg, columns, length)
        once = once and vector.constant
        values, valid = _boolean(vector)
        hit = values if decisive else ~values
        if valid is not None:
            hit = hit & valid
            unknown = unknown | ~valid
        if vector.errors is not None:
            errors = then(errors, vector.errors.masked(open_))
        decided = decided | (hit & open_)
        open_ = open_ & ~hit
        if not open_.any():
            break
    valid = decided | ~unknown
    shape = 1 if once else length
    values = decided if decisive else ~decided
    values, valid = np.broadcast_to(values & valid, shape), np.broadcast_to(valid, shape)
    if errors is not None:
        errors = RowErrors(np.broadcast_to(errors.codes, shape), errors.errors)
    return Vector(FixedColumn(BOOLEAN, values, None if valid.all() else valid), errors, once)


def _and(expr: And, columns: Columns, length: int) -> Vector:
    return _logic(expr.args, columns, length, decisive=False)


def _or(expr: Or, columns: Columns, length: int) -> Vector:
    return _logic(expr.args, columns, length, decisive=True)


def _not(expr: Not, columns: Columns, length: int) -> Vector:
    vector = _evaluate(expr.arg, columns, length)
    values, valid = _boolean(vector)
    flipped = ~values if valid is None else ~values & valid
    return Vector(FixedColumn(BOOLEAN, flipped, valid), vector.errors, vector.constant)


def _is_null(expr: IsNull, columns: Columns, length: int) -> Vector:
    vector = _evaluate(expr.arg, columns, length)
    return Vector(FixedColumn(BOOLEAN, vector.column.null_mask()), vector.errors, vector.constant)


def _in(expr: In, columns: Columns, length: int) -> Vector:
    vector = _evaluate(expr.arg, columns, length)
    members = [v for v in expr.values if v is not None]
    found = is_member(vector.column, member_set(expr.arg.type, members))
    valid = vector.column.valid
    if len(members) < len(expr.values):
        valid = found if not found.all() else None  # not found among values and NULL: unknown
    return Vector(FixedColumn(BOOLEAN, found, valid), vector.errors, vector.constant)


class _Chosen:
    """Puts a result together from several vectors, each row from one, and the errors met on the way."""

    __slots__ = ("errors", "open", "parts")

    def __init__(self, length: int) -> None:
        self.open = np.ones(length, np.bool_)
        self.errors: RowErrors | None = None
        self.parts: list[tuple[Mask, Vector]] = []

    def meet(self, vector: Vector, rows: Mask) -> None:
        """Count the vector's errors in `rows` and close those that have one."""
        if vector.errors is not None:
            counted = vector.errors.masked(rows)
            if counted is not None:
                self.errors = then(self.errors, counted)
                self.open = self.open & (counted.codes == 0)

    def take(self, vector: Vector, rows: Mask) -> None:
        """Give `rows` (all of them open) the vector's values and errors, and close them."""
        self.meet(vector, rows)
        self.parts.append((rows, vector))
        self.open = self.open & ~rows

    def result(self, type_: SqlType) -> Vector:
        """Return the result; rows that took no value are null (or have an error)."""
        length = len(self.open)
        if len(self.parts) == 1 and self.parts[0][0].all():
            return Vector(self.parts[0][1].expanded(length), self.errors)
        if type_.dtype is None:
            return Vector(self._text(type_, length), self.errors)
        values = np.zeros(length, type_.dtype)
        valid = np.zeros(length, np.bool_)
        for rows, vector in self.parts:
            column = cast("FixedColumn", vector.column)
            one = vector.constant
            values[rows] = column.values[0] if one else column.values[rows]
            if column.valid is None:
                valid |= rows
            else:
                valid[rows] = column.valid[0] if one else column.valid[rows]
        return Vector(FixedColumn(type_, values, None if valid.all() else valid), self.errors)

    def _text(self, type_: SqlType, length: int) -> Column:
        columns: list[Column] = [constant(type_, None).column]
        source = np.zeros(length, np.int64)
        end = 1
        for rows, vector in self.parts:
            source[rows] = end if vector.constant else end + np.flatnonzero(rows)
            columns.append(vector.column)
            end += len(vector.column)
        column = concat(columns).take(source)
        if column.valid is not None and column.valid.all():
            column.valid = None
        return column


def _case(expr: Case, columns: Columns, length: int) -> Vector:
    chosen = _Chosen(length)
    for condition, result in expr.branches:
        vector = _evaluate(condition, columns, length)
        chosen.meet(vector, chosen.open)
        rows = chosen.open & _boolean(vector)[0]
        if rows.any():
            chosen.take(_evaluate(result, columns, length), rows)
            if not chosen.open.any():
                return chosen.result(expr.type)
    chosen.take(_evaluate(expr.otherwise, columns, length), chosen.open)
    return chosen.result(expr.type)


def _coalesce(expr: Coalesce, columns: Columns, length: int) -> Vector:
    chosen = _Chosen(length)
    for arg in expr.args:
        vector = _evaluate(arg, columns, length)
        chosen.meet(vector, chosen.open)
        valid = vector.column.valid
        rows = chosen.open if valid is None else chosen.open & valid
        chosen.take(Vector(vector.column, None, vector.constant), rows)
        if not chosen.open.any():
            break
    return chosen.result(expr.type)


def _unbound(expr: Expr, _columns: Columns, _length: int) -> Vector:
    raise InternalError(f"{expr!r} reached evaluation without a value")


_EVALUATORS: dict[type[Any], Callable[[Any, Columns, int], Vector]] = {
    ColumnRef: _column,
    Literal: _literal,
    Call: _call,
    And: _and,
    Or: _or,
    Not: _not,
    IsNull: _is_null,
    In: _in,
    Case: _case,
    Coalesce: _coalesce,
    Param: _unbound,
    SessionValue: _unbound,
}
