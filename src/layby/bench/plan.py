"""The size of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

_QUICK_ROWS = 20_000
_QUICK_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Plan:
    """How long (`seconds`, one run of one arm), how often (`rounds`), how large, and against whom.

    `smoke` asks a scenario with many arms for a few of each kind only.
    """

    seconds: float
    rounds: int
    rows: int
    postgres: bool
    smoke: bool = False

    def quick(self) -> Plan:
        """The smoke run of this plan: it shows that the scenarios run, never how fast."""
        seconds, rows = min(self.seconds, _QUICK_SECONDS), min(self.rows, _QUICK_ROWS)
        return replace(self, seconds=seconds, rounds=1, rows=rows, smoke=True)
