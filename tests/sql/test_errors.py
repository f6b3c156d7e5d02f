"""Errors of binding: SQLSTATE, message, position and hint are those PostgreSQL 15 gives for the same text."""

from __future__ import annotations

import pytest

from layby.errors import SqlError
from layby.sql.parse import parse_script
from layby.sql.planner import plan
from tests.sql.tables import PLAIN, failure, select_of

_TEXT = "You might need to add explicit type casts."
NO_OPERATOR = f"No operator matches the given name and argument types. {_TEXT}"
NO_FUNCTION = f"No function matches the given name and argument types. {_TEXT}"
NO_PREFIX_OPERATOR = (
    "No operator matches the given name and argument type. You might need to add an explicit type cast."
)
NOT_UNIQUE = f"Could not choose a best candidate operator. {_TEXT}"
REWRITE = "You will need to rewrite or cast the expression."

POSTGRESQL = [
    ("select zz from t", "42703", 'column "zz" does not exist', 8, None),
    ("select t.zz from t", "42703", "column t.zz does not exist", 8, None),
    ("select u.a from t", "42P01", 'missing FROM-clause entry for table "u"', 8, None),
    ("select * from nope", "42P01", 'relation "nope" does not exist', 15, None),
    ("select * from s.nope", "42P01", 'relation "s.nope" does not exist', 15, None),
    ("select a = b from t", "42883", "operator does not exist: integer = text", 10, NO_OPERATOR),
    ("select nofn(a) from t", "42883", "function nofn(integer) does not exist", 8, NO_FUNCTION),
    ("select sqrt(b) from t", "42883", "function sqrt(text) does not exist", 8, NO_FUNCTION),
    ("select -b from t", "42883", "operator does not exist: - text", 8, NO_PREFIX_OPERATOR),
    ("select a + true from t", "42883", "operator does not exist: integer + boolean", 10, NO_OPERATOR),
    (
        "select * from t where a",
        "42804",
        "argument of WHERE must be type boolean, not type integer",
        23,
        None,
    ),
    (
        "select * from t where 1",
        "42804",
        "argument of WHERE must be type boolean, not type integer",
        23,
        None,
    ),
    ("select * from t where 'x'", "22P02", 'invalid input syntax for type boolean: "x"', 23, None),
    ("select * from t order by 19", "42P10", "ORDER BY position 19 is not in select list", 26, None),
    ("select * from t order by 'a'", "42601", "non-integer constant in ORDER BY", 26, None),
    ("select a as x, c as x from t order by x", "42702", 'ORDER BY "x" is ambiguous', 39, None),
    ("select 'x'::int", "22P02", 'invalid input syntax for type integer: "x"', 8, None),
    ("select a = 'x' from t", "22P02", 'invalid input syntax for type integer: "x"', 12, None),
    ("select 1::foo", "42704", 'type "foo" does not exist', 11, None),
    ("insert into t(a) values ('x')", "22P02", 'invalid input syntax for type integer: "x"', 26, None),
    (
        "insert into t(a) values (true)",
        "42804",
        'column "a" is of type integer but expression is of type boolean',
        26,
        REWRITE,
    ),
    (
        "insert into t(a) select b from t",
        "42804",
        'column "a" is of type integer but expression is of type text',
        25,
        REWRITE,
    ),
    ("insert into t(a,a) values (1,2)", "42701", 'column "a" specified more than once', 17, None),
    ("insert into t(zz) values (1)", "42703", 'column "zz" of relation "t" does not exist', 15, None),
    ("insert into t(a) values (1,2)", "42601", "INSERT has more expressions than target columns", 28, None),
    ("insert into t(a,b) values (1)", "42601", "INSERT has more target columns than expressions", 17, None),
    (
        "insert into t values (1,1,1,1,1,1,1,1,1,1,1)",
        "42601",
        "INSERT has more expressions than target columns",
        43,
        None,
    ),
    (
        "update t set a = b",
        "42804",
        'column "a" is of type integer but expression is of type text',
        18,
        REWRITE,
    ),
    ("update t set zz = 1", "42703", 'column "zz" of relation "t" does not exist', 14, None),
    ("update t set a=1, a=2", "42601", 'multiple assignments to same column "a"', None, None),
    (
        "select case when a then 1 end from t",
        "42804",
        "argument of CASE/WHEN must be type boolean, not type integer",
        18,
        None,
    ),
    (
        "select case when true then 1 else 'x' end",
        "22P02",
        'invalid input syntax for type integer: "x"',
        35,
        None,
    ),
    (
        "select case when true then a else b end from t",
        "42804",
        "CASE types text and integer cannot be matched",
        28,
        None,
    ),
    ("select coalesce(a,b) from t", "42804", "COALESCE types integer and text cannot be matched", 19, None),
    (
        "select * from t where a in (1, b)",
        "42883",
        "operator does not exist: integer = text",
        25,
        NO_OPERATOR,
    ),
    ("select * from t where a in (1, 'x')", "22P02", 'invalid input syntax for type integer: "x"', 32, None),
    ("values (1,'a'),(2,3)", "22P02", 'invalid input syntax for type integer: "a"', 11, None),
    ("values (1),(true)", "42804", "VALUES types integer and boolean cannot be matched", 13, None),
    ("values (1,2),(3)", "42601", "VALUES lists must all be the same length", 15, None),
    ("select a and f from t", "42804", "argument of AND must be type boolean, not type integer", 8, None),
    ("select not a from t", "42804", "argument of NOT must be type boolean, not type integer", 12, None),
    ("select * from t limit a", "42P10", "argument of LIMIT must not contain variables", 23, None),
    ("select * from t limit 'x'", "22P02", 'invalid input syntax for type bigint: "x"', 23, None),
    (
        "select * from t limit true",
        "42804",
        "argument of LIMIT must be type bigint, not type boolean",
        23,
        None,
    ),
    ("create table x (a int, a int)", "42701", 'column "a" specified more than once', None, None),
    ("create table x (a foo)", "42704", 'type "foo" does not exist', 19, None),
    (
        "create table x (a int primary key, b int primary key)",
        "42P16",
        'multiple primary keys for table "x" are not allowed',
        42,
        None,
    ),
    ("create table x (a int, unique(zz))", "42703", 'column "zz" named in key does not exist', 24, None),
    (
        "create table x (a int default b)",
        "0A000",
        "cannot use column reference in DEFAULT expression",
        31,
        None,
    ),
    ("create table x (a int default 'x')", "22P02", 'invalid input syntax for type integer: "x"', 31, None),
    (
        "create table x (a int default true)",
        "42804",
        'column "a" is of type integer but default expression is of type boolean',
        None,
        REWRITE,
    ),
    ("create index on t (zz)", "42703", 'column "zz" does not exist', None, None),
    ("select (1,2) = (1,2,3)", "42601", "unequal number of entries in row expressions", 14, None),
    ("select (1,2) in ((1,2,3))", "42601", "unequal number of entries in row expressions", 14, None),
    (
        "select a is true from t",
        "42804",
        "argument of IS TRUE must be type boolean, not type integer",
        8,
        None,
    ),
    ("select (a,b) = (1,2) from t", "42883", "operator does not exist: text = integer", 14, NO_OPERATOR),
    (
        "select f is true, a between 1 and 'x' from t",
        "22P02",
        'invalid input syntax for type integer: "x"',
        35,
        None,
    ),
    (
        "select position(1 in 2)",
        "42883",
        "function pg_catalog.position(integer, integer) does not exist",
        8,
        NO_FUNCTION,
    ),
    ("select 'a' || 1, 1 || 2", "42883", "operator does not exist: integer || integer", 20, NO_OPERATOR),
    (
        "select 'a' = 'b', 1 = '1', '1' + '2'",
        "42725",
        "operator is not unique: unknown + unknown",
        32,
        NOT_UNIQUE,
    ),
    ("select abs('1'), length(1)", "42883", "function length(integer) does not exist", 18, NO_FUNCTION),
    ("select $1 + $2", "42725", "operator is not unique: unknown + unknown", 11, NOT_UNIQUE),
    ("select $1::int + $1::text", "42883", "operator does not exist: integer + text", 16, NO_OPERATOR),
    ("select $1 is null or a = $1 from t", "42P08", "could not determine data type of parameter $1", 8, None),
    ("select $1, $1 + 1", "42P08", "inconsistent types deduced for parameter $1", 8, None),
    ("select a = $1, b = $1 from t", "42883", "operator does not exist: text = integer", 18, NO_OPERATOR),
    ("copy t from stdin (format foo)", "22023", 'COPY format "foo" not recognized', 20, None),
    ("copy t from stdin (foo)", "42601", 'option "foo" not recognized', 20, None),
    ("copy t (zz) from stdin", "42703", 'column "zz" of relation "t" does not exist', None, None),
    ("copy t (a,a) from stdin", "42701", 'column "a" specified more than once', None, None),
    (
        "copy t to stdout (delimiter 'ab')",
        "0A000",
        "COPY delimiter must be a single one-byte character",
        None,
        None,
    ),
    (
        "copy t to stdout (null e'\\n')",
        "22023",
        "COPY null representation cannot use newline or carriage return",
        None,
        None,
    ),
    ("copy t to stdout (quote '\"')", "0A000", "COPY quote available only in CSV mode", None, None),
    (
        "copy t to stdout (format csv, quote 'ab')",
        "0A000",
        "COPY quote must be a single one-byte character",
        None,
        None,
    ),
    (
        "copy t to stdout (format csv, delimiter '\"')",
        "22023",
        "COPY delimiter and quote must be different",
        None,
        None,
    ),
    ("copy t to stdout (format csv, format csv)", "42601", "conflicting or redundant options", 31, None),
    (
        "select * from generate_series(1,3) as g(x,y)",
        "42P10",
        'table "g" has 1 columns available but 2 columns specified',
        None,
        None,
    ),
    ("select * from generate_series('a',3)", "22P02", 'invalid input syntax for type integer: "a"', 31, None),
    ("select *", "42601", "SELECT * with no tables specified is not valid", 8, None),
    (
        "select t.* from t as u",
        "42P01",
        'invalid reference to FROM-clause entry for table "t"',
        8,
        'Perhaps you meant to reference the table alias "u".',
    ),
    ("select a a, from t", "42601", 'syntax error at or near "from"', 13, None),
    ('select 1 as "x" order by "x"+1', "42703", 'column "x" does not exist', 26, None),
    ("select a::date from t", "42846", "cannot cast type integer to date", 9, None),
    ("select f::double precision from t", "42846", "cannot cast type boolean to double precision", 9, None),
    ("select cast(d as int) from t", "42846", "cannot cast type date to integer", 8, None),
    ("select a like b from t", "42883", "operator does not exist: integer ~~ text", 10, NO_OPERATOR),
    ("select a || c from t", "42883", "operator does not exist: integer || bigint", 10, NO_OPERATOR),
    ("select d - a, d = ts, d = 'x' from t", "22007", 'invalid input syntax for type date: "x"', 27, None),
    ("insert into t(a) values (default + 1)", "42601", "DEFAULT is not allowed in this context", 26, None),
    ("select default", "42601", "DEFAULT is not allowed in this context", 8, None),
    ("select lower(a) from t", "42883", "function lower(integer) does not exist", 8, NO_FUNCTION),
    ("select \"é\", 'é', zz from t", "42703", 'column "é" does not exist', 8, None),
]


