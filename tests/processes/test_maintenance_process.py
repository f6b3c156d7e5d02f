"""A maintenance process that dies at the worst moments: reads go on, and nothing is lost or applied twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from layby.errors import InternalError
from layby.memory import heap
from layby.memory.arena import Arena
from layby.trace.batch import Batch
from tests.compute.runtimes import BY_B, SHARD, Maintained, maintained, turned
from tests.compute.test_runtime_conformance import Squares
from tests.memory.fragmented import SIZE, fragment, resident


@pytest.fixture
def replica() -> Iterator[Maintained]:
    with maintained("processes", most_deaths=3) as found:
        found.create(SHARD)
        found.until(lambda: found.created == {SHARD.id: None})
        yield found


def kill(replica: Maintained) -> None:
    process = replica.process.process_id
    assert process is not None
    os.kill(process, signal.SIGKILL)


def stop(replica: Maintained) -> None:
    """Have the process do nothing from now on, so that what is sent to it stays unanswered."""
    process = replica.process.process_id
    assert process is not None
    os.kill(process, signal.SIGSTOP)


def restarts(replica: Maintained) -> int:
    return replica.metrics.maintenance_restarts


@dataclass(frozen=True)
class Once:
    """A job that ends its process unless a file says that it did so before."""

    mark: str
    always: bool = False

    def __call__(self, arena: Arena) -> object:
        if self.always or not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"


@dataclass(frozen=True)
class Slow:
    """A check of a finished index that ends its process unless a file says that it did so before."""

    mark: str

    def __call__(self, batch: Batch) -> None:
        Once(self.mark)(None)  # type: ignore[arg-type]


def test_writes_unanswered_when_it_dies_are_applied_once(replica: Maintained) -> None:
    replica.apply({(1, 1): 1})
    replica.until_applied()
    stop(replica)
    for k in range(100):
        replica.apply({(k, k): 1, (1, 1): 1})
    assert replica.rows(SHARD) == {(1, 1): 1}
    kill(replica)
    replica.until_applied()
    assert replica.rows(SHARD) == replica.table()
    assert restarts(replica) == 1


def test_reads_go_on_while_there_is_no_process(replica: Maintained, monkeypatch: pytest.MonkeyPatch) -> None:
    # The next process is started once the test says so: else it may be there before anybody looks.
    held: list[None] = []
    monkeypatch.setattr(replica.process, "_launch", lambda: held.append(None))
    replica.apply({(k, k): 1 for k in range(1_000)})
    replica.until_applied()
    kill(replica)
    replica.until(lambda: held)
    assert replica.process.process_id is None
    assert len(replica.rows(SHARD)) == 1_000
    replica.apply({(0, 0): -1})
    assert (0, 0) in replica.rows(SHARD)
    monkeypatch.undo()
    replica.process._launch()
    replica.until_applied()
    assert replica.rows(SHARD) == {(k, k): 1 for k in range(1, 1_000)}


def test_killed_in_the_middle_of_merging_it_loses_nothing(replica: Maintained) -> None:
    rng = np.random.default_rng(5)
    for kills in range(3):
        for _ in range(8):
            keys = rng.integers(0, 50_000, 20_000)
            rows = {(int(key), 1): 1 for key in keys}
            replica.apply(rows)
        replica.until_applied()
        # Eight batches of one size have just been put in: there is much to merge.
        kill(replica)
        replica.until(lambda kills=kills: restarts(replica) == kills + 1)  # type: ignore[misc]
        replica.apply({(-1, kills): 1})
        replica.until_applied()
        assert replica.rows(SHARD) == replica.table()


def test_an_index_whose_build_it_died_in_is_built_by_the_next(replica: Maintained, tmp_path: object) -> None:
    replica.apply({(k, k % 3): 1 for k in range(100)})
    replica.create(BY_B, Slow(f"{tmp_path}/mark"))
    replica.apply({(100, 100): 1})
    replica.until(lambda: BY_B.id in replica.created)
    replica.until_applied()
    assert replica.created[BY_B.id] is None
    assert replica.rows(BY_B) == turned(replica.table())
    assert restarts(replica) == 1


def test_an_index_that_was_complete_is_adopted_and_kept_up_to_date(replica: Maintained) -> None:
    replica.create(BY_B)
    replica.apply({(1, 2): 1})
    replica.until(lambda: BY_B.id in replica.created)
    replica.until_applied()
    kill(replica)
    replica.apply({(3, 4): 1, (1, 2): -1})
    replica.until_applied()
    assert replica.rows(BY_B) == {(4, 3): 1}


def test_a_job_that_it_died_in_is_run_again(replica: Maintained, tmp_path: object) -> None:
    replica.run_apart(Once(f"{tmp_path}/mark"))
    replica.until(lambda: replica.results)
    assert replica.results == ["done"]
    assert restarts(replica) == 1


@dataclass(frozen=True)
class Fragment:
    """A job that leaves freed memory behind, and returns what its process then has."""

    def __call__(self, arena: Arena) -> object:
        fragment()
        return resident()


def test_a_process_at_rest_gives_back_what_it_has_freed(
    replica: Maintained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heap, "REST", 1)
    replica.run_apart(Fragment())
    replica.until(lambda: replica.results)
    (left,) = replica.results
    assert isinstance(left, int)
    process = replica.process.process_id
    replica.until(lambda: resident(process) < left - SIZE // 2)


def test_a_job_that_kills_every_process_is_given_up_and_the_rest_goes_on(
    replica: Maintained, tmp_path: object
) -> None:
    replica.run_apart(Once(f"{tmp_path}/mark", always=True))
    replica.apply({(1, 1): 1})
    replica.until(lambda: replica.results)
    (error,) = replica.results
    assert isinstance(error, InternalError)
    assert error.message == "3 maintenance processes died with this statement"
    replica.apply({(2, 2): 1})
    replica.until_applied()
    assert replica.rows(SHARD) == {(1, 1): 1, (2, 2): 1}
    assert restarts(replica) == 3


def test_a_drop_that_it_died_with_is_done_all_the_same(replica: Maintained) -> None:
    replica.create(BY_B)
    replica.apply({(1, 2): 1})
    replica.until(lambda: BY_B.id in replica.created)
    stop(replica)
    replica.drop(BY_B)
    kill(replica)
    replica.until(lambda: replica.state.snapshot(BY_B.id) is None)
    replica.apply({(2, 3): 1})
    replica.until_applied()
    assert replica.rows(SHARD) == replica.table()
    assert replica.state.snapshot(BY_B.id) is None


def test_a_message_that_cannot_be_sent_costs_its_statement_and_no_other(replica: Maintained) -> None:
    replica.run_apart(lambda arena: None)
    replica.apply({(1, 1): 1})
    replica.until(lambda: replica.results)
    (error,) = replica.results
    assert isinstance(error, InternalError)
    replica.until_applied()
    assert (replica.rows(SHARD), restarts(replica)) == ({(1, 1): 1}, 0)


def test_a_process_that_cannot_live_is_unwell_and_its_starts_get_rarer() -> None:
    with maintained("processes", program="tests.processes.dying", most_deaths=3) as replica:
        replica.create(SHARD)
        replica.until(lambda: not replica.runtime.healthy)
        assert restarts(replica) == 3
        assert replica.process._survival.died(time.monotonic()) >= 0.2
        assert replica.created[SHARD.id] is not None


def test_closing_does_not_wait_for_a_process_that_reads_no_more() -> None:
    with maintained("processes") as replica:
        replica.create(SHARD)
        replica.until(lambda: replica.created)
        process = replica.process.process_id
        stop(replica)
        # More than a socket holds: the sender waits for a process that will not read.
        for _ in range(20):
            replica.run_apart(Squares(10))
            replica.apply({(k, k): 1 for k in range(40_000)})
    assert not Path(f"/proc/{process}").exists()
    assert replica.applied == {}
