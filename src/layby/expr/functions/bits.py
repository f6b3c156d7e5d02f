"""Bits: `&`, `|`, `#` (exclusive or), `~`, `<<` and `>>` of integers.

A shift counts modulo the width of its type, as the processors do that PostgreSQL leaves shifts to.
"""

from __future__ import annotations

import numpy as np

from layby.expr.functions.kernels import Total, define, total
from layby.types.column import Array
from layby.types.scalar import INTEGER, INTEGRAL, SqlType


def _shift(type_: SqlType, *, left: bool) -> Total:
    dtype = np.dtype(type_.dtype)
    # smallint is shifted as an integer and cut off after, as C promotes it
    width = 63 if type_.size == 8 else 31
    wide = np.dtype(np.int64) if type_.size == 8 else np.dtype(np.int32)
    operator = np.left_shift if left else np.right_shift

    def compute(values: Array, counts: Array) -> Array:
        shifted: Array = operator(values.astype(wide), (counts & width).astype(wide)).astype(dtype)
        return shifted

    return compute


def register_all() -> None:
    """Register the operators on bits."""
    for type_ in INTEGRAL:
        for name, operator in (("&", np.bitwise_and), ("|", np.bitwise_or), ("#", np.bitwise_xor)):
            define(name, (type_, type_), type_, total(type_, operator))
        define("~", (type_,), type_, total(type_, np.invert))
        define("<<", (type_, INTEGER), type_, total(type_, _shift(type_, left=True)))
        define(">>", (type_, INTEGER), type_, total(type_, _shift(type_, left=False)))
