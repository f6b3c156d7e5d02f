"""Parameters of a Bind: from text or binary, by their types, to physical values."""

from __future__ import annotations

from collections.abc import Sequence

from layby.errors import SqlError
from layby.pgwire.codec import utf8
from layby.pgwire.shape import check_formats
from layby.types.formats import decode_binary, parse
from layby.types.scalar import PhysicalValue, SqlType


def read_parameters(
    statement: str, types: Sequence[SqlType], formats: Sequence[int], values: Sequence[bytes | None]
) -> list[PhysicalValue]:
    """Return the values of a statement's parameters.

    `formats` is as a Bind has it: none (all text), one for all, or one each. Raises `SqlError`: 08P01 for
    numbers that do not fit, 22P02 and its kin for a text that is no value, 22P03 for binary that is none.
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
    for at, raw in enumerate(values):
        if raw is None:
            decoded.append(None)
        elif formats and formats[at if len(formats) > 1 else 0]:
            decoded.append(_binary(types[at], raw, at + 1))
        else:
            decoded.append(parse(types[at], utf8(raw)))
    return decoded


def _binary(type_: SqlType, raw: bytes, number: int) -> PhysicalValue:
    if type_.size >= 0 and len(raw) != type_.size:
        message = (
            "insufficient data left in message"
            if len(raw) < type_.size
            else f"incorrect binary data format in bind parameter {number}"
        )
        raise SqlError("22P03" if len(raw) > type_.size else "08P01", message)
    return decode_binary(type_, raw)
