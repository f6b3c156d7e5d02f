"""What a client is told, field by field: the literals are what PostgreSQL 15 answers to the same."""

from __future__ import annotations

import pytest

from tests.adapter.harness import Server
from tests.pgwire.frontend import errors
from tests.product.wire import Wire


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def wire(server: Server) -> Wire:
    return Wire(server)


def refused(wire: Wire, sql: str) -> dict[str, str]:
    """Return the fields of the one error that a statement comes to, but for those that say ERROR."""
    written = wire.query(sql)
    wire.server.settle()
    (error,) = errors(written + wire.received())
    assert (error.pop("S"), error.pop("V")) == ("ERROR", "ERROR")
    return error


# -- constraints


@pytest.mark.parametrize(
    ("sql", "key", "constraint"),
    [
        ("INSERT INTO t VALUES (1, 'z', 'z')", "(a)=(1) already exists", "t_pk"),
        ("INSERT INTO t VALUES (2, 'X', 'y')", "(lower(b), c)=(x, y) already exists", "t_b"),
        ("INSERT INTO t VALUES (4, 'm', 'm'), (4, 'n', 'n')", "(a)=(4) already exists", "t_pk"),
        ("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 5000) AS g", "(a)=(1) already exists", "t_pk"),
    ],
)
def test_a_duplicate_key_names_table_and_constraint(wire: Wire, sql: str, key: str, constraint: str) -> None:
    wire.run("CREATE TABLE t (a int, b text, c text, CONSTRAINT t_pk PRIMARY KEY (a))")
    wire.run("CREATE UNIQUE INDEX t_b ON t (lower(b), c)")
    wire.run("INSERT INTO t VALUES (1, 'x', 'y')")
    assert refused(wire, sql) == {
        "C": "23505",
        "M": f'duplicate key value violates unique constraint "{constraint}"',
        "D": f"Key {key}.",
        "s": "public",
        "t": "t",
        "n": constraint,
    }


def test_a_unique_index_over_duplicates_names_table_and_constraint(wire: Wire) -> None:
    wire.run("CREATE TABLE t (a int)")
    wire.run("INSERT INTO t VALUES (1), (1)")
    assert refused(wire, "CREATE UNIQUE INDEX i ON t (a)") == {
        "C": "23505",
        "M": 'could not create unique index "i"',
        "D": "Key (a)=(1) is duplicated.",
        "s": "public",
        "t": "t",
        "n": "i",
    }


def test_the_key_of_a_duplicate_is_told_as_sql(wire: Wire) -> None:
    wire.run('CREATE TABLE "W T" ("A b" int NOT NULL, b text, "c""d" int)')
    wire.run('CREATE UNIQUE INDEX "i x" ON "W T" ("A b", (b), (("c""d" + 1)))')
    wire.run("INSERT INTO \"W T\" VALUES (1, 'a, b', 2)")
    assert refused(wire, "INSERT INTO \"W T\" VALUES (1, 'a, b', 2)") == {
        "C": "23505",
        "M": 'duplicate key value violates unique constraint "i x"',
        "D": 'Key ("A b", b, ("c""d" + 1))=(1, a, b, 3) already exists.',
        "s": "public",
        "t": "W T",
        "n": "i x",
    }


@pytest.mark.parametrize(
    ("sql", "row"),
    [
        ("INSERT INTO t VALUES (NULL, 'z', 'w')", "null, z, w"),
        ("INSERT INTO t (b) VALUES ('z')", "null, z, null"),
        ("UPDATE t SET a = NULL", "null, x, y"),
    ],
)
def test_a_null_that_is_refused_names_table_and_column(wire: Wire, sql: str, row: str) -> None:
    wire.run("CREATE TABLE t (a int NOT NULL, b text, c text)")
    wire.run("INSERT INTO t VALUES (1, 'x', 'y')")
    assert refused(wire, sql) == {
        "C": "23502",
        "M": 'null value in column "a" of relation "t" violates not-null constraint',
        "D": f"Failing row contains ({row}).",
        "s": "public",
        "t": "t",
        "c": "a",
    }
