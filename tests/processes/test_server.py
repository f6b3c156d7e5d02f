"""A server whose processes are killed under load, and that is ended with everything under way."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from layby.bench.server import LaybyServer
from tests.clients.server import SLOW
from tests.processes.running import children, exists, maintenance, until, walkers


@pytest.fixture
def server() -> Iterator[LaybyServer]:
    with LaybyServer() as found:
        yield found


def pid_of(server: LaybyServer) -> int:
    assert server._process is not None
    return server._process.pid


def connect(server: LaybyServer) -> psycopg.Connection[Any]:
    info = f"host={server.host} port={server.port} user=layby dbname=layby connect_timeout=20"
    return psycopg.connect(info, autocommit=True)


def page(server: LaybyServer, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/{path}", timeout=30) as found:
        return str(found.read().decode())


def metric(server: LaybyServer, name: str) -> float:
    lines = page(server, "metrics").splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


class Running:
    """A statement on a connection and a thread of its own, and the SQLSTATE that it ended with."""

    def __init__(self, server: LaybyServer, sql: str) -> None:
        self.connection = connect(server)
        self.ended: list[str | None] = []
        self._sql = sql
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.connection.execute(self._sql.encode())
            self.ended.append("")
        except psycopg.Error as error:
            self.ended.append(error.sqlstate)

    def wait(self) -> str | None:
        self._thread.join(30)
        self.connection.close()
        return self.ended[0]


def walking(server: LaybyServer, count: int) -> bool:
    return metric(server, "layby_index_peek_permits_in_use") == count


def walked(server: LaybyServer) -> int:
    """Return the positions that the one walk given to a process has visited, 0 where there is none."""
    with connect(server) as connection:
        walking = "SELECT positions FROM layby_active_peeks WHERE state = 'walking'"
        found = connection.execute(walking).fetchone()
        return found[0] if found else 0


def test_a_walker_killed_under_a_statement_costs_that_statement_alone(server: LaybyServer) -> None:
    running = Running(server, SLOW)
    until(lambda: walked(server))
    given = walked(server)
    until(lambda: walked(server) > given)  # it has begun
    for walker in walkers(pid_of(server)):
        os.kill(walker, signal.SIGKILL)
    assert running.wait() == "XX000"
    with connect(server) as other:
        rows = other.execute("SELECT count_ FROM (VALUES (1)) v (count_)").fetchall()
        assert rows == [(1,)]
        even = other.execute("SELECT g FROM generate_series(1, 200000) g WHERE g % 2 = 0").fetchall()
        assert len(even) == 100_000
    assert metric(server, "layby_walk_process_restarts_total") >= 1
    assert walking(server, 0)


def test_maintenance_killed_under_a_copy_an_index_build_and_writes_loses_nothing(server: LaybyServer) -> None:
    with connect(server) as connection, connect(server) as builder, connect(server) as reader:
        connection.execute("CREATE TABLE t (k int, v int)")
        connection.execute("INSERT INTO t SELECT g, g % 10 FROM generate_series(1, 100000) g")
        started = threading.Event()

        def kills() -> None:
            for _ in range(3):
                started.wait(30)
                started.clear()
                for process in maintenance(pid_of(server)):
                    os.kill(process, signal.SIGKILL)

        killer = threading.Thread(target=kills, daemon=True)
        killer.start()
        with connection.cursor() as cursor, cursor.copy("COPY t FROM STDIN") as copy:
            for piece in range(60):
                copy.write("".join(f"{200_000 + piece * 2_000 + i}\t7\n" for i in range(2_000)))
                if piece == 50:
                    started.set()
        building = Running(server, "CREATE INDEX t_v ON t (v)")
        until(lambda: not started.is_set())
        started.set()
        for i in range(20):
            connection.execute("INSERT INTO t VALUES (%s, 11)", (1_000_000 + i,))
            assert reader.execute("SELECT v FROM t WHERE k = 5").fetchall() == [(5,)]
            if i == 10:
                until(lambda: not started.is_set())
                started.set()
        assert building.wait() == ""
        killer.join(30)
        assert len(builder.execute("SELECT k FROM t WHERE v = 11").fetchall()) == 20
        assert len(builder.execute("SELECT k FROM t WHERE v = 7").fetchall()) == 10_000 + 120_000
        assert len(builder.execute("SELECT k FROM t").fetchall()) == 220_020
    assert metric(server, "layby_maintenance_restarts_total") >= 1
    assert page(server, "healthz") == "ok\n"


def test_a_killed_server_leaves_no_process_behind(server: LaybyServer) -> None:
    process = pid_of(server)
    running = Running(server, SLOW)
    until(lambda: walking(server, 1))
    started = children(process)
    assert len(started) >= 2
    os.kill(process, signal.SIGKILL)
    running.wait()
    until(lambda: not any(exists(child) for child in started))
    # Memory of a memfd is the kernel's as soon as no process has it open, so there is none either.


def test_a_server_told_to_end_with_everything_under_way_ends_in_time() -> None:
    with LaybyServer() as server:
        process = pid_of(server)
        with connect(server) as connection:
            connection.execute("CREATE TABLE t (k int)")
            connection.execute("INSERT INTO t SELECT g FROM generate_series(1, 300000) g")
        running = [Running(server, SLOW) for _ in range(4)]
        running.append(Running(server, "INSERT INTO t SELECT g FROM generate_series(1, 2000000) g"))
        running.append(Running(server, "CREATE INDEX t_k ON t (k)"))
        until(lambda: metric(server, "layby_index_peek_permits_in_use") >= 2)
        for stopped in maintenance(process):
            os.kill(stopped, signal.SIGSTOP)
        started = children(process)
        os.kill(process, signal.SIGTERM)
        assert server._process is not None
        try:
            assert server._process.wait(30) == 0
        except subprocess.TimeoutExpired:
            pytest.fail("the server does not end")
        until(lambda: not any(exists(child) for child in started))
        for ended in running:
            ended.wait()


def test_a_maintenance_process_that_is_killed_again_and_again_shows_on_healthz(server: LaybyServer) -> None:
    process = pid_of(server)

    def unwell() -> bool:
        for child in maintenance(process):
            os.kill(child, signal.SIGKILL)
        try:
            return page(server, "healthz") != "ok\n"
        except urllib.error.HTTPError as error:
            return error.code == 503

    until(unwell)
    until(lambda: _well(server))
    with connect(server) as connection:
        connection.execute("CREATE TABLE t (k int)")
        connection.execute("INSERT INTO t VALUES (1)")
        assert connection.execute("SELECT k FROM t").fetchall() == [(1,)]


def _well(server: LaybyServer) -> bool:
    try:
        return page(server, "healthz") == "ok\n"
    except urllib.error.HTTPError:
        return False


def test_the_turns_of_the_serving_loop_and_the_shared_memory_are_told(server: LaybyServer) -> None:
    with connect(server) as connection:
        connection.execute("CREATE TABLE t (k int)")
        connection.execute("INSERT INTO t SELECT g FROM generate_series(1, 1000000) g")
    assert metric(server, "layby_serving_loop_turn_seconds_count") > 0
    assert metric(server, "layby_serving_loop_turn_seconds_sum") > 0
    assert metric(server, "layby_shared_memory_bytes") > 4_000_000


def test_the_serving_loop_is_of_real_time_priority_where_permitted_and_no_process_that_it_starts(
    server: LaybyServer,
) -> None:
    loop = pid_of(server)
    started = [thread for child in children(loop) for thread in threads(child)]
    assert started
    permitted = may_be_realtime()
    assert policy(loop) == (os.SCHED_RR if permitted else os.SCHED_OTHER)
    assert metric(server, "layby_serving_loop_realtime") == permitted
    assert {policy(thread) for thread in started} == {os.SCHED_OTHER}
    with connect(server) as connection:
        connection.execute("ALTER SYSTEM SET enable_serving_loop_realtime = off")
        assert {policy(thread) for thread in threads(loop)} == {os.SCHED_OTHER}
        assert metric(server, "layby_serving_loop_realtime") == 0
        connection.execute("ALTER SYSTEM RESET ALL")
    assert policy(loop) == (os.SCHED_RR if permitted else os.SCHED_OTHER)


def may_be_realtime() -> bool:
    """Return whether the system lets a program of this user take real-time priority: one tries."""
    tried = subprocess.run(["chrt", "--rr", "2", "true"], check=False, capture_output=True)
    return tried.returncode == 0


def threads(pid: int) -> list[int]:
    return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]


def policy(thread: int) -> int:
    return os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK
