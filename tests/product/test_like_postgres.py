"""What a client is told, field by field: the literals are what PostgreSQL 15 answers to the same."""

from __future__ import annotations

import pytest

from tests.adapter.harness import Server
from tests.pgwire.frontend import SYNC, bind, errors, fields, kinds, parse, split, startup
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


# -- errors


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT * FROM nope", {"C": "42P01", "M": 'relation "nope" does not exist', "P": "15"}),
        ("INSERT INTO nope VALUES (1)", {"C": "42P01", "M": 'relation "nope" does not exist', "P": "13"}),
        ("SELECT nope FROM t", {"C": "42703", "M": 'column "nope" does not exist', "P": "8"}),
        ("SELECT t.nope FROM t", {"C": "42703", "M": "column t.nope does not exist", "P": "8"}),
        ("SELECT n.a FROM t", {"C": "42P01", "M": 'missing FROM-clause entry for table "n"', "P": "8"}),
        ("SELECT t2.a FROM t", {"C": "42P01", "M": 'missing FROM-clause entry for table "t2"', "P": "8"}),
        (
            "UPDATE t SET nope = 1",
            {"C": "42703", "M": 'column "nope" of relation "t" does not exist', "P": "14"},
        ),
        (
            "INSERT INTO t (a, nope) VALUES (1, 2)",
            {"C": "42703", "M": 'column "nope" of relation "t" does not exist', "P": "19"},
        ),
        ("SELECT a FROM t ORDER BY a, nope", {"C": "42703", "M": 'column "nope" does not exist', "P": "29"}),
        ("SELEC 1", {"C": "42601", "M": 'syntax error at or near "SELEC"', "P": "1"}),
        ("SELECT 1 +", {"C": "42601", "M": "syntax error at end of input", "P": "11"}),
        ("SELECT 'abc", {"C": "42601", "M": 'unterminated quoted string at or near "\'abc"', "P": "8"}),
        ("SELECT a FROM t WHERE a ==", {"C": "42601", "M": "syntax error at end of input", "P": "27"}),
        ("SELECT 'é', 1 FRM t", {"C": "42601", "M": 'syntax error at or near "t"', "P": "19"}),
        ("SELECT 'x'::int", {"C": "22P02", "M": 'invalid input syntax for type integer: "x"', "P": "8"}),
        (
            "SELECT a FROM t WHERE a = 'x'",
            {"C": "22P02", "M": 'invalid input syntax for type integer: "x"', "P": "27"},
        ),
        (
            "INSERT INTO t VALUES ('1.5')",
            {"C": "22P02", "M": 'invalid input syntax for type integer: "1.5"', "P": "23"},
        ),
        (
            "SELECT ''::double precision",
            {"C": "22P02", "M": 'invalid input syntax for type double precision: ""', "P": "8"},
        ),
        (
            "SELECT 'maybe'::boolean",
            {"C": "22P02", "M": 'invalid input syntax for type boolean: "maybe"', "P": "8"},
        ),
        (
            "SELECT '2020-02-30'::date",
            {"C": "22008", "M": 'date/time field value out of range: "2020-02-30"', "P": "8"},
        ),
        (
            "INSERT INTO t (d) VALUES ('soon')",
            {"C": "22007", "M": 'invalid input syntax for type date: "soon"', "P": "27"},
        ),
        (
            "SELECT '3000000000'::int",
            {"C": "22003", "M": 'value "3000000000" is out of range for type integer', "P": "8"},
        ),
        ("SELECT 3000000000::int", {"C": "22003", "M": "integer out of range"}),
        ("SELECT 2147483647 + 1", {"C": "22003", "M": "integer out of range"}),
        ("SELECT -2147483648 / -1", {"C": "22003", "M": "integer out of range"}),
        ("SELECT abs(-2147483648)", {"C": "22003", "M": "integer out of range"}),
        ("INSERT INTO t (s) VALUES (100000)", {"C": "22003", "M": "smallint out of range"}),
        (
            "SELECT '1e400'::float8",
            {"C": "22003", "M": '"1e400" is out of range for type double precision', "P": "8"},
        ),
        ("SELECT 1e20::float8::bigint", {"C": "22003", "M": "bigint out of range"}),
        ("SELECT 1 / 0", {"C": "22012", "M": "division by zero"}),
        ("SELECT a % 0 FROM t", {"C": "22012", "M": "division by zero"}),
        ("SELECT 1 / (a - 1) FROM t", {"C": "22012", "M": "division by zero"}),
        ("SELECT 1.5::float8 / 0", {"C": "22012", "M": "division by zero"}),
        (
            "SELECT nofunc(1)",
            {
                "C": "42883",
                "M": "function nofunc(integer) does not exist",
                "H": "No function matches the given name and argument types. "
                "You might need to add explicit type casts.",
                "P": "8",
            },
        ),
        (
            "SELECT a + b FROM t",
            {
                "C": "42883",
                "M": "operator does not exist: integer + text",
                "H": "No operator matches the given name and argument types. "
                "You might need to add explicit type casts.",
                "P": "10",
            },
        ),
        (
            "SELECT a FROM t WHERE a",
            {"C": "42804", "M": "argument of WHERE must be type boolean, not type integer", "P": "23"},
        ),
        ("SELECT a, a FROM t LIMIT -1", {"C": "2201W", "M": "LIMIT must not be negative"}),
        ("CREATE TABLE t (a int)", {"C": "42P07", "M": 'relation "t" already exists'}),
        ("DROP TABLE nope", {"C": "42P01", "M": 'table "nope" does not exist'}),
        (
            "SELECT 1 WHERE 1 = 'a'",
            {"C": "22P02", "M": 'invalid input syntax for type integer: "a"', "P": "20"},
        ),
    ],
)
def test_an_error_has_the_fields_that_postgres_gives_it(wire: Wire, sql: str, error: dict[str, str]) -> None:
    wire.run("CREATE TABLE t (a int, b text, d date, s smallint)")
    wire.run("INSERT INTO t VALUES (1, 'x', '2020-01-01', 1)")
    assert refused(wire, sql) == error


