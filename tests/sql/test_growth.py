"""How the work of planning grows: in proportion to a statement, whatever in it is long."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from layby.adapter.statements import EFFORT
from layby.expr.scalar import ColumnRef
from layby.sql.catalog import Catalog, IndexKey, Table, make_index
from layby.sql.context import TooLongError
from layby.sql.parse import parse_script
from layby.sql.planner import plan
from layby.types.ordering import ASCENDING
from layby.types.relation import ColumnDesc, RelationDesc
from layby.types.scalar import INTEGER
from tests.sql.tables import of


def wide(width: int) -> Catalog:
    """Return a catalog with a table `w` of integer columns c0, c1, ... and an index on c0."""
    desc = RelationDesc(tuple(ColumnDesc(f"c{i}", INTEGER) for i in range(width)))
    table = Table(1, "public", "w", desc, (None,) * width)
    index = make_index(2, "wi", table, (IndexKey(ColumnRef(0, INTEGER), ASCENDING),))
    return of(Table(1, "public", "w", desc, table.defaults, (index,)))


def bytecodes(work: Callable[[], object]) -> int:
    """Return how many of the interpreter's instructions a call takes: its cost, and the same each time."""
    count = 0

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def each(item: str, between: str = ", ") -> Callable[[int], str]:
    """Return what makes a list of an item for the numbers up to one."""
    return lambda n: between.join(item.replace("#", str(i)) for i in range(n))


STATEMENTS: dict[str, Callable[[int], str]] = {
    "star": lambda _: "SELECT * FROM w",
    "columns": lambda n: f"SELECT {each('c#')(n)} FROM w",
    "one column again and again": lambda n: f"SELECT {each('c0')(n)} FROM w",
    "outputs": lambda n: f"SELECT {each('c0 + #')(n)} FROM w",
    "order by columns": lambda n: f"SELECT c0 FROM w ORDER BY {each('c#')(n)}",
    "order by names": lambda n: f"SELECT * FROM w ORDER BY {each('c#')(n)}",
    "coalesce": lambda n: f"SELECT coalesce({each('c#')(n)}) FROM w",
    "or": lambda n: f"SELECT c0 FROM w WHERE {each('c0 = #', ' OR ')(n)}",
    "any": lambda n: f"SELECT c0 FROM w WHERE c0 = ANY ('{{{each('#', ',')(n)}}}')",
    "insert": lambda n: f"INSERT INTO w VALUES ({each('#')(n)})",
    "insert into columns": lambda n: f"INSERT INTO w ({each('c#')(n)}) VALUES ({each('#')(n)})",
    "insert of rows": lambda n: f"INSERT INTO w (c0) SELECT * FROM (VALUES {each('(#)')(n)}) v",
    "update of one": lambda _: "UPDATE w SET c0 = 1",
    "update of all": lambda n: f"UPDATE w SET {each('c# = c# + 1')(n)}",
    "delete": lambda _: "DELETE FROM w WHERE c0 = 1",
    "copy": lambda n: f"COPY w ({each('c#')(n)}) FROM STDIN",
    "create table": lambda n: f"CREATE TABLE x ({each('c# int')(n)})",
    "keys": lambda n: f"CREATE TABLE x ({each('c# int')(n)}, {each('UNIQUE (c#)')(n)})",
    "named keys": lambda n: f"CREATE TABLE x ({each('c# int CONSTRAINT u# UNIQUE')(n)})",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_planning_grows_in_proportion_to_the_statement_and_its_table(name: str) -> None:
    def cost(width: int) -> int:
        catalog = wide(width)
        (statement,) = parse_script(STATEMENTS[name](width))
        return bytecodes(lambda: plan(statement, catalog, ()))

    cost(40)  # what is made once at the first use
    few, more, many = cost(40), cost(80), cost(160)
    assert many - more < 2.2 * (more - few)


@pytest.mark.parametrize("name", STATEMENTS)
def test_planning_that_takes_more_than_it_may_is_refused_before_it_is_done(name: str) -> None:
    catalog = wide(1_600)
    (statement,) = parse_script(STATEMENTS[name](1_600))

    def refused() -> None:
        with pytest.raises(TooLongError):
            plan(statement, catalog, (), EFFORT)

    assert bytecodes(refused) < 2_000


@pytest.mark.parametrize("name", STATEMENTS)
def test_planning_that_takes_no_more_than_it_may_is_bounded(name: str) -> None:
    for width in range(20, 1_600, 20):
        catalog = wide(width)
        (statement,) = parse_script(STATEMENTS[name](width))
        try:
            plan(statement, catalog, (), EFFORT)
        except TooLongError:
            break
        longest = statement, catalog
    assert bytecodes(lambda: plan(*longest, ())) < 400_000
