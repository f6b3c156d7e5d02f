"""The heap: what a process has freed goes back to the system when it rests.

glibc keeps freed memory for the next allocation, in an arena for each thread, and gives back the end of no
arena but the first. Arrow's own allocator gives the part of a thread back only when that thread asks. After
ten minutes of small reads and writes maintenance had 28 MiB in the one and 89 MiB in the other, all of it
free. So in child processes Arrow allocates from glibc and there is one arena, of which any thread gives back
what all have freed. COPY, filters and sorts of texts, and index builds take no longer for that; what comes
first after a rest has its pages to fetch again.
"""

from __future__ import annotations

import ctypes
from typing import Final, NamedTuple

ONE_HEAP: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
"""In the environment of a process: all libraries and threads allocate in one place.

Not of the server: its loop would wait for the allocations of threads of lower priority.
"""

REST: Final = 5
"""So many looks, a second apart, at which nothing has happened are a rest."""

_libc: Final = ctypes.CDLL(None)


class Rest(NamedTuple):
    """Tells a child process that nothing has been asked of it for a while: time to give memory back."""


class Idleness:
    """Tells when a rest begins, once in each."""

    def __init__(self) -> None:
        self._so_far: object = None
        self._unchanged = 0

    def rests(self, so_far: object) -> bool:
        """Look at what has happened so far, a count say; whether this look begins a rest."""
        if so_far != self._so_far:
            self._so_far, self._unchanged = so_far, 0
        self._unchanged += 1
        return self._unchanged == REST


def give_memory_back() -> None:
    """Give freed memory back to the system, 0.2 ms for each MiB; other threads may wait to allocate."""
    _libc.malloc_trim(0)
