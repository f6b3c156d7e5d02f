"""A walk process that notes what it does for the memory of the machine, and tells it in its answers."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from layby.peek import walk_process
from layby.peek.answer import EncodedRows
from layby.types.column import Column

_LARGE: Final = 1_000
"""Bytes of found rows that are many here."""

_noted: list[str] = []


@dataclass(frozen=True)
class Noted:
    """An encoder that answers with what its process has noted so far."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        frozen = "frozen" if gc.get_freeze_count() else "not frozen"
        told = ", ".join([f"Arrow's threads: {pa.cpu_count()}", frozen, *_noted])
        return EncodedRows(told.encode(), range(1, count + 1), count)


def main() -> None:
    noting = {name: partial(_noted.append, name) for name in ("collapse_heap", "give_memory_back")}
    vars(walk_process).update(noting, _LARGE=_LARGE)
    walk_process.main()
