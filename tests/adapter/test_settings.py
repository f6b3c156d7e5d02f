from __future__ import annotations

import pytest

from tests.adapter.harness import Client, Server, never_later


def test_set_lasts_and_reset_goes_back_to_the_start(server: Server) -> None:
    client = server.connect(application_name="start", unknown="ignored")
    assert client.run("SHOW application_name") == [("start",)]
    assert client.run("SET application_name = 'app'") == "SET"
    assert client.run("SHOW application_name") == [("app",)]
    assert client.run("RESET application_name") == "RESET"
    assert client.run("SHOW application_name") == [("start",)]


def test_set_local_ends_with_its_block(client: Client) -> None:
    client.run("SET application_name = 'outer'")
    client.run("BEGIN")
    client.run("SET LOCAL application_name = 'inner'")
    assert client.run("SHOW application_name") == [("inner",)]
    client.run("COMMIT")
    assert client.run("SHOW application_name") == [("outer",)]


def test_set_local_outside_a_block_warns_and_is_over_at_once(client: Client) -> None:
    client.run("SET LOCAL application_name = 'x'")
    (notice,) = client.session.take_notices()
    assert (notice.severity, notice.sqlstate, notice.message) == (
        "WARNING",
        "25P01",
        "SET LOCAL can only be used in transaction blocks",
    )
    assert client.run("SHOW application_name") == [("",)]


def test_set_after_set_local_lasts(client: Client) -> None:
    client.run("BEGIN")
    client.run("SET LOCAL application_name = 'inner'")
    client.run("SET application_name = 'lasting'")
    client.run("COMMIT")
    assert client.run("SHOW application_name") == [("lasting",)]


@pytest.mark.parametrize("end", ["ROLLBACK", "SELECT 1 / 0; "])
def test_a_set_in_a_block_that_rolls_back_is_undone_and_reported(client: Client, end: str) -> None:
    client.run("SET application_name = 'before'")
    client.session.take_parameter_changes()
    client.run("BEGIN")
    client.run("SET application_name = 'within'")
    assert client.session.take_parameter_changes() == [("application_name", "within")]
    if end != "ROLLBACK":
        client.fails(end)
        client.run("COMMIT")
    else:
        client.run(end)
    assert client.session.take_parameter_changes() == [("application_name", "before")]
    assert client.run("SHOW application_name") == [("before",)]


def test_only_reported_parameters_that_change_are_told(client: Client) -> None:
    client.run("SET application_name = ''")
    client.run("SET statement_timeout = '5s'")
    client.run("SET datestyle = 'iso'")
    assert client.session.take_parameter_changes() == []


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("0", "0"),
        ("1500", "1500ms"),
        ("'2s'", "2s"),
        ("'90 s'", "90s"),
        ("'1.5s'", "1500ms"),
        ("60000", "1min"),
    ],
)
def test_a_duration_is_shown_in_the_largest_unit_that_divides_it(
    client: Client, value: str, shown: str
) -> None:
    client.run(f"SET statement_timeout = {value}")
    assert client.run("SHOW statement_timeout") == [(shown,)]


@pytest.mark.parametrize(
    ("sql", "sqlstate", "message"),
    [
        ("SET nonsense = 1", "42704", 'unrecognized configuration parameter "nonsense"'),
        ("SHOW nonsense", "42704", 'unrecognized configuration parameter "nonsense"'),
        (
            "SET statement_timeout = 'soon'",
            "22023",
            'invalid value for parameter "statement_timeout": "soon"',
        ),
        ("SET server_version = 'x'", "55P02", 'parameter "server_version" cannot be changed'),
        (
            "SET client_encoding = 'latin1'",
            "22023",
            'invalid value for parameter "client_encoding": "latin1"',
        ),
        (
            "SET max_result_size = '1GB'",
            "55P02",
            'parameter "max_result_size" cannot be changed in a session',
        ),
    ],
)
def test_what_cannot_be_set_says_why(client: Client, sql: str, sqlstate: str, message: str) -> None:
    assert client.fails(sql) == (sqlstate, message)


