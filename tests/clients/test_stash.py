"""Large answers over the wire: complete, in order, in bounded memory, and nothing left of them afterwards."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from struct import pack

import psycopg
import pytest

from layby.bench.resident import resident_mib
from tests.clients.server import TIMEOUT, Server
from tests.pgwire.frontend import query, startup
from tests.processes.running import walkers

ROWS = 1_000_000
FILLING = "some text that makes the row wider, and then wider still"

_LINE = re.compile(r"accepts connections on ([^ ]+):(\d+) \(http [^ ]+:(\d+)\)")

MAY_GROW_MIB = 40
"""What a server may need to write and read an answer, far below the 74 MiB of the smallest on the wire, which
it would hold at least once."""


@dataclass(frozen=True)
class Stashing:
    """A server of its own: its address, its process, its control plane, and the folder with its stash."""

    server: Server
    pid: int
    http_port: int
    folder: Path

    def metric(self, name: str) -> float:
        url = f"http://{self.server.host}:{self.http_port}/metrics"
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            text = answer.read().decode()
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    def parts(self) -> list[Path]:
        # Folders go while this looks, which `walk` takes for empty ones and `rglob` for an error.
        return [
            Path(folder, name)
            for folder, _, names in os.walk(self.folder)
            for name in names
            if name.endswith(".arrow")
        ]

    def until_parts(self, *, exist: bool) -> None:
        """Ask the server for its metrics until there are parts, or none."""
        deadline = time.monotonic() + TIMEOUT
        while bool(self.parts()) is not exist:
            assert time.monotonic() < deadline
            self.metric("layby_peek_stash_bytes")

    def until(self, name: str, value: float) -> None:
        """Ask for a metric until it has the value; every question takes the server's own time."""
        deadline = time.monotonic() + TIMEOUT
        while self.metric(name) != value:
            assert time.monotonic() < deadline, f"{name} never was {value}"


@pytest.fixture(scope="module", params=["processes", "threads"])
def stashing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stashing]:
    folder = tmp_path_factory.mktemp("temporary")
    command = [sys.executable, "-c", "from layby.cli import main; main()"]
    process = subprocess.Popen(
        [*command, "serve", "--port", "0", "--http-port", "0", "--workers", request.param],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(folder),
            "LAYBY_SYSTEM_PARAMETER_DEFAULT": "peek_response_stash_threshold_bytes=64kB",
        },
    )
    try:
        assert process.stdout is not None
        found = _LINE.search(process.stdout.readline())
        assert found is not None
        server = Server(found[1], int(found[2]))
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            connection.execute("CREATE TABLE wide (k bigint, v text)")
            connection.execute(
                f"INSERT INTO wide SELECT g, '{FILLING}' FROM generate_series(1, {ROWS}) g".encode()
            )
            # What every process needs once, its modules and heaps, is not what an answer costs.
            for _ in connection.cursor().stream("SELECT * FROM wide"):
                pass
        yield Stashing(server, process.pid, int(found[3]), folder)
        process.terminate()
        assert process.wait(30) == 0
        assert list(folder.rglob("server-*")) == []
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def expected_rows() -> bytes:
    """Return the DataRow messages of the whole table, in the order of its key."""
    text = FILLING.encode()
    value = pack(">i", len(text)) + text
    rows = []
    for k in range(1, ROWS + 1):
        key = b"%d" % k
        rows.append(pack(">ciHi", b"D", 10 + len(key) + len(value), 2, len(key)) + key + value)
    return b"".join(rows)


class SlowClient:
    """A client that takes as much as the test says, and has little room for more."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect((server.host, server.port))
        self.socket.sendall(startup(user="layby", database="layby"))
        greeting = b""
        while not greeting.endswith(b"Z\0\0\0\x05I"):
            greeting += self.socket.recv(4096)

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer where the answer is over."""
        found = bytearray()
        while len(found) < size and not found.endswith(b"Z\0\0\0\x05I"):
            found += self.socket.recv(min(65_536, size - len(found)))
        return bytes(found)


def test_a_slow_reader_gets_all_rows_in_order_while_the_server_holds_little(stashing: Stashing) -> None:
    before = stashing.metric("layby_index_peek_stashed_total")
    client = SlowClient(stashing.server)
    resident = resident_mib(stashing.pid)
    client.socket.sendall(query("SELECT * FROM wide"))
    stashing.until("layby_index_peek_stashed_total", before + 1)
    assert len(stashing.parts()) > 30
    answer = bytearray()
    most = 0.0
    for _ in range(8):
        answer += client.take(9_000_000)
        most = max(most, resident_mib(stashing.pid) - resident)
    answer += client.take(1 << 40)
    client.socket.close()
    # RowDescription first, CommandComplete and ReadyForQuery last.
    start = 1 + int.from_bytes(answer[1:5], "big")
    tag = b"SELECT %d\0" % ROWS
    end = b"C" + pack(">i", 4 + len(tag)) + tag + b"Z\0\0\0\x05I"
    assert answer[:1] == b"T"
    assert answer[-len(end) :] == end
    assert answer[start : -len(end)] == expected_rows()
    assert len(answer) > 74_000_000
    assert most < MAY_GROW_MIB
    stashing.until("layby_peek_stash_bytes", 0.0)
    assert stashing.parts() == []


