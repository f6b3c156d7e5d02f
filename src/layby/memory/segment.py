"""Segments: pieces of memory that processes share.

A segment is a `memfd`: nothing of it is left in the file system, and the kernel frees it once no process has
it open or mapped. Its creator writes; everyone else maps it read-only, which the seal `F_SEAL_FUTURE_WRITE`
enforces. Arrays over a segment keep it mapped, so it lives as long as any of them does, and no longer.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_F_SEAL_FUTURE_WRITE: Final = 0x0010
"""No new writable mapping; the one that exists goes on writing (Linux 5.1, not yet named by `fcntl`)."""

_numbers = itertools.count(1)

_open: dict[int, tuple[int, int]] = {}
"""By descriptor: identity and size of each segment that this process has mapped."""


def mapped_bytes() -> int:
    """Return the bytes of all segments that this process has mapped, each counted once; from any thread."""
    return sum(dict(list(_open.values())).values())


class Segment(mmap.mmap):
    """A mapped segment. `identity` is the same in every process that maps it."""

    identity: int
    fd: int = -1
    address: int

    on_unused: ClassVar[Callable[[Segment], bool] | None] = None
    """Takes over a segment that nothing refers to any more; False: it is unmapped where it was let go."""

    @classmethod
    def create(cls, size: int) -> Segment:
        """Make a segment of `size` bytes, zeroed, written by this process. Raises OSError."""
        fd = os.memfd_create("layby", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            segment = cls(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        except BaseException:
            os.close(fd)
            raise
        return segment._opened(os.getpid() << 32 | next(_numbers), fd)

    @classmethod
    def map(cls, identity: int, fd: int, size: int) -> Segment:
        """Map another process's segment read-only; owns `fd` from now on."""
        try:
            segment = cls(fd, size, prot=mmap.PROT_READ)
        except BaseException:
            os.close(fd)
            raise
        return segment._opened(identity, fd)

    def _opened(self, identity: int, fd: int) -> Segment:
        self.identity = identity
        self.fd = fd
        _open[fd] = (identity, len(self))
        self.address = np.frombuffer(self, np.uint8).__array_interface__["data"][0]
        return self

    def __del__(self) -> None:
        if self.fd < 0:  # the mapping failed, and the descriptor is its opener's
            return
        taken = Segment.on_unused
        if taken is None or not taken(self):
            os.close(self.forget())

    def forget(self) -> int:
        """Count the segment as unmapped, which its deletion does next; return the descriptor to close."""
        _open.pop(self.fd, None)
        return self.fd

    def view(self, offset: int, dtype: np.dtype[Any], length: int) -> Array:
        """Return an array over `length` items from `offset`; it keeps the segment mapped."""
        return np.frombuffer(self, dtype, length, offset)


def segment_of(array: Array) -> Segment | None:
    """Return the segment that an array lies in, None where that is ordinary memory."""
    base: Any = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, Segment) else None
