from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.server import Server, table

_KEYS = (
    "CREATE TABLE keys (k int, v int)",
    "INSERT INTO keys SELECT g, g * 2 FROM generate_series(1, 1000) g",
    "CREATE INDEX ON keys (k)",
)


def _pgbench(server: Server, mode: str, script: Path, clients: int, transactions: int) -> str:
    return server.run(
        "pgbench",
        *("-n", "-M", mode, "-c", str(clients), "-j", "1", "-t", str(transactions), "-f", str(script)),
    ).stdout


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_lookups_of_random_keys(server: Server, mode: str, tmp_path: Path) -> None:
    script = tmp_path / "lookup.sql"
    script.write_text("\\set k random(1, 1000)\nSELECT v FROM keys WHERE k = :k;\n")
    with table(server, "keys", *_KEYS):
        out = _pgbench(server, mode, script, 4, 100)
    assert "number of transactions actually processed: 400/400" in out
    assert "number of failed transactions: 0" in out


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_a_value_that_is_read_back_is_the_right_one(server: Server, mode: str, tmp_path: Path) -> None:
    script = tmp_path / "check.sql"
    # An \if on a wrong value runs a statement that fails, which pgbench reports.
    script.write_text(
        "\\set k random(1, 1000)\nSELECT v AS v FROM keys WHERE k = :k \\gset\n"
        "\\if :v <> 2 * :k\nSELECT 1 / 0;\n\\endif\n"
    )
    with table(server, "keys", *_KEYS):
        out = _pgbench(server, mode, script, 2, 50)
    assert "number of transactions actually processed: 100/100" in out


@pytest.mark.parametrize("mode", ["simple", "prepared"])
def test_writes_in_transactions(server: Server, mode: str, tmp_path: Path) -> None:
    script = tmp_path / "write.sql"
    script.write_text("BEGIN;\nINSERT INTO keys VALUES (:client_id, 7);\nEND;\n")
    with table(server, "keys", _KEYS[0]):
        _pgbench(server, mode, script, 3, 10)
        out = server.run("psql", "-X", "-At", "-c", "SELECT k FROM keys ORDER BY k").stdout
    assert out.split() == ["0"] * 10 + ["1"] * 10 + ["2"] * 10
