"""The type boolean: text and binary formats."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from layby.types.column import Mask, TextColumn
from layby.types.scalar import BOOLEAN
from layby.types.syntax import WHITESPACE, invalid_syntax


def _spellings() -> dict[str, bool]:
    """Every unique prefix of the words that PostgreSQL takes; `o` could be `on` or `off`, so it is none."""
    words = {"true": True, "false": False, "yes": True, "no": False}
    prefixes = {word[:n]: value for word, value in words.items() for n in range(1, len(word) + 1)}
    return prefixes | {"on": True, "of": False, "off": False, "1": True, "0": False}


_SPELLINGS: Final = _spellings()
_NO_LETTER: Final = 2


def _letter_table() -> NDArray[np.uint8]:
    table = np.full(256, _NO_LETTER, np.uint8)
    for spelling, value in _SPELLINGS.items():
        if len(spelling) == 1:
            table[ord(spelling)] = table[ord(spelling.upper())] = value
    return table


_LETTERS: Final = _letter_table()


def parse_boolean(text: str) -> bool:
    """Return the value of one text; raises 22P02."""
    value = _SPELLINGS.get(text.strip(WHITESPACE).lower()) if text.isascii() else None
    if value is None:
        raise invalid_syntax(BOOLEAN, text)
    return value


def parse_booleans(texts: TextColumn) -> tuple[NDArray[Any], Mask | None]:
    """Parse texts of one letter each: values, and a mask of the rows left to `parse_boolean` (None: none).

    Raises `pyarrow.ArrowInvalid` where a text that is not null has another length.
    """
    lengths = np.diff(texts.offsets)
    present = lengths == 1
    if not (present if texts.valid is None else present | ~texts.valid).all():
        raise pa.ArrowInvalid("not all of one letter")
    codes = np.zeros(len(texts), np.uint8)
    codes[present] = _LETTERS[texts.data[texts.offsets[:-1][present]]]
    doubtful = codes == _NO_LETTER
    return codes == 1, doubtful if doubtful.any() else None


def render_boolean(value: bool) -> str:
    """Return `t` or `f`."""
    return "t" if value else "f"


def render_booleans(values: NDArray[Any]) -> Any:
    """Return the texts of `values` as a `pyarrow` string array."""
    letters = np.where(values, ord("t"), ord("f")).astype(np.uint8)
    offsets = np.arange(len(values) + 1, dtype=np.int64)
    return pa.Array.from_buffers(
        pa.large_string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    )
