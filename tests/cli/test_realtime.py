"""Real-time priority of a thread, and a system that does not permit it."""

from __future__ import annotations

import os
import threading

import pytest

from layby.cli.realtime import set_realtime

THREAD = 4711


def test_a_thread_goes_into_the_real_time_class_and_back_and_starts_nothing_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    monkeypatch.setattr(os, "sched_setscheduler", lambda *a: asked.append((*a[:2], a[2].sched_priority)))
    assert set_realtime(THREAD, True)
    assert not set_realtime(THREAD, False)
    reset = 0x40000000
    assert asked == [(THREAD, 2 | reset, 1), (THREAD, 0 | reset, 0)]


def test_a_system_that_does_not_permit_it_leaves_the_thread_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    before = os.sched_getscheduler(threading.get_native_id())
    assert not set_realtime(threading.get_native_id(), True)
    assert os.sched_getscheduler(threading.get_native_id()) == before
