"""Sealed values: a sequence that crosses processes as bytes, each value taken out of them when it is wanted.

To unpickle the thousand columns of one batch takes 5 ms, and as long to pickle them again for the next
process. A process that reads one of them, or only hands all of them on, pays for that: the bytes go through
it as they are, beside the segments that they refer to.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from layby.memory.segment import Segment, segment_of

T = TypeVar("T")

FEW: Final = 64
"""Values up to which a sequence crosses as it is: to take so many out of a pickle takes 0.3 ms."""


class SegmentSource(Protocol):
    """Knows the segments that what is being unpickled refers to."""

    def segment(self, identity: int) -> Segment:
        """Return a segment by its identity."""


class _Unpickling(threading.local):
    source: Any = None


_unpickling = _Unpickling()


def load(data: bytes | memoryview, source: SegmentSource) -> Any:
    """Unpickle arrays that `reduce_array` has pickled, over the segments of `source`."""
    before, _unpickling.source = _unpickling.source, source
    try:
        return pickle.loads(data)
    finally:
        _unpickling.source = before


def current_source() -> Any:
    """Return the source of what this thread unpickles."""
    return _unpickling.source


def reduce_array(array: NDArray[Any], refer: Callable[[Segment], int]) -> Any:
    """Return how an array is pickled: over a segment as a reference, which `refer` gives the identity for."""
    if array.ndim == 1:
        segment = segment_of(array)
        if segment is not None:
            offset = array.__array_interface__["data"][0] - segment.address
            return _array, (refer(segment), offset, array.dtype.str, len(array), array.strides[0])
        if array.strides == (0,) and len(array) > 1:
            return np.broadcast_to, (array[:1].copy(), (len(array),))
    return array.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def _array(identity: int, offset: int, dtype: str, length: int, stride: int) -> NDArray[Any]:
    segment: Segment = current_source().segment(identity)
    whole = np.dtype(dtype)
    if stride == whole.itemsize or length < 2:
        return segment.view(offset, whole, length)
    return np.ndarray((length,), whole, segment, offset, (stride,))


class Sealed(Sequence[T]):
    """Values as their pickles end to end, `ends` where each ends, and the segments that they refer to.

    Any thread may read it: at worst two open a value at once. The segments stay mapped as long as it lives.
    """

    __slots__ = ("_data", "_ends", "_opened", "_segments")

    def __init__(self, data: bytes, ends: NDArray[np.int64], segments: tuple[Segment, ...]) -> None:
        self._data = data
        self._ends = ends
        self._segments = {segment.identity: segment for segment in segments}
        self._opened: list[T | None] = [None] * len(ends)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as it is, whatever has been opened."""
        return Sealed, (self._data, self._ends, tuple(self._segments.values()))

    def __len__(self) -> int:
        return len(self._opened)

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...

    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            return self._part(range(*at.indices(len(self))))
        value = self._opened[at]
        if value is None:
            at = range(len(self))[at]
            start = int(self._ends[at - 1]) if at else 0
            value = load(memoryview(self._data)[start : int(self._ends[at])], self)
            self._opened[at] = value
        return value

    def __iter__(self) -> Iterator[T]:
        return map(self.__getitem__, range(len(self)))

    def segment(self, identity: int) -> Segment:
        """Return one of the segments."""
        return self._segments[identity]

    def _part(self, places: range) -> Sequence[T]:
        """Return some of the values, many of them sealed."""
        if len(places) <= FEW or places.step != 1:
            return tuple([self[at] for at in places])
        start = int(self._ends[places.start - 1]) if places.start else 0
        stop = int(self._ends[places.stop - 1])
        ends = self._ends[places.start : places.stop] - start
        return Sealed(self._data[start:stop], ends, tuple(self._segments.values()))


class Crossing(tuple[T, ...]):
    """Values that lie open where they are made, and arrive in another process sealed where they are many."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (sealed(tuple(self)),)


def _arrived(values: Sequence[T]) -> Sequence[T]:
    return values


def sealed(values: Sequence[T]) -> Sequence[T]:
    """Return values, none of them None, as they are to cross: sealed where they are more than `FEW`."""
    if len(values) <= FEW or isinstance(values, Sealed):
        return values
    out = io.BytesIO()
    pickler = _Pickler(out)
    ends = np.empty(len(values), np.int64)
    for at, value in enumerate(values):
        pickler.dump(value)
        pickler.clear_memo()
        ends[at] = out.tell()
    segments = tuple(pickler.segments.values())
    pickler.dispatch_table = {}  # ends its cycle with its own method
    return Sealed(out.getvalue(), ends, segments)


class _Pickler(pickle.Pickler):
    """Pickles values one by one and collects the segments that they lie in."""

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self.segments: dict[int, Segment] = {}
        self.dispatch_table = copyreg.dispatch_table | {
            np.ndarray: lambda array: reduce_array(array, self._refer)
        }

    def _refer(self, segment: Segment) -> int:
        self.segments[segment.identity] = segment
        return segment.identity
