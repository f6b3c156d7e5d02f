"""Names and types of expressions: those PostgreSQL 15 describes for the same text."""

from __future__ import annotations

import pytest

from layby.sql.typenames import display_name
from layby.types.scalar import BIGINT, DOUBLE_PRECISION, INTEGER
from tests.sql.tables import planned, select_of

POSTGRESQL = [
    ("true", "?column?", "boolean"),
    ("null", "?column?", "text"),
    ("'x'", "?column?", "text"),
    ("1", "?column?", "integer"),
    ("2147483648", "?column?", "bigint"),
    ("-2147483648", "?column?", "integer"),
    ("1::bigint", "int8", "bigint"),
    ("'x'::text", "text", "text"),
    ("a::int", "a", "integer"),
    ("a::bigint", "a", "bigint"),
    ("case when true then 1 end", "case", "integer"),
    ("case when true then 1 else a end", "a", "integer"),
    ("case a when 1 then 'x' else b end", "b", "text"),
    ("case when f then 1 else 2147483648 end", "case", "bigint"),
    ("coalesce(a,1)", "coalesce", "integer"),
    ("coalesce(a,c)", "coalesce", "bigint"),
    ("coalesce(null,'x')", "coalesce", "text"),
    ("substring(b from 1)", "substring", "text"),
    ("trim(b)", "btrim", "text"),
    ("trim(leading 'x' from b)", "ltrim", "text"),
    ("position('a' in b)", "position", "integer"),
    ("nullif(a,1)", "nullif", "integer"),
    ("nullif(c,1)", "nullif", "bigint"),
    ("greatest(a,c)", "greatest", "bigint"),
    ("least(a,e)", "least", "double precision"),
    ("current_date", "current_date", "date"),
    ("current_timestamp", "current_timestamp", "timestamp with time zone"),
    ("localtimestamp", "localtimestamp", "timestamp without time zone"),
    ("now()", "now", "timestamp with time zone"),
    ("date '2020-01-01'", "date", "date"),
    ("(a)", "a", "integer"),
    ("a+1", "?column?", "integer"),
    ("a+c", "?column?", "bigint"),
    ("a+s", "?column?", "integer"),
    ("s+s", "?column?", "smallint"),
    ("a/2", "?column?", "integer"),
    ("a*e", "?column?", "double precision"),
    ("r*e", "?column?", "double precision"),
    ("r+r", "?column?", "real"),
    ("s*r", "?column?", "double precision"),
    ("-a", "?column?", "integer"),
    ("a%2", "?column?", "integer"),
    ("not f", "?column?", "boolean"),
    ("a in (1)", "?column?", "boolean"),
    ("a in (1, 2147483648)", "?column?", "boolean"),
    ("a between 1 and 2", "?column?", "boolean"),
    ("a is null", "?column?", "boolean"),
    ("f is true", "?column?", "boolean"),
    ("b like 'x%'", "?column?", "boolean"),
    ("b || 'x'", "?column?", "text"),
    ("b || a", "?column?", "text"),
    ("a || b", "?column?", "text"),
    ("d + 1", "?column?", "date"),
    ("d - d", "?column?", "integer"),
    ("d - 1", "?column?", "date"),
    ("d < ts", "?column?", "boolean"),
    ("ts < tz", "?column?", "boolean"),
    ("d = tz", "?column?", "boolean"),
    ("lower(b)", "lower", "text"),
    ("length(b)", "length", "integer"),
    ("abs(a)", "abs", "integer"),
    ("abs(s)", "abs", "smallint"),
    ("abs(-1.5::float8)", "abs", "double precision"),
    ("sqrt(a)", "sqrt", "double precision"),
    ("a = '1'", "?column?", "boolean"),
    ("'1' = a", "?column?", "boolean"),
    ("1 = '1'", "?column?", "boolean"),
    ("'a' = 'b'", "?column?", "boolean"),
    ("'a' || 'b'", "?column?", "text"),
    ("a is distinct from 1", "?column?", "boolean"),
    ("row(1,2) = row(1,2)", "?column?", "boolean"),
    ("(a, b) = (1, 'x')", "?column?", "boolean"),
    ("a::text", "a", "text"),
    ("pg_backend_pid()", "pg_backend_pid", "integer"),
    ("concat(a, b)", "concat", "text"),
    ("round(e)", "round", "double precision"),
    ("floor(r)", "floor", "double precision"),
    ("power(a, 2)", "power", "double precision"),
    ("s::int", "s", "integer"),
    ("upper('x')", "upper", "text"),
    ("date_trunc('day', ts)", "date_trunc", "timestamp without time zone"),
    ("date_part('year', d)", "date_part", "double precision"),
    ("a = any('{1,2}')", "?column?", "boolean"),
    ("f and f", "?column?", "boolean"),
    ("f or null", "?column?", "boolean"),
    ("e::real", "e", "real"),
    ("a::smallint", "a", "smallint"),
    ("ts::date", "ts", "date"),
    ("d::timestamp", "d", "timestamp without time zone"),
    ("exp(1)", "exp", "double precision"),
    ("sign(e)", "sign", "double precision"),
    ("mod(a, 2)", "mod", "integer"),
    ("mod(s, s)", "mod", "smallint"),
    ("replace(b, 'a', 'b')", "replace", "text"),
    ("left(b, 2)", "left", "text"),
    ("starts_with(b, 'x')", "starts_with", "boolean"),
    ("c & 1", "?column?", "bigint"),
    ("a # 2", "?column?", "integer"),
    ("~a", "?column?", "integer"),
    ("a << 1", "?column?", "integer"),
    ("md5(b)", "md5", "text"),
    ("char_length(b)", "char_length", "integer"),
    ("repeat(b, 2)", "repeat", "text"),
]


