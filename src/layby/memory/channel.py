"""Channels: messages between processes that share segments.

A message is a pickle in which what lies in shared memory stands by reference: an array over a segment as the
segment's identity and an offset, and a `Shared` object (a batch, a table) as a number once the other side
has it. The file descriptors of segments that the other side has not mapped yet travel with the message over
the Unix socket. The sender remembers what the receiver holds, and when such a thing is gone here it says so
with the next message; until then the receiver keeps it, so that a reference never comes too late.

Pickle and not a schema: both ends are the same program, started by it, on one machine, and the values are
its own classes.
"""

from __future__ import annotations

import array
import copyreg
import io
import os
import pickle
import select
import socket
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from layby.memory.sealed import current_source, load, reduce_array
from layby.memory.segment import Segment

_HEAD: Final = struct.Struct("<QI")
"""Before each message: the bytes of the rest, and how many descriptors come with it."""

_LENGTH: Final = struct.Struct("<I")
"""Before the message's own pickle: the bytes of what is gone and what is new, a pickle too."""

_MAX_FDS: Final = 200
_READ: Final = 1 << 16
"""Bytes of one read. Python allocates them anew each time: 10 µs for 1 MiB, 1 µs for this."""

_POLL_MS: Final = 1_000


class ChannelClosedError(ConnectionError):
    """The other process is gone."""


class Shared:
    """Base of the classes whose objects are sent once over a channel, and by a number from then on.

    They are immutable, and `__reduce__` returns a callable and its arguments.
    """

    __slots__ = ("__weakref__",)

    classes: ClassVar[list[type]] = []

    def __init_subclass__(cls) -> None:
        Shared.classes.append(cls)