@pytest.mark.parametrize(
    ("value", "format_", "error"),
    [
        (b"x", 0, {"C": "22P02", "M": 'invalid input syntax for type integer: "x"', "W": "$2 = '...'"}),
        (
            b"99999999999",
            0,
            {"C": "22003", "M": 'value "99999999999" is out of range for type integer', "W": "$2 = '...'"},
        ),
        (b"\xff", 0, {"C": "22021", "M": 'invalid byte sequence for encoding "UTF8": 0xff', "W": "$2"}),
        (b"123", 1, {"C": "08P01", "M": "insufficient data left in message", "W": "$2"}),
        (b"12345", 1, {"C": "22P03", "M": "incorrect binary data format in bind parameter 2", "W": "$2"}),
    ],
)
@pytest.mark.parametrize(("portal", "of"), [("", "unnamed portal"), ("p", 'portal "p"')])
def test_an_error_in_a_parameter_tells_which_one_it_is(
    wire: Wire, portal: str, of: str, value: bytes, format_: int, error: dict[str, str]
) -> None:
    told = wire.send(
        parse("", "SELECT $1::int, $2::int") + bind(portal, "", [None, value], [0, format_]) + SYNC
    )
    (found,) = errors(told)
    assert found == {"S": "ERROR", "V": "ERROR", **error, "W": f"{of} parameter {error['W']}"}


# -- transactions


def answers(wire: Wire, sql: str) -> list[str]:
    """Return command tags, the errors' and notices' codes and texts, and last the status of the session."""
    written = wire.query(sql)
    wire.server.settle()
    told: list[str] = []
    for kind, body in split(written + wire.received()):
        if kind in "EN":
            told.append(f"{fields(body)['C']} {fields(body)['M']}")
        elif kind in "CZ":
            told.append(body.rstrip(b"\0").decode())
    return told


_NOT_IN_A_BLOCK = "25P01 there is no transaction in progress"


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("BEGIN", ["BEGIN", "T"]),
        ("BEGIN WORK", ["BEGIN", "T"]),
        ("START TRANSACTION", ["START TRANSACTION", "T"]),
        ("BEGIN; COMMIT", ["BEGIN", "COMMIT", "I"]),
        ("BEGIN; END TRANSACTION", ["BEGIN", "COMMIT", "I"]),
        ("BEGIN; ABORT", ["BEGIN", "ROLLBACK", "I"]),
        ("END", [_NOT_IN_A_BLOCK, "COMMIT", "I"]),
        ("ABORT WORK", [_NOT_IN_A_BLOCK, "ROLLBACK", "I"]),
        ("BEGIN; COMMIT AND CHAIN", ["BEGIN", "COMMIT", "T"]),
        ("BEGIN; ROLLBACK AND CHAIN", ["BEGIN", "ROLLBACK", "T"]),
        ("BEGIN; ROLLBACK AND NO CHAIN", ["BEGIN", "ROLLBACK", "I"]),
        ("COMMIT AND CHAIN", ["25P01 COMMIT AND CHAIN can only be used in transaction blocks", "I"]),
        ("ROLLBACK AND CHAIN", ["25P01 ROLLBACK AND CHAIN can only be used in transaction blocks", "I"]),
        (
            "BEGIN; START TRANSACTION",
            ["BEGIN", "25001 there is already a transaction in progress", "START TRANSACTION", "T"],
        ),
        (
            "SET TRANSACTION READ ONLY",
            ["25P01 SET TRANSACTION can only be used in transaction blocks", "SET", "I"],
        ),
    ],
)
def test_transactions_answer_with_their_tags(wire: Wire, sql: str, told: list[str]) -> None:
    assert answers(wire, sql) == told


