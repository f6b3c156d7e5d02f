"""Real-time priority of the serving loop, and a system that does not permit it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from layby.cli.realtime import set_realtime

_RESET_ON_FORK = 0x40000000
OTHER, ROUND_ROBIN = 0 | _RESET_ON_FORK, 2 | _RESET_ON_FORK


@contextmanager
def running(name: str) -> Iterator[int]:
    """A thread of that name, by its kernel id."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name=name)
    thread.start()
    try:
        assert thread.native_id is not None
        yield thread.native_id
    finally:
        end.set()
        thread.join()


def test_the_loop_comes_first_then_what_it_waits_for_and_a_walk_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    monkeypatch.setattr(os, "sched_setscheduler", lambda *a: asked.append((*a[:2], a[2].sched_priority)))
    loop = threading.get_native_id()
    with running("layby-commit") as commit, running("layby-walk-0"):
        assert set_realtime(True)
        assert asked == [(loop, ROUND_ROBIN, 2), (commit, ROUND_ROBIN, 1)]
        asked.clear()
        assert not set_realtime(False)
        assert asked == [(loop, OTHER, 0), (commit, OTHER, 0)]


def test_a_system_that_does_not_permit_it_leaves_every_thread_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def refuse(thread: int, *_: object) -> None:
        asked.append(thread)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with running("layby-commit"):
        assert not set_realtime(True)
    assert asked == [threading.get_native_id()]
