"""Scheduling: the request itself; what it is worth is measured by `layby bench saturation`."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import threading

from layby.cli.scheduling import SLICE_NS, ask_for_short_slices

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}


def test_the_thread_that_asks_gets_short_slices_and_keeps_its_priority() -> None:
    found: list[tuple[bool, int, int]] = []

    def ask() -> None:
        asked = ask_for_short_slices()
        attributes = ctypes.create_string_buffer(48)
        ctypes.CDLL(None).syscall(_SCHED_GETATTR[platform.machine()], 0, attributes, 48, 0)
        _, policy, _, nice, _, runtime, _, _ = struct.unpack("=IIQiIQQQ", attributes.raw)
        # A kernel that does not know of slices says 0 and leaves everything as it was.
        found.append((asked, policy, nice))
        assert runtime in (0, SLICE_NS)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == [(True, os.SCHED_OTHER, 0)]
