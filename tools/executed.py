"""Which lines of some files each test executes, in whatever thread and process.

What `tools/mutate.py` chooses the first tests of a mutant by. A copy of this file named `sitecustomize.py`,
at the front of PYTHONPATH, is imported by every interpreter that a test starts; the environment says what
to note and where. Each process writes a file of its own, a line at a time, so nothing is lost where one is
killed.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any, Final

FOLDER: Final = "EXECUTED_FOLDER"
"""The environment variable that names the folder of the notes."""

FILES: Final = "EXECUTED_FILES"
"""And the one that names the files whose lines are noted, with `os.pathsep` between them."""

_CURRENT: Final = "current"
_NUMBER_BYTES: Final = 8


class Current:
    """The number of the test that runs: on a page that every process maps, 0 between tests."""

    def __init__(self, folder: str) -> None:
        descriptor = os.open(Path(folder) / _CURRENT, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, _NUMBER_BYTES)
        self.number = memoryview(mmap.mmap(descriptor, _NUMBER_BYTES)).cast("Q")
        os.close(descriptor)


def note() -> Current:
    """Note from now on what this process executes, but for threads that run already."""
    folder, files = os.environ[FOLDER], frozenset(os.environ[FILES].split(os.pathsep))
    current = Current(folder)
    number = current.number
    notes = os.open(Path(folder) / f"{os.getpid()}.notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    noted = set()

    def line(frame: FrameType, *_: object) -> Any:
        found = (number[0], frame.f_code.co_filename, frame.f_lineno)
        if found not in noted:
            noted.add(found)
            os.write(notes, f"{found[0]} {found[2]} {found[1]}\n".encode())
        return line

    def call(frame: FrameType, *_: object) -> Any:
        return line(frame) if frame.f_code.co_filename in files else None

    threading.settrace(call)
    sys.settrace(call)
    return current


def noted(folder: Path) -> dict[tuple[str, int], set[int]]:
    """Return the numbers of the tests that execute each line of each file."""
    found: dict[tuple[str, int], set[int]] = defaultdict(set)
    for notes in folder.glob("*.notes"):
        for entry in notes.read_text().splitlines():
            number, line, file = entry.split(" ", 2)
            found[file, int(line)].add(int(number))
    return found


if __name__ == "sitecustomize" and FOLDER in os.environ:
    note()
