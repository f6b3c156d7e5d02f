"""Drives loads: starts a process for each, lets them begin at the same moment, collects what they report."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NoReturn, Self

from layby.bench.load import Load, Report

LEAD_S = 0.05
Watcher = Callable[[Sequence[float]], None]


class LoadError(Exception):
    """A load process could not start, or died."""


@dataclass(slots=True)
class Measured:
    """All that one load reported; times in milliseconds, `elapsed_s` from first arrival to last answer."""

    latencies_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    errors: int = 0
    error: str = ""
    elapsed_s: float = 0.0

    def add(self, report: Report) -> None:
        """Take one more report."""
        self.latencies_ms += report.latencies_ms
        self.late_ms += report.late_ms
        self.errors += report.errors
        self.error = self.error or report.error
        self.elapsed_s = report.elapsed_s or self.elapsed_s


class LoadProcess:
    """One load generator in its own process; leaving the context ends it."""

    def __init__(self, load: Load) -> None:
        """Start the process; it connects meanwhile."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "layby.bench.load", load.encode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()

    def ready(self) -> None:
        """Wait until all its connections stand. Raises LoadError."""
        if self._line() != "ready":
            self._raise()

    def begin(self, start: float) -> None:
        """Let it send from `start` of the monotonic clock on, which is the same in all processes."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{start!r}\n")
        self._process.stdin.flush()

    def collect(self, watcher: Watcher | None = None) -> Measured:
        """Take its reports until the last; `watcher` sees the latencies of each. Raises LoadError."""
        measured = Measured()
        while True:
            line = self._line()
            if not line:
                self._raise()
            report = Report.decode(line)
            measured.add(report)
            if watcher is not None:
                watcher(report.latencies_ms)
            if report.elapsed_s is not None:
                return measured

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def _raise(self) -> NoReturn:
        said = self._process.communicate(timeout=30)[1].strip().splitlines()
        raise LoadError(said[-1] if said else f"load process ended with status {self._process.returncode}")


def run_together(loads: Sequence[Load], watcher: Watcher | None = None) -> list[Measured]:
    """Run loads beside each other, one process each, from one common start.

    `watcher` is called with the latencies (ms) of the first load as they come in, from another thread.
    Raises LoadError.
    """
    with ExitStack() as stack:
        processes = [stack.enter_context(LoadProcess(load)) for load in loads]
        for process in processes:
            process.ready()
        start = time.monotonic() + LEAD_S
        for process in processes:
            process.begin(start)
        pool = stack.enter_context(ThreadPoolExecutor(len(processes)))
        watchers = [watcher] + [None] * (len(processes) - 1)
        return list(pool.map(LoadProcess.collect, processes, watchers))
