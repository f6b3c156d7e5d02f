"""Slow clients: they take their portion, count whole answers, and say what went wrong."""

from __future__ import annotations

import threading

from layby.bench.slow_clients import SlowClients
from tests.bench.fake import ANSWER, ERROR, FakeServer

FAST = 1 << 20


class _Asked:
    """Answers every query alike; `again` is set when the clients have asked `times` times."""

    def __init__(self, reply: bytes | None, times: int) -> None:
        self._reply = reply
        self._times = times
        self._lock = threading.Lock()
        self.asked = 0
        self.again = threading.Event()

    def __call__(self, sql: str) -> bytes | None:
        with self._lock:
            self.asked += 1
            if self.asked >= self._times:
                self.again.set()
        return self._reply


def test_whole_answers_are_counted_and_asked_for_again() -> None:
    asked = _Asked(ANSWER, times=6)
    with FakeServer(asked) as server:
        clients = SlowClients(server.host, server.port, "SELECT 7", 2, FAST, expect_rows=1)
        with clients:
            assert asked.again.wait(30)

    # Two queries open the run; each after them followed an answer that came whole.
    assert clients.answers >= 4
    assert clients.received >= 4 * len(ANSWER)
    assert (clients.errors, clients.error) == (0, "")


def test_a_client_takes_no_more_than_its_portion_at_a_time() -> None:
    asked = _Asked(ANSWER, times=2)
    with FakeServer(asked) as server:
        # A twentieth of a second's bytes each tick: ten bytes, so an answer takes three or more.
        clients = SlowClients(server.host, server.port, "SELECT 7", 1, 200, expect_rows=1)
        with clients:
            assert asked.again.wait(30)
            ticks = clients.ticks

    assert ticks >= -(-len(ANSWER) // 10)


def test_an_error_of_the_server_is_a_failed_answer() -> None:
    asked = _Asked(ERROR, times=3)
    with FakeServer(asked) as server:
        clients = SlowClients(server.host, server.port, "SELECT 7", 1, FAST, expect_rows=1)
        with clients:
            assert asked.again.wait(30)

    assert clients.answers == 0
    assert clients.errors >= 2
    assert clients.error == "division by zero (22012)"


def test_an_answer_of_other_rows_is_a_failed_answer() -> None:
    asked = _Asked(ANSWER, times=2)
    with FakeServer(asked) as server:
        clients = SlowClients(server.host, server.port, "SELECT 7", 1, FAST, expect_rows=2)
        with clients:
            assert asked.again.wait(30)

    assert (clients.answers, clients.error) == (0, "answer of 1 rows, not 2")


def test_a_lost_connection_is_an_error_and_is_not_read_again() -> None:
    with FakeServer(lambda sql: None) as server:
        clients = SlowClients(server.host, server.port, "SELECT 7", 3, FAST, expect_rows=1)
        with clients:
            assert clients.finished.wait(30)

    assert (clients.errors, clients.answers) == (3, 0)
