"""The type text, and what the server's encoding (UTF-8 without NUL) allows."""

from __future__ import annotations

from typing import Final

import numpy as np

from layby.errors import SqlError
from layby.types.column import TextColumn

_LEAD_LENGTHS: Final = ((0xF0, 0xF8, 4), (0xE0, 0xF0, 3), (0xC0, 0xE0, 2))


def invalid_encoding(data: bytes, at: int) -> SqlError:
    """Return the error of a byte sequence that is not UTF-8 (or is NUL) and begins at `at`."""
    lead = data[at]
    length = next((n for low, high, n in _LEAD_LENGTHS if low <= lead < high), 1)
    shown = " ".join(f"0x{byte:02x}" for byte in data[at : at + length])
    return SqlError("22021", f'invalid byte sequence for encoding "UTF8": {shown}')


def decode_text(data: bytes) -> str:
    """Return the text of UTF-8 data; raises 22021."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        nul = data.find(0, 0, error.start)
        raise invalid_encoding(data, error.start if nul < 0 else nul) from None
    refuse_nul(text)
    return text


def refuse_nul(text: str) -> None:
    """Raise 22021 where the text has a NUL in it."""
    if "\0" in text:
        raise invalid_encoding(b"\0", 0)


def rows_with_nul(texts: TextColumn) -> list[int]:
    """Return the rows whose text has a NUL in it."""
    start, stop = int(texts.offsets[0]), int(texts.offsets[-1])
    data = texts.data[start:stop]
    if not len(data) or data.min() > 0:
        return []
    at = np.flatnonzero(data == 0) + start
    return sorted(set((np.searchsorted(texts.offsets, at, "right") - 1).tolist()))
