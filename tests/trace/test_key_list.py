"""Key lists: ranges held as columns are the ranges one by one."""

from __future__ import annotations

import pickle

from layby.trace.constraints import Bound, BoundColumn, KeyList, KeyRange, split_zeros
from layby.trace.layout import Layout
from layby.types.column import column_from_values
from layby.types.ordering import ASCENDING
from layby.types.scalar import DOUBLE_PRECISION, TEXT

LIST = KeyList(
    (
        column_from_values(DOUBLE_PRECISION, [-0.0, 1.5, None]),
        column_from_values(TEXT, ["a", "é", "c"]),
    ),
    lower=Bound(3, inclusive=False),
)
RANGES = [
    KeyRange((-0.0, "a"), Bound(3, inclusive=False)),
    KeyRange((1.5, "é"), Bound(3, inclusive=False)),
    KeyRange((None, "c"), Bound(3, inclusive=False)),
]


def test_each_range_has_its_prefix_and_the_bounds_of_all() -> None:
    assert len(LIST) == 3
    assert list(LIST) == RANGES
    assert str(LIST[0].prefix[0]) == "-0.0"


def test_a_slice_is_a_key_list_in_its_order() -> None:
    assert isinstance(LIST[::-1], KeyList)
    assert list(LIST[::-1]) == RANGES[::-1]
    assert list(LIST[1:]) == RANGES[1:]


def test_a_key_list_crosses_to_another_process() -> None:
    assert list(pickle.loads(pickle.dumps(LIST))) == RANGES


def test_a_bound_in_a_column_is_the_bound() -> None:
    bound = BoundColumn(column_from_values(TEXT, ["x"]), inclusive=True)
    columns = (column_from_values(TEXT, ["a", "b"]),)
    ranges = [
        KeyRange(("a",), None, Bound("x", inclusive=True)),
        KeyRange(("b",), None, Bound("x", inclusive=True)),
    ]
    assert list(KeyList(columns, upper=bound)) == ranges


def test_without_columns_there_is_one_range() -> None:
    alone = KeyList(
        (), BoundColumn(column_from_values(TEXT, ["x"]), inclusive=False), Bound("y", inclusive=True)
    )
    expected = [KeyRange((), Bound("x", inclusive=False), Bound("y", inclusive=True))]
    assert (len(alone), list(alone), list(alone[::-1])) == (1, expected, expected)
    assert list(pickle.loads(pickle.dumps(alone))) == expected


def test_a_list_without_a_zero_is_not_split() -> None:
    layout = Layout((DOUBLE_PRECISION, TEXT), (ASCENDING, ASCENDING))
    plain = KeyList((column_from_values(DOUBLE_PRECISION, [1.0, 2.0]), column_from_values(TEXT, ["a", "b"])))
    assert split_zeros(plain, layout) is plain
    zero = KeyList((column_from_values(DOUBLE_PRECISION, [-0.0, 2.0]), column_from_values(TEXT, ["a", "b"])))
    assert [str(r.prefix) for r in split_zeros(zero, layout)] == ["(-0.0, 'a')", "(0.0, 'a')", "(2.0, 'b')"]
