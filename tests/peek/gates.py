"""Walk pools behind gates: on each of the three, walks go one step at a time, when a test says so.

A walk stops before each of its steps, on its thread or in its process, until it is let through; between two
steps it stands still and can be looked at. So an interleaving is the same on every pool, and no test has to
know on which it runs. What is let through runs as in the product: the pools are the real ones, and what they
run is the real walk.

Here is what a test sees, and the stepped pool, which needs no gates; `benches.py` has the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from layby.config import SystemParameters
from layby.peek.pool import SteppedWalkPool, Work
from layby.peek.walk import Walk
from tests.peek.patches import patched

_T = TypeVar("_T")


class UnderWay(NamedTuple):
    """What a pool has been given to run, and what to call once that is over."""

    work: Work
    done: Callable[[], None]


class GatedPool(ABC):
    """A walk pool whose walks are let through their gates by hand."""

    def __init__(self, size: int) -> None:
        self.size = size
        """What permits are reckoned from."""
        self.walks: list[UnderWay] = []
        """What is under way, in the order of its coming."""
        self.patches: dict[str, object] = {}
        """Names that stand for other values during each step of a walk."""

    def submit(self, work: Work, done: Callable[[], None]) -> None:
        """Take a walk as far as its gate."""
        under_way = UnderWay(work, done)
        self.walks.append(under_way)
        self._start(under_way)

    def walk(self, at: int = 0) -> Walk:
        """Return the walk at place `at`, the first of those that go together."""
        return self.walks[at].work.walks[0]

    def step(self, at: int = 0) -> bool:
        """Let what is at place `at` take one step; True where it is over then, and its `done` was called."""
        return self._let_through(self.walks[at], opened=False)

    def run(self) -> None:
        """Let every walk go to its end, in the order of their coming."""
        while self.walks:
            self._let_through(self.walks[0], opened=True)

    @abstractmethod
    def look(self, look: Callable[[Any], _T], at: int = 0) -> _T:
        """Return what a function finds on the walk at place `at`, called where that walk stands."""

    @property
    def healthy(self) -> bool:
        """True."""
        return True

    def close(self) -> None:  # noqa: B027 - none has anything to end
        """Do nothing: the bench ends its walkers."""

    @abstractmethod
    def _start(self, under_way: UnderWay) -> None: ...

    @abstractmethod
    def _let_through(self, under_way: UnderWay, *, opened: bool) -> bool: ...

    def _ended(self, under_way: UnderWay) -> None:
        if under_way.work.over and under_way in self.walks:
            self.walks.remove(under_way)
        under_way.done()


class GatedStepped(GatedPool):
    """The stepped pool, which needs no gate."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._pool = SteppedWalkPool(size)

    def look(self, look: Callable[[Any], _T], at: int = 0) -> _T:
        return look(self.walks[at].work)

    def _start(self, under_way: UnderWay) -> None:
        self._pool.submit(under_way.work, lambda: self._ended(under_way))

    def _let_through(self, under_way: UnderWay, *, opened: bool) -> bool:
        ended = False
        while not ended:
            with patched(self.patches):
                ended = self._pool.step([work for work, _ in self._pool.walks].index(under_way.work))
            if not opened:
                break
        return ended


class Bench(ABC):
    """What runs the walks of one kind of pool, shared by all tests of that kind."""

    kind: str

    def __init__(self) -> None:
        self._latest: GatedPool | None = None

    def pool(self, size: int, parameters: SystemParameters) -> GatedPool:
        """Return a pool that has the bench to itself: what another has under way is given up."""
        self.clear()
        self._latest = self._pool(size, parameters)
        return self._latest

    def clear(self) -> None:
        """Give up what is under way."""
        while self._latest is not None and self._latest.walks:
            for walk in self._latest.walks[0].work.walks:
                walk.cancel()
            self._latest.step()
        self._latest = None

    def until(self, condition: Callable[[], object]) -> None:
        """Let what runs the walks go on until a condition holds."""
        assert condition()

    def close(self) -> None:
        """End what runs the walks."""
        self.clear()

    @abstractmethod
    def _pool(self, size: int, parameters: SystemParameters) -> GatedPool: ...


class SteppedBench(Bench):
    """Nothing but the process of the tests."""

    kind = "stepped"

    def _pool(self, size: int, parameters: SystemParameters) -> GatedPool:
        return GatedStepped(size)
