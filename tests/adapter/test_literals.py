"""Literals as parameters: which texts share a plan, that their answers are those of their own, and errors."""

from __future__ import annotations

import pytest

from layby.adapter.literals import make_shape, read_literals, shape_text
from layby.types.scalar import BIGINT, DOUBLE_PRECISION, INTEGER
from tests.adapter.harness import Client, Server


@pytest.fixture
def client() -> Client:
    client = Server().connect()
    client.run("CREATE TABLE t (a integer, b text, c double precision)")
    client.run("INSERT INTO t VALUES (1, 'x', 0.5), (2, 'it''s', 1.5), (-3, NULL, 2.5)")
    return client


def literals_of(sql: str) -> tuple[tuple[object, ...], tuple[object, ...]] | None:
    text = shape_text(sql)
    shape = None if text is None else make_shape(text)
    read = None if shape is None else read_literals(sql, shape)
    return None if read is None else (read.literals, read.types)


def test_literals_are_read_with_the_types_that_they_have() -> None:
    assert literals_of("SELECT b FROM t WHERE a = 42 AND b = 'it''s' AND c > -1.5e3") == (
        (42, "it's", -1500.0),
        (INTEGER, None, DOUBLE_PRECISION),
    )
    assert literals_of("SELECT 3000000000") == ((3_000_000_000,), (BIGINT,))
    assert literals_of("SELECT -2147483648") == ((-(2**31),), (INTEGER,))
    assert literals_of("SELECT -2147483649") == ((-(2**31) - 1,), (BIGINT,))
    assert literals_of("SELECT -9223372036854775808") == ((-(2**63),), (BIGINT,))


def test_every_form_of_a_number_is_read_whole() -> None:
    assert literals_of("SELECT .5, 1., 1e5, 2.5E-1, -.5e+1 FROM t") == (
        (0.5, 1.0, 1e5, 0.25, -5.0),
        (DOUBLE_PRECISION,) * 5,
    )
    assert literals_of("SELECT 7-1, '' FROM t WHERE b = ''''") == (
        (7, 1, "", "'"),
        (INTEGER, INTEGER, None, None),
    )


def test_a_text_that_goes_on_where_its_shape_ends_is_of_another() -> None:
    text = shape_text("SELECT a FROM t WHERE a = 1")
    shape = None if text is None else make_shape(text)
    assert shape is not None
    assert read_literals("SELECT a FROM t WHERE a = 2", shape) is not None
    assert read_literals("SELECT a FROM t WHERE a = 2 ", shape) is None
    assert read_literals("SELECT b FROM t WHERE a = 2", shape) is None
    assert read_literals("SELECT a FROM t WHERE a = b", shape) is None


def test_limit_and_offset_are_not_exchanged() -> None:
    assert literals_of("SELECT a FROM t LIMIT 3 OFFSET 20") == ((20, 3), (INTEGER, INTEGER))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; SELECT 2",
        "SELECT $1 + 5",
        "SELECT E'a\\n'",
        "SELECT 99999999999999999999",
        "SELECT 1e400",
        "CREATE TABLE u (a varchar(10))",
        "SELECT a FROM t",
        "this is no statement 5",
    ],
)
def test_texts_of_other_forms_are_taken_as_they_come(sql: str) -> None:
    assert literals_of(sql) is None


def test_texts_that_differ_in_their_literals_share_one_plan(client: Client) -> None:
    statements = client.server.coordinator.statements
    before = len(statements._plans)
    assert client.run("SELECT b FROM t WHERE a = 1") == [("x",)]
    assert client.run("SELECT b FROM t WHERE a = 2") == [("it's",)]
    assert client.run("SELECT b FROM t WHERE a = -3") == [(None,)]
    assert len(statements._plans) == before + 1


def test_a_string_literal_takes_the_type_of_what_it_is_compared_with(client: Client) -> None:
    assert client.run("SELECT b FROM t WHERE a = '1'") == [("x",)]
    assert client.run("SELECT a FROM t WHERE b = 'it''s'") == [(2,)]


def test_an_error_is_told_in_terms_of_the_statements_own_text(client: Client) -> None:
    query = client.send("SELECT b FROM t WHERE a = 'one'")
    assert query.error is not None
    assert (query.error.sqlstate, query.error.position) == ("22P02", 27)
    assert query.error.message == 'invalid input syntax for type integer: "one"'
    query = client.send("SELECT nothing FROM t WHERE a = 1")
    assert query.error is not None
    assert (query.error.sqlstate, query.error.position) == ("42703", 8)


def test_an_index_on_an_expression_with_a_literal_is_found(client: Client) -> None:
    client.run("CREATE INDEX halves ON t ((a / 2))")
    assert client.run("SELECT b FROM t WHERE a / 2 = 1") == [("it's",)]
    plan = client.run("EXPLAIN SELECT b FROM t WHERE a / 2 = 1")
    assert "halves" in plan[0][0]


def test_a_parameter_that_no_message_bound_is_an_error(client: Client) -> None:
    assert client.fails("SELECT $1")[0] == "42P02"
