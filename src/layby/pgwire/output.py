"""What a connection has to send, and in what portions it reaches the transport.

Small messages are put together until something must reach the client (ReadyForQuery, an error, a Flush),
so a batch of messages is one write. A large answer goes out in slices of 256 KiB, one a turn of the loop
and only while the transport takes more: memory beyond the answer itself stays bounded, and a fast reader of
a large answer holds the loop for one slice at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

SLICE: Final = 256 * 1024
"""Bytes handed to the transport in one turn from a large answer (about 0.1 ms of copying to a socket)."""

LARGE: Final = 64 * 1024
"""Answers from here on are sent from where they lie; smaller ones are copied in with the rest."""


class Transport(Protocol):
    """Where a connection writes: the part of `asyncio.Transport` that it uses."""

    def write(self, data: bytes | memoryview) -> None:
        """Take bytes to be sent."""

    def close(self) -> None:
        """Send what was written, then close."""

    def pause_reading(self) -> None:
        """Bring no more data until `resume_reading`."""

    def resume_reading(self) -> None:
        """Bring data again."""


class Output:
    """The bytes on their way to one client.

    Invariant: `_stream` is sent before `_parts`. While there is a stream, the connection runs nothing new.
    """

    __slots__ = (
        "_completion",
        "_due",
        "_later",
        "_parts",
        "_paused",
        "_resume",
        "_scheduled",
        "_stream",
        "_transport",
        "blocked",
        "large",
        "size",
    )

    def __init__(
        self,
        transport: Transport,
        later: Callable[[Callable[[], None]], object],
        resume: Callable[[], None],
    ) -> None:
        """`later` runs a function in a later turn of the loop; `resume` is called when no longer blocked."""
        self._transport = transport
        self._later = later
        self._resume = resume
        self._parts: list[bytes] = []
        self._completion: int | None = None
        """Where in `_parts` the last CommandComplete stands, until a Sync confirms it or it is sent."""
        self._stream: memoryview | None = None
        """What is left of a large answer."""
        self.large = False
        """A large answer was added since the connection set this to False."""
        self._scheduled = False
        self._paused = False
        """The transport takes no more for now."""
        self.blocked = False
        """Whether the connection must wait before it runs anything more: paused, or within a stream."""
        self.size = 0
        """Bytes in `_parts`."""
        self._due = 0
        """How many of `_parts` must reach the client before anything else happens."""

    def add(self, data: bytes) -> None:
        """Add one or more whole messages."""
        self._parts.append(data)
        self.size += len(data)

    def complete(self, data: bytes) -> None:
        """Add a CommandComplete, which `retract` may still take back."""
        self._completion = len(self._parts)
        self._parts.append(data)
        self.size += len(data)

    def confirm(self) -> None:
        """Let the last CommandComplete stand."""
        self._completion = None

    def retract(self) -> None:
        """Take back the last CommandComplete since the last Sync, and all after it, if not yet sent."""
        if self._completion is not None:
            self.size -= sum(map(len, self._parts[self._completion :]))
            del self._parts[self._completion :]
            self._due = min(self._due, self._completion)
            self._completion = None
            self._due = min(self._due, len(self._parts))

    def add_rows(self, data: bytes | memoryview) -> None:
        """Add an answer's rows: whole messages. Large ones may leave the output blocked."""
        if len(data) < LARGE:
            self.add(bytes(data))
            return
        self._write_parts(len(self._parts))
        self.large = True
        self._stream = memoryview(data)
        self._advance()

    def flush(self) -> None:
        """See to it that all so far is sent by the next `write`."""
        self._due = len(self._parts)

    def write(self) -> None:
        """Hand over what is due, and of much that is not due what no Sync can take back.

        Nothing goes out within a stream.
        """
        if self._stream is not None:
            return
        if self._due:
            self._write_parts(self._due)
        if self.size > LARGE:
            self._write_parts(len(self._parts) if self._completion is None else self._completion)

    def drop(self) -> None:
        """Forget everything: the client is gone, or must get nothing more."""
        self._parts.clear()
        self._stream = None
        self._completion = None
        self._due = 0
        self.size = 0
        self._resume = _nothing

    def pause(self) -> None:
        """Wait: the transport takes no more for now."""
        self._paused = self.blocked = True

    def resumed(self) -> None:
        """Go on: the transport takes more."""
        self._paused = False
        self.blocked = self._stream is not None
        if self._stream is None:
            self._resume()
        elif not self._scheduled:
            self._turn()

    def _turn(self) -> None:
        """Go on with the answer under way, and with the connection once it has been handed over."""
        self._scheduled = False
        if self._stream is not None and not self._paused and not self._advance():
            self._resume()

    def _advance(self) -> bool:
        """Hand over one slice of the stream; return whether more follow, in other turns."""
        stream = self._stream
        assert stream is not None
        part, rest = stream[:SLICE], stream[SLICE:]
        self._stream = rest if len(rest) else None
        self._transport.write(part)
        self.blocked = self._paused or self._stream is not None
        if not len(rest):
            return False
        if not self._paused:
            self._scheduled = True
            self._later(self._turn)
        return True

    def _write_parts(self, count: int) -> None:
        """Hand over the first `count` parts in one write."""
        parts = self._parts
        if not count:
            return
        data = parts[0] if count == 1 else b"".join(parts[:count])
        del parts[:count]
        self.size -= len(data)
        self._due = max(0, self._due - count)
        if self._completion is not None:
            self._completion = self._completion - count if self._completion >= count else None
        self._transport.write(data)


def _nothing() -> None:
    """Stand in for the connection of an output that was dropped."""
