"""Server-side times, from layby's own metrics: what the client's share of a round trip is not in."""

from __future__ import annotations

from typing import Final
from urllib.request import urlopen

from layby.bench.server import LaybyServer

_PHASES: Final = (
    "error_scan_seconds",
    "cursor_setup_seconds",
    "row_iteration_seconds",
    "result_sort_seconds",
    "row_collection_seconds",
)
_TIMEOUT_S: Final = 30.0


def scrape(server: LaybyServer) -> dict[str, float]:
    """Every sample that the server exposes, by its name with its labels. Raises OSError."""
    with urlopen(f"http://{server.host}:{server.http_port}/metrics", timeout=_TIMEOUT_S) as page:
        lines = page.read().decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def mean_walk_ms(before: dict[str, float], after: dict[str, float]) -> float | None:
    """The mean time of the walks that ended between two scrapes, all their phases; None without any.

    It is the time in the walk itself, wherever it ran: not the hand-over, the queue or the wire.
    """

    def grown(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    walks = grown("layby_index_peek_row_iteration_seconds_count")
    if not walks:
        return None
    return 1e3 * sum(grown(f"layby_index_peek_{phase}_sum") for phase in _PHASES) / walks
