"""Parameters and session values."""

from __future__ import annotations

import pytest

from layby.expr.evaluate import evaluate
from layby.expr.scalar import Literal, SessionValue
from layby.sql.calls import SESSION_VALUES
from layby.sql.instantiate import instantiate
from layby.sql.plan import TableSource
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE_PRECISION,
    INTEGER,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    PhysicalValue,
    SqlType,
)
from tests.sql.tables import failure, planned, report, select_of


@pytest.mark.parametrize(
    ("sql", "types"),
    [
        ("select $1", (TEXT,)),
        ("select a from t where a = $1", (INTEGER,)),
        ("select a from t where $2 = c and $1 < d", (DATE, BIGINT)),
        ("select a from t where a in ($1, $2)", (INTEGER, INTEGER)),
        ("select a from t where a between $1 and $2", (INTEGER, INTEGER)),
        ("select a from t where f and $1", (BOOLEAN,)),
        ("select a + $1, $1 from t", (INTEGER,)),
        ("select a from t limit $1 offset $2", (BIGINT, BIGINT)),
        ("select $1::int, $2::timestamp", (INTEGER, TIMESTAMP)),
        ("select coalesce(a, $1), case when $2 then 1 else $3 end from t", (INTEGER, BOOLEAN, INTEGER)),
        ("select b || $1, lower($2) from t", (TEXT, TEXT)),
        ("select a from t where b like $1", (TEXT,)),
        ("update t set e = $1 where s = $2", (DOUBLE_PRECISION, SMALLINT)),
        ("select a from t where (a, s) > ($1, $2)", (INTEGER, SMALLINT)),
        ("select * from generate_series(1, $1)", (INTEGER,)),
        ("values ($1, 1), (2, $2)", (INTEGER, INTEGER)),
        ("select a from t where a = $1 or s = $1", (INTEGER,)),
    ],
)
def test_a_parameter_takes_its_type_from_its_place(sql: str, types: tuple[SqlType, ...]) -> None:
    assert planned(sql).params == types


def test_a_declared_type_is_kept() -> None:
    assert planned("select a from t where a = $1", types=[SMALLINT]).params == (SMALLINT,)
    assert planned("select a from t where a = $2 and c = $1", types=[None, SMALLINT]).params == (
        BIGINT,
        SMALLINT,
    )


def test_a_parameter_that_is_never_met_has_no_type() -> None:
    assert report(failure("select $2::int")) == (
        "42P18",
        "could not determine data type of parameter $1",
        None,
    )


def test_a_parameter_of_no_known_type_cannot_be_tested_for_null() -> None:
    assert report(failure("select $1 is null"))[:2] == (
        "42P18",
        "could not determine data type of parameter $1",
    )


def test_there_is_no_parameter_zero() -> None:
    assert report(failure("select $0")) == ("42P02", "there is no parameter $0", 8)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("now()", SessionValue("now", TIMESTAMPTZ)),
        ("current_timestamp", SessionValue("now", TIMESTAMPTZ)),
        ("transaction_timestamp()", SessionValue("now", TIMESTAMPTZ)),
        ("statement_timestamp()", SessionValue("statement_timestamp", TIMESTAMPTZ)),
        ("current_date", SessionValue("current_date", DATE)),
        ("current_user", SessionValue("current_user", TEXT)),
        ("user", SessionValue("current_user", TEXT)),
        ("session_user", SessionValue("session_user", TEXT)),
        ("current_database()", SessionValue("current_database", TEXT)),
        ("current_catalog", SessionValue("current_database", TEXT)),
        ("current_schema", SessionValue("current_schema", TEXT)),
        ("pg_catalog.current_schema()", SessionValue("current_schema", TEXT)),
        ("pg_backend_pid()", SessionValue("pg_backend_pid", INTEGER)),
        ("current_setting('TimeZone')", SessionValue("setting:timezone", TEXT)),
        ("pg_catalog.version()", Literal("PostgreSQL 15.0 (layby 0.1.0)", TEXT)),
    ],
)
def test_a_session_function_is_a_session_value(expression: str, value: object) -> None:
    (output,) = select_of(f"select {expression}").mfp.outputs
    assert output == value
    if isinstance(output, SessionValue) and not output.name.startswith("setting:"):
        assert output.name in SESSION_VALUES


TYPE_INFO = """\
SELECT
    typname AS name, oid, typarray AS array_oid,
    oid::regtype::text AS regtype, typdelim AS delimiter
FROM pg_type t
WHERE t.oid = to_regtype({})
ORDER BY t.oid
"""


def kept(sql: str, *params: str) -> list[list[PhysicalValue]]:
    """Read a system relation as a walk would, naively."""
    plan = select_of(sql)
    source = plan.source
    assert isinstance(source, TableSource) and source.table.rows is not None
    peek = instantiate(plan, params, {})
    columns = source.table.rows()
    rows = []
    for i in range(len(columns[0])):
        row = [c.slice(i, i + 1) for c in columns]
        if all(evaluate(p, row, 1).column.value(0) for p in peek.mfp.predicates):
            rows.append([evaluate(peek.mfp.outputs[o], row, 1).column.value(0) for o in plan.projection])
    return rows


@pytest.mark.parametrize(("literal", "params"), [("'{}'", False), ("$1", True)])
def test_drivers_find_types_by_name(literal: str, params: bool) -> None:
    def fetch(name: str) -> list[list[PhysicalValue]]:
        sql = TYPE_INFO.format(literal.format(name))
        return kept(sql, name) if params else kept(sql)

    assert fetch("hstore") == []
    assert fetch("int4") == [["int4", 23, 1007, "integer", ","]]
    assert fetch("timestamp with time zone") == [["timestamptz", 1184, 1185, "timestamp with time zone", ","]]


def test_a_type_that_does_not_exist_is_no_regtype() -> None:
    assert report(failure("select 'hstore'::regtype"))[:2] == ("42704", 'type "hstore" does not exist')


def test_pg_type_lists_every_type_once() -> None:
    assert sorted(str(row[0]) for row in kept("select typname from pg_catalog.pg_type")) == [
        "bool", "date", "float4", "float8", "int2", "int4", "int8", "text", "timestamp", "timestamptz",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "sql",
    [
        "select pg_catalog.version()",
        "show standard_conforming_strings",
        "select current_schema()",
        "show transaction isolation level",
        "SELECT pg_advisory_unlock_all()",
        "CLOSE ALL",
        "UNLISTEN *",
        "RESET ALL",
        "select 'test plain returns'::VARCHAR(60) as anon_1",
        "set local client_encoding to utf8",
    ],
)
def test_what_drivers_send_at_connect_is_planned(sql: str) -> None:
    assert planned(sql).catalog_version == 1
