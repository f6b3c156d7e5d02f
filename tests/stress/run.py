"""One run of the stress test: sessions at random for a while, then nothing may be wrong or left.

First every part of the server is engaged and its caches of statements are filled. Then come two rounds. Each
sets up the shared tables, lets sessions loose, checks what is there once they are gone, and drops all of it.
The first is the warm-up, a quarter of the time and at most a minute, after which allocators and pools have
grown. What the server holds then is what it may hold after the second round, the memory to within 5 % where
the warm-up had its whole minute.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
import traceback
from collections.abc import Callable
from random import Random

import psycopg

from layby.memory.heap import REST
from tests.stress.client import SLOW, Client, Refused
from tests.stress.flips import flip, kill
from tests.stress.owner import Owner
from tests.stress.server import Census, StressedServer, eventually
from tests.stress.shared import ACCOUNTS, SETUP, Sharer, check_accounts, check_batches

_HANG_S = 60.0
"""A statement that takes longer hangs: nothing here runs for more than a few seconds."""

_WARM_UP_S = 60.0
_CACHED = 2_048
"""How many statements each of the server's caches keeps."""

_MOST_RESIDENT = 1.05
"""Of the memory before: allocators keep a little more after each peak."""

_ZERO = (
    "layby_index_peek_permits_in_use",
    "layby_index_peek_permits_queued",
    "layby_index_peek_pinned_bytes",
    "layby_index_peek_queued_rows_bytes",
)
_DESCRIPTORS_OF_SEGMENT = 2
"""Of a mapped segment: its own, and the one that `mmap` keeps."""

_TROUBLE = re.compile(r"Traceback|\braised\b|ERROR|CRITICAL|did not stop|never retrieved|Exception ignored")
_DEATHS = re.compile(r"process(es)? (\d+ )?died")


