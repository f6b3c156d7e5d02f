"""Adapters: kernels made of functions on plain arrays or on plain values.

A kernel sees argument vectors of which any may be a constant of one value. The adapters see to what all
strict functions share: a null argument gives null and cannot raise, the slot under a null holds zero, and
errors are kept by row. Errors of the arguments are the evaluator's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, cast

import numpy as np
import pyarrow as pa

from layby.errors import SqlError
from layby.expr.function import Function, Kernel, register
from layby.expr.vector import RowErrors, Vector, constant
from layby.types.column import (
    Array,
    Column,
    FixedColumn,
    Mask,
    TextColumn,
    column_from_values,
    text_from_arrow,
)
from layby.types.scalar import BOOLEAN, TEXT, PhysicalValue, SqlType

Flaw = tuple[Mask, SqlError]
"""The rows in which a computation fails, and how."""

Total = Callable[..., Array]
"""Computes values from the values of the arguments; fails nowhere."""

Flawed = tuple[Array, list[Flaw]]
"""Values, and the rows that have none; where two flaws meet in a row, the one named first counts."""

Partial = Callable[..., Flawed]
"""Computes values, failing in some rows."""

NULL = object()
"""The validity of a result that is null in every row."""


def validity(args: Sequence[Vector]) -> Any:
    """Return where no argument is null: a mask, None for everywhere, `NULL` for nowhere by a constant."""
    valid: Mask | None = None
    for arg in args:
        mask = arg.column.valid
        if mask is None:
            continue
        if arg.constant:
            if not mask[0]:
                return NULL
            continue
        valid = mask if valid is None else valid & mask
    return valid


def values_of(arg: Vector) -> Array:
    """Return the values of a fixed-width argument: one a row, or the one of a constant."""
    return cast("FixedColumn", arg.column).values


def fixed(type_: SqlType, values: Array, valid: Mask | None) -> FixedColumn:
    """Return a column of `values`, with zero under every null."""
    if valid is None:
        return FixedColumn(type_, values)
    return FixedColumn(type_, np.where(valid, values, values.dtype.type(0)), valid)


def row_errors(flaws: Iterable[Flaw], valid: Mask | None, length: int) -> RowErrors | None:
    """Return the flaws that lie in valid rows as errors by row."""
    codes: Array | None = None
    errors: list[SqlError] = []
    for mask, error in flaws:
        if not mask.any():
            continue
        failed = mask if valid is None else mask & valid
        if not failed.any():
            continue
        errors.append(error)
        if codes is None:
            codes = np.zeros(length, np.int32)
        codes[failed & (codes == 0)] = len(errors)
    return None if codes is None else RowErrors(codes, errors)


def total(result: SqlType, compute: Total) -> Kernel:
    """Return the kernel of a strict function of fixed-width values that never fails."""

    def kernel(args: Sequence[Vector], _length: int) -> Vector:
        valid = validity(args)
        if valid is NULL:
            return constant(result, None)
        return Vector(fixed(result, compute(*[values_of(arg) for arg in args]), valid))

    return kernel


def partial(result: SqlType, compute: Partial) -> Kernel:
    """Return the kernel of a strict function of fixed-width values that fails in some rows."""

    def kernel(args: Sequence[Vector], length: int) -> Vector:
        valid = validity(args)
        if valid is NULL:
            return constant(result, None)
        values, flaws = compute(*[values_of(arg) for arg in args])
        return Vector(fixed(result, values, valid), row_errors(flaws, valid, length))

    return kernel


def by_row(result: SqlType, function: Callable[..., PhysicalValue]) -> Kernel:
    """Return the kernel of a strict function of Python values, called once a row without nulls.

    A row costs 0.3 µs and what `function` does. A `SqlError` that it raises is the row's error.
    """

    def kernel(args: Sequence[Vector], length: int) -> Vector:
        valid = validity(args)
        if valid is NULL:
            return constant(result, None)
        return from_rows(result, args, function, valid, length)

    return kernel


def from_rows(
    result: SqlType,
    args: Sequence[Vector],
    function: Callable[..., PhysicalValue],
    valid: Mask | None,
    length: int,
) -> Vector:
    """Call `function` on each row in which `valid` is True; the others are null."""
    inputs = [python_values(arg, length) for arg in args]
    present: Iterable[bool] = repeat(True, length) if valid is None else valid.tolist()
    values: list[PhysicalValue] = []
    codes: Array | None = None
    errors: list[SqlError] = []
    for row, (there, *row_values) in enumerate(zip(present, *inputs, strict=True)):
        if not there:
            values.append(None)
            continue
        try:
            values.append(function(*row_values))
        except SqlError as error:
            error.forget_frames()  # which hold the columns, and this list in a cycle
            values.append(None)
            errors.append(error)
            if codes is None:
                codes = np.zeros(length, np.int32)
            codes[row] = len(errors)
    column = column_from_values(result, values)
    return Vector(column, None if codes is None else RowErrors(codes, errors))


def python_values(arg: Vector, length: int) -> Iterable[PhysicalValue]:
    """Return the argument's values as Python objects, one a row."""
    return repeat(arg.column.value(0), length) if arg.constant else arg.column.to_list()


def arrow_of(arg: Vector) -> Any:
    """Return a text argument for an Arrow kernel: an array, or a scalar where it is a constant."""
    column = cast("TextColumn", arg.column)
    return pa.scalar(column.value(0), pa.large_string()) if arg.constant else column.arrow


def text_column(array: Any, length: int) -> Column:
    """Return what an Arrow kernel made (a scalar where all its arguments were constants) as a text column."""
    if isinstance(array, pa.Scalar):
        return column_from_values(TEXT, [array.as_py()] * length)
    return text_from_arrow(array, TEXT)


def numpy_of(result: Any, length: int, dtype: Any) -> Array:
    """Return what an Arrow kernel made of numbers or booleans as an array, zero where it is null."""
    if isinstance(result, pa.Scalar):
        value = result.as_py()
        return np.full(length, 0 if value is None else value, dtype)
    filled = result.fill_null(False if pa.types.is_boolean(result.type) else 0)
    return np.asarray(filled.to_numpy(zero_copy_only=False)).astype(dtype, copy=False)


def arrow_to_text(compute: Callable[..., Any]) -> Kernel:
    """Return the kernel of a strict function from text to text that Arrow computes."""

    def kernel(args: Sequence[Vector], length: int) -> Vector:
        if validity(args) is NULL:
            return constant(TEXT, None)
        return Vector(text_column(compute(*[arrow_of(arg) for arg in args]), length))

    return kernel


def arrow_to_fixed(result: SqlType, compute: Callable[..., Any]) -> Kernel:
    """Return the kernel of a strict function from text to numbers or booleans that Arrow computes."""

    def kernel(args: Sequence[Vector], length: int) -> Vector:
        valid = validity(args)
        if valid is NULL:
            return constant(result, None)
        made = compute(*[arrow_of(arg) for arg in args])
        return Vector(fixed(result, numpy_of(made, length, result.dtype), valid))

    return kernel


def define(name: str, args: Sequence[SqlType], result: SqlType, kernel: Kernel) -> None:
    """Register a function that is not volatile."""
    register(Function(name, tuple(args), result, kernel))


def define_predicate(name: str, args: Sequence[SqlType], kernel: Kernel) -> None:
    """Register an operator that gives a boolean."""
    define(name, args, BOOLEAN, kernel)
