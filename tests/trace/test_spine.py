"""Spines: merging and compaction never change what can be read, and cost what they promise."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.errors import InternalError
from layby.memory.arena import HEAP
from layby.trace.batch import Batch, build_batch
from layby.trace.layout import Layout
from layby.trace.merge import Merge
from layby.trace.spine import Spine
from layby.types.ordering import ASCENDING
from layby.types.scalar import INTEGER, TEXT
from tests.trace.model import (
    Update,
    batch_of,
    columns_of,
    contents,
    identity,
    layouts,
    row_key,
    rows,
    updates_of,
)

LAYOUT = Layout((INTEGER, TEXT), (ASCENDING,))


def read(batches: tuple[Batch, ...], at: int) -> dict[tuple[str, ...], int]:
    return contents([u for batch in batches for u in updates_of(batch)], at)


def grown(history: list[list[Update]]) -> Spine:
    """A spine of one batch for each time."""
    spine = Spine(LAYOUT, HEAP, 0)
    for time, updates in enumerate(history):
        spine.append(batch_of(LAYOUT, updates, time, time + 1))
    return spine


def settle(spine: Spine) -> int:
    spent = 0
    while not spine.idle:
        spent += spine.work(1000)
    return spent


def assert_sorted(batch: Batch) -> None:
    updates = updates_of(batch)
    key = row_key(batch.layout.orderings)
    assert updates == sorted(updates, key=lambda u: (key(u[0]), u[1])) or any(
        "nan" in repr(u) for u in updates
    )
    assert len({(identity(r), t) for r, t, _ in updates}) == len(updates)
    assert all(d for _, _, d in updates)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_what_can_be_read_is_what_was_written_at_every_time_since(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    spine = Spine(layout, HEAP, 0)
    written: list[Update] = []
    few = data.draw(st.lists(rows(layout), min_size=1, max_size=6))
    for time in range(data.draw(st.integers(1, 12))):
        change = st.tuples(st.sampled_from(few), st.just(time), st.sampled_from([1, -1, 2]))
        updates = data.draw(st.lists(change, max_size=6))
        written += updates
        spine.append(batch_of(layout, updates, time, time + 1))
        spine.advance_since(data.draw(st.integers(0, time)))
        fuel = data.draw(st.sampled_from([0, 1, 2, 5, 100]))
        assert spine.work(fuel) <= fuel
        for batch in spine.batches:
            assert_sorted(batch)
        for at in range(spine.since, time + 1):
            assert read(spine.batches, at) == contents(written, at)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_merge_under_any_fuel_is_the_merge_in_one_go(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    few = data.draw(st.lists(rows(layout), min_size=1, max_size=4))
    change = st.tuples(st.sampled_from(few), st.integers(0, 9), st.sampled_from([1, -1]))
    parts = data.draw(st.lists(st.lists(change, max_size=20), min_size=2, max_size=4))
    since = data.draw(st.integers(0, 9))
    inputs = tuple(batch_of(layout, part) for part in parts)
    merge = Merge(inputs, since, HEAP)
    fuel = data.draw(st.integers(1, 7))
    while merge.result is None:
        assert merge.step(fuel) <= fuel
    advanced = [(r, max(t, since), d) for batch in inputs for r, t, d in updates_of(batch)]
    expected = batch_of(layout, advanced)
    assert list(map(repr, updates_of(merge.result))) == list(map(repr, updates_of(expected)))
    assert merge.result.since == since


def test_a_long_history_of_one_row_is_merged_whole_under_little_fuel() -> None:
    one = [((1, "a"), time, 1) for time in range(0, 600, 2)]
    two = [((1, "a"), time, -1) for time in range(1, 600, 2)]
    merge = Merge((batch_of(LAYOUT, one), batch_of(LAYOUT, two)), 500, HEAP)
    spent = 0
    while merge.result is None:
        spent += merge.step(7)
    assert spent == 600
    expected = [((1, "a"), time, -1 if time % 2 else 1) for time in range(501, 600)]
    assert updates_of(merge.result) == [((1, "a"), 500, 1), *expected]


def test_an_input_that_starts_late_does_not_move_the_times_of_the_others() -> None:
    old = batch_of(LAYOUT, [((1, "a"), 2, 1)], 0, 5)
    columns = columns_of(LAYOUT, [(1, "a")])
    new = build_batch(LAYOUT, columns, 5, -1, 5, 6, 5, HEAP)
    merge = Merge((old, new), 1, HEAP)
    while merge.result is None:
        merge.step(10)
    assert updates_of(merge.result) == [((1, "a"), 2, 1), ((1, "a"), 5, -1)]
    assert merge.result.since == 1


def test_history_below_since_collapses() -> None:
    def replaced(time: int) -> list[Update]:
        return [((1, f"v{time - 1}"), time, -1), ((1, f"v{time}"), time, 1)]

    spine = grown([[((1, "v0"), 0, 1)], *(replaced(time) for time in range(1, 50))])
    spine.advance_since(49)
    settle(spine)
    assert [u for batch in spine.batches for u in updates_of(batch)] == [((1, "v49"), 49, 1)]


def test_a_lone_batch_with_history_collapses_once_nobody_can_read_it() -> None:
    spine = Spine(LAYOUT, HEAP, 0)
    spine.append(batch_of(LAYOUT, [((1, "a"), 0, 1), ((1, "a"), 3, -1), ((2, "b"), 4, 1)], 0, 5))
    spine.advance_since(3)
    assert spine.idle
    spine.advance_since(4)
    settle(spine)
    assert updates_of(spine.batches[0]) == [((2, "b"), 4, 1)]
    assert spine.batches[0].inserts_only


def test_rows_that_cancel_leave_no_batch_behind() -> None:
    spine = grown([[((1, "a"), 0, 1)], [((1, "a"), 1, -1)]])
    spine.advance_since(1)
    settle(spine)
    assert spine.batches == ()
    assert spine.upper == 2


def test_nothing_above_since_is_forgotten() -> None:
    spine = grown([[((1, "a"), 0, 1)], [((1, "a"), 1, -1)]])
    settle(spine)
    assert updates_of(spine.batches[0]) == [((1, "a"), 0, 1), ((1, "a"), 1, -1)]


def test_an_empty_batch_only_moves_upper() -> None:
    spine = grown([[((1, "a"), 0, 1)]])
    spine.append(batch_of(LAYOUT, [], 1, 7))
    assert len(spine.batches) == 1
    assert spine.upper == 7


def test_a_batch_that_leaves_a_gap_is_refused() -> None:
    spine = grown([[((1, "a"), 0, 1)]])
    with pytest.raises(InternalError, match="does not follow"):
        spine.append(batch_of(LAYOUT, [], 2, 3))
    assert spine.upper == 1


def test_readers_see_the_inputs_until_a_merge_is_done() -> None:
    spine = grown([[((i, "a"), 0, 1) for i in range(0, 20, 2)], [((i, "a"), 1, 1) for i in range(1, 20, 2)]])
    before = spine.batches
    for _ in range(19):
        assert spine.work(1) == 1
        assert spine.batches is before
    settle(spine)
    assert [len(batch) for batch in spine.batches] == [20]
    assert [len(batch) for batch in before] == [10, 10]


def test_a_spine_with_nothing_to_merge_spends_nothing() -> None:
    spine = grown([[((i, "a"), 0, 1) for i in range(64)], [((1, "b"), 1, 1)]])
    assert spine.work(1000) == 0
    assert len(spine.batches) == 2


def test_appending_single_rows_costs_n_log_n_and_leaves_few_batches() -> None:
    count = 2000
    log = math.ceil(math.log2(count))
    keys = np.random.default_rng(3).permutation(count).tolist()
    spine = Spine(LAYOUT, HEAP, 0)
    spent = most = 0
    for time, key in enumerate(keys):
        spine.append(batch_of(LAYOUT, [((key, "a"), time, 1)], time, time + 1))
        spent += spine.work(2 * log)
        most = max(most, len(spine.batches))
    assert spent <= 2 * count * log
    assert most <= 2 * log
    settle(spine)
    sizes = [len(batch) for batch in spine.batches]
    assert sum(sizes) == count
    assert all(a > b for a, b in pairwise(sizes))
    assert len(sizes) <= log + 1


def test_small_merges_go_on_while_a_large_one_is_under_way() -> None:
    big: list[list[Update]] = [[((i, "a"), t, 1) for i in range(500)] for t in (0, 1)]
    spine = grown(big)
    assert spine.work(10) == 10
    for time in range(2, 34):
        spine.append(batch_of(LAYOUT, [((time, "b"), time, 1)], time, time + 1))
        spine.work(12)
    assert [len(batch) for batch in spine.batches][:2] == [500, 500]
    assert len(spine.batches) <= 2 + 7
