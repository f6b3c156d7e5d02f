"""Survival: how soon a process that died is replaced, and whether replacing it helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0
_LIVES_S: Final = 10.0
"""A process that lived this long did not die of its start."""

_HOPELESS: Final = 3
"""Deaths in a row, each soon after the start, from which on the service counts as unavailable."""


class Survival:
    """Counts the deaths of a process and its replacements that came soon after their start.

    The first replacement is started at once, the next ones after pauses that double, so that a process that
    cannot live costs a start every few seconds and no more, even where it does some work before it dies.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self.early_deaths = 0
        """How many died in a row, each soon after its start."""
        self._working = True

    def died(self, started_at: float) -> float:
        """Note the end of a process that was started then; return the seconds until the next is started."""
        if self._clock() - started_at >= _LIVES_S:
            self.early_deaths = 0
        self.early_deaths += 1
        self._working = False
        if self.early_deaths == 1:
            return 0.0
        return min(_FIRST_PAUSE_S * 2.0 ** (self.early_deaths - 2), _LONGEST_PAUSE_S)

    def lives(self) -> None:
        """Note that the process does its work."""
        self._working = True

    @property
    def hopeful(self) -> bool:
        """Whether the service is there, or can be expected to be in a moment."""
        return self._working or self.early_deaths < _HOPELESS
