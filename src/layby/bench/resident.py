"""Resident memory of a process and all that it started, with what they share counted once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final, Self

_PROC: Final = Path("/proc")
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
    """The proportional set size of a process tree in MiB: a page that n of them map counts 1/n in each."""
    kib = 0
    for pid in process_tree(root):
        try:
            lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024


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
