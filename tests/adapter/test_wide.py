"""Tables of many columns: what a statement does to each of them it does away from the serving loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from layby.compute.runtime import Job
from layby.memory.sealed import Sealed
from tests.adapter.harness import Client, Server

WIDTH = 600
COLUMNS = ", ".join(f"c{at} bigint" for at in range(1, WIDTH))


class Opened:
    """Notes the jobs that are run apart, what is taken out of sealed values, and whether that is done on the
    loop or where jobs and commits run."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs: list[str] = []
        self.on_loop = self.elsewhere = 0
        self._elsewhere = False
        item = Sealed.__getitem__

        def noted(values: Sealed[Any], at: Any) -> Any:
            if isinstance(at, int):
                self.elsewhere += self._elsewhere
                self.on_loop += not self._elsewhere
            return item(values, at)

        monkeypatch.setattr(Sealed, "__getitem__", noted)
        run_apart = server.maintenance.run_apart

        def noted_job(job: Job, then: Callable[[object], None]) -> None:
            self.jobs.append(type(job).__name__)
            run_apart(job, then)

        monkeypatch.setattr(server.maintenance, "run_apart", noted_job)
        for runner in (server.maintenance, server.commits, server.pool):
            monkeypatch.setattr(runner, "step", self._apart(runner.step))

    def _apart(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any) -> Any:
            self._elsewhere = True
            try:
                return step(*arguments)
            finally:
                self._elsewhere = False

        return stepped


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def client(server: Server) -> Client:
    client = server.connect()
    client.run(f"CREATE TABLE w (id integer PRIMARY KEY, {COLUMNS})")
    client.run("INSERT INTO w (id, c1) SELECT g, 10 * g FROM generate_series(1, 5) AS g")
    return client


