"""Functions of any number of arguments: `concat`, `concat_ws`, `greatest` and `least`.

None of them is strict: nulls are left out. An overload is made for the argument types it is called with, and
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from layby.expr.function import Function, Kernel, register_variadic
from layby.expr.functions.comparison import EXACT, FLOAT
from layby.expr.functions.kernels import from_rows, python_values, values_of
from layby.expr.vector import Vector, constant
from layby.types.column import FixedColumn, TextColumn, column_from_values
from layby.types.formats import render_column
from layby.types.scalar import FLOATING, TEXT, UNKNOWN, PhysicalValue, SqlType


@lru_cache(maxsize=256)
def concat(args: tuple[SqlType, ...]) -> Function | None:
    """Return `concat` for arguments of any types, each shown as a client would get it."""
    return Function("concat", args, TEXT, _concat) if args and UNKNOWN not in args else None


@lru_cache(maxsize=256)
def concat_ws(args: tuple[SqlType, ...]) -> Function | None:
    """Return `concat_ws` for a separator and arguments of any types."""
    if len(args) < 2 or args[0] is not TEXT or UNKNOWN in args:
        return None
    return Function("concat_ws", args, TEXT, _concat_ws)


@lru_cache(maxsize=256)
def greatest(args: tuple[SqlType, ...]) -> Function | None:
    """Return `greatest` of arguments of one type."""
    return _extreme("greatest", args)


@lru_cache(maxsize=256)
def least(args: tuple[SqlType, ...]) -> Function | None:
    """Return `least` of arguments of one type."""
    return _extreme("least", args)


def _extreme(name: str, args: tuple[SqlType, ...]) -> Function | None:
    if not args or args[0] is UNKNOWN or any(arg is not args[0] for arg in args):
        return None
    type_ = args[0]
    if type_ is TEXT:
        return Function(name, args, TEXT, _text_extreme(max if name == "greatest" else min))
    symbol = ">" if name == "greatest" else "<"
    beats = FLOAT[symbol] if type_ in FLOATING else EXACT[symbol]
    return Function(name, args, type_, _fixed_extreme(type_, beats))


def _shown(arg: Vector) -> Vector:
    if isinstance(arg.column, TextColumn):
        return arg
    return Vector(render_column(arg.column), None, arg.constant)


def _concat(args: Sequence[Vector], length: int) -> Vector:
    def joined(*values: Any) -> str:
        return "".join([v for v in values if v is not None])

    return from_rows(TEXT, [_shown(arg) for arg in args], joined, None, length)


def _concat_ws(args: Sequence[Vector], length: int) -> Vector:
    def joined(separator: Any, *values: Any) -> PhysicalValue:
        return None if separator is None else str(separator).join([v for v in values if v is not None])

    return from_rows(TEXT, [_shown(arg) for arg in args], joined, None, length)


def _text_extreme(choose: Callable[..., Any]) -> Kernel:
    def kernel(args: Sequence[Vector], length: int) -> Vector:
        rows = zip(*[python_values(arg, length) for arg in args], strict=True)
        # code points sort as their UTF-8 bytes do
        present = ([v for v in row if v is not None] for row in rows)
        return Vector(column_from_values(TEXT, [choose(row) if row else None for row in present]))

    return kernel


def _fixed_extreme(type_: SqlType, beats: Callable[[Any, Any], Any]) -> Kernel:
    def kernel(args: Sequence[Vector], length: int) -> Vector:
        best = np.zeros(length, type_.dtype)
        found = np.zeros(length, np.bool_)
        for arg in args:
            values, valid = values_of(arg), arg.column.valid
            better = ~found | beats(values, best)
            if valid is not None:
                better &= valid
            best = np.where(better, values, best)
            found |= better
        if not found.any():
            return constant(type_, None)
        return Vector(FixedColumn(type_, best, None if found.all() else found))

    return kernel


def register_all() -> None:
    """Register the variadic functions."""
    register_variadic("concat", concat)
    register_variadic("concat_ws", concat_ws)
    register_variadic("greatest", greatest)
    register_variadic("least", least)
