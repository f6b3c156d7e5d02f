"""Trace bundles: frontiers, snapshots and read holds."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from layby.errors import InternalError, SqlError
from layby.trace.bundle import ErrorUpdate, Snapshot, TraceBundle
from layby.trace.layout import Layout
from layby.types.column import column_from_values
from layby.types.ordering import ASCENDING
from layby.types.scalar import INTEGER
from tests.trace.model import Update, batch_of, contents, updates_of

LAYOUT = Layout((INTEGER,), (ASCENDING,))


def add(bundle: TraceBundle, *keys: int, diff: int = 1, errors: tuple[ErrorUpdate, ...] = ()) -> None:
    """One commit at the present upper."""
    bundle.append([column_from_values(INTEGER, list(keys))], bundle.upper, diff, bundle.upper + 1, errors)


def all_updates(snapshot: Snapshot) -> list[Update]:
    return [u for batch in snapshot.oks for u in updates_of(batch)]


def settle(bundle: TraceBundle) -> None:
    while not bundle.idle:
        bundle.work(100)


def filled() -> TraceBundle:
    """Key 1 comes at 0, goes at 1; key 2 comes at 2."""
    bundle = TraceBundle(LAYOUT, upper=0)
    add(bundle, 1)
    add(bundle, 1, diff=-1)
    add(bundle, 2)
    return bundle


def test_rows_and_errors_move_under_one_frontier() -> None:
    bundle = TraceBundle(LAYOUT, upper=5)
    add(bundle, 3, errors=(ErrorUpdate("22012", "division by zero", 5, 1),))
    snapshot = bundle.snapshot()
    assert snapshot.upper == bundle.upper == 6
    assert all_updates(snapshot) == [((3,), 5, 1)]
    assert [updates_of(b) for b in snapshot.errs] == [[(("22012", "division by zero"), 5, 1)]]


def test_upper_moves_without_updates() -> None:
    bundle = TraceBundle(LAYOUT, upper=0)
    bundle.append_batches(None, None, 9)
    assert bundle.snapshot() == Snapshot((), (), -(2**63), 9)
    add(bundle, 1)
    assert all_updates(bundle.snapshot()) == [((1,), 9, 1)]


def test_a_batch_of_other_frontiers_is_refused_and_nothing_moves() -> None:
    bundle = TraceBundle(LAYOUT, upper=0)
    with pytest.raises(InternalError, match="does not fit"):
        bundle.append_batches(batch_of(LAYOUT, [((1,), 0, 1)], 0, 2), None, 3)
    with pytest.raises(InternalError, match="moves back"):
        bundle.append_batches(None, None, -1)
    assert bundle.snapshot().upper == 0
    add(bundle, 1)


def test_a_snapshot_never_changes() -> None:
    bundle = filled()
    snapshot = bundle.snapshot()
    before = all_updates(snapshot)
    add(bundle, 7)
    bundle.allow_compaction(3)
    settle(bundle)
    assert all_updates(snapshot) == before == [((1,), 0, 1), ((1,), 1, -1), ((2,), 2, 1)]
    assert (snapshot.since, snapshot.upper) == (-(2**63), 3)


def test_compaction_forgets_what_is_below_the_frontier_allowed() -> None:
    bundle = filled()
    bundle.allow_compaction(2)
    assert bundle.since == 2
    settle(bundle)
    assert all_updates(bundle.snapshot()) == [((2,), 2, 1)]


def test_a_hold_keeps_its_time_readable_until_it_is_released() -> None:
    bundle = filled()
    hold = bundle.hold(0)
    bundle.allow_compaction(2)
    settle(bundle)
    assert bundle.since == 0
    assert contents(all_updates(bundle.snapshot()), 0) == {("1",): 1}
    hold.release()
    assert bundle.since == 2
    settle(bundle)
    assert all_updates(bundle.snapshot()) == [((2,), 2, 1)]


def test_since_never_passes_the_smallest_hold() -> None:
    bundle = filled()
    first, second, again = bundle.hold(1), bundle.hold(2), bundle.hold(1)
    bundle.allow_compaction(3)
    assert bundle.since == 1
    first.release()
    assert bundle.since == 1
    again.release()
    assert bundle.since == 2
    second.release()
    assert bundle.since == 3


def test_a_hold_released_twice_gives_up_no_other() -> None:
    bundle = filled()
    first, second = bundle.hold(0), bundle.hold(0)
    first.release()
    first.release()
    bundle.allow_compaction(2)
    assert bundle.since == 0
    second.release()
    assert bundle.since == 2


def test_a_hold_below_since_is_refused() -> None:
    bundle = filled()
    bundle.allow_compaction(2)
    with pytest.raises(SqlError, match="timestamp 1 is no longer readable") as raised:
        bundle.hold(1)
    assert raised.value.sqlstate == "55000"
    bundle.hold(2).release()


def test_a_hold_is_released_at_the_end_of_its_block() -> None:
    bundle = filled()
    with bundle.hold(0):
        bundle.allow_compaction(2)
        assert bundle.since == 0
    assert bundle.since == 2


def test_compaction_allowed_is_never_taken_back() -> None:
    bundle = filled()
    bundle.allow_compaction(2)
    bundle.allow_compaction(1)
    assert bundle.since == 2


def test_a_release_between_two_appends_shows_no_half_of_one() -> None:
    bundle = filled()
    hold = bundle.hold(0)
    bundle.allow_compaction(2)
    published = bundle.snapshot()
    hold.release()
    snapshot = bundle.snapshot()
    assert snapshot == published._replace(since=2)


def test_bytes_are_those_of_the_batches_of_both_traces() -> None:
    bundle = TraceBundle(LAYOUT, upper=0)
    assert bundle.nbytes == 0
    add(bundle, 1, 2, 3)
    assert bundle.nbytes == 3 * 4 + 16
    add(bundle, errors=(ErrorUpdate("22012", "x", 1, 1),))
    assert bundle.nbytes == 3 * 4 + 16 + (5 + 1 + 2 * 16) + 16


def test_errors_are_merged_too() -> None:
    bundle = TraceBundle(LAYOUT, upper=0)
    add(bundle, errors=(ErrorUpdate("22012", "division by zero", 0, 1),))
    add(bundle, errors=(ErrorUpdate("22012", "division by zero", 1, -1),))
    bundle.allow_compaction(1)
    settle(bundle)
    assert bundle.snapshot().errs == ()


def test_holds_of_many_threads_leave_none_behind() -> None:
    bundle = filled()
    failures: list[Exception] = []

    def churn() -> None:
        try:
            for _ in range(300):
                time = max(bundle.since, 0)
                try:
                    hold = bundle.hold(time)
                except SqlError:
                    continue
                if bundle.since > time:
                    raise AssertionError("since passed a hold")
                hold.release()
        except Exception as error:  # noqa: BLE001 - shown by the thread that asserts
            failures.append(error)

    def serve(i: int) -> None:
        bundle.allow_compaction(i % 3)
        add(bundle, i)
        bundle.work(4)

    run_beside(churn, 4, serve, 100)
    assert failures == []
    bundle.allow_compaction(50)
    assert bundle.since == 50


def run_beside(work: Callable[[], None], threads: int, step: Callable[[int], None], steps: int) -> None:
    others = [threading.Thread(target=work) for _ in range(threads)]
    for thread in others:
        thread.start()
    for i in range(steps):
        step(i)
    for thread in others:
        thread.join(30)
    assert not any(thread.is_alive() for thread in others)
