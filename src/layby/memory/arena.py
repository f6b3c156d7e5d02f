"""Arenas: where the buffers of sealed batches come from.

A batch that is handed from one role to another (maintenance to walk pool, say) is made of plain buffers.
Which memory these lie in is the arena's business alone, so that roles do not know whether they share a
heap or only a mapped segment. What is passed between functions within one role lives on the heap as any
numpy array does; only what a sealed batch keeps is placed in an arena.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Arena(Protocol):
    """A source of column buffers."""

    def empty(self, length: int, dtype: np.dtype[Any]) -> Array:
        """Return an uninitialised one-dimensional array of `length` items in the arena."""

    def place(self, array: Array) -> Array:
        """Return a contiguous array with the values of `array` in the arena; `array` is not used after."""


class HeapArena:
    """The process's own heap: placing a contiguous array that owns its memory costs nothing."""

    def empty(self, length: int, dtype: np.dtype[Any]) -> Array:
        """Return an uninitialised array; the garbage collector frees it with its last reference."""
        return np.empty(length, dtype)

    def place(self, array: Array) -> Array:
        """Return `array` itself, or a copy where it is a view: a view would keep its base alive."""
        if array.base is None and array.flags.c_contiguous:
            return array
        return np.array(array, order="C")


HEAP = HeapArena()
