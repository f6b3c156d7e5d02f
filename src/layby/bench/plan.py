"""The size of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from layby.bench.server import LaybyServer

_QUICK_ROWS = 20_000
_QUICK_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Plan:
    """How long (`seconds`, one run of one arm), how often (`rounds`), how large, and against whom.

    `smoke` asks a scenario with many arms for a few of each kind only. `shared` is a server that runs
    already, for smoke runs of one scenario after the other: they measure nothing, and a start takes a second.
    """

    seconds: float
    rounds: int
    rows: int
    postgres: bool
    smoke: bool = False
    shared: LaybyServer | None = None

    @contextmanager
    def layby(self) -> Iterator[LaybyServer]:
        """A server of this run's own, or the shared one with its parameters as at its start.

        Raises StartError.
        """
        if self.shared is None:
            with LaybyServer() as server:
                yield server
            return
        with self.shared.connect() as connection:
            connection.query("ALTER SYSTEM RESET ALL")
        yield self.shared

    def quick(self) -> Plan:
        """The smoke run of this plan: it shows that the scenarios run, never how fast."""
        seconds, rows = min(self.seconds, _QUICK_SECONDS), min(self.rows, _QUICK_ROWS)
        return replace(self, seconds=seconds, rounds=1, rows=rows, smoke=True)
