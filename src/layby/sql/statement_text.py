"""Texts of statements: strings, and large ones as the bytes that a client sent.

A large text is decoded where it is parsed, away from the serving loop, which only hands it on and cuts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from layby.types.text import decode_text

LARGE_TEXT: Final = 1 << 18
"""Bytes of a text up to which it is decoded on the loop: 0.01 ms, up to 0.25 where it is not ASCII."""

_MOST_TOLD: Final = 1_024
"""Bytes of a large text that are shown of it."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodedText:
    """A large text in UTF-8 without NUL, if its client made no mistake: nobody has looked."""

    data: NDArray[np.uint8]

    def __len__(self) -> int:
        """Return its length in bytes."""
        return len(self.data)


StatementText = str | EncodedText


def text_of(data: NDArray[np.uint8]) -> StatementText:
    """Return UTF-8 data as a text, undecoded where it is large; raises SqlError 22021."""
    return EncodedText(data) if len(data) > LARGE_TEXT else decode_text(data.tobytes())


def decoded(text: StatementText) -> str:
    """Return a text as a string; raises SqlError 22021."""
    return text if isinstance(text, str) else decode_text(text.data.tobytes())


def cut(text: StatementText, start: int, stop: int) -> StatementText:
    """Return a part of a text: its characters, of an encoded text its bytes, from `start` to `stop`."""
    return text[start:stop] if isinstance(text, str) else text_of(text.data[start:stop])


def shown(text: StatementText) -> str:
    """Return a text to be told of, a large one by its beginning."""
    if isinstance(text, str):
        return text
    return text.data[:_MOST_TOLD].tobytes().decode(errors="ignore") + "..."
