"""Comparisons: `=`, `<>`, `<`, `<=`, `>` and `>=` of every pair of types that PostgreSQL compares.

Numbers of different widths are compared in the wider. NaN equals itself and is greater than every other
number. Text is compared by its UTF-8 bytes (the collation `C`). A date meets a timestamp as its midnight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from layby.expr.functions.kernels import Total, arrow_to_fixed, define_predicate, total
from layby.types.column import Array, Mask
from layby.types.datetime import (
    DATE_INFINITY,
    DATE_NEGATIVE_INFINITY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_NEGATIVE_INFINITY,
    USECS_PER_DAY,
)
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
    TIMESTAMPTZ,
    SqlType,
)

_LAST_DAY = 106_751_990
"""The last day whose midnight in microseconds fits 64 bits: past every finite timestamp."""


def midnights(days: Array) -> Array:
    """Return dates as timestamps that compare with timestamps as the dates do.

    A date past the last timestamp is later than each of them and earlier than infinity.
    """
    micros = np.clip(days.astype(np.int64), -_LAST_DAY, _LAST_DAY) * USECS_PER_DAY
    micros = np.where(days == DATE_INFINITY, TIMESTAMP_INFINITY, micros)
    return np.where(days == DATE_NEGATIVE_INFINITY, TIMESTAMP_NEGATIVE_INFINITY, micros)


def _float_eq(a: Array, b: Array) -> Mask:
    equal: Mask = (a == b) | (np.isnan(a) & np.isnan(b))
    return equal


def _float_le(a: Array, b: Array) -> Mask:
    return (a <= b) | np.isnan(b)


def _float_ge(a: Array, b: Array) -> Mask:
    return (a >= b) | np.isnan(a)


EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
"""The comparisons of values that numpy orders as SQL does: everything but floats and text."""

FLOAT: dict[str, Total] = {
    "=": _float_eq,
    "<>": lambda a, b: ~_float_eq(a, b),
    "<": lambda a, b: ~_float_ge(a, b),
    "<=": _float_le,
    ">": lambda a, b: ~_float_le(a, b),
    ">=": _float_ge,
}

_TEXT = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}

COMMUTED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""`a op b` is `b COMMUTED[op] a`."""


def _mixed(operator: Callable[[Any, Any], Any], left: SqlType, right: SqlType) -> Total:
    if left is DATE and right is not DATE:
        return lambda a, b: operator(midnights(a), b)
    if right is DATE and left is not DATE:
        return lambda a, b: operator(a, midnights(b))
    return operator


def _pairs(types: Sequence[SqlType]) -> list[tuple[SqlType, SqlType]]:
    return [(left, right) for left in types for right in types]


def register_all() -> None:
    """Register the comparisons."""
    exact = [
        (BOOLEAN, BOOLEAN),
        *_pairs((SMALLINT, INTEGER, BIGINT)),
        *_pairs((DATE, TIMESTAMP, TIMESTAMPTZ)),
    ]
    for name, operator in EXACT.items():
        for left, right in exact:
            define_predicate(name, (left, right), total(BOOLEAN, _mixed(operator, left, right)))
    for name, compute in FLOAT.items():
        for left, right in _pairs((REAL, DOUBLE_PRECISION)):
            define_predicate(name, (left, right), total(BOOLEAN, compute))
    for name, kernel in _TEXT.items():
        define_predicate(name, (TEXT, TEXT), arrow_to_fixed(BOOLEAN, kernel))
