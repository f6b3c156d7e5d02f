"""Serves the control plane: uvicorn with an event loop of its own, on its own thread.

The socket is bound by the caller's thread, so that a port in use is an error there, before any thread runs.
"""

from __future__ import annotations

import asyncio
import socket
import threading

import uvicorn
from starlette.applications import Starlette

_STOP_S = 5.0


class ControlPlane:
    """A running HTTP server; `port` is the one it listens on."""

    def __init__(self, app: Starlette, host: str, port: int) -> None:
        """Bind `host` and `port` (0 takes a free one) and start serving. Raises OSError."""
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._run, name="layby-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and wait, a bounded time, for requests under way."""
        self._server.should_exit = True
        self._thread.join(_STOP_S)
        self._socket.close()

    def _run(self) -> None:
        # Off the main thread uvicorn leaves the process's signal handlers alone.
        asyncio.run(self._server.serve(sockets=[self._socket]))


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens on the address: clients queue from here on, though nobody accepts yet."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()
    except OSError:
        bound.close()
        raise
    return bound