def test_five_million_rows_come_to_a_slow_reader_while_the_server_holds_little(stashing: Stashing) -> None:
    with psycopg.connect(stashing.server.conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE five_million (k bigint, v bigint)")
        connection.execute("INSERT INTO five_million SELECT g, g FROM generate_series(1, 5000000) g")
        before = stashing.metric("layby_index_peek_stashed_total")
        client = SlowClient(stashing.server)
        resident = resident_mib(stashing.pid)
        client.socket.sendall(query("SELECT * FROM five_million"))
        stashing.until("layby_index_peek_stashed_total", before + 1)
        most, size, piece = 0.0, 0, b"-"
        while not piece.endswith(b"Z\0\0\0\x05I"):
            piece = client.take(16_000_000)
            size += len(piece)
            most = max(most, resident_mib(stashing.pid) - resident)
        client.socket.close()
        connection.execute("DROP TABLE five_million")
    row = pack(">cihi7si7s", b"D", 28, 2, 7, b"5000000", 7, b"5000000")
    assert piece.endswith(row + pack(">ci15s", b"C", 19, b"SELECT 5000000") + b"Z\0\0\0\x05I")
    # 15 bytes a row and the digits of two numbers; 47 bytes before them tell of the columns, and 26 end them.
    assert size == 47 + 5_000_000 * 15 + 2 * 33_888_896 + 26
    assert most < MAY_GROW_MIB
    stashing.until("layby_peek_stash_bytes", 0.0)


def test_a_client_that_disconnects_halfway_leaves_no_part(stashing: Stashing) -> None:
    before = stashing.metric("layby_index_peek_stashed_total")
    client = SlowClient(stashing.server)
    client.socket.sendall(query("SELECT * FROM wide"))
    stashing.until("layby_index_peek_stashed_total", before + 1)
    client.take(37_000_000)
    assert stashing.parts() != []
    client.socket.close()
    stashing.until("layby_peek_stash_bytes", 0.0)
    assert stashing.parts() == []


def test_copy_to_a_client_and_a_cursor_of_the_protocol_come_from_the_stash(stashing: Stashing) -> None:
    before = stashing.metric("layby_index_peek_stashed_total")
    with psycopg.connect(stashing.server.conninfo) as connection:
        with connection.cursor().copy("COPY wide (k) TO STDOUT") as copy:
            data = b"".join(bytes(piece) for piece in copy)
        assert data == b"".join(b"%d\n" % k for k in range(1, ROWS + 1))
        keys = [row[0] for row in connection.cursor().stream("SELECT k FROM wide WHERE k <= 500000")]
        assert keys == list(range(1, 500_001))
    stashing.until("layby_index_peek_stashed_total", before + 2)
    assert stashing.parts() == []


def test_cancelling_an_answer_that_is_on_its_way_ends_it(stashing: Stashing) -> None:
    with psycopg.connect(stashing.server.conninfo, autocommit=True) as connection:
        rows = connection.cursor().stream("SELECT * FROM wide")
        next(rows)
        connection.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            list(rows)
        stashing.until("layby_peek_stash_bytes", 0.0)
        assert stashing.parts() == []
        found = connection.execute("SELECT v FROM wide WHERE k = 7").fetchall()
        assert found == [(FILLING,)]


ENDLESS = "SELECT g FROM generate_series(1, 1000000000000) g"
"""A statement that goes on writing to the stash for longer than any test."""


def test_cancelling_a_statement_that_writes_to_the_stash_leaves_no_part(stashing: Stashing) -> None:
    with (
        psycopg.connect(stashing.server.conninfo, autocommit=True) as connection,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(connection.execute, ENDLESS)
        stashing.until_parts(exist=True)
        connection.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            asked.result(TIMEOUT)
        stashing.until_parts(exist=False)


@pytest.mark.parametrize("stashing", ["processes"], indirect=True)
def test_a_walk_process_that_is_killed_while_it_writes_to_the_stash_leaves_no_part(
    stashing: Stashing,
) -> None:
    walking = walkers(stashing.pid)
    assert walking != []
    with (
        psycopg.connect(stashing.server.conninfo, autocommit=True) as connection,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(connection.execute, ENDLESS)
        stashing.until_parts(exist=True)
        for pid in walking:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(psycopg.errors.InternalError_, match="died"):
            asked.result(TIMEOUT)
        stashing.until_parts(exist=False)
        assert connection.execute("SELECT 7").fetchall() == [(7,)]
