from __future__ import annotations

import pytest

from layby.compute.maintenance import ApplyWrites
from layby.errors import SqlError
from tests.adapter.harness import Client, Server


def duplicate(constraint: str) -> tuple[str, str]:
    return "23505", f'duplicate key value violates unique constraint "{constraint}"'


def test_a_null_in_a_not_null_column_names_the_column_and_shows_the_row(client: Client) -> None:
    client.run("CREATE TABLE t (a int, b text NOT NULL)")
    with pytest.raises(SqlError) as caught:
        client.run("INSERT INTO t VALUES (1, 'x'), (2, NULL)")
    assert caught.value.sqlstate == "23502"
    assert caught.value.message == 'null value in column "b" of relation "t" violates not-null constraint'
    assert caught.value.detail == "Failing row contains (2, null)."
    assert client.run("SELECT * FROM t") == []


def test_the_first_row_that_violates_is_the_one_reported(client: Client) -> None:
    client.run("CREATE TABLE t (a int NOT NULL, b varchar(2))")
    assert client.fails("INSERT INTO t VALUES (1, 'xxx'), (NULL, 'x')")[0] == "22001"
    assert client.fails("INSERT INTO t VALUES (NULL, 'x'), (1, 'xxx')")[0] == "23502"
    assert client.fails("INSERT INTO t VALUES (NULL, 'xxx')")[0] == "22001"


def test_a_varchar_counts_characters(client: Client) -> None:
    client.run("CREATE TABLE t (a varchar(3))")
    assert client.run("INSERT INTO t VALUES ('äöü'), (NULL)") == "INSERT 0 2"
    too_long = ("22001", "value too long for type character varying(3)")
    assert client.fails("INSERT INTO t VALUES ('äöüx')") == too_long
    assert client.fails("UPDATE t SET a = 'long'") == too_long


@pytest.mark.parametrize("type_", ["int", "bigint", "text", "double precision", "date"])
def test_a_key_that_is_there_already_is_refused(client: Client, type_: str) -> None:
    value = "'2000-01-01'" if type_ == "date" else "'1'"
    client.run(f"CREATE TABLE t (a {type_} UNIQUE)")
    client.run(f"INSERT INTO t VALUES ({value})")
    assert client.fails(f"INSERT INTO t VALUES ({value})") == duplicate("t_a_key")


def test_a_duplicate_says_which_key_it_is(client: Client) -> None:
    client.run("CREATE TABLE t (a int, b text, UNIQUE (a, b))")
    client.run("INSERT INTO t VALUES (1, 'x'), (1, 'y')")
    with pytest.raises(SqlError) as caught:
        client.run("INSERT INTO t VALUES (2, 'x'), (1, 'y')")
    assert caught.value.detail == "Key (a, b)=(1, y) already exists."
    assert client.run("SELECT a, b FROM t ORDER BY b") == [(1, "x"), (1, "y")]


def test_a_key_twice_in_one_statement_is_refused(client: Client) -> None:
    client.run("CREATE TABLE t (a int PRIMARY KEY)")
    assert client.fails("INSERT INTO t VALUES (1), (2), (1)") == duplicate("t_pkey")


def test_keys_with_a_null_are_like_no_others(client: Client) -> None:
    client.run("CREATE TABLE t (a int, b int, UNIQUE (a, b))")
    assert client.run("INSERT INTO t VALUES (1, NULL), (1, NULL), (NULL, NULL)") == "INSERT 0 3"
    assert client.run("INSERT INTO t VALUES (1, NULL), (NULL, 1)") == "INSERT 0 2"


def test_a_key_deleted_in_the_same_block_may_come_again(client: Client) -> None:
    client.run("CREATE TABLE t (a int PRIMARY KEY, b text)")
    client.run("INSERT INTO t VALUES (1, 'x')")
    client.run("BEGIN")
    client.run("DELETE FROM t WHERE a = 1")
    client.run("INSERT INTO t VALUES (1, 'y')")
    assert client.run("COMMIT") == "COMMIT"
    assert client.run("SELECT * FROM t") == [(1, "y")]


def test_a_key_deleted_by_a_committed_statement_may_come_again(client: Client) -> None:
    client.run("CREATE TABLE t (a int PRIMARY KEY)")
    client.run("INSERT INTO t VALUES (1)")
    client.run("DELETE FROM t")
    assert client.run("INSERT INTO t VALUES (1)") == "INSERT 0 1"


def test_a_block_that_leaves_a_key_twice_fails_at_its_commit(client: Client) -> None:
    client.run("CREATE TABLE t (a int PRIMARY KEY)")
    client.run("INSERT INTO t VALUES (1)")
    client.run("BEGIN")
    client.run("INSERT INTO t VALUES (2), (1)")
    assert client.fails("COMMIT") == duplicate("t_pkey")
    assert client.session.status == b"I"
    assert client.run("SELECT a FROM t") == [(1,)]


def test_of_two_writes_committed_together_the_later_one_loses_its_key(
    server: Server, client: Client, other: Client
) -> None:
    client.run("CREATE TABLE t (a int PRIMARY KEY)")
    first = client.send("INSERT INTO t VALUES (1)")
    second = other.send("INSERT INTO t VALUES (1), (2)")
    assert server.commits.step()
    server.settle()
    assert first.result() == "INSERT 0 1"
    with pytest.raises(SqlError, match="duplicate key value"):
        second.result()
    assert client.run("SELECT a FROM t") == [(1,)]