@pytest.mark.parametrize(("expression", "name", "type_"), POSTGRESQL)
def test_an_expression_has_the_name_and_type_postgresql_gives_it(
    expression: str, name: str, type_: str
) -> None:
    columns = planned(f"select {expression} from t").columns
    assert columns is not None
    assert [(c.name, display_name(c.type)) for c in columns] == [(name, type_)]


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("2147483647", INTEGER),
        ("-2147483648", INTEGER),
        ("2147483648", BIGINT),
        ("9223372036854775807", BIGINT),
        ("9223372036854775808", DOUBLE_PRECISION),
        ("1.5", DOUBLE_PRECISION),
        ("1e3", DOUBLE_PRECISION),
    ],
)
def test_a_number_takes_the_narrowest_type_that_holds_it(text: str, type_: object) -> None:
    assert select_of(f"select {text}").columns[0].type is type_


@pytest.mark.parametrize(
    ("spelling", "shown"),
    [
        ("int2", "smallint"),
        ("smallint", "smallint"),
        ("int", "integer"),
        ("int4", "integer"),
        ("int8", "bigint"),
        ("float", "double precision"),
        ("float8", "double precision"),
        ("float(24)", "real"),
        ("float4", "real"),
        ("real", "real"),
        ("bool", "boolean"),
        ("varchar", "text"),
        ("varchar(3)", "text"),
        ("character varying(3)", "text"),
        ("char(3)", "text"),
        ("timestamp without time zone", "timestamp without time zone"),
        ("timestamp with time zone", "timestamp with time zone"),
        ("timestamptz", "timestamp with time zone"),
        ("pg_catalog.int4", "integer"),
        ("timestamp(6)", "timestamp without time zone"),
    ],
)
def test_a_type_is_known_by_all_its_spellings(spelling: str, shown: str) -> None:
    assert display_name(select_of(f"select null::{spelling}").columns[0].type) == shown


def test_an_explicit_cast_to_varchar_cuts() -> None:
    assert getattr(select_of("select 'abcdef'::varchar(3)").mfp.outputs[0], "value", None) == "abc"
