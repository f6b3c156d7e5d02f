"""Cursors: every position once, in row order, under any fuel, over any split into batches."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.trace.batch import Batch
from layby.trace.constraints import Bound, Constraints, KeyRange
from layby.trace.cursor import Cursor, Visit
from layby.trace.layout import Layout
from layby.types.ordering import ASCENDING, DESCENDING
from layby.types.scalar import BIGINT, DOUBLE_PRECISION, INTEGER, TEXT, PhysicalValue
from tests.trace.model import (
    Row,
    Update,
    batch_of,
    compare,
    compare_values,
    identity,
    layouts,
    matches,
    row_key,
    rows,
    updates_of,
    values,
)

LAYOUT = Layout((INTEGER,), (ASCENDING,))


def numbers(*keys: int, diff: int = 1) -> Batch:
    return batch_of(LAYOUT, [((key,), 0, diff) for key in keys])


def visited(visit: Visit) -> list[Update]:
    return [u for batch, start, stop in visit.slices for u in updates_of(batch, start, stop)]


def keys_of(visit: Visit | None) -> list[PhysicalValue]:
    assert visit is not None
    return [row[0] for row, _, _ in visited(visit)]


def walk(cursor: Cursor, fuels: list[int]) -> list[Visit]:
    """Advance to the end, through a pickle before each visit, and check what each one promises."""
    visits: list[Visit] = []
    while True:
        fuel = fuels[len(visits) % len(fuels)]
        cursor = pickle.loads(pickle.dumps(cursor))
        visit = cursor.advance(fuel)
        if visit is None:
            assert cursor.advance(1) is None
            return visits
        assert 1 <= visit.positions <= fuel
        assert all(start < stop for _, start, stop in visit.slices)
        visits.append(visit)


def check(visits: list[Visit], layout: Layout, reverse: bool, exact: bool) -> list[tuple[object, ...]]:
    """Check order and open groups; return all that was visited, sorted."""
    sign = -1 if reverse else 1
    parts = [visited(v) for v in visits]
    for i, part in enumerate(parts):
        later = [row for other in parts[i + 1 :] for row, _, _ in other]
        for row, _, _ in part:
            assert all(sign * compare(row, other, layout.orderings) <= 0 for other in later)
        goes_on = any(identity(row) == identity(other) for row, _, _ in part for other in later)
        last = visits[i].last
        assert visits[i].open == (exact and goes_on)
        assert (last is not None) == visits[i].open
        if last is not None:
            row = updates_of(last[0], last[1], last[1] + 1)[0][0]
            assert identity(row) in {identity(other) for other in later}
            assert identity(row) in {identity(other) for other, _, _ in part}
    return sorted((*identity(row), time, diff) for part in parts for row, time, diff in part)


@st.composite
def splits(draw: st.DrawFn, layout: Layout) -> tuple[list[Batch], list[Update]]:
    """Batches and all that is in them; in half of the cases every diff is +1."""
    diffs = st.just(1) if draw(st.booleans()) else st.sampled_from([1, -1, 2])
    update = st.tuples(rows(layout), st.integers(0, 3), diffs)
    parts = draw(st.lists(st.lists(update, max_size=15), max_size=4))
    batches = [batch_of(layout, part) for part in parts]
    return batches, [u for batch in batches for u in updates_of(batch)]


@st.composite
def constraints(draw: st.DrawFn, layout: Layout) -> Constraints:
    """Disjoint ranges in the order of the index: a product of key values, or one range."""
    length = draw(st.integers(0, len(layout.key)))
    choices: list[list[PhysicalValue]] = []
    for i in range(length):
        distinct: list[PhysicalValue] = []
        for value in draw(st.lists(values(layout.types[i]), min_size=1, max_size=3)):
            if not any(_equal(value, other) for other in distinct):
                distinct.append(value)
        key = row_key(layout.key[i : i + 1])
        choices.append(sorted(distinct, key=lambda v, k=key: k((v,))))  # type: ignore[misc]
    prefixes = list(product(*choices))
    lower = upper = None
    if length < len(layout.key):
        some = values(layout.types[length]).filter(lambda v: v is not None)
        lower = draw(st.none() | st.builds(Bound, some, st.booleans()))
        upper = draw(st.none() | st.builds(Bound, some, st.booleans()))
    return tuple(KeyRange(prefix, lower, upper) for prefix in prefixes)


def _equal(a: PhysicalValue, b: PhysicalValue) -> bool:
    return a is b if a is None or b is None else compare_values(a, b) == 0


fuels = st.lists(st.one_of(st.just(1), st.integers(1, 8), st.just(1000)), min_size=1, max_size=4)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_walk_visits_every_position_once_and_in_order(data: st.DataObject) -> None:
    layout = data.draw(layouts())
    batches, updates = data.draw(splits(layout))
    reverse = data.draw(st.booleans())
    exact = data.draw(st.booleans())
    cursor = Cursor(tuple(batches), None, reverse, exact_groups=exact)
    visits = walk(cursor, data.draw(fuels))
    exact = exact or any(not b.inserts_only for b in batches)
    assert check(visits, layout, reverse, exact) == sorted((*identity(r), t, d) for r, t, d in updates)
    assert sum(v.positions for v in visits) == len(updates)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_constrained_walk_visits_just_the_rows_that_match(data: st.DataObject) -> None:
    layout = data.draw(layouts(least_key=1))
    batches, updates = data.draw(splits(layout))
    ranges = data.draw(constraints(layout))
    reverse = data.draw(st.booleans())
    visits = walk(Cursor(tuple(batches), ranges, reverse, exact_groups=True), data.draw(fuels))
    wanted = [(r, t, d) for r, t, d in updates if any(matches(r, k) for k in ranges)]
    assert check(visits, layout, reverse, True) == sorted((*identity(r), t, d) for r, t, d in wanted)


def test_with_fuel_of_one_a_walk_merges_row_by_row() -> None:
    batches = (numbers(1, 4, 7), numbers(2, 5), numbers(3, 6, 8, 9))
    assert [keys_of(v) for v in walk(Cursor(batches), [1])] == [[k] for k in range(1, 10)]
    assert [keys_of(v) for v in walk(Cursor(batches, None, True), [1])] == [[k] for k in range(9, 0, -1)]


def test_a_batch_that_lies_wholly_before_the_largest_is_visited_first() -> None:
    batches = (numbers(*range(100, 200)), numbers(*range(10)))
    assert keys_of(Cursor(batches).advance(4)) == [0, 1, 2, 3]
    assert keys_of(Cursor(batches, None, True).advance(4)) == [197, 198, 199]


def test_a_visit_uses_much_of_its_fuel() -> None:
    batches = (numbers(*range(0, 2000, 2)), numbers(*range(1, 2000, 2)))
    visits = walk(Cursor(batches), [100])
    assert len(visits) <= 30


def test_a_lone_batch_is_sliced() -> None:
    batch = numbers(*range(10))
    cursor = Cursor((batch,))
    first, second = cursor.advance(6), cursor.advance(6)
    assert first is not None
    assert second is not None
    assert first.slices == [(batch, 0, 6)]
    assert second.slices == [(batch, 6, 10)]


def test_a_key_that_is_nowhere_costs_one_position() -> None:
    cursor = Cursor((numbers(1, 3), numbers(5)), (KeyRange((2,)), KeyRange((4,))))
    assert cursor.advance(1) == Visit([], 1, False, None)
    assert cursor.advance(1) == Visit([], 1, False, None)
    assert cursor.advance(1) is None


def test_many_keys_are_looked_up_in_one_visit() -> None:
    batch = numbers(1, 2, 3)
    visit = Cursor((batch,), (KeyRange((1,)), KeyRange((2,)), KeyRange((9,)))).advance(10)
    assert visit == Visit([(batch, 0, 1), (batch, 1, 2)], 3, False, None)


def test_ranges_are_taken_from_the_last_in_reverse() -> None:
    cursor = Cursor((numbers(1, 2, 3),), (KeyRange((1,)), KeyRange((3,))), True)
    assert [keys_of(v) for v in walk(cursor, [1])] == [[3], [1]]


def test_no_ranges_and_no_batches_are_the_end() -> None:
    assert Cursor((numbers(1),), ()).advance(5) is None
    assert Cursor((), None).advance(5) is None
    assert Cursor((), (KeyRange((1,)),)).advance(5) == Visit([], 1, False, None)


def test_a_group_goes_on_where_another_batch_has_the_row() -> None:
    cursor = Cursor((numbers(1, 2), numbers(1, diff=-1)))
    visits = walk(cursor, [1])
    assert [(keys_of(v), v.open) for v in visits] == [([1], True), ([1], False), ([2], False)]


@pytest.mark.parametrize("turned", [False, True])
def test_a_group_goes_on_where_only_the_last_of_several_small_batches_reaches_it(turned: bool) -> None:
    up, down = [numbers(1), numbers(100)], [numbers(200), numbers(199)]
    if turned:
        up, down = up[::-1], down[::-1]
    large = numbers(*range(100, 200))
    visit = Cursor((large, *up), exact_groups=True).advance(2)
    assert (sorted(keys_of(visit), key=str), visit is not None and visit.open) == ([1, 100], True)
    visit = Cursor((large, *down), None, True, exact_groups=True).advance(2)
    assert (sorted(keys_of(visit), key=str), visit is not None and visit.open) == ([199, 200], True)


def test_insertions_leave_no_group_open_unless_asked() -> None:
    batches = (numbers(1, 2), numbers(1))
    assert [v.open for v in walk(Cursor(batches), [1])] == [False, False, False]
    assert [v.open for v in walk(Cursor(batches, exact_groups=True), [1])] == [True, False, False]


def test_a_zero_before_another_key_column_is_walked_in_row_order() -> None:
    layout = Layout((DOUBLE_PRECISION, BIGINT), (ASCENDING, DESCENDING))
    of: list[Row] = [(-0.0, 1), (0.0, 1), (-0.0, 2), (0.0, 2), (0.0, 3)]
    batch = batch_of(layout, [(row, 0, 1) for row in of])
    cursor = Cursor((batch,), (KeyRange((0.0, 2)), KeyRange((0.0, 1))))
    got = [identity(u[0]) for v in walk(cursor, [1]) for u in visited(v)]
    assert got == [("-0.0", "2"), ("-0.0", "1"), ("0.0", "2"), ("0.0", "1")]


def test_a_visit_needs_fuel() -> None:
    with pytest.raises(ValueError, match="fuel"):
        Cursor((numbers(1),)).advance(0)


def test_texts_that_share_prefixes_are_merged_by_their_bytes() -> None:
    layout = Layout((TEXT,), (ASCENDING,))
    odd = batch_of(layout, [((f"prefix__{i:04}",), 0, 1) for i in range(1, 400, 2)])
    even = batch_of(layout, [((f"prefix__{i:04}",), 0, 1) for i in range(0, 400, 2)])
    visits = walk(Cursor((odd, even)), [7])
    firsts = [min(r[0] for r, _, _ in visited(v)) for v in visits]  # type: ignore[type-var]
    assert firsts == sorted(firsts)  # type: ignore[type-var]
    assert sum(v.positions for v in visits) == 400


class Watched(list[KeyRange]):
    """Ranges that tell whether they have been looked at."""

    seen = 0

    def __getitem__(self, at: Any) -> Any:
        self.seen += isinstance(at, int)
        return Watched(super().__getitem__(at)) if isinstance(at, slice) else super().__getitem__(at)

    def __iter__(self) -> Iterator[KeyRange]:
        self.seen += 1
        return super().__iter__()


@pytest.mark.parametrize("reverse", [False, True])
def test_ranges_are_not_looked_at_before_the_first_is_sought(reverse: bool) -> None:
    layout = Layout((DOUBLE_PRECISION, INTEGER), (ASCENDING, ASCENDING))
    of: list[Row] = [(-0.0, 1), (-0.0, 2), (0.0, 1), (1.0, 1)]
    ranges = Watched([KeyRange((0.0, 1)), KeyRange((0.0, 2)), KeyRange((1.0, 1))])
    cursor = Cursor((batch_of(layout, [(row, 0, 1) for row in of]),), ranges, reverse)
    assert not cursor.exhausted
    assert ranges.seen == 0
    found = [row for visit in walk(cursor, [1]) for row, _, _ in visited(visit)]
    expected = [identity(row) for row in of]
    assert [identity(row) for row in found] == (expected[::-1] if reverse else expected)
