"""Any thread can give back what all threads have freed, Arrow's memory too."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
from layby.memory.heap import give_memory_back, use_one_heap
from tests.memory.fragmented import SIZE, fragment, resident

use_one_heap()
before = resident()
fragment()
print(resident() - before > SIZE // 2)
give_memory_back()
print(resident() - before < SIZE // 4)
"""


def test_what_a_thread_has_freed_is_given_back_by_another() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["True", "True"]
