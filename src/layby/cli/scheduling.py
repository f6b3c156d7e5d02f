"""Scheduling: what the kernel is asked for the serving loop's thread.

Linux lets a running task finish its slice (some 3 ms) before one that wakes up, whatever the difference of
their nice values, unless the slice of the one that wakes is shorter (from Linux 6.12 on). The loop runs for
tens of microseconds at a time, so a short slice costs it nothing, and lookups do not wait for the end of a
walker's slice.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from typing import Final

SLICE_NS: Final = 100_000
"""The shortest slice that the kernel grants."""

_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
_RESET_ON_FORK: Final = 1
"""Threads and processes started by this one get ordinary slices: walkers shall not have the loop's."""

_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
"""size, policy, flags, nice, priority, runtime, deadline, period."""


def ask_for_short_slices() -> bool:
    """Ask for short slices for the calling thread, and say whether the kernel knows of them."""
    number = _SCHED_SETATTR.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return False
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, 0, _RESET_ON_FORK, 0, 0, SLICE_NS, 0, 0)
    status: int = ctypes.CDLL(None).syscall(number, 0, attributes, 0)
    return status == 0
