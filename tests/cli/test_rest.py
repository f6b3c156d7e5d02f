"""What is done at rest is done once in each."""

from __future__ import annotations

from layby.cli.rest import LOOK_S, at_rest
from tests.adapter.harness import FakeLoop


def test_something_is_done_once_in_each_rest() -> None:
    loop, happened, done = FakeLoop(), iter([1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3]), []
    seen = 0

    def so_far() -> int:
        nonlocal seen
        seen += 1
        return next(happened)

    at_rest(loop, so_far, lambda: done.append(seen))  # type: ignore[arg-type]
    for _ in range(15):
        ((delay, look),) = loop.timers
        assert delay == LOOK_S
        loop.timers.clear()
        look()
    assert done == [9, 15]
