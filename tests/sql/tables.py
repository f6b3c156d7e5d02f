"""A catalog to plan against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from layby.errors import SqlError
from layby.sql.catalog import Catalog, Table, make_index
from layby.sql.explain import explain
from layby.sql.parse import parse_script
from layby.sql.plan import (
    CreateIndexPlan,
    DeletePlan,
    InsertPlan,
    Plan,
    PlannedStatement,
    SelectPlan,
    UpdatePlan,
)
from layby.sql.planner import plan
from layby.sql.system import SYSTEM_TABLES
from layby.types.relation import ColumnDesc, RelationDesc
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE_PRECISION,
    INTEGER,
    REAL,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
)

COLUMNS = (
    ColumnDesc("a", INTEGER, nullable=False),
    ColumnDesc("b", TEXT),
    ColumnDesc("c", BIGINT),
    ColumnDesc("d", DATE),
    ColumnDesc("e", DOUBLE_PRECISION),
    ColumnDesc("f", BOOLEAN),
    ColumnDesc("ts", TIMESTAMP),
    ColumnDesc("s", SMALLINT),
    ColumnDesc("r", REAL),
    ColumnDesc("tz", TIMESTAMPTZ),
)


def catalog(*indexes: str) -> Catalog:
    """Return a catalog with the table `t` of COLUMNS and the indexes that the statements create."""
    table = Table(1, "public", "t", RelationDesc(COLUMNS), (None,) * len(COLUMNS))
    made = []
    for number, sql in enumerate(indexes, 1):
        index = plan_of(sql, of(table))
        assert isinstance(index, CreateIndexPlan)
        made.append(make_index(number, index.name, table, index.keys, unique=index.unique))
    return of(replace(table, indexes=tuple(made)))


def of(*tables: Table) -> Catalog:
    """Return a catalog of tables."""
    return Catalog(1, (*tables, *SYSTEM_TABLES))


def planned(
    sql: str, within: Catalog | None = None, types: Sequence[SqlType | None] = ()
) -> PlannedStatement:
    """Plan the only statement of `sql`."""
    (statement,) = parse_script(sql)
    return plan(statement, PLAIN if within is None else within, types)


def plan_of(sql: str, within: Catalog | None = None, types: Sequence[SqlType | None] = ()) -> Plan:
    """Return the plan of the only statement of `sql`."""
    return planned(sql, within, types).plan


def select_of(sql: str, within: Catalog | None = None, types: Sequence[SqlType | None] = ()) -> SelectPlan:
    """Return the select of a SELECT, INSERT, UPDATE or DELETE."""
    made = plan_of(sql, within, types)
    if isinstance(made, InsertPlan | UpdatePlan | DeletePlan):
        return made.select
    assert isinstance(made, SelectPlan)
    return made


def explained(sql: str, within: Catalog | None = None) -> list[str]:
    """Return EXPLAIN's lines for a statement."""
    return explain(plan_of(sql, within))


def failure(sql: str, within: Catalog | None = None, types: Sequence[SqlType | None] = ()) -> SqlError:
    """Return the error that parsing or planning a statement raises."""
    try:
        planned(sql, within, types)
    except SqlError as error:
        return error
    raise AssertionError(f"no error: {sql}")


def report(error: SqlError) -> tuple[str, str, int | None]:
    """Return what identifies an error: SQLSTATE, message, position."""
    return error.sqlstate, error.message, error.position


PLAIN = catalog()
PRIMARY = catalog("CREATE UNIQUE INDEX t_pkey ON t (a)")
