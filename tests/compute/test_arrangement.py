from __future__ import annotations

import numpy as np

from layby.compute.arrangement import Arranged, ArrangementDesc, Updates, arrange, shard, stamp
from layby.expr.scalar import ColumnRef, Expr
from layby.memory.arena import HEAP
from layby.sql.catalog import Table
from layby.sql.parse import parse_script
from layby.sql.plan import CreateIndexPlan
from layby.sql.planner import plan
from layby.trace.batch import Batch
from layby.trace.layout import Layout
from layby.types.column import column_from_values
from layby.types.ordering import ASCENDING, DESCENDING, Ordering
from layby.types.scalar import INTEGER, TEXT, PhysicalValue
from tests.compute.tables import PAIRS, catalog_of

Row = tuple[PhysicalValue, ...]


def updates(*rows: tuple[int | None, str | None, int]) -> Updates:
    """Return updates of the table (a int, b text), given as its rows with their diffs."""
    columns = (
        column_from_values(INTEGER, [row[0] for row in rows]),
        column_from_values(TEXT, [row[1] for row in rows]),
    )
    return Updates(columns, np.array([row[2] for row in rows], np.int64))


def contents(batch: Batch) -> list[tuple[Row, int, int]]:
    """Return the updates of a batch in its order: row, time, diff."""
    rows = zip(*(c.to_list() for c in batch.columns), strict=True)
    return [
        (row, int(time), int(diff)) for row, time, diff in zip(rows, batch.times, batch.diffs, strict=True)
    ]


def keyed(expr: Expr, ordering: Ordering = ASCENDING) -> ArrangementDesc:
    """Describe an index of the table by one expression."""
    stored = (expr, ColumnRef(0, INTEGER), ColumnRef(1, TEXT))
    return ArrangementDesc(7, 1, "i", stored, Layout(tuple(e.type for e in stored), (ordering,)))


def key_of(sql: str, table: Table = PAIRS) -> Expr:
    """Return the key of an index on an expression, as the planner makes it."""
    (parsed,) = parse_script(f"CREATE INDEX i ON t (({sql}))")
    planned = plan(parsed, catalog_of(table), ()).plan
    assert isinstance(planned, CreateIndexPlan)
    return planned.keys[0].expr


def arranged(desc: ArrangementDesc, given: Updates, time: int = 5) -> Arranged:
    return arrange(desc, given, np.full(len(given.diffs), time, np.int64), time, time + 1, HEAP)


def test_a_shard_holds_all_columns_without_a_key() -> None:
    desc = shard(3, 1, "t", (INTEGER, TEXT))
    both = arranged(desc, updates((2, "x", 1), (1, "y", 1)))
    assert desc.layout.key == ()
    assert contents(both.oks) == [((1, "y"), 5, 1), ((2, "x"), 5, 1)]
    assert (both.oks.lower, both.oks.upper) == (5, 6)
    assert contents(both.errs) == []


def test_rows_come_in_the_order_of_the_key() -> None:
    given = updates((2, "x", 1), (None, "y", 1), (3, "z", 1), (1, None, 1))
    down = arranged(keyed(ColumnRef(0, INTEGER), DESCENDING), given)
    assert [row[0] for row, _, _ in contents(down.oks)] == [None, 3, 2, 1]


def test_equal_updates_are_put_together_and_those_that_cancel_vanish() -> None:
    both = arranged(
        keyed(ColumnRef(0, INTEGER)), updates((1, "x", 1), (2, "y", 1), (1, "x", 1), (2, "y", -1))
    )
    assert contents(both.oks) == [((1, 1, "x"), 5, 2)]


def test_a_row_whose_key_raises_goes_to_the_errors_with_its_diff() -> None:
    desc = keyed(key_of("10 / a"))
    both = arranged(desc, updates((5, "x", 1), (0, "y", 1), (0, "z", 1), (None, "w", 1)))
    assert contents(both.oks) == [((2, 5, "x"), 5, 1), ((None, None, "w"), 5, 1)]
    assert contents(both.errs) == [(("22012", 'index "i": division by zero'), 5, 2)]
    gone = arranged(desc, updates((0, "y", -1), (0, "z", -1)))
    assert contents(gone.errs) == [(("22012", 'index "i": division by zero'), 5, -2)]
    assert contents(gone.oks) == []


def test_different_errors_are_kept_apart() -> None:
    both = arranged(keyed(key_of("2147483647 + 10 / a")), updates((0, "x", 1), (1, "y", 1)))
    assert contents(both.oks) == []
    assert contents(both.errs) == [
        (("22003", 'index "i": integer out of range'), 5, 1),
        (("22012", 'index "i": division by zero'), 5, 1),
    ]


def test_a_constant_key_is_stored_for_every_row() -> None:
    both = arranged(keyed(key_of("1 + 1")), updates((1, "x", 1), (2, "y", 1)))
    assert contents(both.oks) == [((2, 1, "x"), 5, 1), ((2, 2, "y"), 5, 1)]


def test_a_stamp_gives_sorted_updates_their_commit_time() -> None:
    desc = keyed(key_of("10 / a"))
    before = arranged(desc, updates((5, "x", 1), (0, "y", 1)), time=0)
    after = stamp(before, 40, 30)
    assert contents(after.oks) == [((2, 5, "x"), 40, 1)]
    assert contents(after.errs) == [(("22012", 'index "i": division by zero'), 40, 1)]
    for batch in (after.oks, after.errs):
        assert (batch.lower, batch.upper) == (30, 41)


def test_of_two_keys_that_raise_for_one_row_the_first_is_its_error() -> None:
    keys = (key_of("10 / a"), key_of("(a - 1) * 2147483647 * 2"))
    stored = (*keys, ColumnRef(0, INTEGER), ColumnRef(1, TEXT))
    layout = Layout(tuple(e.type for e in stored), (ASCENDING, ASCENDING))
    both = arranged(ArrangementDesc(7, 1, "i", stored, layout), updates((0, "x", 1), (1, "y", 1)))
    assert contents(both.oks) == [((10, 0, 1, "y"), 5, 1)]
    assert contents(both.errs) == [(("22012", 'index "i": division by zero'), 5, 1)]
