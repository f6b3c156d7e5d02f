"""Turns: where they begin and end, what the slow ones are blamed on, on asyncio and on uvloop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

import pytest
import uvloop

from layby.metrics import Histogram
from layby.turns import Turns, describe


class FakeLoop:
    """An event loop whose turns the test takes."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object], /) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Part:
    """Something that takes time and says what it is."""

    def __init__(self, name: str) -> None:
        self.name = name

    def describe(self) -> str:
        return f"in {self.name}"


class Bench:
    def __init__(self) -> None:
        self.loop, self.clock = FakeLoop(), Clock()
        self.histogram = Histogram("turns", "")
        self.cpu = Clock()
        self.turns = Turns(self.loop, self.histogram, self.clock, self.cpu)  # type: ignore[arg-type]

    def take(self, seconds: float) -> None:
        self.clock.now += seconds

    def part(self, name: str, seconds: float) -> None:
        self.turns.enter()
        self.take(seconds)
        self.turns.spent(Part(name))


def test_all_parts_of_a_turn_are_one_observation() -> None:
    bench = Bench()
    bench.part("a", 0.001)
    bench.part("b", 0.002)
    assert len(bench.loop.soon) == 1
    bench.loop.turn()
    assert bench.histogram.count == 1
    assert bench.histogram.sum == pytest.approx(0.003)


def test_time_between_turns_is_in_none() -> None:
    bench = Bench()
    for _ in range(2):
        bench.part("a", 0.001)
        bench.loop.turn()
        bench.take(60)
    assert bench.histogram.count == 2
    assert bench.histogram.sum == pytest.approx(0.002)


def test_what_is_put_off_runs_at_the_end_of_the_turn_and_belongs_to_it() -> None:
    bench = Bench()
    ran: list[str] = []

    def first() -> None:
        ran.append("first")
        bench.take(0.004)

    bench.turns.call_soon(first)
    bench.turns.call_soon(lambda: ran.append("second"))
    bench.loop.turn()
    assert ran == ["first", "second"]
    assert bench.histogram.count == 1
    assert bench.histogram.sum == pytest.approx(0.004)


def test_what_is_put_off_by_what_was_put_off_is_the_next_turns() -> None:
    bench = Bench()
    ran: list[str] = []
    bench.turns.call_soon(lambda: bench.turns.call_soon(lambda: ran.append("later")))
    bench.loop.turn()
    assert (ran, bench.histogram.count) == ([], 1)
    bench.loop.turn()
    assert (ran, bench.histogram.count) == (["later"], 2)
    assert bench.loop.soon == []


def test_a_callback_that_raises_keeps_no_other_from_running(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    ran: list[str] = []
    bench.turns.call_soon(lambda: 1 // 0)
    bench.turns.call_soon(lambda: ran.append("next"))
    bench.loop.turn()
    assert (ran, bench.histogram.count) == (["next"], 1)
    assert "ZeroDivisionError" in caplog.text


def test_a_slow_turn_is_blamed_on_its_longest_part(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.part("a", 0.001)
    bench.part("b", 0.005)
    bench.part("c", 0.002)
    bench.loop.turn()
    assert caplog.messages == [
        "a turn of the serving loop took 8.0 ms (0.0 ms on the CPU), 5.0 ms of it in b"
    ]


def test_a_slow_turn_tells_what_of_it_the_thread_was_on_the_cpu(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.cpu.now += 7  # spent before the turn, and none of its own
    bench.part("a", 0.006)
    bench.cpu.now += 0.0035
    bench.loop.turn()
    assert caplog.messages == [
        "a turn of the serving loop took 6.0 ms (3.5 ms on the CPU), 6.0 ms of it in a"
    ]


def test_a_turn_of_five_milliseconds_is_not_slow(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.part("a", 0.0049)
    bench.loop.turn()
    assert caplog.messages == []


def test_many_slow_turns_are_a_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for _ in range(17):
        bench.part("a", 0.125)
        bench.loop.turn()
    assert len(caplog.messages) == 3
    assert caplog.messages[1].endswith("in a (7 more slow turns since the last such line)")


def test_a_cause_is_named_by_itself_its_owner_or_its_code() -> None:
    class Owner(Part):
        def method(self) -> None:
            pass

    assert describe(Part("x")) == "in x"
    assert describe(Owner("y").method) == "in y"
    assert describe(test_a_turn_of_five_milliseconds_is_not_slow) == (
        "in test_a_turn_of_five_milliseconds_is_not_slow"
    )


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_turns_of_a_real_loop_are_observed_whatever_brought_them(
    make: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    loop = make()
    histogram = Histogram("turns", "")
    turns = Turns(loop, histogram)
    left, right = socket.socketpair()
    seen: list[str] = []

    def see(what: str) -> None:
        seen.append(what)
        loop.stop()

    def wait() -> int:
        before = histogram.count
        timer = loop.call_later(20, loop.stop)
        while histogram.count == before and not timer.cancelled():
            loop.run_forever()
            loop.call_soon(loop.stop)
        return histogram.count - before

    turns.call_soon(lambda: see("soon"))
    assert wait() >= 1
    turns.call_later(0.0, lambda: see("later"))
    assert wait() >= 1
    turns.call_soon_threadsafe(lambda: see("thread"))
    assert wait() >= 1

    def readable() -> None:
        left.recv(1)
        see("reader")

    def writable() -> None:
        turns.remove_writer(left.fileno())
        see("writer")

    turns.add_reader(left.fileno(), readable)
    right.send(b"x")
    assert wait() >= 1
    turns.remove_reader(left.fileno())
    turns.add_writer(left.fileno(), writable)
    assert wait() >= 1
    assert seen == ["soon", "later", "thread", "reader", "writer"]
    loop.close()
    left.close()
    right.close()


def test_the_beginning_of_each_turn_is_told_once() -> None:
    told = []
    loop, clock = FakeLoop(), Clock()
    turns = Turns(loop, Histogram("turns", ""), clock, clock, on_enter=lambda: told.append(clock.now))  # type: ignore[arg-type]
    for _ in range(2):
        turns.enter()
        turns.enter()
        clock.now += 1
        loop.turn()
    assert told == [100.0, 101.0]
