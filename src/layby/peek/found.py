"""The rows that a scan has found and not handed over yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from layby.expr.finishing import Finishing, thin
from layby.memory.arena import Arena
from layby.pickling import pickled_as_call
from layby.types.column import Column, concat


@pickled_as_call
@dataclass(slots=True)
class FoundRows:
    """Chunks of the columns that an MFP puts out, which `finishing` has yet to order, cut and project."""

    finishing: Finishing
    chunks: list[tuple[Column, ...]] = field(default_factory=list)
    count: int = 0
    nbytes: int = 0
    """Size as an answer would store the rows."""

    def add(self, columns: tuple[Column, ...], count: int) -> None:
        """Take `count` more rows."""
        self.chunks.append(columns)
        self.count += count
        self.nbytes += self._size(columns)

    def columns(self) -> tuple[Column, ...]:
        """Return all rows as one chunk; no columns where there are no rows."""
        chunks = self.chunks
        if not chunks:
            return ()
        return chunks[0] if len(chunks) == 1 else tuple(concat(part) for part in zip(*chunks, strict=True))

    def thin(self) -> None:
        """Keep only the first LIMIT + OFFSET rows of those so far."""
        columns, self.count = thin(self.finishing, self.columns(), self.count)
        self.chunks, self.nbytes = [columns], self._size(columns)

    def place(self, arena: Arena) -> None:
        """Put the rows into `arena`: they then cross to another process by reference."""
        self.chunks = [tuple(column.place(arena) for column in chunk) for chunk in self.chunks]

    def _size(self, columns: Sequence[Column]) -> int:
        size = 0
        for i in self.finishing.projection:  # in a lookup as well, where a generator costs more than the sum
            size += columns[i].nbytes
        return size
