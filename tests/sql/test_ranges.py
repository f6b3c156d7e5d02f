"""Instantiation: the ranges and leftover predicates of a plan find the rows that WHERE asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cmp_to_key
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.errors import SqlError
from layby.expr.evaluate import evaluate
from layby.sql.instantiate import (
    ReadyPeek,
    instantiate,
    instantiate_series,
    instantiate_values,
)
from layby.sql.plan import SelectPlan, SeriesSource, TableSource, ValuesSource
from layby.trace.constraints import Bound, KeyRange
from layby.types.column import column_from_values
from layby.types.ordering import Ordering
from layby.types.scalar import BIGINT, INTEGER, REAL, SMALLINT, PhysicalValue
from tests.sql.tables import COLUMNS, PRIMARY, catalog, planned, select_of

SESSION: dict[str, PhysicalValue] = {"current_date": 7305, "now": 0, "current_user": "layby"}


def ready(sql: str, *params: PhysicalValue, within: Any = PRIMARY, types: Any = ()) -> ReadyPeek:
    return instantiate(select_of(sql, within, types), params, SESSION)


def keys(where: str, *params: PhysicalValue, on: str = "a", types: Any = ()) -> Any:
    within = catalog(f"CREATE INDEX x ON t ({on})")
    return ready(f"select a from t where {where}", *params, within=within, types=types).constraints


def above(value: PhysicalValue, inclusive: bool = False) -> tuple[KeyRange]:
    return (KeyRange((), Bound(value, inclusive), None),)


def below(value: PhysicalValue, inclusive: bool = False) -> tuple[KeyRange]:
    return (KeyRange((), None, Bound(value, inclusive)),)


def test_a_lookup_makes_one_range() -> None:
    assert keys("a = $1", 5) == (KeyRange((5,)),)
    assert keys("b = $2 and a = $1", 5, "x", on="a, b") == (KeyRange((5, "x")),)


def test_a_null_key_matches_no_equality() -> None:
    assert keys("a = $1", None) == ()
    assert keys("b = $2 and a = $1", 5, None, on="a, b") == ()
    assert keys("a in ($1, $2)", 5, None) == (KeyRange((5,)),)
    assert keys("a > $1", None) == ()
    assert keys("a in (1, null)") == (KeyRange((1,)),)


def test_is_null_seeks_the_nulls() -> None:
    assert keys("c is null", on="c") == (KeyRange((None,)),)
    assert keys("c is null or c = $1", 3, on="c") == (KeyRange((3,)), KeyRange((None,)))
    assert keys("c is null or c = $1", 3, on="c desc") == (KeyRange((None,)), KeyRange((3,)))


def test_a_key_named_twice_is_sought_once() -> None:
    assert keys("a in ($1, $2, 7)", 7, 7) == (KeyRange((7,)),)


def test_ranges_come_in_the_order_of_the_index() -> None:
    assert keys("a in (2, 3, 1)") == (KeyRange((1,)), KeyRange((2,)), KeyRange((3,)))
    assert keys("a in (2, 3, 1)", on="a desc") == (KeyRange((3,)), KeyRange((2,)), KeyRange((1,)))
    assert keys("a in (1, 2) and b in ('x', 'y')", on="a, b desc") == (
        KeyRange((1, "y")),
        KeyRange((1, "x")),
        KeyRange((2, "y")),
        KeyRange((2, "x")),
    )


def test_nan_is_the_greatest_key_and_sought_once() -> None:
    found = keys("e in ('NaN', 1, 'Infinity', 'NaN')", on="e")
    assert [r.prefix[0] for r in found[:2]] == [1.0, math.inf]
    assert len(found) == 3 and math.isnan(found[2].prefix[0])


def test_the_tightest_of_several_bounds_holds() -> None:
    assert keys("a > 3 and a >= 3 and a > $1", 1) == above(3)
    assert keys("a < 9 and a <= 12 and a < $1", 10) == below(9)
    assert keys("a > 3 and a <= 9 and a >= $1 and a < $2", 4, 9) == (
        KeyRange((), Bound(4, True), Bound(9, False)),
    )


@pytest.mark.parametrize("where", ["a > 5 and a < 5", "a >= 5 and a < 5", "a > 6 and a < 5"])
def test_bounds_that_cross_leave_nothing(where: str) -> None:
    assert keys(where) == ()


def test_bounds_that_meet_leave_one_key() -> None:
    assert keys("a >= 5 and a <= 5") == (KeyRange((), Bound(5, True), Bound(5, True)),)


BIG = 2**40

FITTED = [
    ("s", "s = 70000", ()),
    ("s", "s = 7::bigint", (KeyRange((7,)),)),
    ("s", "s < 70000", below(2**15 - 1, True)),
    ("s", "s > 70000", ()),
    ("s", "s >= -70000", above(-(2**15), True)),
    ("s", "s <= -70000", ()),
    ("a", f"a = {BIG}", ()),
    ("a", f"a > {BIG}", ()),
    ("a", f"a < {BIG}", below(2**31 - 1, True)),
    ("a", f"a in (1, {BIG})", (KeyRange((1,)),)),
    ("a", "a = 3.0", (KeyRange((3,)),)),
    ("a", "a = 3.5", ()),
    ("a", "a < 3.5", below(3, True)),
    ("a", "a <= 3.5", below(3, True)),
    ("a", "a > 3.5", above(3)),
    ("a", "a >= 3.5", above(3)),
    ("a", "a < 3.0", below(3)),
    ("a", "a > -3.5", above(-4)),
    ("a", "a < 1e300", below(2**31 - 1, True)),
    ("a", "a > 1e300", ()),
    ("a", "a = 'NaN'::float8", ()),
    ("a", "a < 'NaN'::float8", below(2**31 - 1, True)),
    ("a", "a > 'NaN'::float8", ()),
    ("a", "a > '-Infinity'::float8", above(-(2**31), True)),
    ("r", "r = 0.5", (KeyRange((0.5,)),)),
    ("r", "r = 0.1", ()),
    ("r", "r > 0.1", above(0.10000000149011612, True)),
    ("r", "r < 0.1", below(0.10000000149011612)),
    ("r", "r < 0.7", below(0.699999988079071, True)),
    ("r", "r < 1e300", below(math.inf)),
    ("e", "e = 5", (KeyRange((5.0,)),)),
    ("d", "d = '2020-01-01'::timestamp", (KeyRange((7305,)),)),
    ("d", "d = '2020-01-01 01:00'::timestamp", ()),
    ("d", "d > '2020-01-01 01:00'::timestamp", above(7305)),
    ("d", "d >= '2020-01-01 01:00'::timestamp", above(7305)),
    ("d", "d < '2020-01-01 01:00'::timestamp", below(7305, True)),
    ("d", "d < 'infinity'::timestamp", below(2**31 - 1)),
    ("d", "d = '2020-01-01'::timestamptz", (KeyRange((7305,)),)),
    ("ts", "ts >= '2000-01-02'::date", above(86_400_000_000, True)),
    ("ts", "ts = 'infinity'::date", (KeyRange((2**63 - 1,)),)),
    ("ts", "ts < '300000-01-01'::date", below(2**63 - 2, True)),
    ("tz", "tz > '2000-01-01 00:00:01'::timestamp", above(1_000_000)),
]


@pytest.mark.parametrize(("on", "where", "expected"), FITTED)
def test_a_value_of_another_type_is_made_to_fit_the_key(on: str, where: str, expected: object) -> None:
    assert keys(where, on=on) == expected


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (SMALLINT, 7, (KeyRange((7,)),)),
        (BIGINT, 7, (KeyRange((7,)),)),
        (BIGINT, 2**31, ()),
        (BIGINT, -(2**31), (KeyRange((-(2**31),)),)),
        (BIGINT, None, ()),
        (REAL, 7.5, ()),
        (REAL, 7.0, (KeyRange((7,)),)),
    ],
)
def test_a_parameter_of_another_width_finds_the_same_key(
    type_: Any, value: PhysicalValue, expected: object
) -> None:
    assert keys("a = $1", value, types=[type_]) == expected


def test_a_bigint_compared_as_a_float_is_left_to_the_filter() -> None:
    assert keys("c = 3.0", on="c") is None


def test_a_computed_value_is_computed_once_for_the_walk() -> None:
    assert keys("a = $1 + 2", 5) == (KeyRange((7,)),)
    assert keys("d = current_date - 1", on="d") == (KeyRange((7304,)),)


def test_an_error_in_a_value_is_raised() -> None:
    with pytest.raises(SqlError) as caught:
        keys("a = 1 / $1", 0)
    assert (caught.value.sqlstate, caught.value.message) == ("22012", "division by zero")


def test_what_takes_no_values_is_used_as_planned() -> None:
    plan = select_of("select b from t where a = $1", PRIMARY)
    first, second = instantiate(plan, (1,), {}), instantiate(plan, (2,), {})
    assert first.mfp is plan.mfp and second.mfp is plan.mfp
    assert first.finishing is second.finishing


def test_values_are_put_into_filters_and_outputs() -> None:
    peek = ready("select a + $1, current_user from t where b = $2 || 'y'", 5, "x")
    outputs = [evaluate(o, _row((7, "b")), 1).column.value(0) for o in peek.mfp.outputs]
    assert outputs == [12, "layby"]
    kept = [evaluate(p, _row((7, b)), 1).column.value(0) for p in peek.mfp.predicates for b in ("xy", "x")]
    assert kept == [True, False]


def test_is_distinct_from_tells_nulls_from_values() -> None:
    (output,) = ready("select c is distinct from s from t").mfp.outputs
    rows = [(1, 1), (1, 2), (1, None), (None, 1), (None, None)]
    found = [
        evaluate(output, _row((0, None, c, None, None, None, None, s)), 1).column.value(0) for c, s in rows
    ]
    assert found == [False, True, True, True, False]


def _row(values: tuple[PhysicalValue, ...]) -> list[Any]:
    types = [c.type for c in COLUMNS]
    return [column_from_values(t, [v]) for t, v in zip(types, values, strict=False)]


def test_limit_and_offset_come_from_literals_and_parameters() -> None:
    finishing = ready("select a from t limit $1 offset $2 + 1", 3, 4).finishing
    assert (finishing.limit, finishing.offset) == (3, 5)
    finishing = ready("select a from t limit null offset null").finishing
    assert (finishing.limit, finishing.offset) == (None, 0)
    finishing = ready("select a from t offset 2 rows fetch first 4 rows only").finishing
    assert (finishing.limit, finishing.offset) == (4, 2)


@pytest.mark.parametrize(
    ("clause", "params", "sqlstate", "message"),
    [
        ("limit -1", (), "2201W", "LIMIT must not be negative"),
        ("limit $1", (-1,), "2201W", "LIMIT must not be negative"),
        ("offset -1", (), "2201X", "OFFSET must not be negative"),
        ("offset $1", (-7,), "2201X", "OFFSET must not be negative"),
    ],
)
def test_a_negative_limit_or_offset_fails_at_execution(
    clause: str, params: tuple[int, ...], sqlstate: str, message: str
) -> None:
    plan = select_of(f"select a from t {clause}")
    for _ in range(2):
        with pytest.raises(SqlError) as caught:
            instantiate(plan, params, {})
        assert (caught.value.sqlstate, caught.value.message) == (sqlstate, message)


def test_the_direction_of_the_walk_follows_the_order() -> None:
    up, down = ready("select a from t order by a"), ready("select a from t order by a desc")
    other = ready("select a from t order by b")
    assert [(p.ordered, p.reverse) for p in (up, down, other)] == [
        (True, False),
        (True, True),
        (False, False),
    ]


def values_of(sql: str, *params: PhysicalValue) -> list[list[PhysicalValue]]:
    source = select_of(sql).source
    assert isinstance(source, ValuesSource)
    return [c.to_list() for c in instantiate_values(source, params, SESSION)]


def test_values_become_columns() -> None:
    assert values_of("values (1, 'x'), (2, null), ($1, $2)", 3, "y") == [[1, 2, 3], ["x", None, "y"]]
    inserted = values_of("insert into t (s, a) values (1, 2), ($1 + 1, default)", 5)
    assert [inserted[0], inserted[7]] == [[2, None], [1, 6]]


def test_a_value_that_raises_fails_the_rows() -> None:
    with pytest.raises(SqlError) as caught:
        values_of("insert into t (a) values (1), (1 / $1)", 0)
    assert caught.value.sqlstate == "22012"


@pytest.mark.parametrize(
    ("call", "params", "expected"),
    [
        ("1, 10", (), (1, 10, 1)),
        ("10, 1, -3", (), (10, 1, -3)),
        ("1, $1", (10,), (1, 10, 1)),
        ("1, $1", (None,), (1, 0, 1)),
        ("1, null, 2", (), (1, 0, 1)),
    ],
)
def test_a_series_is_start_stop_and_step(call: str, params: Any, expected: tuple[int, int, int]) -> None:
    source = select_of(f"select * from generate_series({call})").source
    assert isinstance(source, SeriesSource)
    assert instantiate_series(source, params, {}) == expected


def test_a_series_whose_step_is_zero_fails() -> None:
    source = select_of("select * from generate_series(1, 2, 0)").source
    assert isinstance(source, SeriesSource)
    with pytest.raises(SqlError) as caught:
        instantiate_series(source, (), {})
    assert (caught.value.sqlstate, caught.value.message) == ("22023", "step size cannot equal zero")


def test_a_series_is_bigint_where_an_argument_is() -> None:
    kinds = [
        getattr(select_of(f"select * from generate_series({c})").source, "type", None)
        for c in ("1, 2", "1, '2'", "1, 2147483648", "1::smallint, 2")
    ]
    assert kinds == [INTEGER, INTEGER, BIGINT, INTEGER]


# -- Against a naive model ----------------------------------------------------------------------------------

Row = dict[str, Any]
Test = Callable[[Row], bool | None]


@dataclass
class Predicate:
    """SQL text, and what it says of a row in three-valued logic, written independently."""

    sql: str
    test: Test


def _compare(op: str, x: Any, y: Any) -> bool | None:
    if x is None or y is None:
        return None
    nan_x, nan_y = x != x, y != y
    sign = nan_x - nan_y if nan_x or nan_y else (x > y) - (x < y)
    return bool({"=": sign == 0, "<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[op])


def _any(found: list[bool | None]) -> bool | None:
    return True if True in found else None if None in found else False


def _all(found: list[bool | None]) -> bool | None:
    return False if False in found else None if None in found else True


INTS = st.sampled_from([-40_000, -3, -1, 0, 1, 2, 3, 40_000, 2**31, -(2**33)])
FLOATS = st.sampled_from([-1.5, -0.0, 0.5, 1.0, 2.25, math.inf, math.nan])
TEXTS = st.sampled_from(["", "a", "ab", "abc", "b", "é"])
DAYS = st.sampled_from([-1, 0, 1, 2])

ROWS = st.fixed_dictionaries(
    {
        "a": st.sampled_from([-40_000, -3, -1, 0, 1, 2, 3, 40_000]),
        "b": st.none() | TEXTS,
        "c": st.none() | INTS,
        "s": st.none() | st.sampled_from([-3, -1, 0, 1, 2, 3]),
        "e": st.none() | FLOATS,
        "f": st.none() | st.booleans(),
        "d": st.none() | DAYS,
    }
)


def _float_text(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return f"'{value}'::float8"
    return f"{value!r}::float8"


@st.composite
def comparisons(draw: st.DrawFn) -> Predicate:
    column = draw(st.sampled_from("aabbcssed"))
    op = draw(st.sampled_from(["=", "=", "<", "<=", ">", ">="]))
    if column == "b":
        value: Any = draw(TEXTS)
        text = f"'{value}'"
    elif column == "e" or (column in "as" and draw(st.booleans())):
        value = draw(FLOATS)
        text = _float_text(value)
    elif column == "d":
        hours = draw(st.sampled_from([-24, -1, 0, 5, 24, 48]))
        value = hours / 24
        text = f"'{datetime(2000, 1, 1) + timedelta(hours=hours)}'::timestamp"  # noqa: DTZ001
    else:
        value = draw(INTS)
        text = f"({value})"
    return Predicate(f"{column} {op} {text}", lambda row: _compare(op, row[column], value))


@st.composite
def lists(draw: st.DrawFn) -> Predicate:
    column = draw(st.sampled_from("ascb"))
    values = draw(st.lists(TEXTS if column == "b" else INTS, min_size=1, max_size=4))
    text = ", ".join(f"'{v}'" if column == "b" else f"({v})" for v in values)
    return Predicate(
        f"{column} in ({text})", lambda row: _any([_compare("=", row[column], v) for v in values])
    )


@st.composite
def row_lists(draw: st.DrawFn) -> Predicate:
    first, second = draw(st.permutations("asc"))[:2]
    pairs = draw(st.lists(st.tuples(INTS, INTS), min_size=1, max_size=3))
    text = ", ".join(f"(({x}), ({y}))" for x, y in pairs)

    def test(row: Row) -> bool | None:
        return _any([_all([_compare("=", row[first], x), _compare("=", row[second], y)]) for x, y in pairs])

    return Predicate(f"({first}, {second}) in ({text})", test)


@st.composite
def row_comparisons(draw: st.DrawFn) -> Predicate:
    first, second = draw(st.permutations("asc"))[:2]
    op = draw(st.sampled_from(["<", "<=", ">", ">="]))
    x, y = draw(INTS), draw(INTS)

    def test(row: Row) -> bool | None:
        head = _compare("=", row[first], x)
        if head is None:
            return None
        return _compare(op, row[second], y) if head else _compare(op, row[first], x)

    return Predicate(f"({first}, {second}) {op} (({x}), ({y}))", test)


def nulls() -> st.SearchStrategy[Predicate]:
    return st.sampled_from("bcsef").map(lambda c: Predicate(f"{c} is null", lambda row: row[c] is None))


def flags() -> st.SearchStrategy[Predicate]:
    return st.sampled_from(
        [
            Predicate("f", lambda row: row["f"]),
            Predicate("not f", lambda row: None if row["f"] is None else not row["f"]),
            Predicate("f is true", lambda row: row["f"] is True),
            Predicate("f is not true", lambda row: row["f"] is not True),
        ]
    )


def likes() -> st.SearchStrategy[Predicate]:
    return st.sampled_from(["", "a", "ab", "é"]).map(
        lambda p: Predicate(
            f"b like '{p}%'", lambda row: None if row["b"] is None else row["b"].startswith(p)
        )
    )


def either(parts: list[Predicate]) -> Predicate:
    return Predicate(
        "(" + " or ".join(f"({p.sql})" for p in parts) + ")", lambda row: _any([p.test(row) for p in parts])
    )


def both(parts: list[Predicate]) -> Predicate:
    return Predicate(
        "(" + " and ".join(f"({p.sql})" for p in parts) + ")", lambda row: _all([p.test(row) for p in parts])
    )


SIMPLE = (
    comparisons() | comparisons() | lists() | row_lists() | row_comparisons() | nulls() | flags() | likes()
)
NESTED = st.lists(SIMPLE, min_size=1, max_size=3).map(either) | SIMPLE
WHERE = st.lists(NESTED, min_size=1, max_size=4).map(both)

KEYS = st.lists(
    st.tuples(st.sampled_from("abcsefd"), st.sampled_from(["", "desc", "nulls first", "desc nulls last"])),
    min_size=1,
    max_size=3,
    unique_by=lambda k: k[0],
)


def _in_range(values: list[Any], key_range: KeyRange) -> bool:
    width = len(key_range.prefix)
    for value, wanted in zip(values, key_range.prefix, strict=False):
        if (value is None) != (wanted is None):
            return False
        if value is not None and not _compare("=", value, wanted):
            return False
    lower, upper = key_range.lower, key_range.upper
    if lower is not None and not _compare(">=" if lower.inclusive else ">", values[width], lower.value):
        return False
    return upper is None or bool(_compare("<=" if upper.inclusive else "<", values[width], upper.value))


def _before(orderings: tuple[Ordering, ...]) -> Callable[[list[Any], list[Any]], int]:
    def compare(x: list[Any], y: list[Any]) -> int:
        for a, b, ordering in zip(x, y, orderings, strict=False):
            if a is None or b is None:
                sign = (a is None) - (b is None)
                sign = -sign if ordering.nulls_first else sign
            else:
                sign = bool(_compare(">", a, b)) - bool(_compare("<", a, b))
                sign = -sign if ordering.descending else sign
            if sign:
                return sign
        return 0

    return compare


@settings(max_examples=400, deadline=None)
@given(where=WHERE, indexes=st.lists(KEYS, min_size=1, max_size=2), rows=st.lists(ROWS, max_size=12))
def test_ranges_and_leftover_predicates_find_what_where_asks_for(
    where: Predicate, indexes: list[list[tuple[str, str]]], rows: list[Row]
) -> None:
    within = catalog(*(f"CREATE INDEX ON t ({', '.join(f'{c} {d}' for c, d in keys)})" for keys in indexes))
    plan = select_of(f"select * from t where {where.sql}", within)
    peek = instantiate(plan, (), {})
    expected = [i for i, row in enumerate(rows) if where.test(row)]
    assert _read(plan, peek, rows) == expected


def _read(plan: SelectPlan, peek: ReadyPeek, rows: list[Row]) -> list[int]:
    """Read rows as a walk would, naively; checks that the ranges are disjoint and in the index's order."""
    source = plan.source
    assert isinstance(source, TableSource) and source.index is not None
    index = source.index
    names = [COLUMNS[getattr(e, "index", -1)].name for e in index.stored]
    stored = [[row.get(n) for n in names] for row in rows]
    if peek.constraints is not None:
        visited: list[int] = []
        prefixes = [list(r.prefix) for r in peek.constraints]
        compare = _before(index.layout.key)
        assert prefixes == sorted(prefixes, key=cmp_to_key(compare))
        for key_range in peek.constraints:
            visited += [i for i, values in enumerate(stored) if _in_range(values, key_range)]
        assert len(visited) == len(set(visited))
    else:
        visited = list(range(len(rows)))
    kept = []
    for i in sorted(visited):
        columns = [column_from_values(e.type, [v]) for e, v in zip(index.stored, stored[i], strict=True)]
        if all(evaluate(p, columns, 1).column.value(0) for p in peek.mfp.predicates):
            kept.append(i)
    return kept


def test_declared_parameter_types_are_kept() -> None:
    assert planned("select $1 + 1", types=[BIGINT]).params == (BIGINT,)
