"""What a person sees of walks under way in a real server, whose walks run in processes of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg import errors

from tests.clients.server import SLOW, TIMEOUT, Server

T = TypeVar("T")
_LOOKS = 200_000
"""How often a state that must come about is looked for: far more than it takes."""


@pytest.fixture
def connection(server: Server) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.conninfo, autocommit=True) as opened:
        yield opened


class Walking:
    """A session whose walk goes on until somebody ends it."""

    def __init__(self, server: Server) -> None:
        self.connection = psycopg.connect(server.conninfo, autocommit=True)
        self.pid = self.connection.info.backend_pid
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.connection.execute(SLOW)
        except psycopg.Error as error:
            self.error = error

    def join(self) -> Exception | None:
        """Wait for the end, and return what it was."""
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture
def walking(server: Server) -> Iterator[Walking]:
    made = Walking(server)
    yield made
    made.join()
    made.connection.close()


def look(look_once: Callable[[], T | None]) -> T:
    """Look again and again until there is something."""
    for _ in range(_LOOKS):
        found = look_once()
        if found is not None:
            return found
    raise AssertionError("it did not come about")


def active(connection: psycopg.Connection[Any], pid: int, beyond: int = -1) -> Callable[[], Any]:
    """Return a look for the walk of a session that has gone beyond so many positions."""

    def look_once() -> Any:
        return connection.execute(
            "SELECT index, state, substrate, positions, rows, query FROM layby_active_peeks "
            "WHERE session = %s AND state = 'walking' AND positions > %s",
            [pid, beyond],
        ).fetchone()

    return look_once


def test_the_positions_of_a_walk_in_another_process_are_live(
    connection: psycopg.Connection[Any], walking: Walking
) -> None:
    index, state, substrate, positions, rows, query = look(active(connection, walking.pid))
    assert (index, state, substrate, rows, query) == ("generate_series", "walking", "offloaded", 0, SLOW)
    later = look(active(connection, walking.pid, positions))
    assert later[3] > positions
    assert connection.execute("SELECT pg_cancel_backend(%s)", [walking.pid]).fetchone() == (True,)
    assert isinstance(walking.join(), errors.QueryCanceled)
    assert active(connection, walking.pid)() is None
    assert walking.connection.execute("SELECT 1").fetchone() == (1,)


def test_a_terminated_session_is_told_why(connection: psycopg.Connection[Any], walking: Walking) -> None:
    look(active(connection, walking.pid))
    assert connection.execute("SELECT pg_terminate_backend(%s)", [walking.pid]).fetchone() == (True,)
    error = walking.join()
    assert isinstance(error, errors.AdminShutdown)
    assert "terminating connection due to administrator command" in str(error)
    assert walking.connection.closed
    assert connection.execute("SELECT pg_terminate_backend(%s)", [walking.pid]).fetchone() == (False,)


def test_explain_analyze_tells_where_a_walk_ran(connection: psycopg.Connection[Any]) -> None:
    # More than a lone read may visit on the loop, however quick it is.
    rows = connection.execute("EXPLAIN ANALYZE SELECT g FROM generate_series(1, 30000000) g WHERE g < 5")
    lines = [row[0] for row in rows]
    assert "  Substrate: offloaded" in lines
    assert "  Rows: 4" in lines
    [positions] = [line for line in lines if line.startswith("  Positions: ")]
    inline, offloaded = (int(word) for word in positions.split() if word.isdigit())
    assert inline + offloaded == 30_000_000
    assert offloaded > inline > 0
