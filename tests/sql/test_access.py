"""The choice of index, the key ranges, and the order that an index serves, as EXPLAIN shows them."""

from __future__ import annotations

import pytest

from layby.sql.catalog import Catalog
from tests.sql.tables import PLAIN, PRIMARY, catalog, explained, select_of

MANY = catalog(
    "CREATE UNIQUE INDEX t_pkey ON t (a)",
    "CREATE INDEX t_b_c ON t (b, c DESC)",
    "CREATE INDEX t_d ON t (d)",
    "CREATE INDEX t_lower ON t (lower(b))",
    "CREATE INDEX t_f ON t (f)",
    "CREATE INDEX t_s_a ON t (s, a)",
    "CREATE INDEX t_e ON t (e)",
)

PEEKS = [
    ("a = 5", "t_pkey", "(a = 5)", None),
    ("5 = a", "t_pkey", "(a = 5)", None),
    ("5 < a and 9 >= a", "t_pkey", "(a > 5) AND (a <= 9)", None),
    ("5 <= a and 9 > a", "t_pkey", "(a >= 5) AND (a < 9)", None),
    ("(a = 1 and a = 2) or a = 3", "t_pkey", None, "(((a = 1) AND (a = 2)) OR (a = 3))"),
    ("a = 5 and b = 'x'", "t_pkey", "(a = 5)", "(b = 'x')"),
    ("a in (3, 1)", "t_pkey", "(a IN (3, 1))", None),
    ("a = any('{3,1}')", "t_pkey", "(a IN (3, 1))", None),
    ("a = any(array[3, 1])", "t_pkey", "(a IN (3, 1))", None),
    ("a = 3 or a = 1 or a = 2", "t_pkey", "(a IN (3, 1, 2))", None),
    ("b is null", "t_b_c", "(b IS NULL)", None),
    ("b = 'x' or b is null", "t_b_c", "(b = 'x' OR b IS NULL)", None),
    ("b = 'x' and c > 3", "t_b_c", "(b = 'x') AND (c > 3)", None),
    ("c > 3 and b = 'x' and c <= 9", "t_b_c", "(b = 'x') AND (c > 3) AND (c <= 9)", None),
    ("b = 'x' and c = 3", "t_b_c", "(b = 'x') AND (c = 3)", None),
    ("b > 'x' and c = 3", "t_b_c", "(b > 'x')", "(c = 3)"),
    ("a between 1 and 5", "t_pkey", "(a >= 1) AND (a <= 5)", None),
    ("a not between 1 and 5", "t_pkey", None, "(NOT ((a >= 1) AND (a <= 5)))"),
    ("lower(b) = 'x'", "t_lower", "(lower(b) = 'x')", None),
    ("b like 'ab%'", "t_b_c", "(b >= 'ab') AND (b < 'ac')", "(b LIKE 'ab%')"),
    ("b like '%ab'", "t_pkey", None, "(b LIKE '%ab')"),
    ("b not like 'ab%'", "t_pkey", None, "(b NOT LIKE 'ab%')"),
    ("f", "t_f", "(f = true)", None),
    ("not f", "t_f", "(f = false)", None),
    ("f is true", "t_f", "(f = true)", None),
    ("(s, a) in ((1, 2), (3, 4))", "t_s_a", "((s, a) IN ((1, 2), (3, 4)))", None),
    ("(a, s) in ((1, 2), (3, 4))", "t_s_a", "((s, a) IN ((2, 1), (4, 3)))", None),
    ("(s, a) = (1, 2)", "t_s_a", "(s = 1) AND (a = 2)", None),
    ("(s, a) > (1, 2)", "t_s_a", "(s >= 1)", "((s > 1) OR ((s = 1) AND (a > 2)))"),
    ("s in (1, 2) and a > 7", "t_s_a", "(s IN (1, 2)) AND (a > 7)", None),
    ("a < 3.5", "t_pkey", "(a < 3.5)", None),
    ("c = 3.5", "t_pkey", None, "(c::double precision = 3.5)"),
    ("a = 1 or b = 'x'", "t_pkey", None, "((a = 1) OR (b = 'x'))"),
    ("a <> 1", "t_pkey", None, "(a <> 1)"),
    ("a = s", "t_pkey", None, "(a = s)"),
    ("a + 1 = 5", "t_pkey", None, "((a + 1) = 5)"),
    ("a = null", "t_pkey", "(a = NULL)", None),
    ("e > random()", "t_pkey", None, "(e > random())"),
    ("d = current_date", "t_d", "(d = current_date)", None),
    ("d = $1", "t_d", "(d = $1)", None),
    ("true and a = 1", "t_pkey", "(a = 1)", None),
]


