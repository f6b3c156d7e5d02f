"""Answers as CopyData messages: one line of COPY in each, as PostgreSQL sends them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from layby.adapter.copy_format import join_rows
from layby.peek.answer import EncodedRows
from layby.pgwire.join import Varying, concatenate, join, matrix
from layby.sql.plan import CopyOptions
from layby.types.column import Column
from layby.types.formats import render_column
from layby.types.scalar import SqlType

CHUNK: Final = 32_768
"""Rows joined at a time."""
_HEAD: Final = np.dtype([("kind", "u1"), ("length", ">i4")])


@dataclass(frozen=True, slots=True)
class CopyDataEncoder:
    """Encodes rows of `types` as lines in the format that `options` tell."""

    types: tuple[SqlType, ...]
    options: CopyOptions

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        """Encode `count` rows."""
        chunks = []
        for start in range(0, count, CHUNK):
            stop = min(start + CHUNK, count)
            texts = [render_column(c.slice(start, stop)) for c in columns]
            lines, ends = join_rows(texts, self.options)
            offsets = np.zeros(stop - start + 1, np.int64)
            offsets[1:] = ends
            head = np.empty(stop - start, _HEAD)
            head["kind"] = ord("d")
            head["length"] = offsets[1:] - offsets[:-1] + 4
            chunks.append(
                join([matrix(head), Varying(offsets, np.frombuffer(lines, np.uint8))], stop - start)
            )
        return concatenate(chunks) if chunks else EncodedRows(b"", [], 0)