class Channel:
    """One end of a socket pair. Any thread may send; one receives.

    What is sent without waiting is kept until the socket takes it, in the order of its coming.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._sending = threading.Lock()
        self._their_segments: set[int] = set()
        self._their_objects: dict[int, int] = {}
        self._next_object = 0
        self._gone: deque[tuple[str, int]] = deque()
        self._segments: dict[int, Segment] = {}
        self._objects: dict[int, Any] = {}
        self._buffer = bytearray()
        self._fds: deque[int] = deque()
        self._outgoing: deque[tuple[memoryview, list[Segment]]] = deque()
        """What the socket has yet to take; the segments are kept open until their descriptors have gone."""

    def send(self, message: object, *, wait: bool = True) -> None:
        """Send a message; blocks while the socket is full, unless told not to `wait`.

        What does not fit then is `unsent` until `flush` has sent it. Raises ChannelClosedError.
        """
        with self._sending:
            gone = self._take_gone()
            body = io.BytesIO()
            pickler = _Pickler(self, body)
            try:
                pickler.dump(message)
            except BaseException:
                self._unsent(pickler, gone)
                raise
            finally:
                pickler.let_go()
            fresh = pickler.fresh
            head = b""
            if gone or fresh:
                head = pickle.dumps((gone, [(s.identity, len(s)) for s in fresh]))
            self._put((_LENGTH.pack(len(head)), head, body.getbuffer()), fresh)
            self._flush(wait=wait)

    @property
    def unsent(self) -> bool:
        """Whether the socket has yet to take a part of what was sent without waiting."""
        return bool(self._outgoing)

    def flush(self) -> None:
        """Send as much of what is unsent as the socket takes now. Raises ChannelClosedError."""
        with self._sending:
            self._flush(wait=False)

    @property
    def owes_notice(self) -> bool:
        """Whether the receiver keeps something that is gone here and has not been told."""
        return bool(self._gone)

    def receive(self) -> Any:
        """Return the next message, blocking until it is there. Raises ChannelClosedError at the end."""
        while True:
            for message in self.received():
                return message
            self.read()

    def read(self, *, wait: bool = True) -> None:
        """Read what has arrived, or wait for some of it. Raises ChannelClosedError at the end."""
        ancillary = array.array("i")
        try:
            data, control, _, _ = self.socket.recvmsg(
                _READ,
                socket.CMSG_LEN(_MAX_FDS * ancillary.itemsize),
                socket.MSG_CMSG_CLOEXEC | (0 if wait else socket.MSG_DONTWAIT),
            )
        except BlockingIOError:
            return
        except OSError as error:
            raise ChannelClosedError(str(error)) from None
        for level, kind, raw in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                ancillary.frombytes(raw[: len(raw) - len(raw) % ancillary.itemsize])
        self._fds.extend(ancillary)
        if not data:
            raise ChannelClosedError("the other process closed the channel")
        self._buffer += data

    def received(self) -> Sequence[Any]:
        """Return the first message that has arrived whole, or nothing; a list of at most one."""
        if len(self._buffer) < _HEAD.size:
            return ()
        length, fd_count = _HEAD.unpack_from(self._buffer)
        if len(self._buffer) < _HEAD.size + length or len(self._fds) < fd_count:
            return ()
        payload = bytes(memoryview(self._buffer)[_HEAD.size : _HEAD.size + length])
        del self._buffer[: _HEAD.size + length]
        (head_length,) = _LENGTH.unpack_from(payload)
        body_at = _LENGTH.size + head_length
        if head_length:
            gone, fresh = pickle.loads(payload[_LENGTH.size : body_at])
            for kind, number in gone:
                (self._segments if kind == "segment" else self._objects).pop(number, None)
            for identity, size in fresh:
                self._segments[identity] = Segment.map(identity, self._fds.popleft(), size)
        message = load(memoryview(payload)[body_at:], self)
        return (message,)

    def close(self) -> None:
        """Close the socket, let go of what the other side may refer to, and of what came unfinished."""
        self.socket.close()
        self._segments.clear()
        self._objects.clear()
        while self._fds:
            os.close(self._fds.popleft())

    # The sender's knowledge of the receiver

    def reference_segment(self, segment: Segment, fresh: list[Segment]) -> int:
        """Return a segment's identity; a segment that the receiver does not map joins `fresh`."""
        identity = segment.identity
        if identity not in self._their_segments:
            self._their_segments.add(identity)
            fresh.append(segment)
            weakref.finalize(segment, self._gone.append, ("segment", identity)).atexit = False
        return identity

    def reference_object(self, value: Any) -> tuple[int, bool]:
        """Return a shared object's number, and whether the receiver has it already."""
        number = self._their_objects.get(id(value))
        if number is not None:
            return number, True
        self._next_object += 1
        self._their_objects[id(value)] = self._next_object
        weakref.finalize(value, self._object_gone, id(value), self._next_object).atexit = False
        return self._next_object, False

    def segment(self, identity: int) -> Segment:
        """Return a segment that the sender referred to."""
        return self._segments[identity]

    def known(self, number: int) -> Any:
        """Return an object that the sender has sent before."""
        return self._objects[number]

    def keep(self, number: int, value: Any) -> Any:
        """Keep an object that the sender may refer to again."""
        self._objects[number] = value
        return value

    def _object_gone(self, address: int, number: int) -> None:
        self._their_objects.pop(address, None)
        self._gone.append(("object", number))

    def _unsent(self, pickler: _Pickler, gone: list[tuple[str, int]]) -> None:
        """Undo what a message that could not be pickled had noted; nothing of it was sent."""
        self._gone.extendleft(reversed(gone))
        for segment in pickler.fresh:
            self._their_segments.discard(segment.identity)
        for address in pickler.new_objects:
            self._their_objects.pop(address, None)

    def _take_gone(self) -> list[tuple[str, int]]:
        gone = []
        while self._gone:
            kind, number = self._gone.popleft()
            if kind == "segment":
                self._their_segments.discard(number)
            gone.append((kind, number))
        return gone

    def _put(self, parts: Sequence[bytes | memoryview], segments: list[Segment]) -> None:
        size = sum(map(len, parts))
        data = memoryview(b"".join((_HEAD.pack(size, len(segments)), *parts)))
        # Descriptors beyond what one system call takes go ahead with a byte each of the message.
        while len(segments) > _MAX_FDS:
            self._outgoing.append((data[:1], segments[:_MAX_FDS]))
            data, segments = data[1:], segments[_MAX_FDS:]
        self._outgoing.append((data, segments))

    def _flush(self, *, wait: bool) -> None:
        try:
            while self._outgoing:
                data, segments = self._outgoing[0]
                fds = [s.fd for s in segments]
                try:
                    if fds:
                        sent = socket.send_fds(self.socket, [data], fds, socket.MSG_DONTWAIT)
                    else:
                        sent = self.socket.send(data, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    if not wait:
                        return
                    self._wait_writable()
                    continue
                if sent == len(data):
                    self._outgoing.popleft()
                else:
                    self._outgoing[0] = (data[sent:], [])
        except OSError as error:
            raise ChannelClosedError(str(error)) from None

    def _wait_writable(self) -> None:
        # Not `select`, which takes no descriptor above 1,023; not a blocking socket, since an event loop that
        # watches it for reading makes it non-blocking for both.
        poll = select.poll()
        try:
            poll.register(self.socket, select.POLLOUT)
        except ValueError:
            raise ChannelClosedError("the channel was closed") from None
        poll.poll(_POLL_MS)


class _Pickler(pickle.Pickler):
    """Pickles what is shared by reference.

    By a dispatch table and not by persistent ids, which would ask Python about every object: a hand-over's
    message takes a third of the time.
    """

    def __init__(self, channel: Channel, out: io.BytesIO) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self._channel = channel
        self.fresh: list[Segment] = []
        self.new_objects: list[int] = []
        self.dispatch_table = copyreg.dispatch_table | {
            np.ndarray: lambda array: reduce_array(array, self._refer),
            Segment: lambda segment: (_segment, (self._refer(segment),)),
            **dict.fromkeys(Shared.classes, self._reduce_shared),
        }

    def let_go(self) -> None:
        """End the cycle with its own methods: it remembers all that it has pickled, whose memory must not
        wait for the garbage collector."""
        self.dispatch_table = {}

    def _refer(self, segment: Segment) -> int:
        return self._channel.reference_segment(segment, self.fresh)

    def _reduce_shared(self, value: Any) -> Any:
        number, known = self._channel.reference_object(value)
        if known:
            return _known, (number,)
        self.new_objects.append(id(value))
        return _new, (number, *value.__reduce__())


def _segment(identity: int) -> Segment:
    segment: Segment = current_source().segment(identity)
    return segment


def _known(number: int) -> Any:
    return current_source().known(number)


def _new(number: int, make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return current_source().keep(number, make(*args))
