"""Portals as the protocol sees them: result formats, and rows that a row limit held back."""

from __future__ import annotations

from typing import Final

from layby.errors import SqlError
from layby.peek.answer import EncodedRows
from layby.pgwire.shape import EncoderChoice, Shapes
from layby.pgwire.stream import AnswerStream

_NO_ROWS: Final = EncodedRows(b"", (), 0)


class Portal(EncoderChoice):
    """One portal; as `EncoderFor` it chooses the encoder for the formats of its Bind.

    The statement runs to its end at the first Execute; what the row limit does not let through is held
    here, encoded.
    """

    __slots__ = ("_at", "_tag", "finished", "formats", "limit", "rows", "stream")

    def __init__(self, shapes: Shapes, formats: tuple[int, ...]) -> None:
        super().__init__(shapes, formats)
        self.formats = formats
        self.limit = 0
        """The row limit of the Execute under way; 0 is none."""
        self.rows: EncodedRows | None = None
        """The answer, from the first Execute on; what has been sent of it may be gone."""
        self.stream: AnswerStream | None = None
        """What is left of an answer that comes from the stash."""
        self.finished = False
        """It ran and had no rows to give, so it cannot be run again."""
        self._at = 0
        self._tag = ""

    def close(self) -> None:
        """Give up what has not been fetched."""
        self.rows = None
        if self.stream is not None:
            self.stream.close()

    def check_runnable(self, name: str) -> None:
        """Refuse to run a statement without rows twice (55000)."""
        if self.finished:
            raise SqlError("55000", f'portal "{name}" cannot be run')

    def hold(self, rows: EncodedRows, tag: str) -> None:
        """Keep an answer to be fetched."""
        self.rows = rows
        self._tag = tag

    def exhaust(self, tag: str) -> None:
        """Note that the whole answer has been sent."""
        self.hold(_NO_ROWS, tag)

    def fetch(self, limit: int) -> tuple[bytes | memoryview, str | None]:
        """Return the next rows, at most `limit` (0: all), and the command tag, None where suspended.

        As in PostgreSQL a fetch that gets as many rows as it asked for is suspended, even at the end, and
        the tag of a SELECT counts the rows of the last fetch.
        """
        rows = self.rows
        assert rows is not None
        start = self._at
        stop = rows.count if limit == 0 else min(rows.count, start + limit)
        data: bytes | memoryview = b""
        if stop > start:
            first = int(rows.ends[start - 1]) if start else 0
            data = memoryview(rows.data)[first : int(rows.ends[stop - 1])]
        self._at = stop
        if limit and stop - start == limit:
            return data, None
        self.rows = _NO_ROWS
        self._at = 0
        return data, fetch_tag(self._tag, stop - start)


def fetch_tag(tag: str, count: int) -> str:
    """Return the command tag after a fetch of `count` rows that came to the end of an answer."""
    return f"SELECT {count}" if tag.startswith("SELECT ") else tag
