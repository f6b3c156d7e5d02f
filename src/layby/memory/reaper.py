"""The reaper: unmaps large segments on a thread of its own.

To unmap an answer of a million rows takes 3 to 12 ms, and Python's `mmap` holds the GIL for it: on the
serving loop every lookup would wait that long. So a segment that nothing refers to any more comes here. Its
pages leave the address space in a foreign call without the GIL; what is left of the mapping is cheap to undo;
and its descriptor is closed last, since closing lets go of the GIL while the kernel frees the memory.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import queue
import threading
from typing import Final

from layby.memory.segment import Segment

LARGE: Final = 1 << 20
"""Bytes from which a segment is worth a hand-over; 1 MiB takes some 0.1 ms."""

_libc: Final = ctypes.CDLL(None)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Reaper:
    """The segments that are to be unmapped; `step` unmaps one."""

    def __init__(self) -> None:
        self._gone: queue.SimpleQueue[Segment] = queue.SimpleQueue()

    def take(self, segment: Segment) -> bool:
        """Take over a segment that nothing refers to any more; a small one is refused. From any thread."""
        if len(segment) < LARGE:
            return False
        self._gone.put(segment)
        return True

    def step(self, *, wait: bool = True) -> bool:
        """Unmap the next segment, waiting for one; without `wait`, False where there is none."""
        try:
            segment = self._gone.get(wait)
        except queue.Empty:
            return False
        _libc.madvise(segment.address, len(segment), mmap.MADV_DONTNEED)
        descriptor = segment.forget()
        del segment
        os.close(descriptor)
        return True


def reap_apart() -> None:
    """From now on unmap this process's large segments on a thread of its own."""
    reaper = Reaper()

    def run() -> None:
        while True:
            reaper.step()

    threading.Thread(target=run, name="layby-reaper", daemon=True).start()
    Segment.on_unused = reaper.take
