"""Resident memory of a process tree: all descendants count, and what they share counts once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from layby.bench.resident import PeakWatch, process_tree, resident_mib

MIB = 2**20

# A process that shares two segments of 64 MiB with its child, one touched by both and one mapped by neither;
# the child has 64 MiB of its own; both wait to be ended.
_FAMILY = """
import mmap, os, sys
touched, unmapped = os.memfd_create("touched"), os.memfd_create("unmapped")
os.ftruncate(touched, 64 << 20)
os.posix_fallocate(unmapped, 0, 64 << 20)
shared = mmap.mmap(touched, 64 << 20)
for at in range(0, len(shared), 4096):
    shared[at] = 1
child = os.fork()
for at in range(0, len(shared), 4096):
    shared[at]
if not child:
    private = b"x" * (64 << 20)
    os.write(1, b"child\\n")
    sys.stdin.read()
    os._exit(0)
os.write(1, b"parent\\n")
sys.stdin.read()
os.wait()
"""


@contextmanager
def _family() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert {process.stdout.readline(), process.stdout.readline()} == {"child\n", "parent\n"}
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def test_descendants_are_in_the_tree_and_others_are_not() -> None:
    with _family() as process:
        tree = process_tree(process.pid)
        assert len(tree) == 2
        assert tree[0] == process.pid
        assert set(tree) <= set(process_tree(os.getpid()))
        assert os.getpid() not in tree


def test_shared_memory_is_counted_once_mapped_or_not_and_private_memory_for_each() -> None:
    with _family() as process:
        # 128 MiB that both have open and 64 MiB of the child; two interpreters are far below another 64.
        assert 192 <= resident_mib(process.pid) < 256


def test_the_peak_is_kept_after_the_memory_is_gone() -> None:
    before = resident_mib(os.getpid())
    with PeakWatch(os.getpid()) as watch, _family():
        seen = watch.look()
    after = watch.look()

    assert seen >= before + 192
    assert watch.peak_mib >= seen
    assert after < seen


def test_a_process_that_is_gone_has_no_memory() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(30)

    assert resident_mib(process.pid) == 0.0
