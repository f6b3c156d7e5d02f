from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.compute import maintenance as module
from layby.compute.arrangement import ArrangementDesc, Updates, arrange, shard
from layby.compute.maintenance import ApplyWrites, CreateArrangement, DropArrangement, TableWrite
from layby.compute.runtime import SteppedMaintenanceRuntime, ThreadMaintenanceRuntime
from layby.compute.state import ServingState
from layby.errors import InternalError, SqlError
from layby.expr.scalar import ColumnRef
from layby.memory.arena import HEAP
from layby.trace.batch import Batch
from layby.trace.bundle import Snapshot
from layby.trace.layout import Layout
from layby.types.column import column_from_values
from layby.types.ordering import ASCENDING
from layby.types.scalar import BIGINT

SHARD = shard(10, 1, "t", (BIGINT, BIGINT))
FIRST = ArrangementDesc(11, 1, "t_a", (ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)), SHARD.layout)
SECOND = ArrangementDesc(
    12, 1, "t_b", (ColumnRef(1, BIGINT), ColumnRef(0, BIGINT)), Layout((BIGINT, BIGINT), (ASCENDING,))
)
OTHER = shard(20, 2, "u", (BIGINT, BIGINT))

Pair = tuple[int, int]


def write(*rows: tuple[int, int, int], table_id: int = 1) -> TableWrite:
    """Return a write of rows (a, b) with their diffs."""
    columns = tuple(column_from_values(BIGINT, [row[i] for row in rows]) for i in range(2))
    return TableWrite(table_id, Updates(columns, np.array([row[2] for row in rows], np.int64)))


def read(snapshot: Snapshot | None, at: int) -> dict[Pair, int]:
    """Return the rows of a snapshot at a time, counted."""
    assert snapshot is not None
    assert snapshot.since <= at < snapshot.upper
    rows: dict[Pair, int] = {}
    for batch in snapshot.oks:
        lists = [c.to_list() for c in batch.columns]
        for i in range(len(batch)):
            if batch.times[i] <= at:
                row = (int(lists[0][i] or 0), int(lists[1][i] or 0))
                rows[row] = rows.get(row, 0) + int(batch.diffs[i])
    return {row: count for row, count in rows.items() if count}


class Replica:
    """Maintenance stepped by hand, and what it answered."""

    def __init__(self, upper: int = 100) -> None:
        self.state = ServingState(upper)
        self.frontier = 0
        self.runtime = SteppedMaintenanceRuntime(self.state, lambda: self.frontier)
        self.applied: list[SqlError | None] = []
        self.created: list[tuple[str, SqlError | None]] = []

    def create(self, desc: ArrangementDesc, verify: Callable[[Batch], SqlError | None] | None = None) -> None:
        self.runtime.submit(
            CreateArrangement(desc, lambda error: self.created.append((desc.name, error)), verify)
        )

    def apply(self, time: int, *writes: TableWrite) -> None:
        self.runtime.submit(ApplyWrites(time, writes, self.applied.append))

    def drop(self, desc: ArrangementDesc) -> None:
        self.runtime.submit(DropArrangement(desc.id))

    def rows(self, desc: ArrangementDesc, at: int) -> dict[Pair, int]:
        return read(self.state.snapshot(desc.id), at)


@pytest.fixture
def replica() -> Replica:
    replica = Replica()
    for desc in (SHARD, FIRST, SECOND, OTHER):
        replica.create(desc)
    replica.runtime.run()
    # The shards are there at once, indexes once they have been built.
    assert replica.created == [("t", None), ("u", None), ("t_a", None), ("t_b", None)]
    return replica


def test_a_write_reaches_every_arrangement_of_its_table_and_no_other(replica: Replica) -> None:
    replica.apply(100, write((1, 10, 1), (2, 20, 1)))
    replica.apply(105, write((1, 10, -1), (1, 11, 1)))
    replica.runtime.run()
    assert replica.applied == [None, None]
    assert replica.state.upper == 106
    assert replica.rows(SHARD, 104) == replica.rows(FIRST, 104) == {(1, 10): 1, (2, 20): 1}
    assert replica.rows(SHARD, 105) == replica.rows(FIRST, 105) == {(1, 11): 1, (2, 20): 1}
    assert replica.rows(SECOND, 105) == {(11, 1): 1, (20, 2): 1}
    assert replica.state.snapshot(OTHER.id) == Snapshot((), (), -(2**63), 100)


