"""The load generator: it keeps its schedule whatever the server does, and counts what failed."""

from __future__ import annotations

import threading

import pytest

from layby.bench.drive import LoadError, run_together
from layby.bench.load import Load, Report
from tests.bench.fake import ANSWER, ERROR, FakeServer


def load(server: FakeServer, **changes: float | bool | str | None) -> Load:
    settings = {"statement": "SELECT 7", "rate": 200.0, "seconds": 0.1, "connections": 8} | changes
    return Load(host=server.host, port=server.port, **settings)  # type: ignore[arg-type]


def test_a_load_and_a_report_survive_their_encoding() -> None:
    sent = Load("h", 1, "SELECT $1", 2.5, 3.0, 4, prepared=True, keys=9, expect_rows=0, seed=7)
    report = Report(latencies_ms=[0.25], late_ms=[0.5], errors=2, error="x", elapsed_s=1.5)

    assert Load.decode(sent.encode()) == sent
    assert Report.decode(report.encode()) == report


def test_every_arrival_of_the_schedule_is_sent_and_answered() -> None:
    with FakeServer(lambda sql: ANSWER) as server:
        (measured,) = run_together([load(server, expect_rows=1)])

    assert (len(measured.latencies_ms), measured.errors) == (20, 0)
    assert measured.elapsed_s >= 0.1


def test_arrivals_do_not_wait_for_answers() -> None:
    everybody_asked = threading.Barrier(8)

    def answer(sql: str) -> bytes:
        everybody_asked.wait(30)
        return ANSWER

    # A generator that waited for an answer would never send the second query, and the barrier would break.
    with FakeServer(answer) as server:
        (measured,) = run_together([load(server, rate=80.0)])

    assert (len(measured.latencies_ms), measured.errors) == (8, 0)


def test_a_query_that_waits_for_a_connection_is_late_from_its_schedule() -> None:
    first = threading.Lock()
    hold_s = 0.3

    def answer(sql: str) -> bytes:
        # The one connection is busy for longer than the whole schedule; nobody sets the event.
        if first.acquire(blocking=False):
            threading.Event().wait(hold_s)
        return ANSWER

    with FakeServer(answer) as server:
        (measured,) = run_together([load(server, connections=1)])

    # The last of 20 was due 95 ms after the first, and could not leave before the first was answered.
    assert len(measured.latencies_ms) == 20
    assert min(measured.latencies_ms) >= 1e3 * hold_s - 95 - 1


def test_a_failed_query_is_counted_and_gives_no_latency() -> None:
    with FakeServer(lambda sql: ERROR) as server:
        (measured,) = run_together([load(server)])

    assert (measured.latencies_ms, measured.errors) == ([], 20)
    assert measured.error == "division by zero (22012)"


def test_an_answer_with_another_number_of_rows_is_a_failure() -> None:
    with FakeServer(lambda sql: ANSWER) as server:
        (measured,) = run_together([load(server, expect_rows=0)])

    assert (measured.latencies_ms, measured.errors) == ([], 20)
    assert measured.error == "answer of 1 rows, not 0"


def test_lost_connections_fail_their_queries_and_those_that_find_none() -> None:
    with FakeServer(lambda sql: None) as server:
        (measured,) = run_together([load(server, connections=2)])

    assert (measured.latencies_ms, measured.errors) == ([], 20)


def test_random_keys_take_the_place_of_the_parameter() -> None:
    asked: list[str] = []

    def answer(sql: str) -> bytes:
        asked.append(sql)
        return ANSWER

    with FakeServer(answer) as server:
        run_together([load(server, statement="SELECT $1", keys=3)])

    assert set(asked) == {"SELECT 1", "SELECT 2", "SELECT 3"}


def test_a_closed_loop_has_one_query_a_connection_under_way() -> None:
    lock = threading.Lock()
    under_way = [0]
    most = [0]

    def answer(sql: str) -> bytes:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        with lock:
            under_way[0] -= 1
        return ANSWER

    with FakeServer(answer) as server:
        (measured,) = run_together([load(server, rate=0.0, connections=3)])

    assert len(measured.latencies_ms) > 3
    assert most[0] <= 3
    assert measured.errors == 0


def test_the_watcher_sees_every_latency_of_the_first_load() -> None:
    watched: list[float] = []

    with FakeServer(lambda sql: ANSWER) as server:
        first, second = run_together([load(server, seconds=0.6), load(server)], watched.extend)

    assert watched == first.latencies_ms
    assert len(second.latencies_ms) == 20


def test_a_load_without_a_server_says_why() -> None:
    with FakeServer(lambda sql: ANSWER) as server:
        gone = load(server)

    with pytest.raises(LoadError, match="refused"):
        run_together([gone])


def test_an_unread_answer_is_believed_by_its_tag() -> None:
    with FakeServer(lambda sql: ERROR if sql == "bad" else ANSWER) as server:
        good, short, bad = run_together(
            [
                load(server, unread=True, expect_rows=1),
                load(server, unread=True, expect_rows=2),
                load(server, unread=True, statement="bad"),
            ]
        )

    assert (len(good.latencies_ms), good.errors) == (20, 0)
    assert (short.errors, short.error) == (20, "answer of 1 rows, not 2")
    assert (bad.errors, bad.error) == (20, "division by zero (22012)")
