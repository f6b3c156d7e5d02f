"""Wide rows: a row of more than 1 KiB of text weighs more than one position, wherever a walk meets it."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.memory.arena import HEAP
from layby.trace.batch import Batch
from layby.trace.bundle import TraceBundle
from layby.trace.cursor import Cursor
from layby.trace.layout import Layout
from layby.trace.merge import Merge
from layby.trace.width import wide_rows
from layby.types.column import column_from_values
from layby.types.ordering import ASCENDING
from layby.types.scalar import BIGINT, TEXT
from tests.trace.model import batch_of, updates_of

LAYOUT = Layout((BIGINT, TEXT), (ASCENDING,))


def texts(*widths: tuple[int, int]) -> Batch:
    """Return a batch of (k, text of so many bytes) rows."""
    return batch_of(LAYOUT, [((k, "x" * width), 0, 1) for k, width in widths])


@pytest.mark.parametrize(
    ("width", "weight"),
    [(0, 1), (1, 1), (1024, 1), (1025, 2), (2048, 2), (2049, 3), (10 * 1024, 10), (10 * 1024 + 1, 11)],
)
def test_each_further_kib_of_text_weighs_one_position_more(width: int, weight: int) -> None:
    visit = Cursor((texts((1, width)),)).advance(100)
    assert visit is not None
    assert visit.positions == weight


def test_the_width_of_a_row_is_that_of_all_its_texts_together() -> None:
    layout = Layout((BIGINT, TEXT, TEXT), (ASCENDING,))
    visit = Cursor((batch_of(layout, [((1, "a" * 600, "b" * 600), 0, 1)]),)).advance(100)
    assert visit is not None
    assert visit.positions == 2


def test_bytes_are_counted_and_not_characters() -> None:
    visit = Cursor((batch_of(LAYOUT, [((1, "ü" * 600), 0, 1)]),)).advance(100)
    assert visit is not None
    assert visit.positions == 2


def test_a_batch_without_wide_rows_keeps_nothing_for_them() -> None:
    assert texts(*((k, 1000) for k in range(10))).wide is None


def test_fuel_bounds_the_bytes_that_a_visit_takes() -> None:
    cursor = Cursor((texts(*((k, 4096) for k in range(100))),))
    visit = cursor.advance(40)
    assert visit is not None
    assert [(start, stop) for _, start, stop in visit.slices] == [(0, 10)]
    assert visit.positions == 40


def test_a_row_that_weighs_more_than_the_fuel_is_visited_alone_and_costs_what_it_weighs() -> None:
    cursor = Cursor((texts((1, 50 * 1024), (2, 1), (3, 1)),))
    visit = cursor.advance(1)
    assert visit is not None
    assert [(start, stop) for _, start, stop in visit.slices] == [(0, 1)]
    assert visit.positions == 50


def test_wide_rows_are_known_after_a_merge_and_a_pickle() -> None:
    merge = Merge((texts((1, 3000), (5, 10)), texts((3, 5000))), 0, HEAP)
    merge.inputs[1].lower = merge.inputs[0].upper
    while merge.step(100):
        pass
    assert merge.result is not None
    merged = pickle.loads(pickle.dumps(merge.result))
    visit = Cursor((merged,)).advance(100)
    assert visit is not None
    assert visit.positions == 3 + 5 + 1


def test_wide_rows_are_known_in_a_bundle_that_was_appended_to() -> None:
    bundle = TraceBundle(LAYOUT, upper=0)
    columns = [column_from_values(BIGINT, [1]), column_from_values(TEXT, ["x" * 2049])]
    bundle.append(columns, 0, 1, 1)
    visit = Cursor(bundle.snapshot().oks).advance(100)
    assert visit is not None
    assert visit.positions == 3


_BATCHES = st.lists(
    st.lists(
        st.tuples(st.integers(0, 12), st.sampled_from([0, 5, 1024, 1025, 2500, 9000])),
        min_size=1,
        max_size=12,
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=150, deadline=None)
@given(
    _BATCHES,
    st.integers(1, 30),
    st.booleans(),
)
def test_every_row_is_visited_once_and_only_a_lone_wide_row_costs_more_than_the_fuel(
    widths: list[list[tuple[int, int]]], fuel: int, reverse: bool
) -> None:
    batches = tuple(texts(*part) for part in widths)
    cursor = Cursor(batches, None, reverse)
    seen: list[str] = []
    while (visit := cursor.advance(fuel)) is not None:
        rows = [
            row for b, lo, hi in visit.slices for row, _, diff in updates_of(b, lo, hi) for _ in range(diff)
        ]
        weight = sum(
            max(1, -(-len(str(row[1])) // 1024))
            for b, lo, hi in visit.slices
            for row, _, _ in updates_of(b, lo, hi)
        )
        assert visit.positions == weight
        assert weight <= fuel or sum(hi - lo for _, lo, hi in visit.slices) == 1
        seen += [repr(row) for row in rows]
    assert sorted(seen) == sorted(repr((k, "x" * w)) for part in widths for k, w in part)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 6000), min_size=1, max_size=40), st.data())
def test_affordable_rows_are_those_of_adding_one_weight_after_the_other(
    widths: list[int], data: st.DataObject
) -> None:
    found = wide_rows([column_from_values(TEXT, ["x" * w for w in widths])])
    if found is None:
        return
    weights = [max(1, -(-w // 1024)) for w in widths]
    fuel = data.draw(st.integers(1, sum(weights)))
    start = data.draw(st.integers(0, len(widths) - 1))

    def naive(run: list[int]) -> int:
        count, spent = 0, 0
        while count < len(run) and spent + run[count] <= fuel:
            spent += run[count]
            count += 1
        return max(1, count)

    ahead, behind = weights[start:], weights[: start + 1][::-1]
    assert min(found.affordable(start, fuel), len(ahead)) == naive(ahead)
    assert min(found.affordable_before(start + 1, fuel), len(behind)) == naive(behind)