def test_the_frontier_moves_once_for_all_tables_of_a_transaction(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[tuple[set[int], int]] = []
    whole = replica.state.publish

    def publish(snapshots: Mapping[int, Snapshot], upper: int) -> None:
        published.append((set(snapshots), upper))
        whole(snapshots, upper)

    monkeypatch.setattr(replica.state, "publish", publish)
    replica.apply(100, write((1, 1, 1)), write((2, 2, 1), table_id=2))
    replica.runtime.run()
    assert published == [({SHARD.id, FIRST.id, SECOND.id, OTHER.id}, 101)]


def test_what_was_sorted_beforehand_is_taken_as_it_is(replica: Replica) -> None:
    plain = write((2, 20, 1), (1, 10, 1))
    ready = {
        desc.id: arrange(desc, plain.updates, np.zeros(2, np.int64), 0, 1, HEAP) for desc in (SHARD, SECOND)
    }
    replica.apply(100, TableWrite(1, plain.updates, ready))
    replica.runtime.run()
    snapshot = replica.state.snapshot(SECOND.id)
    assert snapshot is not None
    assert snapshot.oks[0].columns is ready[SECOND.id].oks.columns
    assert replica.rows(SECOND, 100) == {(10, 1): 1, (20, 2): 1}
    assert replica.rows(FIRST, 100) == {(1, 10): 1, (2, 20): 1}


def test_a_write_that_raises_is_applied_nowhere_and_its_time_is_final(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(desc: ArrangementDesc, *rest: object) -> object:
        if desc is SECOND:
            raise ValueError("broken")
        return arrange(desc, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(module, "arrange", broken)
        replica.apply(100, write((1, 10, 1)), write((5, 5, 1), table_id=2))
        replica.runtime.run()
    (error,) = replica.applied
    assert isinstance(error, InternalError)
    assert replica.state.upper == 101
    replica.apply(107, write((2, 20, 1)), write((6, 6, 1), table_id=2))
    replica.runtime.run()
    assert replica.applied[1] is None
    assert replica.rows(SHARD, 107) == replica.rows(FIRST, 107) == {(2, 20): 1}
    assert replica.rows(SECOND, 107) == {(20, 2): 1}
    assert replica.rows(OTHER, 107) == {(6, 6): 1}


def test_a_build_has_what_came_before_it_and_what_comes_while_it_runs() -> None:
    replica = Replica()
    replica.create(SHARD)
    replica.apply(100, write((1, 10, 1), (2, 20, 1)))
    replica.create(SECOND)
    replica.apply(101, write((3, 30, 1)))
    replica.apply(102, write((1, 10, -1)))
    while replica.runtime.messages:
        replica.runtime.step()
    assert replica.state.snapshot(SECOND.id) is None
    assert replica.applied == [None, None, None], "nobody waits for a build"
    replica.runtime.jobs.popleft()()
    replica.apply(103, write((4, 40, 1)))
    replica.runtime.run()
    assert replica.created[-1] == ("t_b", None)
    assert replica.rows(SECOND, 103) == {(20, 2): 1, (30, 3): 1, (40, 4): 1}
    snapshot = replica.state.snapshot(SECOND.id)
    assert snapshot is not None
    assert snapshot.since == 100, "what happened before the build is not in it"


def test_a_build_that_is_refused_does_not_exist(replica: Replica) -> None:
    refusal = SqlError("23505", "refused")
    desc = ArrangementDesc(30, 1, "v", SECOND.stored, SECOND.layout)
    replica.apply(100, write((1, 10, 1), (2, 10, 1)))
    replica.create(desc, lambda batch: refusal if len(batch) == 2 else None)
    replica.apply(101, write((3, 30, 1)))
    replica.runtime.run()
    assert replica.created[-1] == ("v", refusal)
    assert replica.state.snapshot(desc.id) is None
    replica.apply(102, write((4, 40, 1)))
    replica.runtime.run()
    assert replica.applied == [None, None, None]


def test_a_build_whose_index_is_dropped_meanwhile_is_told_so() -> None:
    replica = Replica()
    replica.create(SHARD)
    replica.create(FIRST)
    replica.runtime.step()
    replica.runtime.step()
    replica.drop(FIRST)
    replica.drop(SHARD)
    replica.runtime.run()
    name, error = replica.created[-1]
    assert name == "t_a"
    assert error is not None
    assert error.sqlstate == "57014"
    assert replica.state.snapshot(FIRST.id) is None
    assert replica.state.snapshot(SHARD.id) is None


def test_a_dropped_arrangement_takes_no_more_writes(replica: Replica) -> None:
    replica.drop(FIRST)
    replica.drop(FIRST)
    replica.apply(100, write((1, 10, 1)))
    replica.runtime.run()
    assert replica.applied == [None]
    assert replica.state.snapshot(FIRST.id) is None
    assert replica.rows(SECOND, 100) == {(10, 1): 1}
    for desc in (SHARD, SECOND):
        replica.drop(desc)
    replica.apply(101, write((1, 10, 1)))
    replica.runtime.run()
    assert replica.applied == [None, None]
    assert replica.state.upper == 102


def test_indexes_live_on_where_their_shard_is_dropped_first(replica: Replica) -> None:
    replica.drop(SHARD)
    replica.apply(100, write((1, 10, 1)))
    replica.drop(FIRST)
    replica.runtime.run()
    assert replica.applied == [None]
    assert replica.rows(SECOND, 100) == {(10, 1): 1}


def test_merging_goes_no_further_than_the_frontier(replica: Replica) -> None:
    for time in range(100, 120):
        replica.apply(time, write((time, time, 1), (time - 1, time - 1, -1)))
    replica.runtime.run()
    replica.frontier = 110
    while replica.runtime.maintenance.work(8):
        pass
    snapshot = replica.state.snapshot(FIRST.id)
    assert snapshot is not None
    assert snapshot.since == 110
    assert len(snapshot.oks) < 6
    for at in range(110, 120):
        assert {row: n for row, n in replica.rows(FIRST, at).items() if n > 0} == {(at, at): 1}


def test_merging_spends_about_its_fuel(replica: Replica) -> None:
    for time in range(100, 104):
        replica.apply(time, write(*((n, time, 1) for n in range(500))))
    replica.runtime.run()
    assert 0 < replica.runtime.maintenance.work(64) <= 128
    while spent := replica.runtime.maintenance.work(64):
        assert spent <= 128
    snapshot = replica.state.snapshot(FIRST.id)
    assert snapshot is not None
    assert len(snapshot.oks) == 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_arrangements_agree_with_a_naive_table_however_steps_interleave(data: st.DataObject) -> None:
    """Writes, builds, jobs and merges in any order; every index that is there says what the table says."""
    replica = Replica(0)
    replica.create(SHARD)
    replica.runtime.run()
    table: dict[Pair, int] = {}
    history: list[dict[Pair, int]] = []
    pending = [FIRST, SECOND]
    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["write", "write", "create", "step", "job", "work"])):
            case "write":
                rows = data.draw(
                    st.lists(
                        st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([1, -1])), max_size=4
                    )
                )
                replica.apply(len(history), write(*rows))
                for a, b, diff in rows:
                    table[a, b] = table.get((a, b), 0) + diff
                history.append({row: n for row, n in table.items() if n})
            case "create" if pending:
                replica.create(pending.pop())
            case "step":
                replica.runtime.step()
            case "job" if replica.runtime.jobs:
                replica.runtime.jobs.popleft()()
            case "work":
                replica.frontier = max(replica.frontier, replica.state.upper - 1)
                replica.runtime.maintenance.work(4)
    replica.runtime.run()
    assert replica.state.upper == len(history)
    for desc in (SHARD, FIRST, SECOND):
        snapshot = replica.state.snapshot(desc.id)
        if snapshot is None:
            assert desc in pending
            continue
        for at in range(max(0, snapshot.since), len(history)):
            swapped = {(b, a) if desc is SECOND else (a, b): n for (a, b), n in history[at].items()}
            assert read(snapshot, at) == swapped


