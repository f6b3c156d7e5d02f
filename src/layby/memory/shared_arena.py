"""The shared arena: column buffers in segments that other processes can map."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from layby.memory.segment import Segment, segment_of

Array = NDArray[Any]

_SEGMENT: Final = 4 << 20
"""Bytes of a segment that small buffers share; its pages cost memory only once they are written."""

_OWN: Final = _SEGMENT // 4
"""A buffer of this size or more gets a segment of its own, which is freed with it."""

_ALIGNMENT: Final = 64
_PAGE: Final = 4096


class SharedArena:
    """Places buffers in segments: large ones alone, small ones one after the other in a common one.

    A stream of small batches so costs neither a system call nor a mapping each. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: Segment | None = None
        self._used = 0
        self._segments: weakref.WeakSet[Segment] = weakref.WeakSet()

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all segments made here that anything in this process still refers to."""
        return sum(len(segment) for segment in list(self._segments))

    @property
    def segment_count(self) -> int:
        """How many these are."""
        return len(self._segments)

    def empty(self, length: int, dtype: np.dtype[Any]) -> Array:
        """Return a zeroed one-dimensional array of `length` items in a segment."""
        size = length * dtype.itemsize
        if not size:
            return np.empty(length, dtype)
        if size >= _OWN:
            segment = Segment.create(-(-size // _PAGE) * _PAGE)
            self._segments.add(segment)
            return segment.view(0, dtype, length)
        with self._lock:
            offset = -(-self._used // _ALIGNMENT) * _ALIGNMENT
            if self._current is None or offset + size > _SEGMENT:
                self._current = Segment.create(_SEGMENT)
                self._segments.add(self._current)
                offset = 0
            self._used = offset + size
            return self._current.view(offset, dtype, length)

    def place(self, array: Array) -> Array:
        """Return an array with the values of `array` in a segment: itself where it fills one already."""
        if segment_of(array) is not None:
            return array
        placed = self.empty(len(array), array.dtype)
        placed[:] = array
        return placed
