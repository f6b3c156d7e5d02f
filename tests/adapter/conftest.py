from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapter.harness import Client, Server


@pytest.fixture
def server() -> Iterator[Server]:
    """A stepped server; when the test is over all sessions end, and nothing may be left behind."""
    server = Server()
    yield server
    for session in list(server.coordinator._sessions.values()):
        session.close()
    server.settle()
    server.assert_nothing_leaked()


@pytest.fixture
def client(server: Server) -> Client:
    return server.connect()


@pytest.fixture
def other(server: Server) -> Client:
    return server.connect()
