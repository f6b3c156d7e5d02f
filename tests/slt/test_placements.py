"""The same files in both placements: what a query answers does not depend on where it was walked.

The expected values are PostgreSQL 15's.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from layby.bench.server import LaybyServer
from tests.slt.runner import Tally, files_in, run_file

FILES = files_in([str(Path(__file__).parent / "files")])
PLACEMENTS = {
    "inline": {"enable_compute_index_peek_offload": "off"},
    "offloaded": {
        "enable_compute_index_peek_offload": "on",
        "compute_index_peek_inline_budget": "1",
        "compute_index_peek_yield_granularity": "1",
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[LaybyServer]:
    with LaybyServer() as running:
        yield running


def place(server: LaybyServer, placement: str) -> None:
    """Set the flag, the budget and the granularity explicitly."""
    with server.connect() as connection:
        for name, value in PLACEMENTS[placement].items():
            connection.query(f"ALTER SYSTEM SET {name} = {value}")


def walks(server: LaybyServer, substrate: str) -> float:
    """How many walks have ended on a substrate, as the server's metrics count them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=30) as page:
        text = page.read().decode()
    found = re.search(rf'^layby_index_peek_walks_total{{substrate="{substrate}"}} (\S+)$', text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_gives_the_same_answers_in_every_placement(
    server: LaybyServer, path: Path, placement: str
) -> None:
    place(server, placement)
    tally = Tally()

    run_file(path, server.connect, tally)

    assert [str(failure) for failure in tally.failures] == []
    assert tally.records > 0


def test_with_the_offload_off_no_walk_is_offloaded(server: LaybyServer) -> None:
    place(server, "inline")
    inline, offloaded = walks(server, "inline"), walks(server, "offloaded")

    run_file(next(path for path in FILES if path.stem == "walks"), server.connect, Tally())

    assert walks(server, "inline") > inline
    assert walks(server, "offloaded") == offloaded


def test_with_a_budget_of_one_the_long_walks_are_offloaded(server: LaybyServer) -> None:
    place(server, "offloaded")
    offloaded = walks(server, "offloaded")

    run_file(next(path for path in FILES if path.stem == "walks"), server.connect, Tally())

    assert walks(server, "offloaded") >= offloaded + 8
