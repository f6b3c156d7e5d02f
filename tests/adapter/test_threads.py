"""The coordinator over its own threads and a real event loop; every wait is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from layby.adapter.coordinator import Coordinator
from layby.adapter.session import Session
from layby.config import SystemParameters
from layby.errors import SqlError
from layby.metrics import PeekMetrics
from tests.adapter.harness import Query

TIMEOUT = 60.0


class Waiting(Query):
    """A query that tells when it is done."""

    def __init__(self, session: Session, sql: str) -> None:
        self.ended = asyncio.Event()
        super().__init__(session, sql)
        self._told()

    def _take(self, outcome: Any) -> None:
        super()._take(outcome)
        self._told()

    def _take_sync(self, outcome: Any) -> None:
        super()._take_sync(outcome)
        self._told()

    def _told(self) -> None:
        if self.done:
            self.ended.set()


async def run(session: Session, sql: str) -> Any:
    query = Waiting(session, sql)
    await asyncio.wait_for(query.ended.wait(), TIMEOUT)
    return query.result()


def serve(scenario: Callable[[Coordinator], Awaitable[None]]) -> None:
    """Run a scenario against a coordinator of the default kind, and close it."""

    async def main() -> None:
        parameters = SystemParameters({"enable_compute_index_peek_offload": "on"})
        coordinator = Coordinator(parameters, loop=asyncio.get_running_loop(), metrics=PeekMetrics())
        coordinator.start()
        assert coordinator.healthy()
        try:
            await scenario(coordinator)
        finally:
            await asyncio.wait_for(coordinator.close(), TIMEOUT)
        assert not coordinator.healthy()

    asyncio.run(main())


def test_writers_of_one_unique_key_beside_each_other_leave_one() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        setup = coordinator.connect("layby", "layby", {})
        await run(setup, "CREATE TABLE t (a int PRIMARY KEY, b int)")
        sessions = [coordinator.connect("layby", "layby", {}) for _ in range(8)]

        async def insert(number: int, session: Session) -> int:
            won = 0
            for key in range(30):
                try:
                    await run(session, f"INSERT INTO t VALUES ({key}, {number})")
                    won += 1
                except SqlError as error:
                    assert error.sqlstate == "23505"
            return won

        won = await asyncio.gather(*(insert(n, s) for n, s in enumerate(sessions)))
        assert sum(won) == 30
        rows = await run(setup, "SELECT a FROM t ORDER BY a")
        assert rows == [(key,) for key in range(30)]

    serve(scenario)


def test_increments_beside_each_other_are_all_counted() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        setup = coordinator.connect("layby", "layby", {})
        await run(setup, "CREATE TABLE t (a int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)")
        sessions = [coordinator.connect("layby", "layby", {}) for _ in range(4)]

        async def count(session: Session) -> None:
            for _ in range(25):
                assert await run(session, "UPDATE t SET n = n + 1 WHERE a = 1") == "UPDATE 1"

        await asyncio.gather(*(count(s) for s in sessions))
        assert await run(setup, "SELECT n FROM t") == [(100,)]
        assert coordinator.locks.held() == 0

    serve(scenario)


def test_a_load_an_index_build_and_lookups_go_on_beside_each_other() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        one, two, three = (coordinator.connect("layby", "layby", {}) for _ in range(3))
        await run(one, "CREATE TABLE t (a int PRIMARY KEY, b int)")
        await run(one, "INSERT INTO t VALUES (0, 0)")
        load = asyncio.ensure_future(
            run(one, "INSERT INTO t SELECT g, g % 7 FROM generate_series(1, 100000) AS g")
        )
        build = asyncio.ensure_future(run(two, "CREATE INDEX t_b ON t (b)"))
        seen = set()
        while not (load.done() and build.done()):
            seen.add(len(await run(three, "SELECT a FROM t WHERE a IN (0, 50000, 100000)")))
            await asyncio.sleep(0)
        assert await load == "INSERT 0 100000"
        assert await build == "CREATE INDEX"
        assert seen <= {1, 3}, "all of the load is seen at once"
        assert await run(three, "SELECT a FROM t WHERE b = 3 ORDER BY a LIMIT 2") == [(3,), (10,)]
        assert len(await run(three, "SELECT a FROM t WHERE b = 3")) == 14286

    serve(scenario)


def test_closing_answers_nobody_and_ends_all_threads() -> None:
    async def scenario(coordinator: Coordinator) -> None:
        one, two = (coordinator.connect("layby", "layby", {}) for _ in range(2))
        await run(one, "CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        await run(one, "BEGIN; UPDATE t SET a = 2")
        waiting = Waiting(two, "UPDATE t SET a = 3")
        assert not waiting.done

    serve(scenario)