def test_the_thread_runtime_answers_everything_before_it_closes() -> None:
    state = ServingState(0)
    runtime = ThreadMaintenanceRuntime(state, lambda: state.upper - 1)
    created = threading.Semaphore(0)
    applied: list[SqlError | None] = []
    runtime.submit(CreateArrangement(SHARD, lambda _error: created.release()))
    runtime.submit(CreateArrangement(FIRST, lambda _error: created.release()))
    for _ in range(2):
        assert created.acquire(timeout=60)
    for time in range(200):
        runtime.submit(ApplyWrites(time, (write((time, time, 1)),), applied.append))
    runtime.close()
    assert applied == [None] * 200
    assert read(state.snapshot(FIRST.id), 199) == {(n, n): 1 for n in range(200)}


def test_the_thread_runtime_survives_a_merge_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    state = ServingState(0)
    raised = threading.Event()

    def frontier() -> int:
        raised.set()
        raise ValueError("broken")

    runtime = ThreadMaintenanceRuntime(state, frontier)
    created = threading.Event()
    runtime.submit(CreateArrangement(SHARD, lambda _error: created.set()))
    assert created.wait(60)
    assert raised.wait(60)
    applied = threading.Event()
    runtime.submit(ApplyWrites(0, (write((1, 1, 1)),), lambda _error: applied.set()))
    assert applied.wait(60)
    runtime.close()


def test_a_job_apart_hands_over_its_result_or_what_it_raised() -> None:
    runtime = ThreadMaintenanceRuntime(ServingState(0), lambda: 0)
    results: list[object] = []
    done = threading.Semaphore(0)

    def then(result: object) -> None:
        results.append(result)
        done.release()

    failure = ValueError("broken")

    def raising(_arena: object) -> object:
        raise failure

    for job in (lambda arena: arena is HEAP, raising):
        runtime.run_apart(job, then)
        assert done.acquire(timeout=60)
    runtime.close()
    assert results == [True, failure]


def test_waiting_for_a_time_ends_when_it_is_published() -> None:
    state = ServingState(5)
    reached = threading.Event()

    def wait() -> None:
        state.wait_until(6)
        reached.set()

    thread = threading.Thread(target=wait)
    thread.start()
    state.publish({}, 6)
    assert not reached.is_set()
    state.publish({}, 7)
    assert reached.wait(60)
    thread.join()
