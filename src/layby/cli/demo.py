"""`layby demo`: the promise, on real data, in under a minute.

A server of its own holds the New York flights of 2013. Lookups of one flight arrive on a fixed schedule,
while a few clients run long walks one after another; first with the offload off, then with it on. Both
latency distributions are shown as a table that grows, and drawn into a picture.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from layby.bench.drive import Measured, run_together
from layby.bench.load import Load
from layby.bench.result import percentile
from layby.bench.server import LaybyServer
from layby.cli.flights import MissingExtraError, flights_archive, load_flights

LOOKUP: Final = (
    "SELECT dep_time, arr_delay, tailnum, dest FROM flights WHERE carrier = 'HA' AND flight = 51 LIMIT 1"
)
WALK: Final = (
    "SELECT carrier, flight, tailnum, dest FROM flights "
    "WHERE lower(carrier || tailnum || dest) LIKE '%9%8%q%' AND distance * 60 / (air_time + 1) > 400 "
    "ORDER BY arr_delay DESC LIMIT 10"
)
LOOKUPS_PER_S: Final = 200.0
WALKERS: Final = 2
_LOOKUP_CONNECTIONS: Final = 64
_FIGURES: Final = (("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("max", 100.0))


@dataclass(slots=True)
class Distribution:
    """The lookups of one run: latencies in milliseconds, and what ran beside them."""

    name: str
    latencies_ms: list[float] = field(default_factory=list)
    errors: int = 0
    walks: int | None = None
    walk_p50_ms: float | None = None


def demo(console: Console, picture: Path, seconds: float) -> None:
    """Run the demo on `console`, each of its two runs `seconds` long, and write the picture.

    Raises MissingExtraError, and whatever starting the server or a load raises.
    """
    if find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib")
    archive = flights_archive()
    runs = [Distribution("offload off"), Distribution("offload on")]
    with LaybyServer() as server:
        with server.connect() as connection:
            count = load_flights(connection, archive)
            console.print(f"{count:,} flights loaded and indexed, server on port {server.port}.")
            console.print(f"lookup, {LOOKUPS_PER_S:g} a second:  {LOOKUP}", soft_wrap=True, highlight=False)
            console.print(
                f"walk, {WALKERS} clients, one after another:  {WALK}", soft_wrap=True, highlight=False
            )
        with _Screen(console, runs) as screen:
            for run, setting in zip(runs, ("off", "on"), strict=True):
                with server.connect() as connection:
                    connection.query(f"ALTER SYSTEM SET enable_compute_index_peek_offload = {setting}")
                _measure(server, run, seconds, screen)
    from layby.cli.picture import draw

    draw(picture, [(run.name, run.latencies_ms) for run in runs])
    console.print(f"picture written to {picture}")


def _measure(server: LaybyServer, run: Distribution, seconds: float, screen: _Screen) -> None:
    """Fill one run: lookups by schedule, walks beside them from their own process."""

    def seen(latencies_ms: Sequence[float]) -> None:
        run.latencies_ms += latencies_ms
        screen.update()

    lookups, walks = run_together(
        [
            Load(
                server.host, server.port, LOOKUP, LOOKUPS_PER_S, seconds, _LOOKUP_CONNECTIONS, expect_rows=1
            ),
            Load(server.host, server.port, WALK, 0.0, seconds, WALKERS),
        ],
        seen,
    )
    run.errors = lookups.errors + walks.errors
    _note_walks(run, walks)
    screen.update()


def _note_walks(run: Distribution, walks: Measured) -> None:
    run.walks = len(walks.latencies_ms)
    if walks.latencies_ms:
        run.walk_p50_ms = percentile(sorted(walks.latencies_ms), 50)


class _Screen:
    """The table of both runs: redrawn as it grows on a terminal, printed once at the end elsewhere."""

    def __init__(self, console: Console, runs: Sequence[Distribution]) -> None:
        self._console = console
        self._runs = runs
        self._lock = threading.Lock()
        self._live = Live(results_table(runs), console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self.update()
            self._live.stop()
        else:
            self._console.print(results_table(self._runs))

    def update(self) -> None:
        """Show what the runs hold now; called from the thread that collects reports, too."""
        if self._console.is_terminal:
            with self._lock:
                self._live.update(results_table(self._runs), refresh=True)


def results_table(runs: Sequence[Distribution]) -> Table:
    """The runs side by side, a column each; what is not there yet is a dash."""
    table = Table(title="lookup latency beside long walks", title_justify="left")
    table.add_column("")
    for run in runs:
        table.add_column(run.name, justify="right")
    ordered = [sorted(run.latencies_ms) for run in runs]
    for name, percent in _FIGURES:
        table.add_row(
            name, *(f"{percentile(values, percent):,.2f} ms" if values else "–" for values in ordered)
        )
    table.add_row("lookups answered", *(f"{len(values):,}" for values in ordered), end_section=True)
    table.add_row("walks answered", *("–" if run.walks is None else f"{run.walks:,}" for run in runs))
    table.add_row(
        "a walk took (p50)",
        *("–" if run.walk_p50_ms is None else f"{run.walk_p50_ms:,.1f} ms" for run in runs),
    )
    table.add_row("failed", *("–" if run.walks is None else f"{run.errors:,}" for run in runs))
    return table
