"""Parameters of a Bind: from text or binary, by their types, to physical values.

Those of a long Bind are read apart from the serving loop: a value costs 0.5 µs and more there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from layby.adapter.prepared import ReadBind
from layby.errors import SqlError
from layby.memory.arena import Arena
from layby.pgwire.codec import read_bind, utf8
from layby.pgwire.shape import check_formats, column_formats
from layby.sql.params import pack_params
from layby.types.formats import decode_binary, parse
from layby.types.scalar import PhysicalValue, SqlType

LONGEST_AT_ONCE: Final = 8_192
"""Bytes of a Bind up to which it is read on the loop: 2,000 values at most, up to 1.8 ms. To read it apart
takes 0.5 ms more."""


@dataclass(frozen=True, slots=True)
class ReadLongBind:
    """Reads a long Bind of a statement that has parameters of `types` and `width` result columns, if any."""

    body: bytes | NDArray[np.uint8]
    types: Sequence[SqlType]
    width: int | None

    def __call__(self, arena: Arena) -> ReadBind:
        """Return its parameters and result formats; raises what `read_bind` and `read_parameters` raise."""
        portal, statement, formats, values, result_formats = read_bind(bytes(self.body))
        try:
            params = read_parameters(portal, statement, self.types, formats, values)
        except SqlError as error:
            raise error.shortened() from None
        if self.width is not None and result_formats:
            column_formats(result_formats, self.width)
        return ReadBind(pack_params(params, arena), result_formats if self.width is not None else ())


def read_parameters(
    portal: str,
    statement: str,
    types: Sequence[SqlType],
    formats: Sequence[int],
    values: Sequence[bytes | None],
) -> tuple[PhysicalValue, ...]:
    """Return the values of a statement's parameters.

    `formats` is as a Bind has it: none (all text), one for all, or one each. Raises `SqlError`: 08P01 for
    numbers that do not fit, 22P02 and its kin for a text that is no value, 22P03 for binary that is none, all
    of these with a context that says which parameter of which portal it is.
    """
    count = len(values)
    if formats:
        check_formats(formats)
        if len(formats) > 1 and len(formats) != count:
            raise SqlError(
                "08P01", f"bind message has {len(formats)} parameter formats but {count} parameters"
            )
    if count != len(types):
        raise SqlError(
            "08P01",
            f"bind message supplies {count} parameters, but prepared statement "
            f'"{statement}" requires {len(types)}',
        )
    decoded: list[PhysicalValue] = []
    number, text = 0, None
    try:
        for number, (type_, raw) in enumerate(zip(types, values, strict=True), 1):
            text = None
            if raw is None:
                decoded.append(None)
            elif formats and formats[number - 1 if len(formats) > 1 else 0]:
                decoded.append(_binary(type_, raw, number))
            else:
                text = utf8(raw)
                decoded.append(parse(type_, text))
    except SqlError as error:
        of = f'portal "{portal}"' if portal else "unnamed portal"
        error.context = f"{of} parameter ${number}" + ("" if text is None else " = '...'")
        raise
    return tuple(decoded)


def _binary(type_: SqlType, raw: bytes, number: int) -> PhysicalValue:
    if type_.size >= 0 and len(raw) != type_.size:
        message = (
            "insufficient data left in message"
            if len(raw) < type_.size
            else f"incorrect binary data format in bind parameter {number}"
        )
        raise SqlError("22P03" if len(raw) > type_.size else "08P01", message)
    return decode_binary(type_, raw)
