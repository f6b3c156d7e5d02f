"""Outside load: programs that have nothing to do with the server and keep the machine's cores busy."""

from __future__ import annotations

import subprocess
import sys
from typing import Final, Self

# It ends with its parent, so that a bench that is killed leaves no core busy.
_SPIN: Final = """
import os
parent = os.getppid()
while os.getppid() == parent:
    sum(range(100_000))
"""


class OutsideLoad:
    """`count` processes of normal priority that compute all the time, while the context lasts."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for _ in range(self._count):
            self._processes.append(subprocess.Popen([sys.executable, "-c", _SPIN], stdin=subprocess.DEVNULL))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    @property
    def process_ids(self) -> list[int]:
        """The processes that were started."""
        return [process.pid for process in self._processes]

    @property
    def running(self) -> int:
        """How many of them run."""
        return sum(process.poll() is None for process in self._processes)
