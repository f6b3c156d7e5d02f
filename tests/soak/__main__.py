"""A soak by hand: `python -m tests.soak --minutes 30`.

Mixed load on one server while its walk processes and its maintenance process are killed now and then. Every
answer is checked. At the end, with the load gone and its tables dropped, resident and shared memory,
descriptors and processes have to be where they were after the same load had run for a moment.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg

from layby.bench.server import LaybyServer
from tests.processes.running import children, descriptors, maintenance, resident_bytes, until, walkers

ROWS = 200_000
_WARM_S = 15.0
_QUIET_S = 30.0


class Held(NamedTuple):
    """What a server holds at rest."""

    processes: int
    descriptors: int
    resident: int
    shared: float


class Soak:
    """The load, and what it found wrong."""

    def __init__(self, server: LaybyServer, pid: int, seed: int) -> None:
        self.server, self.pid = server, pid
        self.random = random.Random(seed)
        self.wrong: list[str] = []
        self.done: Counter[str] = Counter()
        self.stop = threading.Event()

    def connect(self) -> psycopg.Connection[Any]:
        info = f"host={self.server.host} port={self.server.port} user=layby dbname=layby connect_timeout=20"
        return psycopg.connect(info, autocommit=True)

    def run(self, seconds: float, *, kills: bool) -> None:
        """Run the whole load for some time."""
        self.stop.clear()
        parts = [self.lookups, self.lookups, self.walks, self.answers, self.writes, self.copies, self.builds]
        if kills:
            parts.append(self.kills)
        threads = [threading.Thread(target=self._guarded, args=(part,), daemon=True) for part in parts]
        for thread in threads:
            thread.start()
        self.stop.wait(seconds)
        self.stop.set()
        for thread in threads:
            thread.join(120)
            if thread.is_alive():
                self.wrong.append("a part of the load hangs")

    def _guarded(self, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:  # noqa: BLE001 - what ends a part is what a soak looks for
            self.wrong.append(f"{part.__name__} ended with {type(error).__name__}: {error}")

    def check(self, name: str, got: object, expected: object) -> None:
        self.done[name] += 1
        if got != expected:
            self.wrong.append(f"{name}: got {got!r}, expected {expected!r}")

    def attempt(self, connection: psycopg.Connection[Any], sql: str) -> list[Any] | None:
        """Return the rows of a read, None where its walker was killed under it."""
        try:
            return connection.execute(sql.encode()).fetchall()
        except psycopg.errors.InternalError_:
            self.done["reads whose walker was killed"] += 1
            return None

    def lookups(self) -> None:
        mine = random.Random(self.random.random())
        with self.connect() as connection:
            while not self.stop.wait(0.002):
                key = mine.randrange(ROWS)
                rows = connection.execute("SELECT v FROM hot WHERE k = %s", (key,)).fetchall()
                self.check("lookup", rows, [(key % 1_000,)])

    def walks(self) -> None:
        with self.connect() as connection:
            while not self.stop.is_set():
                rows = self.attempt(connection, "SELECT k FROM hot WHERE v = 7 AND k < 100000")
                if rows is not None:
                    self.check("walk", len(rows), 100)

    def answers(self) -> None:
        with self.connect() as connection:
            while not self.stop.wait(0.2):
                rows = self.attempt(connection, "SELECT k, v FROM hot ORDER BY v, k")
                if rows is not None:
                    self.check(
                        "large answer", (len(rows), rows[0], rows[-1]), (ROWS, (0, 0), (ROWS - 1, 999))
                    )

    def writes(self) -> None:
        """Move a row around: there is exactly one at every time."""
        with self.connect() as connection, self.connect() as reader:
            connection.execute("INSERT INTO moving VALUES (0, 0)")
            number = 0
            while not self.stop.wait(0.01):
                number += 1
                connection.execute("UPDATE moving SET v = %s WHERE k = 0", (number,))
                rows = reader.execute("SELECT v FROM moving WHERE k = 0").fetchall()
                self.check("write", rows, [(number,)])
            connection.execute("DELETE FROM moving")

    def copies(self) -> None:
        with self.connect() as connection:
            while not self.stop.wait(0.5):
                connection.execute("CREATE TABLE loaded (a int, b text)")
                with connection.cursor() as cursor, cursor.copy("COPY loaded FROM STDIN") as copy:
                    for start in range(0, 60_000, 10_000):
                        copy.write("".join(f"{i}\trow {i}\n" for i in range(start, start + 10_000)))
                rows = self.attempt(connection, "SELECT b FROM loaded WHERE a % 20000 = 5 ORDER BY a")
                if rows is not None:
                    self.check("copy", rows, [("row 5",), ("row 20005",), ("row 40005",)])
                connection.execute("DROP TABLE loaded")

    def builds(self) -> None:
        with self.connect() as connection:
            while not self.stop.wait(0.5):
                connection.execute("CREATE INDEX hot_v ON hot (v)")
                rows = connection.execute("SELECT k FROM hot WHERE v = 3").fetchall()
                self.check("index", len(rows), ROWS // 1_000)
                connection.execute("DROP INDEX hot_v")

    def kills(self) -> None:
        while not self.stop.wait(self.random.uniform(2.0, 6.0)):
            victims = (walkers if self.random.random() < 0.6 else maintenance)(self.pid)
            if victims:
                os.kill(self.random.choice(victims), signal.SIGKILL)
                self.done["kill"] += 1

    def held(self) -> Held:
        """Return what the server holds once it has come to rest."""
        until(
            lambda: len(walkers(self.pid)) == (os.cpu_count() or 1) and len(maintenance(self.pid)) == 1, 60.0
        )
        end, last = time.monotonic() + _QUIET_S, self._held()
        while time.monotonic() < end:
            time.sleep(2.5)
            now = self._held()
            if now == last:
                break
            last = now
        return last

    def _held(self) -> Held:
        everyone = [self.pid, *children(self.pid)]
        resident = sum(resident_bytes(pid) for pid in everyone) >> 20
        page = urllib.request.urlopen(f"http://127.0.0.1:{self.server.http_port}/metrics", timeout=30).read()
        lines = page.decode().splitlines()
        shared = next(float(n.split()[1]) for n in lines if n.startswith("layby_shared_memory_bytes "))
        return Held(len(everyone), sum(descriptors(pid) for pid in everyone), resident, shared / 2**20)


def main() -> int:
    """Run; 0 where nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with LaybyServer() as server:
        assert server._process is not None
        soak = Soak(server, server._process.pid, options.seed)
        with soak.connect() as connection:
            connection.execute("CREATE TABLE hot (k int, v int)")
            connection.execute("CREATE INDEX hot_k ON hot (k)")
            connection.execute("CREATE TABLE moving (k int PRIMARY KEY, v int)")
            connection.execute(
                f"INSERT INTO hot SELECT g, g % 1000 FROM generate_series(0, {ROWS - 1}) g".encode()
            )
        soak.run(_WARM_S, kills=False)
        before = soak.held()
        print(f"before: {before}", flush=True)
        soak.run(options.minutes * 60, kills=True)
        after = soak.held()
        print(f"after:  {after}\n{dict(soak.done)}", flush=True)
        log = server._log.read_text()
        lines = [re.sub(r"\d+", "N", line.split(" took")[0])[:90] for line in log.splitlines()]
        print(f"log: {Counter(lines)}")
        if after.processes != before.processes:
            soak.wrong.append("processes are left")
        if after.descriptors > before.descriptors + 100:
            soak.wrong.append("descriptors are left")
        if after.resident > 1.1 * before.resident + 64:
            soak.wrong.append("resident memory has grown")
        if after.shared > 1.1 * before.shared + 64:
            soak.wrong.append("shared memory has grown")
        if server.stop() != 0:
            soak.wrong.append("the server did not end well")
    for line in soak.wrong[:20]:
        print(f"wrong: {line}")
    print("wrong" if soak.wrong else "all is well")
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