def test_alter_system_is_in_force_for_everybody_at_once(client: Client, other: Client) -> None:
    assert client.run("ALTER SYSTEM SET compute_index_peek_inline_budget = 7") == "ALTER SYSTEM"
    assert other.run("SHOW compute_index_peek_inline_budget") == [("7",)]
    assert client.run("ALTER SYSTEM RESET compute_index_peek_inline_budget") == "ALTER SYSTEM"
    assert other.run("SHOW compute_index_peek_inline_budget") == [("16384",)]


@pytest.mark.parametrize(
    ("name", "value", "sqlstate"),
    [
        ("compute_index_peek_inline_budget", "-1", "22023"),
        ("compute_index_peek_inline_budget", "'many'", "22023"),
        ("compute_index_peek_yield_granularity", "0", "22023"),
        ("enable_compute_index_peek_offload", "'perhaps'", "22023"),
        ("max_result_size", "'1 parsec'", "22023"),
        ("no_such_parameter", "1", "42704"),
        ("statement_timeout", "1", "55P02"),
    ],
)
def test_a_bad_system_parameter_leaves_the_old_one_in_force(
    server: Server, client: Client, name: str, value: str, sqlstate: str
) -> None:
    before = server.coordinator.parameters.peek
    assert client.fails(f"ALTER SYSTEM SET {name} = {value}")[0] == sqlstate
    assert server.coordinator.parameters.peek == before


def test_alter_system_is_not_for_blocks(client: Client) -> None:
    client.run("BEGIN")
    assert client.fails("ALTER SYSTEM RESET ALL") == (
        "25001",
        "ALTER SYSTEM cannot run inside a transaction block",
    )


def test_show_all_lists_session_and_system_parameters_by_name(client: Client) -> None:
    rows = client.run("SHOW ALL")
    names = [row[0] for row in rows]
    assert names == sorted(names, key=str.lower)
    assert {"TimeZone", "max_result_size", "statement_timeout"} <= set(names)


def test_discard_all_starts_the_session_afresh(client: Client) -> None:
    client.run("SET application_name = 'x'")
    client.session.prepared.prepare("s", "SELECT 1", [], never_later)
    assert client.run("DISCARD ALL") == "DISCARD ALL"
    assert client.run("SHOW application_name") == [("",)]
    assert client.fails("DEALLOCATE s")[0] == "26000"
    client.run("BEGIN")
    assert client.fails("DISCARD ALL")[0] == "25001"


def test_the_modes_of_a_block_end_with_it(client: Client) -> None:
    client.run("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY")
    assert client.run("SHOW transaction_isolation") == [("serializable",)]
    assert client.run("SHOW transaction_read_only") == [("on",)]
    client.run("COMMIT")
    assert client.run("SHOW transaction_isolation") == [("strict serializable",)]
    assert client.run("SHOW transaction_read_only") == [("off",)]


def test_settings_of_a_startup_message_that_are_wrong_only_warn(server: Server) -> None:
    client = server.connect(TimeZone="Mars/Olympus", client_min_messages="warning")
    assert [n.severity for n in client.session.take_notices()] == ["WARNING"]
    assert client.run("SHOW timezone") == [("UTC",)]
    assert client.run("SHOW client_min_messages") == [("warning",)]


def test_a_client_is_told_what_it_decides_its_dialect_by(client: Client) -> None:
    told = client.session.reported_parameters()
    assert told["server_version"].startswith("15.0")
    assert told["client_encoding"] == "UTF8"
    assert told["DateStyle"] == "ISO, MDY"
    assert told["TimeZone"] == "UTC"
    assert told["integer_datetimes"] == "on"
    assert told["session_authorization"] == "layby"
    assert told["is_superuser"] == "on"
    assert told["in_hot_standby"] == "off"
    assert client.run("SHOW is_superuser") == [("on",)]
    assert client.fails("SET is_superuser = off") == ("55P02", 'parameter "is_superuser" cannot be changed')
