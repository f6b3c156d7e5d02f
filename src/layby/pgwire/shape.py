"""How results look on the wire: descriptions and encoders, made once a result and choice of formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from layby.adapter.outcome import ResultDesc
from layby.errors import SqlError
from layby.peek.answer import RowEncoder
from layby.pgwire.backend import row_description
from layby.pgwire.copy_data import CopyDataEncoder
from layby.pgwire.data_row import DataRowEncoder
from layby.sql.plan import CopyOptions

_KEPT: Final = 256
"""Shapes kept a connection; past it all are made anew, which costs about 10 µs each."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One result in one choice of formats."""

    desc: ResultDesc
    description: bytes
    """The RowDescription message."""
    encoder: DataRowEncoder


class Shapes:
    """The shapes that a connection has used.

    They are found by the identity of the description, as hashing it costs more than the lookup saves; an
    entry holds its description, so no other can take on the same identity while it stands.
    """

    __slots__ = ("_shapes",)

    def __init__(self) -> None:
        self._shapes: dict[tuple[int, tuple[int, ...]], Shape] = {}

    def get(self, desc: ResultDesc, formats: tuple[int, ...]) -> Shape:
        """Return the shape of a result in `formats` as a Bind gives them: none, one, or one each."""
        key = (id(desc), formats)
        shape = self._shapes.get(key)
        if shape is None:
            each = column_formats(formats, len(desc))
            shape = Shape(
                desc, row_description(desc, each), DataRowEncoder(tuple(c.type for c in desc), each)
            )
            if len(self._shapes) >= _KEPT:
                self._shapes.clear()
            self._shapes[key] = shape
        return shape


class EncoderChoice:
    """The `EncoderFor` of one execution: data rows in `formats`, or lines of COPY."""

    __slots__ = ("_formats", "_shapes")

    def __init__(self, shapes: Shapes, formats: tuple[int, ...]) -> None:
        self._shapes = shapes
        self._formats = formats

    def __call__(self, desc: ResultDesc, copy: CopyOptions | None = None) -> RowEncoder:
        """Return the encoder of rows of `desc`."""
        if copy is not None:
            return CopyDataEncoder(tuple(c.type for c in desc), copy)
        return self._shapes.get(desc, self._formats).encoder


def column_formats(formats: Sequence[int], count: int) -> tuple[int, ...]:
    """Spread result formats over `count` columns; raises `SqlError` where they do not fit."""
    check_formats(formats)
    if len(formats) <= 1:
        return (formats[0] if formats else 0,) * count
    if len(formats) != count:
        raise SqlError(
            "08P01", f"bind message has {len(formats)} result formats but query has {count} columns"
        )
    return tuple(formats)


def check_formats(formats: Sequence[int]) -> None:
    """Refuse a format other than 0 (text) and 1 (binary)."""
    for code in formats:
        if code not in (0, 1):
            raise SqlError("22023", f"unsupported format code: {code}")