def line(lines: list[str], label: str) -> str | None:
    found = [text.strip() for text in lines if text.strip().startswith(label)]
    return found[0].removeprefix(label).strip() if found else None


@pytest.mark.parametrize(("where", "index", "key", "rest"), PEEKS)
def test_a_predicate_becomes_ranges_of_the_best_index(
    where: str, index: str, key: str | None, rest: str | None
) -> None:
    lines = explained(f"select a from t where {where}", MANY)
    verb = "Walk of" if key is None else "Peek at"
    assert lines[0] == f"{verb} index {index} on t"
    assert line(lines, "Key:") == key
    assert line(lines, "Filter:") == rest


def test_a_table_without_index_is_walked_as_a_whole() -> None:
    assert explained("select a from t where a = 1") == ["Walk of table t", "  Filter: (a = 1)"]


def test_any_index_is_walked_rather_than_the_table() -> None:
    assert explained("select b from t", PRIMARY) == ["Walk of index t_pkey on t"]


def test_an_index_on_an_expression_is_the_last_to_be_walked() -> None:
    within = catalog("CREATE INDEX x ON t ((1 / a))", "CREATE INDEX y ON t (a, b, c)")
    assert explained("select b from t", within) == ["Walk of index y on t"]


def test_a_false_predicate_reads_nothing() -> None:
    assert explained("select a from t where a = 1 and 1 = 2", PRIMARY) == ["Nothing from t"]


def test_a_unique_key_given_whole_beats_another_of_its_length() -> None:
    within = catalog("CREATE INDEX x ON t (b)", "CREATE UNIQUE INDEX y ON t (a)")
    assert explained("select c from t where a = 1 and b = 'x'", within)[0] == "Peek at index y on t"


def test_a_longer_equality_prefix_beats_a_unique_key() -> None:
    within = catalog("CREATE UNIQUE INDEX x ON t (a)", "CREATE INDEX y ON t (a, b)")
    assert explained("select c from t where a = 1 and b = 'x'", within)[0] == "Peek at index y on t"


def test_a_range_beats_an_order() -> None:
    within = catalog("CREATE INDEX x ON t (b)", "CREATE INDEX y ON t (c)")
    assert explained("select a from t where c > 1 order by b", within)[0] == "Peek at index y on t"


def test_fewer_columns_win_where_nothing_else_differs() -> None:
    within = catalog("CREATE INDEX x ON t (a, b)", "CREATE INDEX y ON t (a)")
    assert explained("select a from t where a = 1", within)[0] == "Peek at index y on t"


def test_a_product_of_alternatives_stops_before_it_gets_too_large() -> None:
    items = ", ".join(str(i) for i in range(200))
    within = catalog("CREATE INDEX x ON t (a, s)")
    lines = explained(f"select a from t where a in ({items}) and s in ({items})", within)
    assert (line(lines, "Key:") or "").startswith("(a IN (0, 1")
    assert "s IN" not in (line(lines, "Key:") or "")
    assert (line(lines, "Filter:") or "").startswith("(s::integer IN (0, 1")