@pytest.fixture
def opened(server: Server, client: Client, monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(server, monkeypatch)


def rows(client: Client) -> object:
    return client.run("SELECT id, c1, c599 FROM w ORDER BY id")


@pytest.mark.parametrize(
    ("sql", "tag", "expected"),
    [
        ("UPDATE w SET c599 = c1 + id WHERE id = 2", "UPDATE 1", {2: (2, 20, 22)}),
        ("UPDATE w SET c1 = 0 WHERE id > 3", "UPDATE 2", {4: (4, 0, None), 5: (5, 0, None)}),
        ("DELETE FROM w WHERE id = 3", "DELETE 1", {3: None}),
        (
            "INSERT INTO w (id, c599) SELECT g, g FROM generate_series(6, 7) AS g",
            "INSERT 0 2",
            {6: (6, None, 6), 7: (7, None, 7)},
        ),
    ],
)
def test_the_columns_of_a_write_are_opened_where_it_is_applied(
    client: Client, opened: Opened, sql: str, tag: str, expected: dict[int, Any]
) -> None:
    assert client.run(sql) == tag
    assert opened.jobs == ["PlanText", "MakeUpdates", "SortWrites"]
    assert opened.on_loop == 0
    assert opened.elsewhere > WIDTH
    wanted = {n: (n, 10 * n, None) for n in range(1, 6)} | expected
    assert rows(client) == [row for _, row in sorted(wanted.items()) if row is not None]


def test_so_are_those_of_a_copy(server: Server, client: Client, opened: Opened) -> None:
    query = client.send("COPY w FROM STDIN")
    server.settle()
    assert query.sink is not None
    query.sink.feed("\t".join(map(str, range(100, 100 + WIDTH))).encode() + b"\n")
    query.sink.finish()
    server.settle()
    assert query.result() == "COPY 1"
    assert opened.jobs == ["PlanText", "ParseCopy", "CompleteCopy", "SortWrites"]
    assert opened.on_loop == 0
    assert opened.elsewhere > WIDTH
    assert client.run("SELECT id, c1, c599 FROM w WHERE id = 100") == [(100, 101, 699)]


def test_how_large_a_write_is_is_known_without_opening_it(client: Client, opened: Opened) -> None:
    client.run(f"CREATE TABLE m (b text, {', '.join(f'c{at} bigint' for at in range(99))})")
    assert client.run(f"INSERT INTO m (b, c98) VALUES ('{'x' * 300_000}', 7)") == "INSERT 0 1"
    assert (opened.on_loop, opened.jobs[-1]) == (0, "MakeUpdates")
    assert client.run("SELECT length(b), c98 FROM m") == [(300_000, 7)]


def test_a_block_reads_what_it_has_written_elsewhere(client: Client, opened: Opened) -> None:
    client.run("BEGIN")
    for n in range(1, 4):
        assert client.run(f"UPDATE w SET c599 = {n} WHERE id = {n}") == "UPDATE 1"
    assert client.run("DELETE FROM w WHERE id = 2") == "DELETE 1"
    seen = [(1, 10, 1), (3, 30, 3), (4, 40, None), (5, 50, None)]
    assert rows(client) == seen
    assert opened.on_loop == 0
    client.run("COMMIT")
    assert opened.on_loop == 0
    assert rows(client) == seen


def test_a_write_that_breaks_a_constraint_is_refused(client: Client, opened: Opened) -> None:
    assert client.fails("UPDATE w SET id = 2 WHERE id = 1")[0] == "23505"
    assert client.fails("UPDATE w SET id = NULL WHERE id = 1")[0] == "23502"
    assert rows(client) == [(n, 10 * n, None) for n in range(1, 6)]


def test_a_lookup_begins_on_the_loop_while_nothing_was_ever_taken_out(server: Server, client: Client) -> None:
    client.run("SELECT c1 FROM w WHERE id = 2")  # planned apart, and kept
    lookup = client.send("SELECT c1 FROM w WHERE id = 2")
    assert lookup.result() == [(20,)]
    client.run("DELETE FROM w WHERE id = 3")
    lookup = client.send("SELECT c1 FROM w WHERE id = 2")
    assert not lookup.done
    assert len(server.pool.walks) == 1
    server.settle()
    assert lookup.result() == [(20,)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("(id, c599) VALUES (6, 7)", [(6, None, 7)]),
        ("(c1, c599, id) VALUES (1 + 2, length('four'), 6), (5, NULL, 7)", [(6, 3, 4), (7, 5, None)]),
        (f"VALUES (6{', 8' * (WIDTH - 1)})", [(6, 8, 8)]),
        ("(id, c1) VALUES (6, 1), (7, 2), (8, 3) ORDER BY 1 DESC LIMIT 2", [(7, 2, None), (8, 3, None)]),
        (f"VALUES (6{', 8::bigint' * (WIDTH - 1)}), (7{', 9::bigint' * (WIDTH - 1)}) LIMIT 1", [(6, 8, 8)]),
        ("(id, c1) SELECT 6, 9", [(6, 9, None)]),
    ],
)
def test_an_insert_makes_its_rows_apart(
    client: Client, opened: Opened, values: str, expected: list[tuple[int | None, ...]]
) -> None:
    assert client.run(f"INSERT INTO w {values}") == f"INSERT 0 {len(expected)}"
    if "LIMIT" not in values:
        assert opened.on_loop == 0
        assert ("InsertValues" in opened.jobs) == ("VALUES" in values)
    assert client.run("SELECT id, c1, c599 FROM w WHERE id > 5 ORDER BY id") == expected


def test_an_insert_that_fails_writes_nothing(client: Client) -> None:
    assert client.fails("INSERT INTO w (id, c1) VALUES (6, 1), (7, 1 / 0)") == ("22012", "division by zero")
    assert client.fails("INSERT INTO w (id, c1) VALUES (6, 1), (NULL, 1)")[0] == "23502"
    assert client.fails("INSERT INTO w (id, c1) VALUES (6, 1), (3, 1)")[0] == "23505"
    assert rows(client) == [(n, 10 * n, None) for n in range(1, 6)]


@pytest.mark.parametrize(("width", "begun"), [(128, True), (129, False)])
def test_a_row_of_more_than_128_columns_is_not_read_on_the_loop(
    server: Server, width: int, begun: bool
) -> None:
    client = server.connect()
    client.run(f"CREATE TABLE v ({', '.join(f'c{at} integer' for at in range(width))})")
    client.run(f"INSERT INTO v VALUES ({', '.join(map(str, range(width)))})")
    client.run("SELECT * FROM v")
    again = client.send("SELECT * FROM v")
    assert again.done is begun
    assert len(server.pool.walks) == (not begun)
    server.settle()
    assert again.result() == [tuple(range(width))]
