"""The same files in every placement: what a query answers does not depend on where and how it was walked.

The expected values are PostgreSQL 15's. Each placement sets the flag, and everything else that bears on where
rows are walked or kept, explicitly.
"""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from layby.bench.server import LaybyServer
from tests.slt.runner import Tally, files_in, run_file

FILES = files_in([str(Path(__file__).parent / "files")])
WALKS = next(path for path in FILES if path.stem == "walks")

_OFFLOADED = {
    "enable_compute_index_peek_offload": "on",
    "compute_index_peek_inline_budget": "1",
    "compute_index_peek_quiet_budget": "0",
    "compute_index_peek_activation_budget": "1",
    "compute_index_peek_yield_granularity": "1",
    "compute_index_peek_permit_fraction": "1.0",
    "enable_compute_peek_response_stash": "off",
    "peek_response_stash_threshold_bytes": "16MB",
    "enable_compute_index_peek_shared_walks": "off",
}
_STASHED = {"enable_compute_peek_response_stash": "on", "peek_response_stash_threshold_bytes": "0"}
_SHARED = {
    "enable_compute_index_peek_shared_walks": "on",
    "compute_index_peek_permit_fraction": "0.0001",
}

PLACEMENTS = {
    "inline": _OFFLOADED | {"enable_compute_index_peek_offload": "off"},
    "quiet": _OFFLOADED
    | {
        "compute_index_peek_inline_budget": "100",
        "compute_index_peek_quiet_budget": "1000000000",
        "compute_index_peek_yield_granularity": "1000",
    },
    "offloaded": _OFFLOADED,
    "one permit": _OFFLOADED | {"compute_index_peek_permit_fraction": "0.0001"},
    "stashed": _OFFLOADED | _STASHED,
    "shared": _OFFLOADED | _SHARED,
    "all at once": _OFFLOADED | _STASHED | _SHARED,
}


@pytest.fixture(scope="module")
def server() -> Iterator[LaybyServer]:
    with LaybyServer() as running:
        yield running


def place(server: LaybyServer, placement: str, path: Path = WALKS) -> None:
    """Set every parameter of a placement.

    At a granularity of one and a threshold of zero every row is a part of its own; the file of long walks,
    which would be tens of thousands of them, is walked in somewhat larger steps.
    """
    values = PLACEMENTS[placement]
    if path == WALKS and values["peek_response_stash_threshold_bytes"] == "0":
        values = values | {"compute_index_peek_yield_granularity": "200"}
    with server.connect() as connection:
        for name, value in values.items():
            connection.query(f"ALTER SYSTEM SET {name} = '{value}'")


def metric(server: LaybyServer, sample: str) -> float:
    """Return one sample of the server's metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=30) as page:
        text = page.read().decode()
    found = re.search(rf"^{re.escape(sample)} (\S+)$", text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])


INLINE = 'layby_index_peek_walks_total{substrate="inline"}'
OFFLOADED = 'layby_index_peek_walks_total{substrate="offloaded"}'
STASHED = "layby_index_peek_stashed_total"
SHARED = "layby_index_peek_shared_walks_total"


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_gives_the_same_answers_in_every_placement(
    server: LaybyServer, path: Path, placement: str
) -> None:
    place(server, placement, path)
    tally = Tally()

    run_file(path, server.connect, tally)

    assert [str(failure) for failure in tally.failures] == []
    assert tally.records > 0


def test_with_the_offload_off_no_walk_is_offloaded(server: LaybyServer) -> None:
    place(server, "inline")
    inline, offloaded = metric(server, INLINE), metric(server, OFFLOADED)

    run_file(WALKS, server.connect, Tally())

    assert metric(server, INLINE) > inline
    assert metric(server, OFFLOADED) == offloaded


def test_with_a_budget_of_one_the_long_walks_are_offloaded(server: LaybyServer) -> None:
    place(server, "offloaded")
    offloaded, stashed = metric(server, OFFLOADED), metric(server, STASHED)

    run_file(WALKS, server.connect, Tally())

    assert metric(server, OFFLOADED) >= offloaded + 8
    assert metric(server, STASHED) == stashed


def test_with_a_threshold_of_zero_offloaded_answers_are_stashed(server: LaybyServer) -> None:
    place(server, "stashed")
    stashed = metric(server, STASHED)

    run_file(WALKS, server.connect, Tally())

    assert metric(server, STASHED) > stashed


@pytest.mark.parametrize("placement", ["one permit", "shared"])
def test_walks_that_wait_together_give_the_same_answers_shared_or_not(
    server: LaybyServer, placement: str
) -> None:
    place(server, "inline")
    with server.connect() as connection:
        connection.query("CREATE TABLE together (k int, v int)")
        connection.query("INSERT INTO together SELECT g, g % 8 FROM generate_series(1, 4000) g")
    place(server, placement)
    shared = metric(server, SHARED)
    answers: dict[int, list[tuple[str | None, ...]]] = {}

    def ask(v: int) -> None:
        with server.connect() as connection:
            answers[v] = connection.query(f"SELECT k FROM together WHERE v = {v} ORDER BY k").rows

    threads = [threading.Thread(target=ask, args=(v,)) for v in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    with server.connect() as connection:
        connection.query("DROP TABLE together")
    for v in range(8):
        assert answers[v] == [(str(k),) for k in range(1, 4001) if k % 8 == v]
    assert (metric(server, SHARED) > shared) is (placement == "shared")
