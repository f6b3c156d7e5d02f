"""Cancellation in the product: every state that a peek can be in, by every way that ends it.

Each test says by counters that the mechanism ended the work, before anything else could have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from layby.persist.folder import FolderBlob
from layby.pgwire.connection import shutting_down
from tests.adapter.harness import Server
from tests.pgwire.frontend import errors, kinds
from tests.product.wire import Wire

ROWS = 200
WALK = "SELECT b FROM t WHERE b > 0"


class Scene:
    """A server in which a full walk takes many steps, one walk at a time, and one client that asks for it."""

    def __init__(self, folder: Path, *, stash: bool = False) -> None:
        self.blob = FolderBlob(folder, durable=False)
        self.server = Server(
            blob=self.blob,
            compute_index_peek_inline_budget=20,
            compute_index_peek_yield_granularity=20,
            enable_compute_peek_response_stash="on" if stash else "off",
            peek_response_stash_threshold_bytes="0",
        )
        self.parameters = self.server.coordinator.parameters
        self.metrics = self.server.coordinator.metrics
        self.worker = self.server.coordinator.worker
        self.other = Wire(self.server)
        self.other.run("CREATE TABLE t (a int, b int)")
        self.other.run(f"INSERT INTO t SELECT g, g FROM generate_series(1, {ROWS}) AS g")
        self.other.run("CREATE INDEX by_b ON t (b)")
        self.client = Wire(self.server)
        self.client.run("SET statement_timeout = '7s'")
        self.slices = self.metrics.total_seconds.count
        self.granted = self.metrics.permits_granted
        self.offloaded = self.metrics.walks_offloaded

    def parts(self) -> list[str]:
        """Return the keys of everything in the stash."""
        return list(self.blob.list_keys(""))

    def at_rest(self) -> None:
        """End everybody and hold the server to having nothing left."""
        self.server.settle()
        for wire in (self.client, self.other):
            wire.vanish()
        self.server.settle()
        self.server.assert_nothing_leaked()
        assert self.parts() == []
        assert self.metrics.stash_bytes == 0


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.at_rest()


@pytest.fixture
def stashing(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, stash=True)
    yield made
    made.at_rest()


# The ways


def cancel_request(scene: Scene) -> None:
    scene.client.request_cancel()


def closed_connection(scene: Scene) -> None:
    scene.client.vanish()


def statement_timeout(scene: Scene) -> None:
    [(seconds, expire)] = [timer for timer in scene.server.loop.timers if timer[0] == 7]
    assert seconds == 7
    expire()


def drop_index(scene: Scene) -> None:
    scene.other.query("DROP INDEX by_b")


def drop_table(scene: Scene) -> None:
    scene.other.query("DROP TABLE t")


def pg_cancel_backend(scene: Scene) -> None:
    scene.other.query(f"SELECT pg_cancel_backend({scene.client.process_id})")


def pg_terminate_backend(scene: Scene) -> None:
    scene.other.query(f"SELECT pg_terminate_backend({scene.client.process_id})")
    [terminate] = [turn for turn in scene.server.loop.turns if "_signal" in repr(turn)]
    scene.server.loop.turns.remove(terminate)
    terminate()


def shutdown(scene: Scene) -> None:
    scene.client.connection.end_with(shutting_down())


Way = Callable[[Scene], None]
WAYS: dict[Way, tuple[str, str] | None] = {
    cancel_request: ("57014", "canceling statement due to user request"),
    closed_connection: None,
    statement_timeout: ("57014", "canceling statement due to statement timeout"),
    drop_index: ("57014", 'canceling statement because index "by_b" was dropped'),
    drop_table: ("57014", 'canceling statement because table "t" was dropped'),
    pg_cancel_backend: ("57014", "canceling statement due to user request"),
    pg_terminate_backend: ("57P01", "terminating connection due to administrator command"),
    shutdown: ("57P01", "terminating connection due to administrator command"),
}
"""How a peek is ended, and what its client is told."""

each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def told(scene: Scene, way: Way) -> None:
    """Hold the client to having been told, at once, what it has to know."""
    written = scene.client.received()
    expected = WAYS[way]
    if expected is None:
        assert written == b""
        return
    [error] = errors(written)
    assert (error["C"], error["M"]) == expected
    if expected[0] == "57014":
        assert kinds(written) == "EZ"
    else:
        assert error["S"] == "FATAL"
        assert scene.client.closed


def goes_on(scene: Scene, way: Way) -> None:
    """Let the server come to rest, and hold a client that still has a connection to being served."""
    scene.server.settle()
    if not scene.client.closed and way is not closed_connection:
        assert kinds(scene.client.run("SELECT 1")) == "TDCZ"


# The states


@pytest.mark.parametrize(
    # A signal is a statement too: its own peek would wait behind the one that it is to end.
    "way",
    [way for way in WAYS if way not in (pg_cancel_backend, pg_terminate_backend)],
    ids=lambda way: way.__name__,
)
def test_a_peek_that_waits_for_a_turn_leaves_the_queue_and_spends_nothing(scene: Scene, way: Way) -> None:
    scene.parameters.set("compute_index_peek_activation_budget", "1")
    blocker = Wire(scene.server)
    blocker.query(WALK)
    scene.client.query(WALK)
    assert (scene.worker.waiting, scene.metrics.total_seconds.count) == (1, scene.slices + 1)
    way(scene)
    assert scene.worker.waiting == 0
    told(scene, way)
    scene.server.settle()
    assert scene.metrics.total_seconds.count == scene.slices + 1  # its slice never ran
    assert scene.metrics.permits_granted == scene.granted + 1
    goes_on(scene, way)
    blocker.vanish()


@each_way
def test_a_peek_that_waits_for_a_permit_leaves_the_queue_and_takes_none(scene: Scene, way: Way) -> None:
    blocker = Wire(scene.server)
    blocker.query("SELECT g FROM generate_series(1, 1000) AS g")
    held = scene.metrics.pinned_bytes
    scene.client.query(WALK)
    assert (scene.metrics.permits_in_use, scene.metrics.permits_queued) == (1, 1)
    assert scene.metrics.pinned_bytes > held
    way(scene)
    assert (scene.metrics.permits_in_use, scene.metrics.permits_queued) == (1, 0)
    assert scene.metrics.pinned_bytes == held
    told(scene, way)
    scene.server.settle()
    assert scene.metrics.permits_granted == scene.granted + 1
    assert scene.metrics.walks_offloaded == scene.offloaded + 1
    goes_on(scene, way)
    blocker.vanish()


@each_way
def test_a_walk_stops_within_one_granularity_and_gives_back_permit_and_batches(
    scene: Scene, way: Way
) -> None:
    scene.client.query(WALK)
    scene.server.pool.step()
    walk = scene.server.pool.walk()
    assert walk.scan.positions == 40
    way(scene)
    told(scene, way)
    assert scene.metrics.pinned_bytes > 0
    assert scene.server.pool.step()
    assert walk.scan.positions == 40
    assert scene.metrics.permits_in_use == 0
    assert scene.metrics.pinned_bytes == 0
    goes_on(scene, way)
    assert scene.metrics.walks_offloaded == scene.offloaded


@each_way
def test_a_walk_that_writes_to_the_stash_stops_and_deletes_its_parts(stashing: Scene, way: Way) -> None:
    scene = stashing
    scene.client.query(WALK)
    scene.server.pool.step()
    scene.server.pool.step()
    walk = scene.server.pool.walk()
    assert len(scene.parts()) == 2
    positions = walk.scan.positions
    way(scene)
    told(scene, way)
    assert scene.server.pool.step()
    assert walk.scan.positions == positions
    assert scene.parts() == []
    assert scene.metrics.permits_in_use == 0
    assert scene.metrics.pinned_bytes == 0
    goes_on(scene, way)
    assert (scene.metrics.stashed, scene.metrics.walks_offloaded) == (0, scene.offloaded)


@pytest.mark.parametrize(
    "way", [way for way in WAYS if way not in (drop_index, drop_table)], ids=lambda way: way.__name__
)
def test_an_answer_that_is_not_collected_yet_is_dropped_with_its_parts(stashing: Scene, way: Way) -> None:
    scene = stashing
    scene.client.query(WALK)
    scene.server.pool.run()
    assert len(scene.parts()) > 2
    assert scene.metrics.permits_in_use == 0
    way(scene)
    told(scene, way)
    goes_on(scene, way)
    assert scene.parts() == []
    assert (scene.metrics.stashed, scene.metrics.walks_offloaded) == (0, scene.offloaded)
    assert scene.metrics.stash_bytes == 0


@pytest.mark.parametrize("way", [drop_index, drop_table], ids=lambda way: way.__name__)
def test_an_answer_that_was_complete_before_its_index_went_is_given(scene: Scene, way: Way) -> None:
    scene.client.query(WALK)
    scene.server.pool.run()
    way(scene)
    scene.server.settle()
    assert kinds(scene.client.received()) == "T" + ROWS * "D" + "CZ"


# What a client has sent behind the read that a drop cancels: it runs at once


def test_a_read_sent_behind_one_that_the_drop_of_its_table_cancels_finds_no_table(scene: Scene) -> None:
    scene.client.query(WALK)
    scene.client.query(WALK)
    assert kinds(scene.other.query("DROP TABLE t")) == "CZ"
    written = scene.client.received()
    assert kinds(written) == "EZEZ"
    assert [error["C"] for error in errors(written)] == ["57014", "42P01"]


def test_a_read_sent_behind_one_that_the_drop_of_its_index_cancels_does_without(scene: Scene) -> None:
    scene.client.query(WALK)
    scene.client.query(WALK)
    assert kinds(scene.other.query("DROP INDEX by_b")) == "CZ"
    assert kinds(scene.client.received()) == "EZ"
    # The walk of the first has yet to stop.
    assert [active.pending.spec.collection for active in scene.worker.active()] == ["by_b", "t"]
    scene.server.settle()
    assert kinds(scene.client.received()) == "T" + ROWS * "D" + "CZ"


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("drop", ["DROP INDEX by_b", "DROP TABLE t"])
def test_what_is_taken_back_behind_a_read_that_a_drop_cancels_stays_away(
    scene: Scene, drop: str, end: str
) -> None:
    scene.client.run("BEGIN")
    scene.client.run("CREATE INDEX by_a ON t (a)")
    scene.client.query(WALK)
    scene.client.query("ROLLBACK")
    scene.other.query("BEGIN")
    assert kinds(scene.other.query(drop)) == "CZ"
    assert kinds(scene.client.received()) == "EZCZ"
    scene.other.run(end)
    table = scene.server.coordinator.catalog.table("t", "public")
    if end == "ROLLBACK":
        assert table is not None
        assert [index.name for index in table.indexes] == ["by_b"]
    elif drop == "DROP INDEX by_b":
        assert table is not None
        assert table.indexes == ()
    else:
        assert table is None
    if table is not None:
        assert kinds(scene.other.run("SELECT b FROM t WHERE a = 3")) == "TDCZ"


# Shutdown


def test_a_coordinator_that_closes_ends_the_peeks_of_all_sessions(scene: Scene) -> None:
    wires = [Wire(scene.server) for _ in range(3)]
    for wire in wires:
        wire.query(WALK)
    assert (scene.metrics.permits_in_use, scene.metrics.permits_queued) == (1, 2)
    asyncio.run(scene.server.coordinator.close())
    assert scene.metrics.permits_queued == 0
    assert scene.server.pool.step()
    assert scene.metrics.permits_in_use == 0
    assert scene.metrics.pinned_bytes == 0
    scene.server.settle()
    assert scene.metrics.walks_offloaded == scene.offloaded


def test_a_transaction_block_whose_peek_is_cancelled_has_failed(scene: Scene) -> None:
    scene.client.run("BEGIN")
    scene.client.query(WALK)
    scene.client.request_cancel()
    assert kinds(scene.client.received()) == "EZ"
    [error] = errors(scene.client.query("SELECT 1"))
    assert error["C"] == "25P02"


def test_a_cancel_request_with_a_wrong_key_ends_nothing(scene: Scene) -> None:
    scene.client.query(WALK)
    scene.client._secret_key ^= 1
    scene.client.request_cancel()
    scene.server.settle()
    assert kinds(scene.client.received()) == "T" + ROWS * "D" + "CZ"


def test_a_timeout_of_a_statement_that_ended_is_called_off(scene: Scene) -> None:
    scene.client.run(WALK)
    assert [seconds for seconds, _ in scene.server.loop.timers if seconds == 7] == []
