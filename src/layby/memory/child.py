"""Child processes that share memory with the server: how they are started and how they end."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from layby.memory.channel import Channel
from layby.memory.heap import ONE_HEAP

_PR_SET_PDEATHSIG: Final = 1
_END_S: Final = 5.0

_PROGRAM: Final = "import {}; from {} import main; main()"
_NOT_NEEDED: Final = ("layby.cli", "layby.bench", "layby.http")

_T = TypeVar("_T")

_apart = ThreadPoolExecutor(1, thread_name_prefix="layby-children")
"""Starts and reaps children that are replaced: a start takes up to 5 ms, the end of a process with much
mapped memory longer. One thread that lives as long as this process, since the kernel takes the end of the
thread that started a child for the end of its parent."""


class Child:
    """A program of ours in a process of its own, with a channel to it.

    A new interpreter is executed, so nothing is forked from a parent that has threads.
    """

    def __init__(self, module: str) -> None:
        """Start `main()` of a module: imported, not run with `-m`, so that its classes are in the child
        those that messages from here name. Raises OSError.

        The child imports what this process has imported of ours right away: a message must not meet files
        that have changed since, nor the first walk wait for imports.
        """
        loaded = sorted(n for n in sys.modules if n.startswith("layby.") and not n.startswith(_NOT_NEEDED))
        program = _PROGRAM.format(", ".join([module, *loaded]), module)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with theirs:
                self.process = subprocess.Popen(
                    [sys.executable, "-c", program, str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    env=os.environ | ONE_HEAP,
                )
        except BaseException:
            ours.close()
            raise
        self.channel = Channel(ours)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    def terminate(self) -> None:
        """Close the channel and ask the process to end."""
        self.channel.close()
        self.process.terminate()

    def end(self) -> int:
        """Close the channel, end the process, killing it where it does not react, and return its code."""
        self.terminate()
        try:
            return self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """Kill the process and return its exit code."""
        self.process.kill()
        return self.process.wait()


def run_apart(start: Callable[[], _T], then: Callable[[Future[_T]], None]) -> None:
    """Start or reap a child away from the caller's thread; `then` gets the outcome on that other thread."""
    _apart.submit(start).add_done_callback(then)


def start_child() -> socket.socket:
    """In the child: return its end of the channel's socket, named on the command line.

    From now on the terminal's interrupts do not reach this process, and it dies with its parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return socket.socket(fileno=int(sys.argv[1]))
