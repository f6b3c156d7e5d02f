"""The pace of a step that has its time: how long its visits may be, by what those before them took.

After a visit all is out of the cache, and a look at the clock takes 3 µs: a tenth of a visit of integers. So
where visits take alike there is one look after many of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_GROWTH: Final = 64.0
"""How much longer than the one before it a visit is made at most: a short one is a poor measure."""

_LEAST: Final = 16
"""A step that makes its visits fit ends with its last sixteenth."""

_MOST_UNWATCHED: Final = 15
"""Most visits in a row without a look."""


class Pace:
    """Looks at the clock after a step's visits; it ends before one that would outlast its time."""

    __slots__ = ("_began", "_clock", "_even", "_fits", "_longest", "_seconds", "_start", "most", "unwatched")

    def __init__(
        self,
        clock: Callable[[], float],
        seconds: float,
        start: float,
        began: float,
        most: int | None,
        longest: int,
        even: bool,
    ) -> None:
        """A step began at `start` and has so many seconds; its first visit began at `began`.

        With `most`, its most positions, those that follow are made to fit what is left, up to `longest`
        positions. `even` says that visits of as many positions take alike.
        """
        self._clock = clock
        self._seconds = seconds
        self._start = start
        self._began = began
        self._longest = longest
        self._fits = most is not None
        self._even = even
        self.most = most or longest
        """Most positions of the next visit."""
        self.unwatched = 0
        """So many visits before the next look."""

    def is_over(self, positions: int) -> bool:
        """Look at the clock after a visit of so many positions; return whether the step has to end."""
        now = self._clock()
        took, left = (now - self._began) / (self.unwatched + 1), self._seconds - (now - self._start)
        if took > left and (not self._fits or left * _LEAST < self._seconds):
            return True
        self._began = now
        if took > left or self.most < self._longest:
            growth = _GROWTH if took * _GROWTH <= left else left / took
            self.most = most = min(self._longest, int(positions * growth) or 1)
            took *= most / positions
        if self._even:
            self.unwatched = _MOST_UNWATCHED if took * _MOST_UNWATCHED <= left else int(left / took) >> 1
        return False