def test_a_key_is_checked_against_commits_that_readers_do_not_see_yet(
    server: Server, client: Client, other: Client
) -> None:
    client.run("CREATE TABLE t (a int PRIMARY KEY)")
    first = client.send("INSERT INTO t VALUES (1)")
    assert server.commits.step()
    second = other.send("INSERT INTO t VALUES (1)")
    assert not server.commits.step(), "the group waits until the one before it is applied"
    server.settle()
    assert first.result() == "INSERT 0 1"
    with pytest.raises(SqlError, match="duplicate key value"):
        second.result()


@pytest.mark.parametrize("type_", ["int", "text"])
@pytest.mark.parametrize("clash", [1, 2500, 5000])
def test_a_large_copy_is_checked_as_a_small_one_is(client: Client, type_: str, clash: int) -> None:
    client.run(f"CREATE TABLE t (a {type_} PRIMARY KEY)")
    client.run(f"INSERT INTO t VALUES ('{clash}'), ('77777')")
    data = "".join(f"{n}\n" for n in range(1, 5001)).encode()
    with pytest.raises(SqlError) as caught:
        client.copy("COPY t FROM STDIN", data)
    assert caught.value.sqlstate == "23505"
    assert caught.value.detail == f"Key (a)=({clash}) already exists."
    client.run(f"DELETE FROM t WHERE a = '{clash}'")
    assert client.copy("COPY t FROM STDIN", data) == "COPY 5000"
    assert client.fails("INSERT INTO t VALUES ('4321')") == duplicate("t_pkey")
    assert client.run("SELECT a FROM t WHERE a = '4321'") == [(4321 if type_ == "int" else "4321",)]


@pytest.mark.parametrize("key", ["a", "a, b"])
def test_texts_alike_in_their_first_bytes_are_told_apart(client: Client, key: str) -> None:
    client.run(f"CREATE TABLE t (a text, b int, UNIQUE ({key}))")
    client.run("INSERT INTO t SELECT 'same-beginning-' || g, 0 FROM generate_series(1, 3000) AS g")
    client.run("INSERT INTO t VALUES (NULL, 0), (NULL, 0)")
    more = "INSERT INTO t SELECT 'same-beginning-' || g, 0 FROM generate_series({}, {}) AS g"
    assert client.run(more.format(3001, 8000)) == "INSERT 0 5000"
    with pytest.raises(SqlError) as caught:
        client.run(more.format(8000, 13000))
    assert caught.value.sqlstate == "23505"
    assert caught.value.detail is not None
    assert "same-beginning-8000" in caught.value.detail
    client.run("DELETE FROM t WHERE a IS NOT NULL")
    assert client.run(more.format(1, 5000)) == "INSERT 0 5000", "deleted keys are free"
    assert client.fails(more.format(1, 5000))[0] == "23505"


def test_a_large_copy_of_one_key_twice_is_refused(client: Client) -> None:
    client.run("CREATE TABLE t (a int, b int, UNIQUE (a, b))")
    data = "".join(f"1\t{n}\n" for n in range(5000)).encode()
    with pytest.raises(SqlError, match="duplicate key"):
        client.copy("COPY t FROM STDIN", data, b"1\t42\n")
    assert client.copy("COPY t FROM STDIN", data, b"2\t42\n") == "COPY 5001"


def test_a_large_copy_beside_nulls_of_the_index_is_checked(client: Client) -> None:
    client.run("CREATE TABLE t (a int UNIQUE)")
    client.run("INSERT INTO t VALUES (NULL), (NULL), (3000)")
    data = "".join(f"{n}\n" for n in range(1, 5001)).encode()
    with pytest.raises(SqlError) as caught:
        client.copy("COPY t FROM STDIN", data)
    assert caught.value.detail == "Key (a)=(3000) already exists."


def test_two_large_writes_of_one_table_committed_together_both_count(
    server: Server, client: Client, other: Client
) -> None:
    third = server.connect()
    client.run("CREATE TABLE t (a int PRIMARY KEY)")
    queries = [
        client.send("INSERT INTO t SELECT g FROM generate_series(1, 5000) AS g"),
        other.send("INSERT INTO t SELECT g FROM generate_series(5001, 10000) AS g"),
        third.send("INSERT INTO t VALUES (0)"),
    ]
    while server.loop.turn() or server.maintenance.step():
        pass
    assert server.commits.step()
    assert not server.commits.step(), "one group took them all"
    writes = [m.writes for m in server.maintenance.messages if isinstance(m, ApplyWrites)]
    assert [[bool(w.arranged) for w in ws] for ws in writes] == [[False], [True], [True]], "sorted once"
    server.settle()
    assert [q.result() for q in queries] == ["INSERT 0 5000", "INSERT 0 5000", "INSERT 0 1"]
    assert client.run("SELECT a FROM t WHERE a IN (0, 1, 5000, 5001, 10000) ORDER BY a") == [
        (0,),
        (1,),
        (5000,),
        (5001,),
        (10000,),
    ]
    assert client.run("SELECT a FROM t ORDER BY a OFFSET 9999") == [(9999,), (10000,)]
