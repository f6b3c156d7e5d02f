"""Many and large parameters, from the wire to the walk: what is read and instantiated apart, in its order."""

from __future__ import annotations

import pytest

from layby.adapter.jobs import Instantiate
from layby.compute.runtime import Job
from layby.pgwire.parameters import ReadLongBind
from tests.adapter.harness import Server
from tests.pgwire.frontend import SYNC, bind, describe, errors, execute, kinds, parse, query, split
from tests.product.wire import Wire

COUNT = 3_000
MANY = [f"v{n}".encode() for n in range(COUNT)]
LISTED = f"SELECT a FROM t WHERE b IN ({', '.join(f'${n + 1}' for n in range(COUNT))}) ORDER BY a"


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def wire(server: Server) -> Wire:
    wire = Wire(server)
    wire.run("CREATE TABLE t (a int, b text)")
    wire.run("CREATE INDEX t_b ON t (b)")
    wire.run("INSERT INTO t VALUES (1, 'v7'), (2, 'v2999'), (3, 'w')")
    return wire


def prepared(wire: Wire, sql: str, name: str = "s") -> None:
    assert kinds(talked(wire, parse(name, sql) + SYNC)) == "1Z"


def settled(wire: Wire) -> bytes:
    wire.server.settle()
    return wire.received()


def talked(wire: Wire, data: bytes) -> bytes:
    """Send, and return all that is written in answer."""
    return wire.send(data) + settled(wire)


def rows(data: bytes) -> list[bytes]:
    return [body[6:] for kind, body in split(data) if kind == "D"]


def test_many_parameters_are_told_bound_and_executed_again_and_again(wire: Wire) -> None:
    prepared(wire, LISTED)
    ((kind, told),) = split(wire.send(describe("S", "s") + SYNC))[:1]
    assert (kind, told) == ("t", COUNT.to_bytes(2, "big") + (25).to_bytes(4, "big") * COUNT)
    for _ in range(3):
        assert wire.send(bind("", "s", MANY) + execute() + SYNC) == b""
        answer = settled(wire)
        assert kinds(answer) == "2DDCZ"
        assert rows(answer) == [b"1", b"2"]


def test_declared_types_are_those_that_are_told(wire: Wire) -> None:
    oids = [1043 if n % 2 else 0 for n in range(COUNT)]
    answer = split(talked(wire, parse("s", LISTED, oids) + describe("S", "s") + SYNC))
    assert answer[1] == ("t", COUNT.to_bytes(2, "big") + (25).to_bytes(4, "big") * COUNT)
    refused = talked(wire, parse("n", LISTED, [*oids[1:], 999_999]) + SYNC)
    assert errors(refused)[0]["C"] == "42704"


def test_it_is_read_then_instantiated_apart(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(wire, LISTED)
    jobs: list[type[Job]] = []
    run_apart = wire.server.coordinator.run_apart

    def noted(job: Job, then: object) -> None:
        jobs.append(type(job))
        run_apart(job, then)  # type: ignore[arg-type]

    monkeypatch.setattr(wire.server.coordinator, "run_apart", noted)
    wire.send(bind("", "s", MANY) + execute() + SYNC)
    settled(wire)
    assert jobs == [ReadLongBind, Instantiate]


def test_others_are_served_meanwhile_and_what_follows_comes_after(wire: Wire, server: Server) -> None:
    other = Wire(server)
    prepared(wire, LISTED)
    sent = bind("", "s", MANY) + execute() + SYNC + query("SELECT 5")
    assert wire.send(sent) == b""
    assert rows(other.query("SELECT 6")) == [b"6"]
    assert server.maintenance.step()  # the Bind is read
    assert server.loop.turn()
    assert rows(other.query("SELECT 7")) == [b"7"]
    assert rows(settled(wire)) == [b"1", b"2", b"5"]


@pytest.mark.parametrize("steps", [0, 1], ids=["bind", "execute"])
def test_a_cancel_request_ends_it_and_the_rest_up_to_the_sync(wire: Wire, server: Server, steps: int) -> None:
    prepared(wire, LISTED)
    wire.send(query("BEGIN"))
    wire.received()
    assert wire.send(bind("", "s", MANY) + execute() + execute() + SYNC + query("ROLLBACK")) == b""
    for _ in range(steps):
        assert server.maintenance.step()
        assert server.loop.turn()
    wire.request_cancel()
    answer = wire.received()
    assert kinds(answer) == "2" * steps + "EZCZ"
    assert errors(answer)[0]["C"] == "57014"
    assert split(answer)[1 + steps] == ("Z", b"E")
    assert settled(wire) == b""
    server.assert_nothing_leaked()


@pytest.mark.parametrize("steps", [0, 1], ids=["bind", "execute"])
def test_a_client_that_is_gone_leaves_nothing(wire: Wire, server: Server, steps: int) -> None:
    prepared(wire, LISTED)
    wire.send(bind("", "s", MANY) + execute() + SYNC)
    for _ in range(steps):
        assert server.maintenance.step()
        assert server.loop.turn()
    wire.vanish()
    server.settle()
    server.assert_nothing_leaked()


def test_an_error_in_a_value_is_that_of_the_bind_and_fails_the_block(wire: Wire) -> None:
    prepared(wire, "SELECT $1::timestamp")
    wire.send(query("BEGIN"))
    wire.received()
    sent = bind("", "s", [b"1 " * 50_000]) + execute() + SYNC + query("SELECT 1") + query("ROLLBACK")
    answer = talked(wire, sent)
    assert kinds(answer) == "EZEZCZ"
    first, second = errors(answer)
    assert (first["C"], second["C"]) == ("22007", "25P02")
    assert first["M"].startswith('invalid input syntax for type timestamp: "1 1 1')


def test_a_large_value_is_written_found_and_sent(wire: Wire) -> None:
    large = b"x" * (3 << 20)
    prepared(wire, "INSERT INTO t VALUES ($1, $2)", "put")
    prepared(wire, "SELECT a FROM t WHERE b = $1", "find")
    prepared(wire, "SELECT $1::text", "give")
    assert kinds(talked(wire, bind("", "put", [b"9", large]) + execute() + SYNC)) == "2CZ"
    assert rows(talked(wire, bind("", "find", [large]) + execute() + SYNC)) == [b"9"]
    assert rows(talked(wire, bind("", "give", [large]) + execute() + SYNC)) == [large]
