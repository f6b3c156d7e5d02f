"""The types smallint, integer and bigint: text format."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from layby.errors import SqlError
from layby.types.column import Mask, TextColumn
from layby.types.scalar import SqlType
from layby.types.syntax import WHITESPACE, invalid_syntax

_DECIMAL: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)

_LONGEST: Final = 4000
"""Digits that `int` converts at once (Python bounds them); more than a bigint has, leading zeros aside."""


def parse_integer(type_: SqlType, text: str) -> int:
    """Return the value of one text; raises 22P02 and 22003."""
    stripped = text.strip(WHITESPACE)
    if _DECIMAL.fullmatch(stripped) is None:
        raise invalid_syntax(type_, text)
    if len(stripped) > _LONGEST:
        sign = stripped[0] if stripped[0] in "+-" else ""
        stripped = sign + (stripped[len(sign) :].lstrip("0")[:_LONGEST] or "0")
    value = int(stripped)
    bound = 1 << (8 * type_.size - 1)
    if not -bound <= value < bound:
        raise SqlError("22003", f'value "{text}" is out of range for type {type_.name}')
    return value


def parse_integers(type_: SqlType, texts: TextColumn) -> tuple[NDArray[Any], Mask | None]:
    """Parse texts of digits with at most a minus sign: values, and a mask of doubtful rows (None: none).

    Raises `pyarrow.ArrowInvalid` where a text is anything else.
    """
    data = texts.data[int(texts.offsets[0]) : int(texts.offsets[-1])]
    if len(data) and data.max() > ord("9"):
        # The kernel would take 0x1F for a number; PostgreSQL 15 does not.
        raise pa.ArrowInvalid("not all digits")
    numbers = texts.arrow.cast(pa.from_numpy_dtype(type_.dtype))
    return filled(numbers), None


def filled(array: Any) -> NDArray[Any]:
    """Return the values of a `pyarrow` primitive array, zero where it is null."""
    if array.null_count:
        array = array.fill_null(pa.scalar(0, array.type))
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def render_integers(values: NDArray[Any]) -> Any:
    """Return the texts of `values` as a `pyarrow` string array."""
    return pa.array(np.ascontiguousarray(values)).cast(pa.large_string())
