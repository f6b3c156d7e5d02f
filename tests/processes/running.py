"""A running server seen from outside: its processes, and what they hold."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

DEADLINE_S: Final = 30.0


def children(pid: int) -> list[int]:
    """Return the processes that any thread of a process has started and that have not been reaped."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            continue
    return found


def programs(pid: int, name: str) -> list[int]:
    """Return those children of a process that run a program of that name and are alive.

    Each of them imports the others' modules as well; what it runs is its `main`.
    """
    runs = f".{name} import main"
    return [child for child in children(pid) if runs in _read(child, "cmdline") and _alive(child)]


def walkers(pid: int) -> list[int]:
    return programs(pid, "walk_process")


def maintenance(pid: int) -> list[int]:
    return programs(pid, "maintenance_process")


def exists(pid: int) -> bool:
    return _alive(pid)


def resident_bytes(pid: int) -> int:
    return int(_read(pid, "statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def until(condition: Callable[[], object], seconds: float = DEADLINE_S) -> None:
    """Wait until a condition holds that only another process brings about; fails where it takes too long."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def _alive(pid: int) -> bool:
    status = _read(pid, "stat")
    return bool(status) and status.rpartition(")")[2].split()[0] != "Z"
