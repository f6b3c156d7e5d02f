"""Huge pages: what of a process's memory is put on them."""

from __future__ import annotations

import ctypes
import mmap

from layby.memory.huge_pages import SIZE, collapse_heap, resident, whole_pages

MAPS = """\
00200000-00600000 rw-p 00000000 00:00 0                                  [heap]
00700000-00d00001 rw-p 00000000 00:00 0
01000000-01200000 rw-p 00000000 08:01 1234                               /usr/lib/libpython3.11.so
01400000-01600000 rw-s 00000000 00:01 5678                               /memfd:layby (deleted)
01800000-01a00000 r--p 00000000 00:00 0
01c00000-01e00000 rw-p 00000000 00:00 0                                  [stack]
01f00000-02100000 rw-p 00000000 00:00 0
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
"""


def test_only_private_memory_of_no_file_is_taken_and_of_it_whole_huge_pages() -> None:
    assert [(hex(start), hex(end)) for start, end in whole_pages(MAPS.splitlines(keepends=True))] == [
        ("0x200000", "0x600000"),
        ("0x800000", "0xc00000"),
        ("0x7f0000000000", "0x7f0000400000"),
    ]


def test_what_was_touched_is_resident() -> None:
    with mmap.mmap(-1, 2 * SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        address = ctypes.addressof(touch := ctypes.c_char.from_buffer(memory))
        for page in range(3):
            memory[page * mmap.PAGESIZE] = 1
        assert resident(address, address + 2 * SIZE) == 3 * mmap.PAGESIZE
        del touch


def test_memory_keeps_what_is_in_it() -> None:
    held = [bytes([at % 251]) * 5_000 for at in range(5_000)]
    collapse_heap()
    assert held == [bytes([at % 251]) * 5_000 for at in range(5_000)]
