from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime
from typing import Any

import asyncpg
import pytest

from tests.clients.server import SLOW, TIMEOUT, Server, table

_ITEMS = (
    "CREATE TABLE items (id int PRIMARY KEY, name text, price double precision)",
    "INSERT INTO items VALUES (1, 'one', 1.5), (2, NULL, 2.25)",
)

_VALUES: list[tuple[str, Any]] = [
    ("boolean", False),
    ("smallint", -1),
    ("integer", -2147483648),
    ("bigint", 9223372036854775807),
    ("real", -0.25),
    ("double precision", 1e300),
    ("text", "ünï\n"),
    ("date", date(1999, 12, 31)),
    ("timestamp", datetime(2000, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
    ("timestamptz", datetime(2024, 2, 29, 12, tzinfo=UTC)),
]


def _run(server: Server, scenario: Callable[[Any], Awaitable[None]]) -> None:
    async def main() -> None:
        connection = await asyncpg.connect(
            host=server.host, port=server.port, user="layby", database="layby", timeout=20
        )
        try:
            await asyncio.wait_for(scenario(connection), TIMEOUT)
        finally:
            await connection.close()

    asyncio.run(main())


@pytest.mark.parametrize(("type_", "value"), _VALUES)
def test_a_value_of_every_type_comes_back_as_it_was_sent(server: Server, type_: str, value: Any) -> None:
    async def scenario(connection: Any) -> None:
        row = await connection.fetchrow(f"SELECT $1::{type_}, NULL::{type_}", value)
        assert tuple(row) == (value, None)

    _run(server, scenario)


def test_a_prepared_statement_knows_its_types(server: Server) -> None:
    async def scenario(connection: Any) -> None:
        statement = await connection.prepare("SELECT id, price FROM items WHERE name = $1 OR id = $2")
        assert [p.name for p in statement.get_parameters()] == ["text", "int4"]
        assert [(a.name, a.type.name) for a in statement.get_attributes()] == [
            ("id", "int4"),
            ("price", "float8"),
        ]
        assert [tuple(r) for r in await statement.fetch("one", 0)] == [(1, 1.5)]
        assert await statement.fetchval("none", 2) == 2

    with table(server, "items", *_ITEMS):
        _run(server, scenario)


def test_execute_many_writes_all(server: Server) -> None:
    async def scenario(connection: Any) -> None:
        rows = [(n, f"name {n}", n / 8) for n in range(300)]
        await connection.executemany("INSERT INTO items VALUES ($1, $2, $3)", rows)
        assert [tuple(r) for r in await connection.fetch("SELECT * FROM items ORDER BY id")] == rows

    with table(server, "items", _ITEMS[0]):
        _run(server, scenario)


def test_execute_many_that_fails_writes_nothing(server: Server) -> None:
    async def scenario(connection: Any) -> None:
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.executemany("INSERT INTO items VALUES ($1, 'x', 0)", [(10,), (11,), (10,)])
        assert [r[0] for r in await connection.fetch("SELECT id FROM items ORDER BY id")] == [1, 2]

    with table(server, "items", *_ITEMS):
        _run(server, scenario)


def test_a_cursor_fetches_in_portions(server: Server) -> None:
    async def scenario(connection: Any) -> None:
        async with connection.transaction():
            found = [
                record[0]
                async for record in connection.cursor(
                    "SELECT g FROM generate_series(1, $1::int) g ORDER BY g", 1000, prefetch=30
                )
            ]
            assert found == list(range(1, 1001))
            cursor = await connection.cursor("SELECT g FROM generate_series(1, 10) g ORDER BY g")
            assert [r[0] for r in await cursor.fetch(4)] == [1, 2, 3, 4]
            assert (await cursor.fetchrow())[0] == 5
            assert [r[0] for r in await cursor.fetch(100)] == [6, 7, 8, 9, 10]
            assert await cursor.fetch(1) == []

    _run(server, scenario)


def test_a_transaction_is_rolled_back_by_an_error(server: Server) -> None:
    async def scenario(connection: Any) -> None:
        with pytest.raises(asyncpg.DivisionByZeroError):
            async with connection.transaction():
                await connection.execute("DELETE FROM items")
                await connection.fetch("SELECT 1 / $1::int", 0)
        assert len(await connection.fetch("SELECT * FROM items")) == 2

    with table(server, "items", *_ITEMS):
        _run(server, scenario)


def test_copy_in_and_out(server: Server) -> None:
    async def scenario(connection: Any) -> None:
        source = io.BytesIO(b'5,"a,b",0.5\n6,,\n')
        assert await connection.copy_to_table("items", source=source, format="csv") == "COPY 2"
        target = io.BytesIO()
        status = await connection.copy_from_query(
            "SELECT id, name FROM items WHERE id > 1 ORDER BY id",
            output=target,
            format="csv",
            header=True,
        )
        assert status == "COPY 3"
        assert target.getvalue() == b'id,name\n2,\n5,"a,b"\n6,\n'

    with table(server, "items", *_ITEMS):
        _run(server, scenario)


def test_a_long_statement_is_cancelled(server: Server) -> None:
    async def scenario(connection: Any) -> None:
        with pytest.raises(TimeoutError):
            await connection.fetch(SLOW, timeout=0.2)
        assert await connection.fetchval("SELECT 1") == 1

    _run(server, scenario)


def test_a_pool_resets_its_connections(server: Server) -> None:
    async def main() -> None:
        async with asyncpg.create_pool(
            host=server.host, port=server.port, user="layby", database="layby", min_size=2, max_size=4
        ) as pool:
            found = await asyncio.gather(*(pool.fetchval("SELECT $1::int", n) for n in range(50)))
            assert found == list(range(50))

    asyncio.run(asyncio.wait_for(main(), TIMEOUT))
