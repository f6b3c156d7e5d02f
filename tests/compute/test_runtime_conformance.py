"""What every maintenance runtime has to do: one kit that the stepped one, threads and a process all pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from layby.compute.arrangement import Updates
from layby.compute.maintenance import ApplyWrites, TableWrite
from layby.errors import SqlError
from layby.memory.arena import Arena
from layby.trace.batch import Batch
from tests.compute.runtimes import BY_B, KINDS, OTHER, SHARD, Maintained, maintained, turned


@pytest.fixture(params=KINDS)
def replica(request: pytest.FixtureRequest) -> Iterator[Maintained]:
    with maintained(request.param) as found:
        found.create(SHARD)
        yield found


@dataclass(frozen=True)
class Squares:
    """A job that a process can be sent."""

    count: int

    def __call__(self, arena: Arena) -> object:
        return arena.place(np.arange(self.count, dtype=np.int64) ** 2)


@dataclass(frozen=True)
class Raises:
    def __call__(self, arena: Arena) -> object:
        raise SqlError("22012", "division by zero")


@dataclass(frozen=True)
class Refuses:
    """A check of a finished index that finds it wrong."""

    def __call__(self, batch: Batch) -> SqlError | None:
        return SqlError("23505", f"{len(batch)} rows are too many")


def test_writes_are_read_at_their_times_and_answered_once_they_can_be(replica: Maintained) -> None:
    first = replica.apply({(1, 10): 1, (2, 20): 2})
    second = replica.apply({(1, 10): -1, (3, 30): 1})
    replica.until_applied()
    assert replica.state.upper == second + 1
    assert replica.rows(SHARD, first) == {(1, 10): 1, (2, 20): 2}
    assert replica.rows(SHARD) == {(2, 20): 2, (3, 30): 1}


def test_an_index_has_what_came_before_it_while_it_was_built_and_after(replica: Maintained) -> None:
    replica.apply({(k, k % 7): 1 for k in range(1_000)})
    replica.create(BY_B)
    for k in range(50):
        replica.apply({(k, k % 7): -1, (1_000 + k, 5): 1})
    replica.until(lambda: BY_B.id in replica.created)
    replica.apply({(7_000, 7): 1})
    replica.until_applied()
    assert replica.created == {SHARD.id: None, BY_B.id: None}
    assert replica.rows(BY_B) == turned(replica.table())


def test_an_index_that_is_refused_does_not_exist(replica: Maintained) -> None:
    replica.apply({(1, 1): 1, (2, 1): 1})
    replica.create(BY_B, Refuses())
    replica.until(lambda: BY_B.id in replica.created)
    error = replica.created[BY_B.id]
    assert error is not None
    assert (error.sqlstate, error.message) == ("23505", "2 rows are too many")
    replica.apply({(3, 3): 1})
    replica.until_applied()
    assert replica.state.snapshot(BY_B.id) is None


def test_a_dropped_arrangement_is_gone_and_the_others_go_on(replica: Maintained) -> None:
    replica.create(BY_B)
    replica.apply({(1, 1): 1})
    replica.until(lambda: replica.state.snapshot(BY_B.id) is not None)
    replica.drop(BY_B)
    replica.apply({(2, 2): 1})
    replica.until_applied()
    replica.until(lambda: replica.state.snapshot(BY_B.id) is None)
    assert replica.rows(SHARD) == {(1, 1): 1, (2, 2): 1}


def test_the_frontier_passes_for_all_tables_at_once(replica: Maintained) -> None:
    replica.create(OTHER)
    at = replica.apply({(1, 1): 1})
    replica.apply({(9, 9): 1}, OTHER.table_id)
    replica.until_applied()
    assert replica.rows(OTHER) == {(9, 9): 1}
    assert replica.rows(OTHER, at) == {}
    assert replica.rows(SHARD, at) == {(1, 1): 1}


def test_a_write_that_cannot_be_applied_is_answered_so_and_its_time_passes(
    replica: Maintained, caplog: pytest.LogCaptureFixture
) -> None:
    broken = TableWrite(1, Updates((), np.ones(1, np.int64)))
    answers: list[SqlError | None] = []
    at = replica.time = replica.time + 1
    replica.applied[at] = None
    replica.runtime.submit(ApplyWrites(at, (broken,), answers.append))
    after = replica.apply({(2, 2): 1})
    replica.until_applied()
    assert [error.sqlstate for error in answers if error is not None] == ["XX000"]
    assert replica.state.upper == after + 1
    assert replica.rows(SHARD) == {(2, 2): 1}


def test_a_job_apart_hands_over_its_result_or_what_it_raised(replica: Maintained) -> None:
    replica.run_apart(Squares(300_000))
    replica.run_apart(Raises())
    replica.until(lambda: len(replica.results) == 2)
    by_type = {type(result): result for result in replica.results}
    squares, error = by_type[np.ndarray], by_type[SqlError]
    assert isinstance(squares, np.ndarray)
    assert (len(squares), int(squares[299_999])) == (300_000, 299_999**2)
    assert isinstance(error, SqlError)
    assert error.message == "division by zero"


def test_merging_keeps_what_can_be_read(replica: Maintained) -> None:
    for k in range(200):
        replica.apply({(k % 10, k): 1, (k % 10, k - 10): -1 if k >= 10 else 1})
    replica.until_applied()
    replica.frontier = replica.time
    replica.apply({(0, 0): 1})
    replica.until_applied()
    assert replica.rows(SHARD) == replica.table()


def test_a_runtime_says_that_it_is_well(replica: Maintained) -> None:
    assert replica.runtime.healthy
