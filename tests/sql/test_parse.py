"""Parsing scripts."""

from __future__ import annotations

import pytest

from layby.errors import SqlError
from layby.sql.parse import parse_script
from tests.sql.tables import report


def refused(sql: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        parse_script(sql)
    return caught.value


@pytest.mark.parametrize("sql", ["", "  ", ";", " ; ;; ", "-- nothing", "/* nothing */ ;"])
def test_a_script_without_statements_is_empty(sql: str) -> None:
    assert parse_script(sql) == []


def test_a_script_is_cut_at_its_semicolons() -> None:
    found = parse_script("select 'é;' ;  begin; insert into t values (1)")
    assert [s.text for s in found] == ["select 'é;'", "begin", "insert into t values (1)"]
    assert [s.kind for s in found] == ["select_stmt", "transaction_stmt", "insert_stmt"]


@pytest.mark.parametrize(
    ("sql", "message", "position"),
    [
        ("selec 1", 'syntax error at or near "selec"', 1),
        ("select 1 from", "syntax error at end of input", 14),
        ("select 'é', 1 1", 'syntax error at or near "1"', 15),
        ("select 'abc", 'unterminated quoted string at or near "\'abc"', 8),
        ('select ""', 'zero-length delimited identifier at or near """"', 8),
    ],
)
def test_a_syntax_error_points_at_its_character(sql: str, message: str, position: int) -> None:
    assert report(refused(sql)) == ("42601", message, position)


def test_a_nul_character_is_refused() -> None:
    assert report(refused("select 1\0")) == ("22021", 'invalid byte sequence for encoding "UTF8": 0x00', None)


def test_a_lone_surrogate_is_refused() -> None:
    assert refused("select '\ud800'").sqlstate == "22021"


TOO_DEEP = [
    "select " + "1 + " * 100_000 + "1",
    "select " + "(" * 100_000 + "1" + ")" * 100_000,
    "select " + "- - " * 50_000 + "1",
    "select " + "not " * 100_000 + "true",
    "select " + "f(1, " * 500 + "1" + (" + 1" * 200 + ")") * 500,
    "select " + "f(1, 2) + " * 50_000 + "1",
    "select " + "case when true then " * 50_000 + "1" + " end" * 50_000,
    "select a" + "::int" * 50_000,
]


@pytest.mark.parametrize("number", range(len(TOO_DEEP)))
def test_a_text_that_would_overrun_the_stack_is_refused(number: int) -> None:
    error = refused(TOO_DEEP[number])
    assert (error.sqlstate, error.message) == ("54001", "stack depth limit exceeded")


@pytest.mark.parametrize(
    "sql",
    [
        "insert into t values " + ", ".join(["(1, 2.5, 'it''s (, a text)')"] * 20_000),
        "select * from t where " + " or ".join(["a = 1"] * 20_000),
        "select * from t where a in (" + ", ".join(["1"] * 50_000) + ")",
        "select '" + "+ 1 " * 50_000 + "'",
        "select 1 /* " + "+ 1 " * 50_000 + " */",
        "select 1;" * 20_000,
        "select " + "1 + " * 4000 + "1",
    ],
    ids=["values", "or", "in", "text", "comment", "statements", "sum"],
)
def test_a_long_text_that_is_flat_is_parsed(sql: str) -> None:
    assert parse_script(sql)
