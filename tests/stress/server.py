"""The server under stress: a process of its own, and what can be seen of it from outside."""

from __future__ import annotations

import os
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from layby.bench.server import LaybyServer

_QUIET_S = 30.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Census:
    """What a server's processes hold: by process the threads, and descriptors by kind."""

    processes: int
    threads: int
    descriptors: Counter[str]
    rss_mib: float

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.descriptors.items()))
        return f"{self.processes} processes, {self.threads} threads, {kinds}; {self.rss_mib:.0f} MiB resident"


class StressedServer(LaybyServer):
    """`layby serve`, and what psycopg, its metrics and the system tell of it."""

    def __init__(self, workers: str) -> None:
        super().__init__(options=("--workers", workers))

    def alive(self) -> bool:
        """Whether the server still runs."""
        return self._process is not None and self._process.poll() is None

    def session(self) -> psycopg.Connection[Any]:
        """Open a session."""
        return psycopg.connect(
            f"host={self.host} port={self.port} user=layby dbname=layby connect_timeout=30", autocommit=True
        )

    def metric(self, name: str, page: str | None = None) -> float:
        """Return one sample of the metrics by its full name."""
        text = self.metrics() if page is None else page
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        if found is None:
            raise KeyError(name)
        return float(found[1])

    def metrics(self) -> str:
        """Return the whole exposition."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=30) as page:
            text: str = page.read().decode()
        return text

    def children(self) -> list[int]:
        """The server's child processes, oldest first."""
        found = []
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
        return sorted(found)

    def census(self) -> Census:
        """Count what the server and its children hold now."""
        pids = [self.pid, *self.children()]
        threads, resident = 0, 0.0
        descriptors: Counter[str] = Counter()
        for pid in pids:
            folder = Path(f"/proc/{pid}")
            threads += sum(1 for _ in (folder / "task").iterdir())
            resident += int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            for descriptor in (folder / "fd").iterdir():
                try:
                    descriptors[_kind(str(descriptor.readlink()))] += 1
                except FileNotFoundError:
                    continue  # closed while we looked
        return Census(len(pids), threads, descriptors, resident)


def _kind(target: str) -> str:
    """Return what a descriptor is, from where its link in /proc points."""
    if target.startswith("/memfd:"):
        return "segments"
    if target.startswith("socket:"):
        return "sockets"
    return "pipes" if target.startswith("pipe:") else "other descriptors"


def eventually(holds: Callable[[], bool], seconds: float = _QUIET_S) -> bool:
    """Wait until something holds; False where it still does not after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
