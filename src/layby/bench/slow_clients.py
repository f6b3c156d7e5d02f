"""Clients that ask for a large answer and read it slowly: each takes so many bytes a second, and no more."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final, Self

from layby.bench.wire import AnswerEnd, Connection, LostConnectionError, query_message

_TICK_S: Final = 0.05
_BUFFER: Final = 64 * 1024
"""What the kernel may take in for a client beyond what it has read: otherwise it reads megabytes ahead."""


class SlowClients:
    """Some clients on one thread, while the context lasts; each asks again when it has its answer.

    `received` bytes in `ticks` portions a client at most, `answers` that came whole, and `errors`: answers
    with another number of rows, errors of the server, lost connections. `finished` is set when none is left.
    """

    def __init__(
        self, host: str, port: int, statement: str, clients: int, bytes_per_s: int, expect_rows: int
    ) -> None:
        """Connect them all. Raises OSError, ServerError."""
        self._request = query_message(statement)
        self._portion = max(round(bytes_per_s * _TICK_S), 1)
        self._expect_rows = expect_rows
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.finished = threading.Event()
        self.ticks = 0
        self.received = 0
        self.answers = 0
        self.errors = 0
        self.error = ""
        self._lanes: dict[socket.socket, AnswerEnd] = {}
        try:
            for _ in range(clients):
                client = Connection(host, port).socket
                self._lanes[client] = AnswerEnd()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Self:
        for client in self._lanes:
            client.sendall(self._request)
            client.setblocking(False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._close()

    def _read(self) -> None:
        while self._lanes and not self._stop.wait(_TICK_S):
            self.ticks += 1
            for client, end in list(self._lanes.items()):
                try:
                    self._take(client, end)
                except (OSError, LostConnectionError) as error:
                    self._fail(str(error))
                    client.close()
                    del self._lanes[client]
        self.finished.set()

    def _take(self, client: socket.socket, end: AnswerEnd) -> None:
        """Read one portion, where there is any."""
        try:
            data = client.recv(self._portion)
        except BlockingIOError:
            return
        if not data:
            raise LostConnectionError("server closed the connection unexpectedly")
        self.received += len(data)
        if not end.feed(data):
            return
        if end.error is not None:
            self._fail(str(end.error))
        elif end.rows != self._expect_rows:
            self._fail(f"answer of {end.rows} rows, not {self._expect_rows}")
        else:
            self.answers += 1
        client.sendall(self._request)

    def _fail(self, error: str) -> None:
        self.errors += 1
        self.error = self.error or error

    def _close(self) -> None:
        for client in self._lanes:
            with contextlib.suppress(OSError):
                client.close()
