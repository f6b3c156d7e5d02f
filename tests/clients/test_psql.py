from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.clients.server import SLOW, TIMEOUT, Server, table

_ITEMS = (
    "CREATE TABLE items (id int PRIMARY KEY, name text, price double precision)",
    "INSERT INTO items VALUES (1, 'one', 1.5), (2, NULL, 2.25), (3, 'th''ree', NULL)",
)


def _psql(server: Server, *arguments: str, stdin: str = "") -> str:
    return server.run("psql", "-X", "-v", "ON_ERROR_STOP=1", *arguments, stdin=stdin).stdout


def test_a_query_prints_its_rows(server: Server) -> None:
    with table(server, "items", *_ITEMS):
        assert _psql(server, "-At", "-c", "SELECT * FROM items ORDER BY id DESC") == (
            "3|th'ree|\n2||2.25\n1|one|1.5\n"
        )


def test_several_commands_are_answered_each(server: Server) -> None:
    script = "CREATE TABLE steps (a int); INSERT INTO steps VALUES (1), (2);"
    script += (
        "UPDATE steps SET a = a + 1; DELETE FROM steps WHERE a = 2; SELECT a FROM steps; DROP TABLE steps;"
    )
    out = _psql(server, "-At", stdin=script)
    assert out.splitlines() == ["CREATE TABLE", "INSERT 0 2", "UPDATE 2", "DELETE 1", "3", "DROP TABLE"]


def test_a_script_in_one_command_is_one_transaction(server: Server) -> None:
    with table(server, "items", *_ITEMS):
        done = server.run(
            "psql", "-X", "-c", "INSERT INTO items VALUES (9, 'x', 0); SELECT 1 / 0", check=False
        )
        assert done.returncode == 1
        assert "ERROR:  division by zero" in done.stderr
        assert _psql(server, "-At", "-c", "SELECT id FROM items WHERE id = 9") == ""


def test_an_error_points_at_its_place(server: Server) -> None:
    done = server.run("psql", "-X", "-c", "SELECT 1 FRM x", check=False)
    assert done.stderr == (
        'ERROR:  syntax error at or near "x"\nLINE 1: SELECT 1 FRM x\n                     ^\n'
    )


def test_variables_are_put_in_by_set(server: Server) -> None:
    script = "\\set name 'O''Neil'\n\\set n 42\nSELECT :'name' AS a, :n AS b;\n"
    assert _psql(server, "-At", stdin=script) == "O'Neil|42\n"


def test_a_transaction_is_rolled_back(server: Server) -> None:
    with table(server, "items", *_ITEMS):
        script = (
            "BEGIN;\nDELETE FROM items;\nSELECT id FROM items;\nROLLBACK;\nSELECT id FROM items ORDER BY 1;\n"
        )
        assert _psql(server, "-At", stdin=script) == "BEGIN\nDELETE 3\nROLLBACK\n1\n2\n3\n"


def test_copy_from_and_to_a_file(server: Server, tmp_path: Path) -> None:
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text('id,name,price\n1,"a,b",0.5\n2,,\n3,"say ""x""",1e10\n')
    with table(server, "items", _ITEMS[0]):
        assert _psql(server, "-c", f"\\copy items FROM '{source}' CSV HEADER") == "COPY 3\n"
        assert _psql(server, "-c", f"\\copy items TO '{target}' CSV HEADER") == "COPY 3\n"
        lines = target.read_text().splitlines()
        assert lines[0] == "id,name,price"
        assert sorted(lines[1:]) == ['1,"a,b",0.5', "2,,", '3,"say ""x""",10000000000']


def test_copy_through_the_terminal(server: Server) -> None:
    with table(server, "items", _ITEMS[0]):
        script = "COPY items FROM STDIN;\n1\ta\\tb\t0.5\n2\t\\N\t\\N\n\\.\nCOPY items TO STDOUT;\n"
        out = _psql(server, stdin=script).splitlines()
        assert out[0] == "COPY 2"
        assert sorted(out[1:]) == ["1\ta\\tb\t0.5", "2\t\\N\t\\N"]


def test_copy_of_a_bad_line_tells_where_it_is(server: Server) -> None:
    with table(server, "items", _ITEMS[0]):
        done = server.run(
            "psql", "-X", "-c", "COPY items FROM STDIN", stdin="1\ta\t1\nx\tb\t2\n", check=False
        )
        assert 'ERROR:  invalid input syntax for type integer: "x"' in done.stderr
        assert 'CONTEXT:  COPY items, line 2, column id: "x"' in done.stderr
        assert _psql(server, "-At", "-c", "SELECT id FROM items") == ""


def test_a_column_of_a_type_is_shown_as_postgresql_shows_it(server: Server) -> None:
    sql = (
        "SELECT true, 1::smallint, 2::bigint, 0.1::real, 0.1::double precision, 'ä'::text,"
        " DATE '2024-02-29', TIMESTAMP '2024-02-29 12:00:00.5', TIMESTAMPTZ '2024-02-29 12:00:00+02', NULL"
    )
    assert _psql(server, "-At", "-c", sql) == (
        "t|1|2|0.1|0.1|ä|2024-02-29|2024-02-29 12:00:00.5|2024-02-29 10:00:00+00|\n"
    )


def test_an_interrupt_cancels_the_statement(server: Server) -> None:
    # Nothing tells from outside when psql has its statement under way, so it is given longer each time.
    for attempt in range(1, 40):
        process = subprocess.Popen(
            ["psql", "-X", "-c", SLOW, server.conninfo],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            process.communicate(timeout=0.1 * attempt)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
        if "ERROR:  canceling statement due to user request" in err:
            return
    raise AssertionError(f"psql was not cancelled: {err}")
