"""Streams: answers from the stash on their way to the client, piece by piece. No IO.

The next piece is fetched only when the output has handed over the one before and the transport takes more,
so a client that reads slowly costs one piece of memory, and the parts it has not come to stay in the stash.
"""

from __future__ import annotations

from collections.abc import Callable

from layby.adapter.outcome import RowSource
from layby.errors import SqlError
from layby.peek.answer import EncodedRows, Rows
from layby.pgwire.output import Output


class AnswerStream:
    """One stashed answer, drawn on by one Execute after the other, or by one statement."""

    __slots__ = ("_at", "_fetching", "_limit", "_on_ready", "_piece", "_source", "error", "sent", "tag")

    def __init__(self, source: RowSource, tag: str) -> None:
        self.tag = tag
        """The command tag of the whole answer."""
        self.sent = 0
        """The rows that the draw under way has sent."""
        self.error: SqlError | None = None
        """What ended the answer early."""
        self._source = source
        self._piece: EncodedRows | None = None
        self._at = 0
        self._limit = 0
        self._fetching = False
        self._on_ready: Callable[[], None] | None = None

    @property
    def suspended(self) -> bool:
        """Whether the draw ended at its row limit: more may be left."""
        return self._limit > 0 and self.sent == self._limit

    def draw(self, limit: int, on_ready: Callable[[], None]) -> None:
        """Begin to send at most `limit` rows (0: all); `on_ready` is called when `advance` can go on."""
        self.sent = 0
        self._limit = limit
        self._on_ready = on_ready
        self._source.on_cancel = self._end

    def advance(self, output: Output) -> bool:
        """Send what there is, while the output takes it; True when the draw is over, by `error` or not."""
        while self.error is None and not self.suspended:
            if output.blocked:
                return False
            piece = self._piece
            if piece is not None:
                self._send(piece, output)
            elif self._fetching or self._fetch():
                if self._piece is None and self.error is None:
                    return False
            else:
                break
        self._source.on_cancel = None
        return True

    def close(self) -> None:
        """Give up what has not been sent."""
        self._on_ready = None  # the connection's method, which would be a cycle
        self._piece = None
        self._source.on_cancel = None
        self._source.close()

    def _fetch(self) -> bool:
        self._fetching = True
        if self._source.fetch(self._fetched):
            return True
        self._fetching = False
        return False

    def _fetched(self, result: Rows | SqlError) -> None:
        self._fetching = False
        if isinstance(result, Rows):
            self._piece = result.encoded
            self._at = 0
            if self._on_ready is not None:
                self._on_ready()
        else:
            self._end(result)

    def _send(self, piece: EncodedRows, output: Output) -> None:
        start, stop = self._at, piece.count
        if self._limit:
            stop = min(stop, start + self._limit - self.sent)
        first = int(piece.ends[start - 1]) if start else 0
        self.sent += stop - start
        self._at = stop
        if stop == piece.count:
            self._piece = None
        output.add_rows(memoryview(piece.data)[first : int(piece.ends[stop - 1])])

    def _end(self, error: SqlError) -> None:
        """End the answer with an error, and delete what is left of it."""
        self.error = error
        self._piece = None
        self._source.on_cancel = None
        self._source.close()
        if self._on_ready is not None:
            self._on_ready()
