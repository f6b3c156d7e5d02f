"""Jobs: what they hand over lies in the arena, however it came, so that the loop never unpickles rows."""

from __future__ import annotations

import numpy as np

from layby.adapter.jobs import MakeUpdates, SortWrites
from layby.compute.arrangement import Updates, shard
from layby.memory.segment import segment_of
from layby.memory.shared_arena import SharedArena
from layby.sql.catalog import Table
from layby.types.column import FixedColumn
from layby.types.relation import ColumnDesc, RelationDesc
from layby.types.scalar import BIGINT

TABLE = Table(1, "public", "t", RelationDesc((ColumnDesc("a", BIGINT),)), (None,))


def column(count: int) -> FixedColumn:
    return FixedColumn(BIGINT, np.arange(count))


def in_segments(updates: Updates) -> bool:
    values = [c.values for c in updates.columns if isinstance(c, FixedColumn)]
    assert len(values) == 1
    return all(segment_of(array) is not None for array in (*values, updates.diffs))


def test_the_updates_of_an_update_lie_in_segments() -> None:
    job = MakeUpdates(TABLE, (column(5_000),), (column(5_000),), 5_000)
    made = job(SharedArena())
    assert in_segments(made)
    assert made.diffs.tolist() == [-1] * 5_000 + [1] * 5_000


def test_a_diff_that_is_the_same_for_all_rows_stays_one_number() -> None:
    made = MakeUpdates(TABLE, None, (column(5_000),), 5_000)(SharedArena())
    assert (made.diffs.strides, len(made.diffs), int(made.diffs[0])) == ((0,), 5_000, 1)


def test_writes_that_were_put_together_on_the_heap_are_sorted_into_segments() -> None:
    updates = Updates((column(5_000),), np.ones(5_000, np.int64))
    job = SortWrites({1: (updates,)}, {1: (shard(10, 1, "t", (BIGINT,)),)})
    (ready,) = job(SharedArena())
    assert in_segments(ready.updates)
