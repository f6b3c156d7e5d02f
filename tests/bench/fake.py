"""A server of a few lines: it takes any session and answers each query when, and as, a test says."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from layby.bench.wire import Framer, message

READY = message(b"Z", b"I")
ROW = message(b"D", struct.pack("!HI", 1, 1) + b"7")
DONE = message(b"C", b"SELECT 1\0")
ANSWER = ROW + DONE + READY
ERROR = message(b"E", b"SERROR\0C22012\0Mdivision by zero\0\0") + READY


class FakeServer:
    """Calls `answer(text)` for each simple query, on its connection's thread; sends what it gives.

    None closes the connection.
    """

    def __init__(self, answer: Callable[[str], bytes | None]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._threads.append(threading.Thread(target=self._accept))
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(30)

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        # A client that leaves with an answer unread resets its connection.
        with client, contextlib.suppress(ConnectionError):
            (length,) = struct.unpack("!I", client.recv(4, socket.MSG_WAITALL))
            client.recv(length - 4, socket.MSG_WAITALL)
            client.sendall(message(b"R", b"\0\0\0\0") + READY)
            framer = Framer()
            while data := client.recv(1 << 16):
                for kind, body in framer.feed(data):
                    if kind == b"X":
                        return
                    if kind == b"Q":
                        reply = self._answer(body[:-1].decode())
                        if reply is None:
                            return
                        client.sendall(reply)
