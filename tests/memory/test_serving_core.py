"""The serving core: who gives way to the loop, and where."""

from __future__ import annotations

import pytest

from layby.memory import serving_core
from layby.memory.serving_core import ServingCore


class Cores:
    """What core the caller runs on, and how often it has yielded it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current = 0
        self.yields = 0
        monkeypatch.setattr(serving_core, "current_core", lambda: self.current)
        monkeypatch.setattr("os.sched_yield", self._yield)

    def _yield(self) -> None:
        self.yields += 1


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> Cores:
    return Cores(monkeypatch)


def yields_on(core: int, cores: Cores, other: ServingCore) -> bool:
    before, cores.current = cores.yields, core
    other.give_way()
    return cores.yields > before


def test_only_who_runs_on_the_loops_core_gives_way(cores: Cores) -> None:
    ours = ServingCore.create()
    theirs = ServingCore(ours.page)
    assert not yields_on(0, cores, theirs)
    cores.current = 3
    ours.note()
    assert [yields_on(core, cores, theirs) for core in (0, 3, 4)] == [False, True, False]
    cores.current = 4
    ours.note()
    assert [yields_on(core, cores, theirs) for core in (0, 3, 4)] == [False, False, True]


def test_nobody_gives_way_to_a_loop_that_does_not_ask(cores: Cores) -> None:
    ours = ServingCore.create()
    theirs = ServingCore(ours.page)
    ours.note()
    ours.ask(False)
    ours.note()
    assert not yields_on(0, cores, theirs)
    ours.ask(True)
    assert not yields_on(0, cores, theirs)
    ours.note()
    assert yields_on(0, cores, theirs)