class StressRun:
    """The sessions of a run, their findings, and what is counted before and after."""

    def __init__(
        self, seed: int, *, sessions: int, kills: bool, workers: str, say: Callable[[str], None]
    ) -> None:
        """`say` gets lines for the terminal; the same seed makes the same choices, not the same timing."""
        self._seed = seed
        self._sessions = sessions
        self._kills = kills
        self._workers = workers
        self._say = say
        self._stop = threading.Event()
        self._clients: list[Client] = []
        self._owners: list[Owner] = []
        self.findings: list[str] = []

    def run(self, seconds: float) -> list[str]:
        """Run for a while and return what was found; nothing is as it should be."""
        with StressedServer(self._workers) as server:
            self._say(f"server {server.pid}")
            self._engage(server)
            warm_up = min(_WARM_UP_S, seconds / 4)
            if self._round(server, warm_up, f"{self._seed}/warm-up"):
                time.sleep(REST + 2)  # after which child processes have given back what they freed
                before = self._settled(server, lambda: True)
                self._say(f"before: {before}")
                if self._round(server, seconds, f"{self._seed}"):
                    self._compare(server, before, memory=warm_up == _WARM_UP_S)
            code = server.stop()
            if code:
                self.findings.append(f"the server ended with {code}")
            self._read_log(server)
        return self.findings

    def _engage(self, server: StressedServer) -> None:
        """Engage every part once, so that what is made on first use is there, and fill the caches."""
        with server.session() as connection:
            connection.execute("CREATE TABLE warm (a int, b text)")
            connection.execute("INSERT INTO warm SELECT g, g::text FROM generate_series(1, 100000) g")
            connection.execute("CREATE INDEX warm_a ON warm (a)")
            connection.execute("ALTER SYSTEM SET compute_index_peek_inline_budget = 1")
            connection.execute("ALTER SYSTEM SET peek_response_stash_threshold_bytes = 0")
            connection.execute("SELECT b FROM warm ORDER BY b DESC").fetchall()
            connection.execute("SELECT b FROM warm").fetchall()
            connection.execute("ALTER SYSTEM RESET ALL")
            connection.execute("SET statement_timeout = 50")
            with contextlib.suppress(psycopg.errors.QueryCanceled):
                connection.execute(SLOW.encode())
            connection.execute("RESET statement_timeout")
            for number in range(_CACHED):  # by both protocols, whose statements are kept apart
                sql = f"SELECT a AS c{number}, b FROM warm WHERE a = {number} AND b > 'x' ORDER BY b LIMIT 3"
                connection.execute(sql.encode())
                with connection.cursor(binary=True) as cursor:
                    cursor.execute(sql.encode())
            connection.execute("DROP TABLE warm")
        server.metrics()

    def _round(self, server: StressedServer, seconds: float, seed: str) -> bool:
        """Run sessions for a while, check what is there at the end and drop it; whether all was well."""
        with server.session() as connection:
            for statement in SETUP:
                connection.execute(statement.encode())
        self._stop.clear()
        self._clients.clear()
        self._owners.clear()
        self._load(server, seconds, seed)
        if not server.alive():
            self.findings.append("the server ended")
        elif not self._stuck():
            self._verdict(server)
        return not self.findings

    def _load(self, server: StressedServer, seconds: float, seed: str) -> None:
        threads = [
            threading.Thread(
                target=self._session,
                args=(server, number, Random(f"{seed}/{number}")),
                name=f"session {number}",
                daemon=True,
            )
            for number in range(self._sessions)
        ]
        around = [self._around(server, flip, Random(f"{seed}/flip"))]
        if self._kills:
            around.append(self._around(server, kill, Random(f"{seed}/kill")))
        for thread in (*threads, *around):
            thread.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.findings and server.alive():
            self._stop.wait(0.2)
            self._look_for_hanging()
        self._stop.set()
        for thread in (*threads, *around):
            thread.join(_HANG_S)
            if thread.is_alive():
                self._look_for_hanging(0)
        statements = sum(client.statements for client in self._clients)
        refused = sum(client.refused for client in self._clients)
        self._say(f"{statements} statements, {refused} of them refused")

    def _session(self, server: StressedServer, number: int, random: Random) -> None:
        try:
            client = Client(server, random, kills=self._kills)
            self._clients.append(client)
            owner, sharer = Owner(client, number), Sharer(client, number, self._sessions)
            self._owners.append(owner)
            with contextlib.closing(client):
                while not self._stop.is_set():
                    try:
                        random.choice((owner.step, sharer.step))()
                    except Refused:
                        if client.in_block:
                            client.run("ROLLBACK")
        except Exception:  # noqa: BLE001 - the whole of it is the finding
            self.findings.append(f"session {number}: {traceback.format_exc()}")
            self._stop.set()

    def _around(
        self,
        server: StressedServer,
        what: Callable[[StressedServer, Random, threading.Event], int],
        random: Random,
    ) -> threading.Thread:
        def run() -> None:
            try:
                times = what(server, random, self._stop)
                self._say(f"{what.__name__}: {times} times")
            except Exception:  # noqa: BLE001 - the whole of it is the finding
                self.findings.append(f"{what.__name__}: {traceback.format_exc()}")
                self._stop.set()

        return threading.Thread(target=run, name=what.__name__, daemon=True)

    def _look_for_hanging(self, seconds: float = _HANG_S) -> None:
        for client in self._clients:
            doing = client.doing
            if doing is not None and time.monotonic() - doing[1] > seconds:
                self.findings.append(f"no answer for {time.monotonic() - doing[1]:.0f} s: {doing[0][:300]}")

    def _tables(self) -> list[str]:
        """Return the names of all tables that sessions may have left."""
        made = [table.name for owner in self._owners for table in owner.tables]
        return made + [f"public{number}" for number in range(self._sessions)]

    def _stuck(self) -> bool:
        return any(client.doing is not None for client in self._clients)

    def _verdict(self, server: StressedServer) -> None:
        """Look at what is there once all sessions are gone, then drop it."""
        if not eventually(lambda: self._idle(server)):
            page = server.metrics()
            self.findings += [f"{name} is {server.metric(name, page)} at the end" for name in _ZERO]
        with server.session() as connection:
            connection.execute("SET statement_timeout = 20000")
            check_accounts(connection.execute("SELECT id, balance FROM accounts").fetchall(), "at the end")
            left, right = (
                # By an index on n, which is left only where its creation has not been taken back as a whole.
                check_batches(
                    connection.execute(f"SELECT batch, n FROM {t} WHERE n >= 0".encode()).fetchall(), t
                )
                for t in ("lefts", "rights")
            )
            if left != right:
                self.findings.append(f"at the end there are batches {sorted(left)} and {sorted(right)}")
            self._check_compaction(server, connection)
            for name in ("accounts", "lefts", "rights", *self._tables()):
                # Where a lock had been left, this would not get through.
                connection.execute(f"DROP TABLE IF EXISTS {name}".encode())

    def _compare(self, server: StressedServer, before: Census, *, memory: bool) -> None:
        """Look at what is left once everything is dropped."""
        # Each process fills one segment at the moment, which every other one may have mapped. What is left
        # behind by the work itself soon comes to more than that.
        spare = _DESCRIPTORS_OF_SEGMENT * before.processes**2
        most = before.descriptors["segments"] + spare

        def as_before() -> bool:
            now = server.census()
            return (
                now.processes == before.processes
                # Pools of threads grow to their bound on demand, after the warm-up too.
                and now.threads <= before.threads + before.processes
                and now.descriptors["segments"] <= most
                and all(
                    now.descriptors[kind] <= count
                    for kind, count in before.descriptors.items()
                    if kind != "segments"
                )
                and (not memory or now.rss_mib <= _MOST_RESIDENT * before.rss_mib)
            )

        after = self._settled(server, as_before)
        self._say(f"after:  {after}")
        if not as_before():
            self.findings.append(f"before there were {before}, after {after}")

    def _check_compaction(
        self, server: StressedServer, connection: psycopg.Connection[tuple[int, ...]]
    ) -> None:
        """Where no read hold is left, history goes: a walk visits little more than the rows there are."""
        name = "layby_index_peek_row_iteration_rows_sum"
        visited = 0.0

        def compacted() -> bool:
            nonlocal visited
            connection.execute("UPDATE accounts SET balance = balance WHERE id < 3")
            start = server.metric(name)
            connection.execute("SELECT id, balance FROM accounts").fetchall()
            visited = server.metric(name) - start
            return visited <= 4 * ACCOUNTS

        if not eventually(compacted, 10.0):
            self.findings.append(f"a walk of {ACCOUNTS} rows visits {visited:g} positions: history is kept")

    def _idle(self, server: StressedServer) -> bool:
        page = server.metrics()
        return all(server.metric(name, page) == 0 for name in _ZERO)

    def _settled(self, server: StressedServer, wanted: Callable[[], bool]) -> Census:
        """Count once nothing changes any more and, if it ever comes to it, `wanted` holds."""
        last = server.census()

        def unchanged() -> bool:
            nonlocal last
            time.sleep(1.2)  # longer than the interval in which processes are told what is gone
            now, then = server.census(), last
            last = now
            same = (now.processes, now.threads, now.descriptors) == (
                then.processes,
                then.threads,
                then.descriptors,
            )
            return same and abs(now.rss_mib - then.rss_mib) < 1 and wanted()

        eventually(unchanged)
        return last

    def _read_log(self, server: StressedServer) -> None:
        lines = server.log_lines()
        for at, line in enumerate(lines):
            if not _TROUBLE.search(line) or (self._kills and _DEATHS.search(line)):
                continue
            self.findings.append("\n".join(["the server logged:", *lines[max(0, at - 1) : at + 40]]))
            return
