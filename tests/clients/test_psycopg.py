from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.clients.server import SLOW, TIMEOUT, Server, table

_ITEMS = (
    "CREATE TABLE items (id int PRIMARY KEY, name text, price double precision)",
    "INSERT INTO items VALUES (1, 'one', 1.5), (2, NULL, 2.25)",
)

_VALUES: list[tuple[str, Any]] = [
    ("boolean", True),
    ("smallint", -32768),
    ("integer", 2147483647),
    ("bigint", -9223372036854775808),
    ("real", 0.5),
    ("double precision", 0.1),
    ("text", "zwölf \\ \t ' \""),
    ("date", date(2024, 2, 29)),
    ("timestamp", datetime(1999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    ("timestamptz", datetime(2024, 2, 29, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))),
]


@pytest.fixture
def connection(server: Server) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.conninfo, autocommit=True) as opened:
        yield opened


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("type_", "value"), _VALUES)
def test_a_value_of_every_type_comes_back_as_it_was_sent(
    connection: psycopg.Connection[Any], type_: str, value: Any, binary: bool
) -> None:
    placeholder = "%b" if binary else "%t"
    cursor = connection.cursor(binary=binary)
    row = cursor.execute(f"SELECT {placeholder}::{type_}, NULL::{type_}".encode(), [value]).fetchone()
    assert row == (value, None)


@pytest.mark.parametrize("binary", [False, True])
def test_many_rows_come_in_order(connection: psycopg.Connection[Any], binary: bool) -> None:
    cursor = connection.cursor(binary=binary)
    rows = cursor.execute("SELECT g, -g, g::text FROM generate_series(1, 100000) g ORDER BY 1").fetchall()
    assert rows == [(n, -n, str(n)) for n in range(1, 100_001)]


def test_rows_are_streamed(connection: psycopg.Connection[Any]) -> None:
    stream = connection.cursor().stream("SELECT g FROM generate_series(1, 1000) g ORDER BY 1")
    assert [row[0] for row in stream] == list(range(1, 1001))


def test_columns_are_described(connection: psycopg.Connection[Any]) -> None:
    cursor = connection.execute("SELECT 1 AS a, 'x'::text AS b, 2.5::real AS c")
    assert cursor.description is not None
    assert [(c.name, c.type_code) for c in cursor.description] == [("a", 23), ("b", 25), ("c", 700)]


def test_a_statement_prepared_on_the_server_follows_its_table(
    server: Server, connection: psycopg.Connection[Any]
) -> None:
    with table(server, "items", *_ITEMS):
        for _ in range(3):
            row = connection.execute("SELECT name FROM items WHERE id = %s", [1], prepare=True).fetchone()
            assert row == ("one",)
        connection.execute("UPDATE items SET name = 'uno' WHERE id = 1")
        connection.execute("CREATE INDEX ON items (id, name)")
        row = connection.execute("SELECT name FROM items WHERE id = %s", [1], prepare=True).fetchone()
        assert row == ("uno",)


def test_execute_many_writes_all(server: Server, connection: psycopg.Connection[Any]) -> None:
    with table(server, "items", _ITEMS[0]):
        rows = [(n, f"name {n}", n / 8) for n in range(500)]
        cursor = connection.cursor()
        cursor.executemany("INSERT INTO items VALUES (%s, %s, %s)", rows)
        assert cursor.rowcount == 500
        assert connection.execute("SELECT * FROM items ORDER BY id").fetchall() == rows


def test_a_block_is_seen_by_others_when_it_commits(server: Server) -> None:
    with (
        table(server, "items", *_ITEMS),
        psycopg.connect(server.conninfo) as writer,
        psycopg.connect(server.conninfo, autocommit=True) as reader,
    ):
        writer.execute("INSERT INTO items VALUES (3, 'three', NULL)")
        writer.execute("DELETE FROM items WHERE id = 1")
        assert reader.execute("SELECT id FROM items ORDER BY id").fetchall() == [(1,), (2,)]
        writer.commit()
        assert reader.execute("SELECT id FROM items ORDER BY id").fetchall() == [(2,), (3,)]
        writer.execute("DELETE FROM items")
        writer.rollback()
        assert reader.execute("SELECT id FROM items ORDER BY id").fetchall() == [(2,), (3,)]


