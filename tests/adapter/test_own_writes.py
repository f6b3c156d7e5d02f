"""A transaction's own writes: what is done for each more of them, and that reads see all of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from math import log, log2
from typing import Any

import numpy as np
import pytest

from layby.adapter import coordinator, jobs, own_writes
from layby.adapter.own_writes import FRESH, LARGEST, LARGEST_APART, OwnWrites
from layby.compute.arrangement import Arranged, ArrangementDesc, Updates, arrange
from layby.types.column import FixedColumn
from layby.types.relation import WIDE
from layby.types.scalar import BIGINT
from tests.adapter.harness import Client

WRITES = 1_000


def rows(*values: int) -> Updates:
    return Updates((FixedColumn(BIGINT, np.array(values)),), np.ones(len(values), np.int64))


def values_of(own: OwnWrites) -> list[Any]:
    return [value for run in own.runs() for value in run.updates.columns[0].to_list()]


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many rows are copied whenever updates are put together."""
    done: list[int] = []
    put_together = own_writes.put_together

    def counted(parts: Sequence[Updates]) -> Updates:
        done.append(sum(len(p.diffs) for p in parts))
        return put_together(parts)

    monkeypatch.setattr(own_writes, "put_together", counted)
    return done


@pytest.fixture
def arranged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many rows are arranged whenever a transaction's own are."""
    done: list[int] = []

    def counted(desc: ArrangementDesc, updates: Updates, *rest: object) -> Arranged:
        done.append(len(updates.diffs))
        return arrange(desc, updates, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("layby.adapter.jobs.arrange", counted)
    return done


@pytest.mark.parametrize("read_every", [1, 7, WRITES])
def test_many_small_writes_are_few_runs_and_each_row_is_copied_few_times(
    copied: list[int], read_every: int
) -> None:
    own = OwnWrites()
    for number in range(WRITES):
        own.add(rows(number))
        if number % read_every == 0:
            own.runs()
    assert values_of(own) == list(range(WRITES))
    assert len(own.runs()) <= log2(WRITES) + 1
    assert sum(copied) <= WRITES * (log2(WRITES) + 1)
    assert max(copied) <= WRITES


def test_writes_of_any_sizes_are_few_runs() -> None:
    own = OwnWrites()
    number = 0
    for count in [1, 100] * 200:
        own.add(rows(*range(number, number + count)))
        number += count
    assert values_of(own) == list(range(number))
    assert len(own.runs()) <= log2(number) + 1


def test_a_large_write_is_never_copied(copied: list[int]) -> None:
    own = OwnWrites()
    large = rows(*range(LARGEST // 16 + 1))
    for number in range(3 * FRESH):
        own.add(rows(number))
        own.add(large)
    assert sum(run.updates is large for run in own.runs()) == 3 * FRESH
    assert sum(copied) <= 3 * FRESH * (log2(3 * FRESH) + 1)


def test_a_read_after_each_write_arranges_each_row_few_times(client: Client, arranged: list[int]) -> None:
    client.run("CREATE TABLE t (a int, b text)")
    client.run("CREATE INDEX t_a ON t (a)")
    client.run("BEGIN")
    for number in range(200):
        client.run(f"INSERT INTO t VALUES ({number}, 'x')")
        assert client.run(f"SELECT a FROM t WHERE a >= {number - 1}")[-1] == (number,)
    assert sum(arranged) <= 200 * (log2(200) + 1)
    client.run("SELECT * FROM t WHERE a = 1")
    assert len(client.run("SELECT * FROM t")) == 200
    arranged.clear()
    client.run("SELECT * FROM t WHERE a = 1")
    client.run("SELECT * FROM t")
    assert arranged == []
    client.run("ROLLBACK")


def test_many_own_values_are_arranged_apart_once(client: Client, arranged: list[int]) -> None:
    client.run("CREATE TABLE t (a int, b int)")
    client.run("BEGIN")
    client.run("INSERT INTO t SELECT g, g FROM generate_series(1, 2047) AS g")
    assert client.send("SELECT a FROM t WHERE a = 1711").result() == [(1711,)]
    assert arranged == [2047]
    client.run("INSERT INTO t VALUES (0, 0)")
    query = client.send("SELECT a FROM t WHERE b = 2047")
    assert query.result() == [(2047,)]
    assert arranged == [2047, 1]
    client.run("INSERT INTO t SELECT g, g FROM generate_series(1, 2048) AS g")
    query = client.send("SELECT a FROM t WHERE b = 2047")
    assert not query.done
    client.server.settle()
    assert query.result() == [(2047,), (2047,)]
    client.run("ROLLBACK")


def wide_rows(*values: int) -> Updates:
    column = FixedColumn(BIGINT, np.array(values))
    return Updates((column,) * (WIDE + 1), np.ones(len(values), np.int64))


def write_wide(own: OwnWrites, *values: int) -> int:
    """Do to a wide table's writes what a statement's job does; return the rows that it has put together."""
    due = own.due()
    updates = own_writes.put_together([*(run.updates for run in due), wide_rows(*values)])
    own.add(updates, due)
    return len(updates.diffs) if due else 0


def read_wide(own: OwnWrites, id_: int = 7) -> int:
    """Do to them what a read's job does; return the rows that it has arranged."""
    rows = 0
    for group in own.to_arrange(id_):
        updates = own_writes.put_together([run.updates for run in group])
        rows += len(updates.diffs)
        own.arranged(group, updates if len(group) > 1 else None, id_, Arranged(None, None))  # type: ignore[arg-type]
    assert own.to_arrange(id_) == []
    return rows


def test_many_writes_of_a_wide_table_are_few_runs_and_each_row_is_put_together_few_times() -> None:
    own = OwnWrites()
    together = 0
    for number in range(WRITES):
        together += write_wide(own, number)
        levels = log(number + 1, FRESH) + 1
        assert len(own.runs()) <= (FRESH - 1) * levels
    assert sorted(values_of(own)) == list(range(WRITES))
    assert together <= WRITES * log(WRITES, FRESH)


@pytest.mark.parametrize("read_every", [1, 2, 7, 100])
def test_reads_of_a_wide_table_leave_few_runs_and_arrange_each_row_few_times(read_every: int) -> None:
    own = OwnWrites()
    arranged = 0
    for number in range(1, WRITES + 1):
        write_wide(own, number)
        if number % read_every == 0:
            arranged += read_wide(own)
            sizes = sorted(map(len, own.runs()))
            assert all(2 * a <= b for a, b in pairwise(sizes))
    assert sorted(values_of(own)) == list(range(1, WRITES + 1))
    assert arranged <= WRITES * (log(WRITES, 1.5) + 1)


def test_runs_that_are_ever_smaller_are_few_too() -> None:
    own = OwnWrites()
    for count in range(100, 0, -1):
        write_wide(own, *[count] * count)
        read_wide(own)
        sizes = sorted(map(len, own.runs()))
        assert all(2 * a <= b for a, b in pairwise(sizes))
    assert len(values_of(own)) == 5_050


def test_a_savepoint_keeps_the_runs_that_stood_when_it_was_set() -> None:
    own = OwnWrites()
    for number in range(20):
        write_wide(own, number)
    saved = own.runs()
    for number in range(20, 60):
        write_wide(own, number)
    read_wide(own)
    assert [len(run) for run in own.runs()] == [60]
    back = OwnWrites(saved)
    assert sorted(values_of(back)) == list(range(20))
    assert read_wide(back) == 20


def test_a_large_write_of_a_wide_table_is_left_as_it_is() -> None:
    own = OwnWrites()
    row = wide_rows(0)
    large = Updates(row.columns, row.diffs, LARGEST_APART)
    for number in range(3 * FRESH):
        write_wide(own, number)
        own.add(large)
        if number > FRESH:
            read_wide(own)
    assert sum(run.updates is large for run in own.runs()) == 3 * FRESH
    small = [len(run) for run in own.runs() if run.updates is not large]
    assert sum(small) == 3 * FRESH
    assert len(small) <= log2(3 * FRESH) + 1


def test_nothing_of_a_wide_table_is_put_together_or_arranged_on_the_loop(
    client: Client, arranged: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_together = own_writes.put_together
    in_step: list[bool] = []
    done: list[tuple[int, bool]] = []
    step = client.server.maintenance.step

    def stepped() -> bool:
        in_step.append(True)
        try:
            return step()
        finally:
            in_step.pop()

    def noted(parts: Sequence[Updates]) -> Updates:
        done.append((len(parts), bool(in_step)))
        return put_together(parts)

    monkeypatch.setattr(client.server.maintenance, "step", stepped)
    for module in (own_writes, jobs, coordinator):
        monkeypatch.setattr(module, "put_together", noted)
    client.run(f"CREATE TABLE t ({', '.join(f'c{n} int' for n in range(WIDE + 1))})")
    client.run("BEGIN")
    for number in range(5 * FRESH):
        client.run(f"INSERT INTO t VALUES ({', '.join([str(number)] * (WIDE + 1))})")
    assert max(count for count, _ in done) == FRESH
    assert client.run("SELECT c7 FROM t ORDER BY c0") == [(n,) for n in range(5 * FRESH)]
    assert arranged == [5 * FRESH]
    client.run("COMMIT")
    assert all(apart for _, apart in done)


@pytest.mark.parametrize(("seed", "width"), [(0, 2), (1, 2), (2, 2), (3, 2), (4, WIDE + 1), (5, WIDE + 1)])
def test_a_block_sees_what_a_list_of_its_rows_holds(
    client: Client, other: Client, seed: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes, savepoints and reads at random, against the same done to a Python list."""
    if width > WIDE:
        monkeypatch.setattr(own_writes, "FRESH", 4)
    chance = random.Random(seed)
    client.run(f"CREATE TABLE t (a int, b int{''.join(f', c{n} int' for n in range(width - 2))})")
    client.run("CREATE INDEX t_a ON t (a)")
    client.run("INSERT INTO t (a, b) SELECT g % 10, g FROM generate_series(1, 30) AS g")
    model = [(g % 10, g) for g in range(1, 31)]
    saved: list[list[tuple[int, int]]] = []
    client.run("BEGIN")
    for _ in range(150):
        key, value = chance.randrange(10), chance.randrange(100)
        match chance.choice(["insert", "insert", "many", "update", "delete", "save", "back", "read", "read"]):
            case "insert":
                client.run(f"INSERT INTO t (a, b) VALUES ({key}, {value})")
                model.append((key, value))
            case "many":
                client.run(f"INSERT INTO t (a, b) SELECT {key}, g FROM generate_series(1, {value}) AS g")
                model += [(key, g) for g in range(1, value + 1)]
            case "update":
                client.run(f"UPDATE t SET b = {value} WHERE a = {key} AND b > 50")
                model = [(a, value) if a == key and b > 50 else (a, b) for a, b in model]
            case "delete":
                client.run(f"DELETE FROM t WHERE b = {value}")
                model = [(a, b) for a, b in model if b != value]
            case "save":
                client.run("SAVEPOINT s")
                saved.append(list(model))
            case "back" if saved:
                client.run("ROLLBACK TO s")
                model = list(saved[-1])
            case "read":
                found = client.run(f"SELECT b FROM t WHERE a = {key} ORDER BY b")
                assert found == [(b,) for b in sorted(b for a, b in model if a == key)], f"seed {seed}"
    assert client.run("SELECT a, b FROM t ORDER BY a, b") == sorted(model), f"seed {seed}"
    client.run("COMMIT")
    assert other.run("SELECT a, b FROM t ORDER BY a, b") == sorted(model), f"seed {seed}"
