"""The heap of a child process: what it has freed goes back to the system when it rests.

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

import pyarrow as pa

REST: Final = 5
"""So many times of housekeeping, a second apart, without any request are a rest."""

_M_ARENA_MAX: Final = -8

_libc: Final = ctypes.CDLL(None)


class Rest(NamedTuple):
    """Tells a child process that nothing has been asked of it for a while: time to give memory back."""


def use_one_heap() -> None:
    """Have Arrow and all threads allocate in one place; once, before there are any other threads.

    Not in the server: its loop would wait for the allocations of threads of lower priority.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    _libc.mallopt(_M_ARENA_MAX, 1)


def give_memory_back() -> None:
    """Give freed memory back to the system, 0.2 ms for each MiB; other threads may wait to allocate."""
    _libc.malloc_trim(0)
