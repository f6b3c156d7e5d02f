"""Turns: how long the serving loop is busy at a time, and with what.

A turn is what the loop does between two looks at its sockets: the callbacks of the sockets that were ready,
then what was put off to the next turn. While it lasts every other client waits, so its length is the
head-of-line delay itself. No event loop tells where its turns begin and end. Here the first callback of a
turn (`enter`) schedules the end of it, which asyncio and uvloop run before they look at the sockets next; all
that is put off goes through that one callback too. What calls in from outside (sockets, other threads,
timers) says when it is done (`spent`), so the longest part of a turn has a name. A part costs 0.1 µs, a turn
0.5 µs, and 0.3 µs more for the thread's CPU time: where a slow turn took far more than that, others had the
CPU or the GIL meanwhile, and it was the machine that was busy, not the loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from layby.metrics import Histogram

log = logging.getLogger("layby.turns")

SLOW_S: Final = 0.005
"""A turn that took longer is logged."""

_QUIET_S: Final = 1.0
"""Between two lines about slow turns."""

Callback = Callable[[], object]


class Timer(Protocol):
    """A call that is yet to come."""

    def cancel(self) -> None:
        """Have it not come."""


class EventLoop(Protocol):
    """What is used of the event loop that serves; asyncio's is one."""

    def call_soon(self, callback: Callback, /) -> object:
        """Call a function in the next turn."""

    def call_soon_threadsafe(self, callback: Callback, /) -> object:
        """Call a function in the next turn; from any thread. Raises RuntimeError once the loop is closed."""

    def call_later(self, delay: float, callback: Callback, /) -> Timer:
        """Call a function in `delay` seconds."""

    def add_reader(self, descriptor: int, callback: Callback, /) -> object:
        """Call a function whenever a descriptor can be read from."""

    def remove_reader(self, descriptor: int, /) -> object:
        """Watch a descriptor for reading no more."""

    def add_writer(self, descriptor: int, callback: Callback, /) -> object:
        """Call a function whenever a descriptor can be written to."""

    def remove_writer(self, descriptor: int, /) -> object:
        """Watch a descriptor for writing no more."""


class Described(Protocol):
    """Something that took part of a turn and says what it was doing; asked only after a slow turn."""

    def describe(self) -> str:
        """Return what it was doing, for the log."""


class Turns:
    """An event loop that measures its turns. All but `call_soon_threadsafe` is for the loop's thread."""

    __slots__ = (
        "_began",
        "_cause",
        "_clock",
        "_cpu_began",
        "_cpu_clock",
        "_histogram",
        "_longest",
        "_loop",
        "_mark",
        "_on_enter",
        "_quiet_until",
        "_ready",
        "_under_way",
        "_unsaid",
    )  # fmt: skip

    def __init__(
        self,
        loop: EventLoop,
        histogram: Histogram,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
        on_enter: Callable[[], object] | None = None,
    ) -> None:
        """Measure the turns of `loop` in seconds of `clock`; `cpu_clock` is what its thread spent on it.

        `on_enter` is called at the beginning of each turn.
        """
        self._loop = loop
        self._histogram = histogram
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._on_enter = on_enter
        self._ready: list[Callback] = []
        self._under_way = False
        self._began = 0.0
        self._cpu_began = 0.0
        self._mark = 0.0
        """When the part of the turn that is under way began."""
        self._longest = 0.0
        self._cause: object = None
        """What the longest part of the turn was spent by."""
        self._quiet_until = 0.0
        self._unsaid = 0
        """Slow turns since the last line."""

    def enter(self) -> None:
        """Begin a turn, unless one is under way: whoever the event loop calls first calls this."""
        if not self._under_way:
            self._under_way = True
            self._cpu_began = self._cpu_clock()
            self._began = self._mark = self._clock()
            self._loop.call_soon(self._end)
            if self._on_enter is not None:
                self._on_enter()

    def spent(self, cause: Described | Callback) -> None:
        """Note that what passed of the turn since the last such note was spent by `cause`."""
        now = self._clock()
        took = now - self._mark
        self._mark = now
        if took > self._longest:
            self._longest = took
            self._cause = cause

    # The event loop

    def call_soon(self, callback: Callback, /) -> None:
        """Call a function in the next turn."""
        self._ready.append(callback)
        self.enter()

    def call_soon_threadsafe(self, callback: Callback, /) -> object:
        """Call a function in the next turn; from any thread. Raises RuntimeError once the loop is closed."""
        return self._loop.call_soon_threadsafe(partial(self._run, callback))

    def call_later(self, delay: float, callback: Callback, /) -> Timer:
        """Call a function in `delay` seconds."""
        return self._loop.call_later(delay, partial(self._run, callback))

    def add_reader(self, descriptor: int, callback: Callback, /) -> None:
        """Call a function whenever a descriptor can be read from."""
        self._loop.add_reader(descriptor, partial(self._run, callback))

    def remove_reader(self, descriptor: int, /) -> None:
        """Watch a descriptor for reading no more."""
        self._loop.remove_reader(descriptor)

    def add_writer(self, descriptor: int, callback: Callback, /) -> None:
        """Call a function whenever a descriptor can be written to."""
        self._loop.add_writer(descriptor, partial(self._run, callback))

    def remove_writer(self, descriptor: int, /) -> None:
        """Watch a descriptor for writing no more."""
        self._loop.remove_writer(descriptor)

    def _run(self, callback: Callback) -> None:
        self.enter()
        try:
            callback()
        finally:
            self.spent(callback)

    def _end(self) -> None:
        """Do what was put off, which ends the turn; what that puts off is the next turn's."""
        ready, self._ready = self._ready, []
        for callback in ready:
            try:
                callback()
            except Exception:
                log.exception("%s raised", describe(callback))
            self.spent(callback)
        now = self._mark if ready else self._clock()
        took = now - self._began
        self._histogram.observe(took)
        if took > SLOW_S:
            self._tell(took, now)
        self._longest = 0.0
        self._cause = None
        self._under_way = False
        if self._ready:
            self.enter()

    def _tell(self, took: float, now: float) -> None:
        if now < self._quiet_until:
            self._unsaid += 1
            return
        more = f" ({self._unsaid} more slow turns since the last such line)" if self._unsaid else ""
        self._quiet_until, self._unsaid = now + _QUIET_S, 0
        log.warning(
            "a turn of the serving loop took %.1f ms (%.1f ms on the CPU), %.1f ms of it %s%s",
            took * 1e3,
            (self._cpu_clock() - self._cpu_began) * 1e3,
            self._longest * 1e3,
            describe(self._cause),
            more,
        )


def describe(cause: object) -> str:
    """Return what a part of a turn was spent by, for the log."""
    while isinstance(cause, partial):
        cause = cause.func
    for known in (cause, getattr(cause, "__self__", None)):
        if callable(getattr(known, "describe", None)):
            return str(known.describe())  # type: ignore[union-attr]
    name = getattr(cause, "__qualname__", None) or type(cause).__name__
    return f"in {name}"
