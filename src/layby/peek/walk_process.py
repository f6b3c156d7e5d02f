"""A walk process: runs offloaded walks one after the other, at low priority, on batches in shared memory.

Started by `ProcessWalkPool` as a program of its own with one end of a socket pair. It ends when the server
closes the other end or dies.
"""

from __future__ import annotations

import contextlib
import gc
import os
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from layby.memory.channel import Channel, ChannelClosedError
from layby.memory.child import start_child
from layby.memory.control_page import ControlPage
from layby.memory.shared_arena import SharedArena
from layby.peek.answer import PeekResponse, RowEncoder, Rows
from layby.peek.scan import PeekScan, PhaseTimes
from layby.peek.walk import Walk, WalkLimits
from layby.trace.batch import Batch

GRANULARITY_SLOT: Final = 0
RESULT_SIZE_SLOT: Final = 1
POSITION_LIMIT_SLOT: Final = 2
FIRST_WALKER_SLOT: Final = 8
"""Where walker 0 reads the number of the walk that it shall cancel; the others follow."""

_INLINE_ANSWER: Final = 32_768
"""Bytes up to which an answer travels in the message itself."""


class Setup(NamedTuple):
    """The first message to a walk process."""

    page: ControlPage
    slot: int
    nice: int


class WalkRequest(NamedTuple):
    """A scan to be walked to its end; None keeps the channel's housekeeping going."""

    number: int
    scan: PeekScan
    encoder: RowEncoder | None


class WalkEnded(NamedTuple):
    """What a walk came to; `response` is None where it was cancelled."""

    number: int
    response: PeekResponse | None
    wire: tuple[NDArray[np.uint8], NDArray[np.int64]] | None
    """A large encoded answer, in a segment: its bytes, and where each row ends. `response` is without it."""
    raised: bool
    positions: int
    found: int
    times: PhaseTimes


def run(channel: Channel) -> None:
    """Serve walk requests until the channel closes."""
    setup: Setup = channel.receive()
    os.nice(setup.nice)
    page = setup.page
    arena = SharedArena()

    def limits() -> WalkLimits:
        return WalkLimits(page[GRANULARITY_SLOT], page[RESULT_SIZE_SLOT], page[POSITION_LIMIT_SLOT])

    while True:
        request: WalkRequest | None = channel.receive()
        if request is None:
            continue
        number = request.number

        def is_cancelled(number: int = number) -> bool:
            return page[setup.slot] == number

        walk = Walk(request.scan, request.encoder, limits, is_cancelled)
        while not walk.step():
            pass
        scan = walk.scan
        response, wire = walk.response, None
        if isinstance(response, Rows):
            response, wire = _placed(response, arena)
        channel.send(WalkEnded(number, response, wire, walk.raised, scan.positions, scan.count, scan.times))
        # Let go of the batches before waiting: this process must not be the last to hold them.
        del request, walk, scan, response, wire


def _placed(
    rows: Rows, arena: SharedArena
) -> tuple[Rows, tuple[NDArray[np.uint8], NDArray[np.int64]] | None]:
    """Put a large answer into a segment, so that the server only hands memory to the socket."""
    encoded = rows.encoded
    if encoded is None:
        return Rows(rows.count, tuple(column.place(arena) for column in rows.columns)), None
    if len(encoded.data) <= _INLINE_ANSWER:
        return rows, None
    data = arena.place(np.frombuffer(encoded.data, np.uint8))
    return Rows(rows.count), (data, arena.place(np.asarray(encoded.ends, np.int64)))


def main() -> None:
    """Run as a program, with the channel's descriptor as its argument."""
    sock = start_child()
    pa.set_cpu_count(1)
    gc.freeze()
    with contextlib.suppress(ChannelClosedError):
        run(Channel(sock, (Batch,)))
