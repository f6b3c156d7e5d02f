"""Memory that was freed and stays with its process until it is given back."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

SIZE: Final = 64 << 20
_PIECE: Final = 64 << 10
"""Bytes of one allocation: too few for a mapping of its own."""

_kept: list[pa.Buffer] = []


def resident(process: int | None = None) -> int:
    """Return the bytes of a process's own memory, of this one's without a number."""
    status = Path(f"/proc/{process or os.getpid()}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) << 10


def fragment() -> None:
    """Have a thread allocate `SIZE` bytes from Arrow, and free all but the last piece.

    That one keeps the heap from shrinking by itself. The thread stays, and does nothing more.
    """
    freed = threading.Event()

    def run() -> None:
        pieces = [pa.allocate_buffer(_PIECE) for _ in range(SIZE // _PIECE)]
        for piece in pieces:
            np.frombuffer(piece, np.uint8)[:] = 1
        _kept.append(pieces[-1])
        pieces.clear()
        freed.set()
        threading.Event().wait()

    threading.Thread(target=run, daemon=True).start()
    freed.wait()
