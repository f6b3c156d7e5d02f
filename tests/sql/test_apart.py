"""Instantiation apart: what it comes to is what it comes to on the loop, and is not held there by value."""

from __future__ import annotations

from typing import Any

import pytest

from layby.expr.mfp import Mfp
from layby.expr.packed import PackedMfp
from layby.memory.arena import HEAP
from layby.memory.segment import segment_of
from layby.memory.shared_arena import SharedArena
from layby.sql.apart import Instantiated, instantiate_apart, pack_recipe, session_names
from layby.sql.instantiate import instantiate, recipe
from layby.sql.params import pack_params
from layby.trace.constraints import BoundColumn, KeyList
from layby.types.column import Column, TextColumn
from layby.types.scalar import PhysicalValue
from tests.sql.tables import catalog, select_of

SESSION: dict[str, PhysicalValue] = {"current_user": "layby", "now": 7}
INDEXED = catalog("CREATE INDEX x ON t (b, a)")
LARGE = "x" * 50_000


def apart(sql: str, *params: PhysicalValue, arena: Any = HEAP, packs: bool = False) -> Instantiated:
    """Instantiate a select of what its recipe is packed to."""
    packed = pack_recipe(recipe(select_of(sql, INDEXED)), HEAP, packs=packs)
    session = {name: SESSION[name] for name in packed.names}
    return instantiate_apart(packed, pack_params(params, HEAP), session, arena)


@pytest.mark.parametrize(
    ("sql", "params"),
    [
        ("select a from t where b = $1 and a > $2", ["x", 3]),
        ("select a from t where b in ($1, $2) order by b desc limit $3", ["x", "y", 2]),
        ("select a from t where b > $1 and b <= $2 and a = 4", [LARGE, LARGE + "y"]),
        ("select a from t where b = current_user and a <> $1", [1]),
        ("select a from t where b is null and a in ($1, $2)", [1, None]),
        ("select a from t where b = $1", [None]),
        ("select a from t where a = $1", [5]),
    ],
)
def test_it_makes_the_ranges_and_predicates_that_the_loop_makes(sql: str, params: list[Any]) -> None:
    expected = instantiate(select_of(sql, INDEXED), tuple(params), SESSION)
    found = apart(sql, *params).ready
    assert (found.reverse, found.ordered, found.finishing) == expected[1:3] + expected[4:]
    mfp = found.mfp.unpack() if isinstance(found.mfp, PackedMfp) else found.mfp
    assert mfp == expected.mfp
    if expected.constraints is None:
        assert found.constraints is None
    else:
        assert found.constraints is not None
        assert list(found.constraints) == list(expected.constraints)


def test_keys_and_bounds_are_columns_in_the_arena() -> None:
    found = apart("select a from t where b > $1 and b < $2", LARGE, "y", arena=SharedArena())
    constraints = found.ready.constraints
    assert isinstance(constraints, KeyList)
    assert isinstance(constraints.lower, BoundColumn)
    assert in_segment(constraints.lower.column)
    assert not isinstance(constraints.upper, BoundColumn)
    assert found.is_large
    keys = apart("select a from t where b = $1", LARGE, arena=SharedArena()).ready.constraints
    assert isinstance(keys, KeyList)
    assert in_segment(keys.columns[0])


def in_segment(column: Column) -> bool:
    assert isinstance(column, TextColumn)
    return segment_of(column.data) is not None


@pytest.mark.parametrize(
    ("value", "packs", "packed", "large"),
    [("x", False, False, False), ("x", True, True, False), (LARGE, False, True, False)],
)
def test_expressions_are_packed_where_they_are_large_or_not_for_the_loop(
    value: str, packs: bool, packed: bool, large: bool
) -> None:
    found = apart("select a from t where b <> $1", value, arena=SharedArena(), packs=packs)
    assert isinstance(found.ready.mfp, PackedMfp if packed else Mfp)
    if value == LARGE:
        assert isinstance(found.ready.mfp, PackedMfp)
        assert segment_of(found.ready.mfp.data) is not None
    assert found.is_large == large


def test_the_rows_of_a_source_are_columns_in_the_arena() -> None:
    found = apart("select * from (values ($1::text, 1), ('b', $2::int)) v", LARGE, 2, arena=SharedArena())
    assert found.values is not None
    text, number = list(found.values)
    assert isinstance(text, TextColumn)
    assert isinstance(number, Column)
    assert (text.to_list(), number.to_list()) == ([LARGE, "b"], [1, 2])
    assert in_segment(text)
    assert found.is_large


def test_a_series_is_its_three_numbers() -> None:
    assert apart("select * from generate_series($1::int, 9, $2::int) g", 1, 2).values == (1, 9, 2)


@pytest.mark.parametrize(
    "sql",
    [
        "select a from t where b = current_user",
        "select a from t where b > current_user",
        "select a from t where a || current_user = 'x'",
        "select a, current_user from t",
        "select a from t limit length(current_user)",
        "select a from t offset length(current_user)",
        "values (1, current_user), (2, 'x')",
        "select * from generate_series(1, length(current_user)) g",
    ],
)
def test_the_session_values_that_it_takes_are_known_beforehand(sql: str) -> None:
    assert session_names(recipe(select_of(sql, INDEXED))) == ("current_user",)