def test_a_failed_block_refuses_everything_until_it_ends(server: Server) -> None:
    with psycopg.connect(server.conninfo) as connection:
        with pytest.raises(errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
        with pytest.raises(errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.rollback()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_an_error_tells_its_fields(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(errors.UndefinedTable) as caught:
        connection.execute("SELECT * FROM nowhere")
    diagnosis = caught.value.diag
    assert diagnosis.message_primary == 'relation "nowhere" does not exist'
    assert (diagnosis.severity, diagnosis.sqlstate, diagnosis.statement_position) == ("ERROR", "42P01", "15")


def test_a_duplicate_key_is_refused(server: Server, connection: psycopg.Connection[Any]) -> None:
    with table(server, "items", *_ITEMS):
        with pytest.raises(errors.UniqueViolation) as caught:
            connection.execute("INSERT INTO items VALUES (%s, 'again', 0)", [1])
        assert caught.value.diag.message_detail == "Key (id)=(1) already exists."
        assert connection.execute("SELECT name FROM items WHERE id = 1").fetchall() == [("one",)]


def test_a_notice_reaches_its_handler(connection: psycopg.Connection[Any]) -> None:
    heard: list[tuple[str | None, str | None]] = []
    connection.add_notice_handler(lambda notice: heard.append((notice.severity, notice.message_primary)))
    connection.execute("COMMIT")
    assert heard == [("WARNING", "there is no transaction in progress")]


def test_a_parameter_that_is_set_is_reported(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET application_name = 'tester'")
    assert connection.info.parameter_status("application_name") == "tester"
    assert connection.execute("SHOW application_name").fetchone() == ("tester",)


def test_a_pipeline_is_answered_in_order(server: Server, connection: psycopg.Connection[Any]) -> None:
    with table(server, "items", *_ITEMS), connection.pipeline():
        cursors = [connection.execute("SELECT %s::int", [n]) for n in range(200)]
        connection.execute("INSERT INTO items VALUES (7, 'seven', 7)")
        name = connection.execute("SELECT name FROM items WHERE id = 7")
        assert [cursor.fetchone() for cursor in cursors] == [(n,) for n in range(200)]
        assert name.fetchone() == ("seven",)


def test_an_error_in_a_pipeline_aborts_what_follows_up_to_its_sync(
    connection: psycopg.Connection[Any],
) -> None:
    with pytest.raises(errors.DivisionByZero), connection.pipeline() as pipeline:
        connection.execute("SELECT 1 / %s::int", [0])
        after = connection.execute("SELECT 2")
        pipeline.sync()
        after.fetchone()
    assert connection.execute("SELECT 3").fetchone() == (3,)


def test_copy_in_and_out(server: Server, connection: psycopg.Connection[Any]) -> None:
    rows = [(n, f"tab\there {n}", n / 4) for n in range(1000)] + [(1000, None, None)]
    with table(server, "items", _ITEMS[0]):
        with connection.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        assert connection.execute("SELECT * FROM items ORDER BY id").fetchall() == rows
        with connection.cursor() as cursor:
            with cursor.copy("COPY (SELECT * FROM items ORDER BY id) TO STDOUT") as copy:
                copy.set_types(["int4", "text", "float8"])
                assert list(copy.rows()) == rows
            assert cursor.rowcount == 1001


def test_a_copy_that_is_given_up_writes_nothing(server: Server, connection: psycopg.Connection[Any]) -> None:
    with table(server, "items", _ITEMS[0]):
        with (
            pytest.raises(RuntimeError, match="enough"),
            connection.cursor() as cursor,
            cursor.copy("COPY items FROM STDIN") as copy,
        ):
            copy.write_row((1, "a", 0.5))
            raise RuntimeError("enough")
        assert connection.execute("SELECT * FROM items").fetchall() == []


def test_a_long_statement_is_cancelled(connection: psycopg.Connection[Any]) -> None:
    timer = threading.Timer(0.2, connection.cancel_safe)
    timer.start()
    with pytest.raises(errors.QueryCanceled, match="canceling statement due to user request"):
        connection.execute(SLOW)
    timer.join(TIMEOUT)
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_long_statement_times_out(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET statement_timeout = '50ms'")
    with pytest.raises(errors.QueryCanceled, match="canceling statement due to statement timeout"):
        connection.execute(SLOW)
    connection.execute("RESET statement_timeout")
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_lookup_is_answered_beside_a_long_statement(server: Server) -> None:
    with (
        table(server, "items", *_ITEMS),
        psycopg.connect(server.conninfo, autocommit=True) as walker,
        psycopg.connect(server.conninfo, autocommit=True) as reader,
    ):

        def walk() -> None:
            with pytest.raises(errors.QueryCanceled):
                walker.execute(SLOW)

        thread = threading.Thread(target=walk)
        thread.start()
        for _ in range(100):
            assert reader.execute("SELECT name FROM items WHERE id = 1").fetchone() == ("one",)
        while thread.is_alive():
            walker.cancel_safe()
            thread.join(0.1)


def test_long_texts_are_statements_like_short_ones(
    server: Server, connection: psycopg.Connection[Any]
) -> None:
    rows = [(n, f"name {n}", n / 8) for n in range(20_000)]
    values = ", ".join(f"({n}, '{name}', {price})" for n, name, price in rows)
    with table(server, "items", _ITEMS[0]):
        assert connection.execute(f"INSERT INTO items VALUES {values}".encode()).rowcount == 20_000
        assert connection.execute("SELECT * FROM items ORDER BY id").fetchall() == rows
        cells = ", ".join(["(%s, %s)"] * 1_000)
        more = [value for n in range(1_000) for value in (32_000 + n * 2, f"more {n}")]
        written = connection.execute(f"INSERT INTO items (id, name) VALUES {cells}".encode(), more)
        assert written.rowcount == 1_000
        assert connection.execute("SELECT name FROM items WHERE id = 33998").fetchall() == [("more 999",)]
        script = f"DELETE FROM items; INSERT INTO items VALUES {values}; SELECT nope FROM items"
        with pytest.raises(errors.UndefinedColumn) as raised:
            connection.execute(script.encode())
        assert raised.value.diag.statement_position == str(script.index("nope") + 1)
        assert connection.execute("SELECT name FROM items WHERE id = 32002").fetchall() == [("more 1",)]


def test_a_client_that_goes_away_leaves_the_server_as_it_was(server: Server) -> None:
    with table(server, "items", *_ITEMS), psycopg.connect(server.conninfo, autocommit=True) as other:
        gone = psycopg.connect(server.conninfo)
        gone.execute("DELETE FROM items")
        gone.close()
        assert other.execute("SELECT id FROM items ORDER BY id").fetchall() == [(1,), (2,)]
        # The rows that it had locked are free again.
        other.execute("UPDATE items SET name = 'x' WHERE id = 1")


def test_an_unknown_database_or_user_is_refused(server: Server) -> None:
    with pytest.raises(psycopg.OperationalError, match='database "nowhere" does not exist'):
        psycopg.connect(server.conninfo.replace("dbname=layby", "dbname=nowhere"))
    with pytest.raises(psycopg.OperationalError, match='role "nobody" does not exist'):
        psycopg.connect(server.conninfo.replace("user=layby", "user=nobody"))


def test_the_asynchronous_client(server: Server) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(server.conninfo, autocommit=True) as connection:
            cursor = await connection.execute("SELECT %s::int + 1", [41])
            assert await cursor.fetchone() == (42,)
            async with connection.pipeline():
                cursors = [await connection.execute("SELECT %s::text", [str(n)]) for n in range(20)]
                assert [await c.fetchone() for c in cursors] == [(str(n),) for n in range(20)]
            slow = asyncio.create_task(connection.execute(SLOW))
            await asyncio.wait([slow], timeout=0.2)
            await connection.cancel_safe()
            with pytest.raises(errors.QueryCanceled):
                await slow
            now = datetime(2024, 1, 1, tzinfo=UTC)
            cursor = await connection.execute("SELECT %b::timestamptz", [now], binary=True)
            assert await cursor.fetchone() == (now,)

    asyncio.run(main())
