"""Any thread can give back what all threads have freed, Arrow's memory too; and when that is done."""

from __future__ import annotations

import os
import subprocess
import sys

from layby.memory.heap import ONE_HEAP, Idleness

_PROGRAM = """
from layby.memory.heap import give_memory_back
from tests.memory.fragmented import SIZE, fragment, resident

before = resident()
fragment()
print(resident() - before > SIZE // 2)
give_memory_back()
print(resident() - before < SIZE // 4)
"""


def test_what_a_thread_has_freed_is_given_back_by_another() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | ONE_HEAP,
    )
    assert ran.stdout.split() == ["True", "True"]


def test_a_rest_begins_once_with_the_fifth_look_at_which_nothing_has_happened() -> None:
    idleness = Idleness()
    looks = [idleness.rests(so_far) for so_far in [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3]]
    assert looks == [*[False] * 8, True, *[False] * 6, True]