ORDERS = [
    ("", "a", "a (from the index)"),
    ("", "a desc", "a DESC (from the index, walked in reverse)"),
    ("", "a nulls first", "a NULLS FIRST (from the index)"),
    ("", "b, c desc", "b, c DESC (from the index)"),
    ("", "b desc, c", "b DESC, c (from the index, walked in reverse)"),
    ("", "b, c", "b, c (sorted)"),
    ("", "b nulls first", "b NULLS FIRST (sorted)"),
    ("", "b desc nulls last", "b DESC NULLS LAST (sorted)"),
    ("", "c", "c (sorted)"),
    ("where b = 'x'", "c desc", "c DESC (from the index)"),
    ("where b = 'x'", "b, c", "b, c (from the index, walked in reverse)"),
    ("where b = 'x'", "c desc, b", "c DESC, b (from the index)"),
    ("where b in ('x', 'y')", "c desc", "c DESC (sorted)"),
    ("where b in ('x', 'y')", "b, c desc", "b, c DESC (from the index)"),
    ("where b = 'x' and c > 3", "c desc", "c DESC (from the index)"),
    ("where a = 1", "e", "e (from the index)"),
    ("", "lower(b)", "lower(b) (from the index)"),
    ("", "b, c desc, a", "b, c DESC, a (sorted)"),
]


@pytest.mark.parametrize(("where", "order", "shown"), ORDERS)
def test_an_order_comes_from_the_index_where_it_begins_the_indexs_own(
    where: str, order: str, shown: str
) -> None:
    within = catalog(
        "CREATE UNIQUE INDEX t_pkey ON t (a)",
        "CREATE INDEX t_b_c ON t (b, c DESC)",
        "CREATE INDEX t_lower ON t (lower(b))",
    )
    assert line(explained(f"select * from t {where} order by {order}", within), "Order:") == shown


def test_the_mfp_reads_the_indexs_stored_columns() -> None:
    within = catalog("CREATE INDEX x ON t (c, (a + 1))")
    plan = select_of("select a, b, a + 1, c from t where c > 0 and e > 1", within)
    # Stored: c, a + 1, a, b, d, e, f, ts, s, r, tz.
    assert [getattr(e, "index", None) for e in plan.mfp.outputs] == [2, 3, 1, 0]
    assert plan.mfp.arity == 11
    assert [getattr(e.args[0], "index", None) for e in plan.mfp.predicates if hasattr(e, "args")] == [5]


def test_a_series_that_climbs_is_in_order_already() -> None:
    sql = "select x from generate_series(1, 9) as g(x) order by x"
    assert explained(sql) == [
        "Series from generate_series(1, 9, 1)",
        "  Order: generate_series (as generated)",
    ]
    assert select_of(sql).order == "forward"
    assert select_of("select x from generate_series(9, 1, -1) as g(x) order by x").order is None
    assert select_of("select x from generate_series(1, 9) as g(x) order by x desc").order is None


def test_hidden_order_columns_are_projected_away() -> None:
    plan = select_of("select b, b, a from t order by c, a, 1")
    assert plan.projection == (0, 0, 1)
    assert [k.column for k in plan.order_by] == [2, 1, 0]
    assert len(plan.mfp.outputs) == 3


@pytest.mark.parametrize(
    ("order", "column"), [("x", 0), ("2", 1), ("a", 1), ("c", 2), ("a + 1", 0), ("t.c", 2)]
)
def test_order_by_means_an_output_column_before_an_input_column(order: str, column: int) -> None:
    plan = select_of(f"select a + 1 as x, b as a from t order by {order}")
    assert [k.column for k in plan.order_by] == [column]


def test_a_constant_order_is_no_order() -> None:
    assert (
        select_of("select a from t order by 'x'::text, a").order_by
        == select_of("select a from t order by a").order_by
    )


@pytest.mark.parametrize("within", [PLAIN, PRIMARY], ids=["table", "index"])
def test_update_and_delete_read_whole_rows(within: Catalog) -> None:
    assert len(select_of("delete from t where a = 1", within).projection) == 10
    assert len(select_of("update t set a = 2 where a = 1", within).projection) == 20
