"""Resident memory of a process and all that it started, with what they share counted once."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Final, Self

_PROC: Final = Path("/proc")
_BLOCK: Final = 512
"""What a file's blocks are counted in, whatever its file system."""

_PAUSE_S: Final = 0.25
"""Between two looks: one walks the page tables of every process, some milliseconds under their locks."""


def process_tree(root: int) -> list[int]:
    """The ids of a process and its descendants, as they are at the moment."""
    parents: dict[int, int] = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        try:
            # The name before the parenthesis may hold anything; the parent is the second field after it.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        parents[int(stat.parent.name)] = int(fields[1])
    tree = [root]
    for found in tree:
        tree += [pid for pid, parent in parents.items() if parent == found]
    return tree


def resident_mib(root: int) -> float:
    """The memory of a process tree in MiB, what its processes share counted once.

    That is what is private to them and their part of mapped files, and every page of the shared segments
    that they have open: one that was written by a process that has unmapped it, and not been read by the
    next, is in no process's resident set, and occupies memory all the same.
    """
    total = 0
    segments: dict[tuple[int, int], int] = {}
    for pid in process_tree(root):
        total += _own_bytes(_PROC / str(pid))
        segments |= _segments(_PROC / str(pid))
    return (total + sum(segments.values())) / 2**20


def _own_bytes(process: Path) -> int:
    """Private memory, and the proportional part of mapped files; nothing for a process that has ended."""
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_File:")))


def _segments(process: Path) -> dict[tuple[int, int], int]:
    """By device and inode, the bytes in memory of each segment that a process has open."""
    found: dict[tuple[int, int], int] = {}
    # A process that ends, or closes a descriptor, meanwhile.
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if str(descriptor.readlink()).startswith("/memfd:"):
                    status = descriptor.stat()
                    found[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
    return found


class PeakWatch:
    """Looks at a process tree's resident memory again and again while its context lasts; keeps the peak."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peak_mib = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.look()

    def _watch(self) -> None:
        self.look()
        while not self._stop.wait(_PAUSE_S):
            self.look()

    def look(self) -> float:
        """Take the resident memory at this moment into the peak, and return it."""
        now = resident_mib(self._root)
        self.peak_mib = max(self.peak_mib, now)
        return now
