"""The rest of the server: after a while without reads and writes it gives back what it has freed.

Parsed statements, plans and answers come and go among each other in its heap, so what is freed does not go
back by itself: 17 MiB after ten minutes of many clients. To give that back took 2 ms, in which the loop may
wait to allocate. So it is done when nobody has asked for anything for some seconds, once, and on another
thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from layby.memory.heap import Idleness
from layby.turns import EventLoop

LOOK_S: Final = 1.0


def at_rest(loop: EventLoop, so_far: Callable[[], object], do: Callable[[], object]) -> None:
    """From now on look each second at what has happened so far, and `do` something once in each rest."""
    idleness = Idleness()

    def look() -> None:
        if idleness.rests(so_far()):
            do()
        loop.call_later(LOOK_S, look)

    look()
