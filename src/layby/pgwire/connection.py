"""One client's connection: from its bytes to messages run in turn, and back. No IO.

Messages that have to wait for the one before queue, and past a bound the transport is told to stop reading.
(While it does not read it cannot tell that the client is gone; it learns that when it writes.) What can be
answered at once is answered within the call that brought the bytes, and in one write with its neighbours.

A turn of the loop takes at most `TURN` messages from one connection, none once they have taken `TURN_S`, and
at most one large answer, so that a client that pipelines thousands does not keep others waiting.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from layby.errors import InternalError, SqlError
from layby.pgwire import backend, codec
from layby.pgwire.codec import Decoder, Message
from layby.pgwire.conversation import Conversation
from layby.pgwire.output import LARGE, Output, Transport
from layby.pgwire.session import Coordinator
from layby.pgwire.startup import negotiate

TURN: Final = 64
"""Messages of one connection taken in one turn of the loop."""

TURN_S: Final = 0.001
"""Seconds after which a turn takes no further message of a connection."""

QUEUE_MESSAGES: Final = 1_000
QUEUE_BYTES: Final = 1 << 20
"""Messages, and bytes of them, that may wait before reading stops."""

TURN_BYTES: Final = 1 << 19
"""Bytes that are read before the next turn: a transport would read 2 MiB in one, which takes 4 ms."""

_logger: Final = logging.getLogger(__name__)


class Connection:
    """The connection of one client.

    A driver calls `connected`, `data_received`, `eof_received`, `connection_lost`, `pause_writing` and
    `resume_writing`, as asyncio names them, and `shut_down`.
    """

    __slots__ = (
        "_clock",
        "_conversation",
        "_coordinator",
        "_decoder",
        "_ending",
        "_last_kind",
        "_later",
        "_on_closed",
        "_on_started",
        "_output",
        "_queue",
        "_queued_bytes",
        "_reading",
        "_running",
        "_scheduled",
        "_transport",
        "_turn_bytes",
        "_turn_ends",
        "_turn_left",
        "closed",
    )

    def __init__(
        self,
        coordinator: Coordinator,
        later: Callable[[Callable[[], None]], object],
        on_started: Callable[[Connection], None],
        on_closed: Callable[[Connection], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Make a connection that awaits its transport.

        `later(f)` runs `f` in a later turn of the loop. `on_started` is called before a session is opened and
        may refuse it by raising `SqlError`; `on_closed` once, whatever way the connection ends. `clock` gives
        seconds.
        """
        self._transport: Transport
        self._output: Output
        self._coordinator = coordinator
        self._later = later
        self._clock = clock
        self._on_started = on_started
        self._on_closed = on_closed
        self._conversation: Conversation | None = None
        """None until the session is open."""
        self._decoder = Decoder(coordinator.arena)
        self._queue: deque[Message] = deque()
        self._queued_bytes = 0
        """Bytes received since the queue was last empty."""
        self._running = False
        self._ending = False
        """To end as soon as nothing is in flight."""
        self._reading = True
        self._scheduled = False
        """The next turn has been asked for."""
        self._turn_bytes = 0
        """Bytes received since the last turn that read enough."""
        self._turn_left = TURN
        self._turn_ends = 0.0
        """When this turn takes no further message."""
        self._last_kind = 0
        """The message run last."""
        self.closed = False

    def describe(self) -> str:
        """Return what the connection did last, for a log line."""
        what = codec.NAMES.get(self._last_kind, "its start")
        session = "" if self._conversation is None else f" of session {self._conversation.process_id}"
        return f"in a connection{session}, at {what}"

    @property
    def started(self) -> bool:
        """Whether the session is open, or was."""
        return self._conversation is not None

    # -- what the driver calls

    def connected(self, transport: Transport) -> None:
        """Begin: `transport` leads to the client."""
        self._transport = transport
        self._output = Output(transport, self._later, self._resume)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client, and answer what can be answered."""
        if self.closed:
            return
        try:
            messages = self._decoder.feed(data)
        except (OSError, MemoryError):
            self.end_with(SqlError("53200", "out of memory for a message"))
            return
        self._queue.extend(messages)
        self._queued_bytes += len(data)
        self._turn_bytes += len(data)
        self._resume()
        if self._turn_bytes > TURN_BYTES and not self.closed:
            if self._reading:
                self._reading = False
                self._transport.pause_reading()
            self._later(self._read_on)

    def eof_received(self) -> None:
        """The client sends no more: end the connection, and what it has in flight."""
        if self.closed:
            return
        if self._decoder.partial or (self._conversation is not None and not self._conversation.idle):
            self.end_with(SqlError("08006", "unexpected EOF on client connection"))
        else:
            self._end()

    def connection_lost(self) -> None:
        """The transport is gone."""
        self._finish()

    def pause_writing(self) -> None:
        """The transport has enough to send for now."""
        self._output.pause()

    def resume_writing(self) -> None:
        """The transport takes more."""
        self._output.resumed()

    def shut_down(self) -> None:
        """End the connection (57P01) as soon as nothing is in flight."""
        if not self.closed:
            self._ending = True
            self._run()

    def end_with(self, error: SqlError) -> None:
        """End the connection now, and what it has in flight, with a FATAL error.

        In the middle of an answer nothing can be told; what the client has of it just ends.
        """
        if self.closed:
            return
        self._output.add(backend.error_response(error, "FATAL"))
        self._end()

    # -- running messages

    def _turn(self) -> None:
        """Go on in the turn that was asked for."""
        self._scheduled = False
        self._resume()

    def _resume(self) -> None:
        """Go on after something came about, unless this turn's share is used up already."""
        if not self._scheduled:
            self._turn_left = TURN
            self._turn_ends = self._clock() + TURN_S
        self._run()

    def _run(self) -> None:
        """Run messages until one has to wait; then hand over what is due to the client."""
        if self._running or self.closed:
            return
        self._running = True
        try:
            self._run_messages()
        except SqlError as error:
            self.end_with(error)
        except Exception as error:
            _logger.exception("a connection failed")
            self.end_with(InternalError(f"unexpected {type(error).__name__}"))
        finally:
            self._running = False
        if not self.closed:
            self._output.write()
            self._govern_reading()

    def _run_messages(self) -> None:
        queue, output = self._queue, self._output
        while not output.blocked:
            conversation = self._conversation
            if conversation is not None and (conversation.pending or conversation.sink_full):
                if conversation.stream is not None and conversation.stream_on():
                    continue
                return
            if self._turn_left <= 0:
                if not self._scheduled:
                    self._scheduled = True
                    self._later(self._turn)
                return
            self._turn_left -= 1
            if conversation is not None and conversation.script is not None and conversation.sink is None:
                conversation.step()
            elif queue:
                kind, body = queue.popleft()
                self._last_kind = kind
                if not queue:
                    self._queued_bytes = 0
                if kind == codec.TERMINATE:
                    self._end()
                    return
                if conversation is not None:
                    conversation.message(kind, body)
                else:
                    assert isinstance(body, bytes)  # no large message comes before the session is open
                    if not self._startup(body):
                        return
            elif self._decoder.error is not None:
                raise self._decoder.error
            else:
                if self._ending and (conversation is None or not conversation.busy):
                    raise shutting_down()
                return
            if output.size > LARGE:
                output.write()
            if output.large or self._clock() > self._turn_ends:
                output.large = False
                self._turn_left = 0

    def _govern_reading(self) -> None:
        """Stop reading while too much waits; read again once nothing does."""
        conversation, queue = self._conversation, self._queue
        full = conversation is not None and conversation.sink_full
        # A message that has not come whole is not waiting for anything but its rest.
        waits = bool(queue) or (conversation is not None and conversation.pending)
        over = (waits and self._queued_bytes > QUEUE_BYTES) or len(queue) > QUEUE_MESSAGES
        if self._reading:
            if full or over:
                self._reading = False
                self._transport.pause_reading()
        elif not full and not over and not queue and self._turn_bytes <= TURN_BYTES:
            self._reading = True
            self._transport.resume_reading()

    def _read_on(self) -> None:
        """Read again in the turn after that which read enough."""
        self._turn_bytes = 0
        if not self.closed and not self._reading:
            self._govern_reading()

    def _startup(self, body: bytes) -> bool:
        """Answer a request for encryption, cancel, or open the session; return whether to go on."""
        output = self._output
        code = codec.startup_code(body)
        if code in (codec.SSL_REQUEST, codec.GSSENC_REQUEST):
            output.add(backend.REFUSED)
            output.flush()
        elif code == codec.CANCEL_REQUEST:
            target = codec.read_cancel(body)
            if target is not None:
                self._coordinator.cancel(*target)
            self._end()
            return False
        else:
            user, database, parameters, negotiation = negotiate(codec.read_startup(body))
            if self._ending:
                raise shutting_down()
            self._on_started(self)
            session = self._coordinator.connect(user, database, parameters)
            if negotiation:
                output.add(negotiation)
            session.on_terminated = self.end_with
            self._conversation = Conversation(session, output, self._resume, self.end_with)
            self._conversation.begin()
        return True

    # -- the end

    def _end(self) -> None:
        """Close the transport once it has sent what it has."""
        if not self.closed:
            self._output.flush()
            self._output.write()
            self._transport.close()
            self._finish()

    def _finish(self) -> None:
        """Let go of everything."""
        if self.closed:
            return
        self.closed = True
        self._decoder.close()
        self._queue.clear()
        self._output.drop()
        if self._conversation is not None:
            self._conversation.close()
        # The driver's method: kept, it would be a cycle, and what the transport holds would stay in memory.
        on_closed, self._on_closed = self._on_closed, _ignore
        on_closed(self)


def _ignore(_: Connection) -> None:
    """Do nothing: it has been told that the connection ended."""


def shutting_down() -> SqlError:
    """Return the error of a connection that the server ends."""
    return SqlError("57P01", "terminating connection due to administrator command")