@pytest.mark.parametrize(("sql", "sqlstate", "message", "position", "hint"), POSTGRESQL)
def test_a_wrong_statement_fails_as_postgresql_fails_it(
    sql: str, sqlstate: str, message: str, position: int | None, hint: str | None
) -> None:
    error = failure(sql)
    assert (error.sqlstate, error.message, error.position, error.hint) == (sqlstate, message, position, hint)


def test_conflicting_parameter_types_are_named_in_the_detail() -> None:
    assert failure("select $1, $1 + 1").detail == "integer versus text"


def test_a_position_counts_characters_of_the_whole_script() -> None:

    second = parse_script("select 'é'; select 'ü', zz from t")[1]
    with pytest.raises(SqlError) as caught:
        plan(second, PLAIN, [])
    assert (caught.value.message, caught.value.position) == ('column "zz" does not exist', 25)


def test_an_expression_that_nests_too_deep_is_refused() -> None:
    error = failure("select " + "1 + " * 300 + "1")
    assert (error.sqlstate, error.message) == ("54001", "stack depth limit exceeded")


@pytest.mark.parametrize("count", [50, 150])
def test_long_sums_are_planned(count: int) -> None:

    outputs = select_of("select " + "1 + " * count + "1").mfp.outputs
    assert getattr(outputs[0], "value", None) == count + 1


WIDE_KEY = ", ".join(f"c{i}" for i in range(33))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            f"create table x ({', '.join(f'c{i} int' for i in range(1601))})",
            "tables can have at most 1600 columns",
        ),
        (
            f"create table x ({WIDE_KEY.replace(',', ' int,')} int, primary key ({WIDE_KEY}))",
            "cannot use more than 32 columns in an index",
        ),
        (f"select {', '.join(['1'] * 1665)}", "target lists can have at most 1664 entries"),
    ],
)
def test_more_columns_than_postgresql_takes_are_refused(sql: str, message: str) -> None:
    error = failure(sql)
    assert (error.sqlstate, error.message) == ("54011", message)


def test_as_many_columns_as_postgresql_takes_are_planned() -> None:
    assert len(select_of(f"select {', '.join(['1'] * 1664)}").columns) == 1664
