"""Statements other than SELECT: what their plans hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layby.expr.scalar import ColumnRef, Literal
from layby.sql.catalog import IndexKey, Table, make_index
from layby.sql.plan import (
    CopyOptions,
    CopyPlan,
    CreateIndexPlan,
    CreateTablePlan,
    DiscardPlan,
    DropPlan,
    ExplainPlan,
    InsertPlan,
    Plan,
    SetPlan,
    ShowPlan,
    TransactionPlan,
    UniqueConstraint,
    UpdatePlan,
    ValuesSource,
)
from layby.types.ordering import ASCENDING, DESCENDING, Ordering
from layby.types.relation import ColumnDesc, RelationDesc
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    INTEGER,
    REAL,
    TEXT,
    TIMESTAMPTZ,
)
from tests.sql.tables import PLAIN, PRIMARY, explained, failure, of, plan_of, planned, report, select_of


def created(sql: str) -> CreateTablePlan:
    plan = plan_of(sql)
    assert isinstance(plan, CreateTablePlan)
    return plan


def test_create_table_describes_columns_defaults_and_constraints() -> None:
    plan = created(
        "CREATE TABLE IF NOT EXISTS public.x (id bigint PRIMARY KEY, n varchar(10) DEFAULT 'none' NOT NULL,"
        " at timestamp with time zone DEFAULT now(), k int UNIQUE, r real, UNIQUE (n, k))"
        " WITH (fillfactor=90)"
    )
    assert (plan.schema, plan.name, plan.if_not_exists) == ("public", "x", True)
    assert plan.desc.columns == (
        ColumnDesc("id", BIGINT, nullable=False),
        ColumnDesc("n", TEXT, nullable=False, max_length=10),
        ColumnDesc("at", TIMESTAMPTZ),
        ColumnDesc("k", INTEGER),
        ColumnDesc("r", REAL),
    )
    assert plan.defaults[1] == Literal("none", TEXT)
    assert getattr(plan.defaults[2], "name", None) == "now"
    assert (plan.defaults[0], plan.defaults[3]) == (None, None)
    assert plan.unique == (
        UniqueConstraint("x_pkey", (0,), primary=True),
        UniqueConstraint("x_k_key", (3,), primary=False),
        UniqueConstraint("x_n_k_key", (1, 3), primary=False),
    )


def test_constraints_keep_the_names_they_are_given() -> None:
    plan = created("create table x (a int constraint one unique, b int, constraint two primary key (b, a))")
    assert plan.unique == (UniqueConstraint("two", (1, 0), True), UniqueConstraint("one", (0,), False))
    assert [c.nullable for c in plan.desc.columns] == [False, False]


def test_a_default_is_cast_to_its_column() -> None:
    plan = created("create table x (a int default 1.5 + 1, b text default 7, c boolean default 'on')")
    assert plan.defaults == (Literal(2, INTEGER), Literal("7", TEXT), Literal(True, BOOLEAN))


def test_a_table_may_have_no_columns() -> None:
    assert created("create table x ()").desc == RelationDesc(())


@pytest.mark.parametrize(
    ("sql", "sqlstate", "message"),
    [
        ("create table x (a varchar(0))", "22023", "length for type varchar must be at least 1"),
        ("create table x (a char(99999999))", "22023", "length for type char cannot exceed 10485760"),
        ("create table x (a int(3))", "42601", 'syntax error at or near "("'),
        ("create table x (a numeric)", "0A000", "type numeric is not supported"),
        ("create table x (a int[])", "0A000", "type int4[] is not supported"),
        ("create table x (a serial)", "0A000", "type serial is not supported"),
        ("create table x (a s.int)", "42704", 'type "s.int" does not exist'),
        ("create table nope.x (a int)", "3F000", 'schema "nope" does not exist'),
        ("create table pg_catalog.x (a int)", "42501", 'permission denied to create "pg_catalog.x"'),
        ("create table x (a int check (a > 0))", "0A000", "CHECK constraints are not supported"),
        ("create table x (a int references t)", "0A000", "FOREIGN KEY constraints are not supported"),
        (
            "create table x (a int generated always as identity)",
            "0A000",
            "identity columns are not supported",
        ),
        ("create temp table x (a int)", "0A000", "temporary tables are not supported"),
        ("create table x (like t)", "0A000", "LIKE in CREATE TABLE is not supported"),
        (
            "create table x (a int, b int) inherits (t)",
            "0A000",
            "inheritance and partitioning are not supported",
        ),
        (
            "create table x (a int default 1 default 2)",
            "42601",
            'multiple default values specified for column "a"',
        ),
        ("create table x (a int, unique (a, a))", "42701", 'column "a" appears twice in unique constraint'),
        ("create table x (a int default $1)", "42P02", "there is no parameter $1"),
    ],
)
def test_a_create_table_that_cannot_be_is_refused(sql: str, sqlstate: str, message: str) -> None:
    error = failure(sql)
    assert (error.sqlstate, error.message) == (sqlstate, message)


def index(sql: str) -> CreateIndexPlan:
    plan = plan_of(sql, PRIMARY)
    assert isinstance(plan, CreateIndexPlan)
    return plan


def test_create_index_holds_keys_and_their_orderings() -> None:
    plan = index(
        "create unique index if not exists i on t"
        " (a desc, b nulls first, c desc nulls last, (a + 1), lower(b) asc)"
    )
    assert (plan.name, plan.unique, plan.if_not_exists, plan.table.name) == ("i", True, True, "t")
    assert [k.ordering for k in plan.keys] == [
        DESCENDING,
        Ordering(descending=False, nulls_first=True),
        Ordering(descending=True, nulls_first=False),
        ASCENDING,
        ASCENDING,
    ]
    assert plan.keys[0].expr == ColumnRef(0, INTEGER)
    assert [k.expr.type for k in plan.keys[3:]] == [INTEGER, TEXT]


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ("a", "t_a_idx"),
        ("a, b", "t_a_b_idx"),
        ("lower(b)", "t_lower_idx"),
        ("(a + 1)", "t_expr_idx"),
        ("(a + 1), (a + 2), a", "t_expr_expr1_a_idx"),
        ("lower(b), lower(b)", "t_lower_lower1_idx"),
        ("(b::int)", "t_b_idx"),
        ("coalesce(b, 'x')", "t_coalesce_idx"),
        ("(case when f then 1 end)", "t_case_idx"),
    ],
)
def test_an_index_without_name_gets_the_one_postgresql_gives(keys: str, name: str) -> None:
    assert index(f"create index on t ({keys})").name == name


def test_a_chosen_name_that_is_taken_gets_a_number() -> None:
    table = Table(1, "public", "t", RelationDesc((ColumnDesc("a", INTEGER),)), (None,))
    key = (IndexKey(ColumnRef(0, INTEGER), ASCENDING),)
    taken = replace(
        table, indexes=(make_index(1, "t_a_idx", table, key), make_index(2, "t_a_idx1", table, key))
    )
    plan = plan_of("create index on t (a)", of(taken))
    assert isinstance(plan, CreateIndexPlan)
    assert plan.name == "t_a_idx2"


def test_a_chosen_name_is_cut_to_63_bytes() -> None:
    table = Table(1, "public", "n" * 60, RelationDesc((ColumnDesc("m" * 40, INTEGER),)), (None,))
    plan = plan_of(f"create index on {'n' * 60} ({'m' * 40})", of(table))
    assert isinstance(plan, CreateIndexPlan)
    assert plan.name == "n" * 29 + "_" + "m" * 29 + "_idx"


@pytest.mark.parametrize(
    ("sql", "sqlstate", "message"),
    [
        ("create index on t using hash (a)", "0A000", "access method hash is not supported"),
        ("create index on t (a) where a > 1", "0A000", "partial indexes are not supported"),
        ("create index on t (a) include (b)", "0A000", "INCLUDE is not supported"),
        ("create index on t (a int4_ops)", "0A000", "operator class int4_ops is not supported"),
        ("create index on t (zz)", "42703", 'column "zz" does not exist'),
        ("create index on t ((zz + 1))", "42703", 'column "zz" does not exist'),
        (
            "create index on t ((a + random()))",
            "42P17",
            "functions in index expression must be marked IMMUTABLE",
        ),
        (
            "create index on t ((d < current_date))",
            "42P17",
            "functions in index expression must be marked IMMUTABLE",
        ),
        ("create index on pg_type (oid)", "42501", 'permission denied: "pg_type" is a system catalog'),
    ],
)
def test_a_create_index_that_cannot_be_is_refused(sql: str, sqlstate: str, message: str) -> None:
    error = failure(sql)
    assert (error.sqlstate, error.message) == (sqlstate, message)


def inserted(sql: str) -> tuple[tuple[object, ...], ...]:
    plan = plan_of(sql, of(WITH_DEFAULTS))
    assert isinstance(plan, InsertPlan)
    assert isinstance(plan.select.source, ValuesSource)
    return plan.select.source.rows


WITH_DEFAULTS = Table(
    1,
    "public",
    "x",
    RelationDesc((ColumnDesc("a", INTEGER), ColumnDesc("b", TEXT), ColumnDesc("c", BIGINT))),
    (Literal(7, INTEGER), None, Literal(9, BIGINT)),
)


def test_insert_fills_in_defaults() -> None:
    none = Literal(None, TEXT)
    seven, nine = Literal(7, INTEGER), Literal(9, BIGINT)
    assert inserted("insert into x default values") == ((seven, none, nine),)
    assert inserted("insert into x (b) values ('u')") == ((seven, Literal("u", TEXT), nine),)
    assert inserted("insert into x values (1)") == ((Literal(1, INTEGER), none, nine),)
    assert inserted("insert into x (c, a) values (default, 2), (3, default)") == (
        (Literal(2, INTEGER), none, nine),
        (seven, none, Literal(3, BIGINT)),
    )


def test_insert_casts_every_cell_to_its_column() -> None:
    assert inserted("insert into x values ('5', 6, 7), (1.5, null, '8'), (true::int, 'y', 1 + 1)") == (
        (Literal(5, INTEGER), Literal("6", TEXT), Literal(7, BIGINT)),
        (Literal(2, INTEGER), Literal(None, TEXT), Literal(8, BIGINT)),
        (Literal(1, INTEGER), Literal("y", TEXT), Literal(2, BIGINT)),
    )


def test_insert_infers_parameters_from_its_columns() -> None:
    made = planned("insert into x (c, b, a) values ($1, $2, $3)", of(WITH_DEFAULTS))
    assert made.params == (BIGINT, TEXT, INTEGER)
    assert made.columns is None


def test_insert_of_a_select_casts_its_columns_and_keeps_its_order() -> None:
    plan = select_of(
        "insert into x (c, b) select a, 'u' from t where a > 1 order by d limit 5",
        of(WITH_DEFAULTS, PLAIN.tables["public", "t"]),
    )
    assert [plan.mfp.outputs[i].type for i in plan.projection] == [INTEGER, TEXT, BIGINT]
    assert plan.mfp.outputs[plan.projection[0]] == Literal(7, INTEGER)
    assert plan.mfp.outputs[plan.order_by[0].column] == ColumnRef(
        3, PLAIN.tables["public", "t"].desc.types[3]
    )
    assert plan.limit == Literal(5, BIGINT)


def test_update_puts_out_old_rows_then_new_ones() -> None:
    plan = plan_of("update t as u set a = u.a + 1, (b, c) = ('x', default) where u.a = 1", PLAIN)
    assert isinstance(plan, UpdatePlan)
    outputs = [plan.select.mfp.outputs[i] for i in plan.select.projection]
    assert [getattr(o, "index", None) for o in outputs[:10]] == list(range(10))
    assert outputs[11] == Literal("x", TEXT)
    assert outputs[12] == Literal(None, BIGINT)
    assert [getattr(o, "index", None) for o in outputs[13:]] == list(range(3, 10))


def test_a_system_relation_cannot_be_written() -> None:
    for sql in ("delete from pg_type", "update pg_type set oid = 1", "insert into pg_type default values"):
        assert report(failure(sql)) == ("42501", 'permission denied: "pg_type" is a system catalog', None)


TEXT_FORMAT = CopyOptions("text", "\t", "\\N", header=False, quote='"', escape='"')
CSV_FORMAT = CopyOptions("csv", ",", "", header=False, quote='"', escape='"')


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", TEXT_FORMAT),
        ("csv", CSV_FORMAT),
        ("with csv header", replace(CSV_FORMAT, header=True)),
        ("(format csv, header)", replace(CSV_FORMAT, header=True)),
        ("(format csv, header off)", CSV_FORMAT),
        (
            "with (format 'csv', delimiter ';', null 'NULL', quote '''')",
            CopyOptions("csv", ";", "NULL", header=False, quote="'", escape="'"),
        ),
        ("delimiter '|' null ''", replace(TEXT_FORMAT, delimiter="|", null="")),
        ("(format csv, escape '\\', encoding 'utf-8', freeze)", replace(CSV_FORMAT, escape="\\")),
        ("csv quote '''' escape '!'", replace(CSV_FORMAT, quote="'", escape="!")),
    ],
)
def test_copy_options_are_resolved_in_both_spellings(options: str, expected: CopyOptions) -> None:
    plan = plan_of(f"copy t (c, a) from stdin {options}")
    assert isinstance(plan, CopyPlan)
    assert plan.options == expected
    assert (plan.columns, plan.select) == ((2, 0), None)


def test_copy_to_reads_the_columns_it_writes() -> None:
    plan = plan_of("copy t (c, a) to stdout", PRIMARY)
    assert isinstance(plan, CopyPlan) and plan.select is not None
    assert [c.name for c in plan.select.columns] == ["c", "a"]
    query = plan_of("copy (select b as x from t limit 1) to stdout csv")
    assert isinstance(query, CopyPlan) and query.select is not None
    assert (query.table, [c.name for c in query.select.columns]) == (None, ["x"])


def test_copy_of_files_is_refused() -> None:
    assert failure("copy t from '/etc/passwd'").sqlstate == "0A000"
    assert failure("copy t to program 'cat'").sqlstate == "0A000"


UTILITIES: list[tuple[str, Plan]] = [
    ("drop table a, s.b", DropPlan("table", ((None, "a"), ("s", "b")), False)),
    ("drop index if exists i cascade", DropPlan("index", ((None, "i"),), True)),
    ("set x = 1", SetPlan("x", "1", False, False)),
    ("set x to on", SetPlan("x", "on", False, False)),
    ("set local Search_Path to a, 'B'", SetPlan("search_path", "a, B", True, False)),
    ("set session x = -1.5", SetPlan("x", "-1.5", False, False)),
    ("set time zone 'UTC'", SetPlan("timezone", "UTC", False, False)),
    ("set names 'utf8'", SetPlan("client_encoding", "utf8", False, False)),
    ("set x to default", SetPlan("x", None, False, False)),
    ("reset x", SetPlan("x", None, False, False)),
    ("reset all", SetPlan(None, None, False, False)),
    ("alter system set x = 'a b'", SetPlan("x", "a b", False, True)),
    ("alter system reset x", SetPlan("x", None, False, True)),
    ("alter system reset all", SetPlan(None, None, False, True)),
    (
        "set transaction isolation level serializable",
        SetPlan("transaction_isolation", "serializable", True, False),
    ),
    (
        "set session characteristics as transaction isolation level read committed",
        SetPlan("default_transaction_isolation", "read committed", False, False),
    ),
    ("set transaction read only", SetPlan("transaction_read_only", "on", True, False)),
    ("show x", ShowPlan("x")),
    ("show all", ShowPlan(None)),
    ("show transaction isolation level", ShowPlan("transaction_isolation")),
    ("begin", TransactionPlan("begin")),
    ("start transaction isolation level serializable", TransactionPlan("start transaction", "serializable")),
    ("begin read write", TransactionPlan("begin", None, read_only=False)),
    ("begin isolation level repeatable read read only", TransactionPlan("begin", "repeatable read", True)),
    ("commit work", TransactionPlan("commit")),
    ("end", TransactionPlan("commit")),
    ("commit and chain", TransactionPlan("commit", chain=True)),
    ("end and no chain", TransactionPlan("commit")),
    ("rollback", TransactionPlan("rollback")),
    ("abort", TransactionPlan("rollback")),
    ("discard all", DiscardPlan("DISCARD ALL")),
    ("discard plans", DiscardPlan("DISCARD PLANS")),
    ("discard temp", DiscardPlan("DISCARD TEMP")),
    ("deallocate p", DiscardPlan("DEALLOCATE", "p")),
    ("deallocate prepare all", DiscardPlan("DEALLOCATE ALL")),
    ("close all", DiscardPlan("CLOSE CURSOR ALL")),
    ("unlisten *", DiscardPlan("UNLISTEN")),
    ("vacuum", DiscardPlan("VACUUM")),
    ("vacuum (analyze, verbose) t", DiscardPlan("VACUUM")),
    ("analyze t (a)", DiscardPlan("ANALYZE")),
]


@pytest.mark.parametrize(("sql", "expected"), UTILITIES)
def test_a_utility_statement_is_planned_as_data(sql: str, expected: Plan) -> None:
    assert plan_of(sql) == expected


def test_only_what_exists_is_analyzed() -> None:
    error = failure("analyze t, nope")
    assert (error.sqlstate, error.message) == ("42P01", 'relation "nope" does not exist')


def test_explain_wraps_the_plan() -> None:
    plan = plan_of("explain (analyze, costs off, format text) select 1")
    assert isinstance(plan, ExplainPlan) and plan.analyze
    columns = planned("explain select 1").columns
    assert columns is not None and [c.name for c in columns] == ["QUERY PLAN"]
    assert explained("explain delete from t where a = 1", PRIMARY) == [
        "Delete on t",
        "  ->  Peek at index t_pkey on t",
        "        Key: (a = 1)",
    ]
    assert explained("select 1 where 2 > $1") == ["Result", "  Filter: (2 > $1)"]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select * from t x join t y on true", "joins are not supported"),
        ("select * from t, t u", "joins are not supported"),
        ("select a from t group by a", "GROUP BY is not supported"),
        ("select 1 having true", "HAVING is not supported"),
        ("select sum(a) from t", "aggregate functions are not supported"),
        ("select count(*) from t", "aggregate functions are not supported"),
        ("select a, row_number() over () from t", "window functions are not supported"),
        ("select distinct a from t", "DISTINCT is not supported"),
        ("select 1 union all select 2", "UNION is not supported"),
        ("select 1 except select 2", "EXCEPT is not supported"),
        ("with x as (select 1) select 1", "WITH is not supported"),
        ("select (select 1)", "subqueries are not supported"),
        ("select * from (select 1) x", "subqueries in FROM are not supported"),
        ("select a from t where exists (select 1)", "subqueries are not supported"),
        ("select a from t where a in (select 1)", "subqueries are not supported"),
        ("select a from t for update", "FOR UPDATE and FOR SHARE are not supported"),
        ("select a from t order by a fetch first 1 row with ties", "WITH TIES is not supported"),
        ("select t from t", "whole-row references are not supported"),
        ("select array[1]", "arrays are not supported"),
        ("select b similar to 'x' from t", "SIMILAR TO is not supported"),
        ("select generate_series(1, 2)", "set-returning functions in expressions are not supported"),
        ("select 1::numeric(10, 2)", "type numeric is not supported"),
        ("select current_time", "type time is not supported"),
        ("select 1 into x", "SELECT INTO is not supported"),
        ("insert into t values (1) returning a", "RETURNING is not supported"),
        ("insert into t values (1) on conflict do nothing", "ON CONFLICT is not supported"),
        ("update t set a = 1 from t u", "UPDATE FROM is not supported"),
        ("delete from t using t u", "USING is not supported"),
        ("truncate t", "TRUNCATE is not supported"),
        ("alter table t add x int", "ALTER TABLE is not supported"),
        ("create view v as select 1", "CREATE VIEW is not supported"),
        ("create table x as select 1", "CREATE TABLE AS is not supported"),
        ("drop view v", "DROP VIEW is not supported"),
        ("listen x", "LISTEN is not supported"),
        ("checkpoint", "CHECKPOINT is not supported"),
        ("explain create table x as select 1", "EXPLAIN of CREATE TABLE AS is not supported"),
    ],
)
def test_what_layby_has_not_is_named(sql: str, message: str) -> None:
    error = failure(sql)
    assert (error.sqlstate, error.message) == ("0A000", message)
