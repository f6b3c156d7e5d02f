"""The server under stress: a process of its own, and what can be seen of it from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psycopg

_ACCEPTS = re.compile(r"accepts connections on \S+:(\d+) \(http \S+:(\d+)\)")
_STOP_S = 30.0
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


class StressedServer:
    """`layby serve` on free ports; its log is kept for the verdict."""

    def __init__(self, workers: str) -> None:
        self._workers = workers
        self._folder = tempfile.TemporaryDirectory(prefix="layby-stress-")
        self._log = Path(self._folder.name) / "log"
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.http_port = 0

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "layby", "serve", "--port", "0", "--http-port", "0"),
                    *("--workers", self._workers),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = _ACCEPTS.search(line)
        if found is None:
            self.stop()
            raise RuntimeError(f"layby did not start: {line!r}")
        self.port, self.http_port = int(found[1]), int(found[2])
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        """Whether the server still runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> int | None:
        """End the server by SIGTERM, killing it where it does not react, and return its exit code."""
        process = self._process
        if process is None:
            return None
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._process = None
        return process.returncode

    def connect(self) -> psycopg.Connection[Any]:
        """Open a session."""
        return psycopg.connect(
            f"host=127.0.0.1 port={self.port} user=layby dbname=layby connect_timeout=30", autocommit=True
        )

    def log_lines(self) -> list[str]:
        """What the server has logged so far."""
        return self._log.read_text(errors="replace").splitlines()

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
