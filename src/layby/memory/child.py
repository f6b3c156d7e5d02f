"""Child processes that share memory with the server: how they are started and how they end."""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import sys
from typing import Final

from layby.memory.channel import Channel

_PR_SET_PDEATHSIG: Final = 1
_END_S: Final = 5.0


class Child:
    """A program of ours in a process of its own, with a channel to it.

    A new interpreter is executed, so nothing is forked from a parent that has threads.
    """

    def __init__(self, module: str, shared_classes: tuple[type, ...]) -> None:
        """Start `main()` of a module: imported, not run with `-m`, so that its classes are in the child
        those that messages from here name."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"from {module} import main; main()", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )
        self.channel = Channel(ours, shared_classes)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    def end(self) -> int:
        """Close the channel, end the process, killing it where it does not react, and return its code."""
        self.channel.close()
        self.process.terminate()
        try:
            return self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """Kill the process and return its exit code."""
        self.process.kill()
        return self.process.wait()


def start_child() -> socket.socket:
    """In the child: return its end of the channel's socket, named on the command line.

    From now on the terminal's interrupts do not reach this process, and it dies with its parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return socket.socket(fileno=int(sys.argv[1]))