def test_a_block_chained_to_another_has_its_modes_and_ends_apart_from_it(wire: Wire) -> None:
    wire.run("CREATE TABLE t (a int)")
    wire.run(
        "BEGIN; INSERT INTO t VALUES (1); COMMIT AND CHAIN; INSERT INTO t VALUES (2); ROLLBACK AND CHAIN"
    )
    wire.run("COMMIT; BEGIN READ ONLY; COMMIT AND CHAIN")
    assert refused(wire, "INSERT INTO t VALUES (3)") == {
        "C": "25006",
        "M": "cannot execute INSERT in a read-only transaction",
    }
    assert answers(wire, "COMMIT AND CHAIN") == ["ROLLBACK", "T"]
    assert row(wire, "SHOW transaction_read_only") == b"on"
    assert answers(wire, "COMMIT") == ["COMMIT", "I"]
    assert row(wire, "SHOW transaction_read_only") == b"off"
    assert row(wire, "SELECT a FROM t") == b"1"


def row(wire: Wire, sql: str) -> bytes:
    """Return the value of an answer of one row and one column."""
    ((_, data),) = [message for message in split(wire.run(sql)) if message[0] == "D"]
    return data[6:]


def test_a_deadlock_tells_who_waits_for_whom(server: Server, wire: Wire) -> None:
    other = Wire(server)
    wire.run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    wire.run("CREATE TABLE u (a int); INSERT INTO u VALUES (1)")
    wire.run("BEGIN; UPDATE t SET a = 2")
    other.run("BEGIN; UPDATE u SET a = 2")
    assert wire.query("UPDATE u SET a = 3") == b""
    first, second = wire.process_id, other.process_id
    assert refused(other, "UPDATE t SET a = 3") == {
        "C": "40P01",
        "M": "deadlock detected",
        "D": f'Process {second} waits for ExclusiveLock on relation "t"; blocked by process {first}.\n'
        f'Process {first} waits for ExclusiveLock on relation "u"; blocked by process {second}.',
    }


# -- what a session is told of


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("x" * 100, "x" * 63),
        ("é" * 40, "?" * 62),
        ("x" * 62 + "é", "x" * 62),
        ("新", "???"),
        ("a\tb\x7f", "a?b?"),
        (" ~ ", " ~ "),
    ],
)
def test_an_application_name_is_cut_and_cleaned(server: Server, name: str, shown: str) -> None:
    told = Wire(server, started=False).send(startup(user="layby", application_name=name))
    assert ("S", f"application_name\0{shown}\0".encode()) in split(told)
    told = Wire(server).run(f"SET application_name = '{name}'")
    assert ("S", f"application_name\0{shown}\0".encode()) in split(told)


@pytest.mark.parametrize("spelling", ["utf8", "UTF-8", "'utf-8'", "Unicode"])
def test_an_encoding_is_known_by_its_letters_and_digits(server: Server, spelling: str) -> None:
    told = Wire(server, started=False).send(startup(user="layby", client_encoding=spelling))
    assert ("S", b"client_encoding\0UTF8\0") in split(told)
    assert "N" not in kinds(told)


def test_a_session_is_told_whether_it_may_write(wire: Wire) -> None:
    told = split(wire.run("SET default_transaction_read_only = on"))
    assert ("S", b"default_transaction_read_only\0on\0") in told


def test_a_startup_packet_is_taken_up_to_its_limit(server: Server) -> None:
    longest = startup(user="layby", search_path="x" * 9_971)
    assert len(longest) == 10_004
    assert kinds(Wire(server, started=False).send(longest)).endswith("KZ")
    refused_wire = Wire(server, started=False)
    (error,) = errors(refused_wire.send(startup(user="layby", search_path="x" * 9_972)))
    assert (error["S"], error["C"], error["M"]) == ("FATAL", "08P01", "invalid length of startup packet")
    assert refused_wire.closed
