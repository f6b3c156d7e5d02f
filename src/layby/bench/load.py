"""A load generator: one process that keeps to a schedule of arrivals, whatever is outstanding.

Open loop: query i is due at `start + i / rate` and goes out on an idle connection of the pool; where none
is idle it waits for one, and its latency counts from when it was due all the same. So a server that stalls
pays for every arrival that it kept waiting, which a closed loop would hide. With a rate of zero the loop
is closed: each connection sends its next query when it has its answer.

It runs in a process of its own (`python -m layby.bench.load`), imports nothing but the standard library,
and has its garbage collector off while it runs. It sleeps until shortly before an arrival and polls for
the rest, since a sleep alone wakes 50 to 100 µs late. Under root it asks for real-time priority: on a
machine with other work the wait for a core would otherwise add a millisecond at the 99th percentile that is
no server's doing (queries left 0.9 ms late, with it 0.2 ms, on 2 cores beside test runs). How late queries
still left is reported with the latencies, so that a reader can tell the generator's own share.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import select
import socket
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field

from layby.bench.wire import (
    AnswerEnd,
    Connection,
    Framer,
    LostConnectionError,
    ServerError,
    error_of,
    execute_message,
    query_message,
)

POLL_BEFORE_S = 0.0003
REPORT_EVERY_S = 0.25
GRACE_S = 60.0
_RECEIVE = 1 << 16
_RECEIVE_UNREAD = 1 << 18


@dataclass(frozen=True, slots=True)
class Load:
    """What to send, and when.

    `rate` is in queries a second, 0 for a closed loop; `$1` in the statement stands for a random integer
    from 1 to `keys`; an answer that has not `expect_rows` rows is a failed query (None: any number will do).
    With `unread` the answer's bytes are taken off the socket and its rows believed from its tag, so that the
    client is no slower than its socket.
    """

    host: str
    port: int
    statement: str
    rate: float
    seconds: float
    connections: int
    prepared: bool = False
    keys: int = 0
    expect_rows: int | None = None
    seed: int = 1
    unread: bool = False

    def encode(self) -> str:
        """The load as text, for `decode` in the load process."""
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str) -> Load:
        """The load that `encode` wrote."""
        return Load(**json.loads(text))


@dataclass(slots=True)
class Report:
    """What was measured since the report before: times in milliseconds, one a query that was answered.

    `late_ms` is how long after it was due a query left that found an idle connection. The last report has
    `elapsed_s`, from the start to the last answer, at least the load's own length.
    """

    latencies_ms: list[float] = field(default_factory=list)
    late_ms: list[float] = field(default_factory=list)
    errors: int = 0
    error: str = ""
    elapsed_s: float | None = None

    def encode(self) -> str:
        """The report on one line."""
        return json.dumps(asdict(self))

    @staticmethod
    def decode(line: str) -> Report:
        """The report that `encode` wrote."""
        return Report(**json.loads(line))


class _Lane:
    """One connection of the pool and the query that it is waiting for."""

    __slots__ = ("due", "error", "framer", "rows", "socket")

    def __init__(self, connection: Connection) -> None:
        self.socket: socket.socket = connection.socket
        self.framer = Framer()
        self.due = 0.0
        self.rows = 0
        self.error: str | None = None

    def send(self, data: bytes, due: float) -> None:
        self.due = due
        self.rows = 0
        self.error = None
        self.socket.sendall(data)

    def receive(self) -> bool:
        """Take what has arrived; True when the answer is complete. Raises LostConnectionError, OSError."""
        data = self.socket.recv(_RECEIVE)
        if not data:
            raise LostConnectionError("server closed the connection unexpectedly")
        done = False
        for kind, body in self.framer.feed(data):
            if kind == b"D":
                self.rows += 1
            elif kind == b"E":
                self.error = str(error_of(body))
            elif kind == b"Z":
                done = True
        return done


class _UnreadLane(_Lane):
    """A connection whose answers are taken off the socket without a look at their rows."""

    __slots__ = ("end",)

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.end = AnswerEnd()

    def receive(self) -> bool:
        """As `_Lane.receive`."""
        data = self.socket.recv(_RECEIVE_UNREAD)
        if not data:
            raise LostConnectionError("server closed the connection unexpectedly")
        done = self.end.feed(data)
        if done:
            self.rows = self.end.rows
            self.error = None if self.end.error is None else str(self.end.error)
        return done


class Generator:
    """Sends one load over its pool of connections and measures the answers."""

    def __init__(self, load: Load) -> None:
        """Open the pool and prepare the statement on each connection. Raises OSError, ServerError."""
        self._load = load
        self._random = random.Random(load.seed)
        self._idle: deque[_Lane] = deque()
        self._busy: dict[int, _Lane] = {}
        self._report = Report()
        self.open_loop = load.rate > 0
        for _ in range(load.connections):
            connection = Connection(load.host, load.port)
            if load.prepared:
                connection.prepare("s", load.statement)
            self._idle.append(_UnreadLane(connection) if load.unread else _Lane(connection))

    def _request(self) -> bytes:
        load = self._load
        if not load.keys:
            return execute_message("s") if load.prepared else query_message(load.statement)
        key = str(self._random.randint(1, load.keys))
        if load.prepared:
            return execute_message("s", (key,))
        return query_message(load.statement.replace("$1", key))

    def run(self, start: float) -> None:
        """Send from `start` (of the monotonic clock) on, printing a report a line on standard output."""
        load = self._load
        total = round(load.rate * load.seconds)
        end = start + load.seconds
        sent = 0
        next_report = start + REPORT_EVERY_S
        waited = False
        now = time.monotonic()
        while True:
            if load.rate:
                while sent < total and self._idle:
                    due = start + sent / load.rate
                    if due > now:
                        break
                    self._send(due)
                    now = time.monotonic()
                    if not waited:
                        self._report.late_ms.append((now - due) * 1e3)
                    sent += 1
                if sent == total and not self._busy:
                    break
                waited = sent < total and not self._idle
                timeout = GRACE_S
                if sent < total and self._idle:
                    timeout = max(start + sent / load.rate - now - POLL_BEFORE_S, 0.0)
            else:
                while self._idle and start <= now < end:
                    self._send(now)
                    now = time.monotonic()
                if now >= end and not self._busy:
                    break
                timeout = GRACE_S if now >= start else start - now
            if now >= end + GRACE_S or not (self._busy or self._idle):
                break
            self._collect(timeout)
            now = time.monotonic()
            if now >= next_report:
                self._print()
                next_report = now + REPORT_EVERY_S
        self._fail(len(self._busy) + max(total - sent, 0), "no answer")
        self._report.elapsed_s = max(time.monotonic() - start, load.seconds)
        self._print()

    def _send(self, due: float) -> None:
        lane = self._idle.popleft()
        try:
            lane.send(self._request(), due)
        except OSError as error:
            self._fail(1, str(error))
        else:
            self._busy[lane.socket.fileno()] = lane

    def _collect(self, timeout: float) -> None:
        """Wait for answers, at most `timeout` seconds, and take those that are there."""
        if not self._busy:
            if timeout:
                time.sleep(timeout)
            return
        for handle in select.select(list(self._busy), (), (), timeout)[0]:
            lane = self._busy[handle]
            try:
                done = lane.receive()
            except (LostConnectionError, OSError) as error:
                del self._busy[handle]
                lane.socket.close()
                self._fail(1, str(error))
                continue
            if not done:
                continue
            latency = (time.monotonic() - lane.due) * 1e3
            del self._busy[handle]
            self._idle.append(lane)
            if lane.error is not None:
                self._fail(1, lane.error)
            elif self._load.expect_rows not in (None, lane.rows):
                self._fail(1, f"answer of {lane.rows} rows, not {self._load.expect_rows}")
            else:
                self._report.latencies_ms.append(latency)

    def _fail(self, count: int, error: str) -> None:
        if count:
            self._report.errors += count
            self._report.error = self._report.error or error

    def _print(self) -> None:
        sys.stdout.write(self._report.encode() + "\n")
        sys.stdout.flush()
        self._report = Report()


def _ask_for_priority() -> None:
    """Run before ordinary processes where the system allows it, so that a busy core delays no arrival.

    It holds a core for some 0.4 ms an arrival. Not for a closed loop, which would never leave its core.
    """
    with contextlib.suppress(PermissionError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def main() -> None:
    """Serve one load: its description is the argument, `ready` goes out, the start time comes in."""
    try:
        generator = Generator(Load.decode(sys.argv[1]))
    except (OSError, ServerError, LostConnectionError) as error:
        sys.exit(f"load generator: {error}")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    start = float(sys.stdin.readline())
    gc.collect()
    gc.freeze()
    gc.disable()
    if generator.open_loop:
        _ask_for_priority()
    generator.run(start)


if __name__ == "__main__":
    main()
