"""A walk process: runs offloaded walks one after the other, at low priority, on batches in shared memory.

Started by `ProcessWalkPool` as a program of its own with one end of a socket pair. It ends when the server
closes the other end or dies.
"""

from __future__ import annotations

import contextlib
import gc
import os
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from layby.memory.channel import Channel, ChannelClosedError
from layby.memory.child import start_child
from layby.memory.control_page import ControlPage
from layby.memory.shared_arena import SharedArena
from layby.peek.answer import PeekResponse, RowEncoder, Rows, Stashed
from layby.peek.scan import PeekScan, PhaseTimes
from layby.peek.upload import StashTarget
from layby.peek.walk import Walk, WalkLimits, raised_response
from layby.trace.batch import Batch

GRANULARITY_SLOT: Final = 0
RESULT_SIZE_SLOT: Final = 1
POSITION_LIMIT_SLOT: Final = 2
STASH_THRESHOLD_SLOT: Final = 3
FIRST_WALKER_SLOT: Final = 8
"""Where walker 0 reads the number of the walk that it shall cancel; the others follow."""

PROGRESS_NUMBER_SLOT: Final = 0
PROGRESS_POSITIONS_SLOT: Final = 1
PROGRESS_ROWS_SLOT: Final = 2
"""Of the page that a walk process writes: which walk it is at, and its positions and rows so far."""

_INLINE_ANSWER: Final = 32_768
"""Bytes up to which an answer travels in the message itself."""


class Setup(NamedTuple):
    """The first message to a walk process."""

    page: ControlPage
    slot: int
    nice: int


class Ready(NamedTuple):
    """The first message from a walk process: the page on which it shows how far its walk is."""

    page: ControlPage


class WalkRequest(NamedTuple):
    """A scan to be walked to its end; None keeps the channel's housekeeping going."""

    number: int
    scan: PeekScan
    encoder: RowEncoder | None
    stash: StashTarget | None


class WalkEnded(NamedTuple):
    """What a walk came to; `response` is None where it was cancelled."""

    number: int
    response: PeekResponse | None
    wire: tuple[NDArray[np.uint8], NDArray[np.int64]] | None
    """A large encoded answer, or the rest of a stashed one, in a segment: its bytes, and where each row ends.
    `response` is without it."""
    raised: bool
    positions: int
    found: int
    times: PhaseTimes


def run(channel: Channel) -> None:
    """Serve walk requests until the channel closes."""
    setup: Setup = channel.receive()
    os.nice(setup.nice)
    page, progress = setup.page, ControlPage.create()
    channel.send(Ready(progress))
    arena = SharedArena()

    def limits() -> WalkLimits:
        return WalkLimits(
            page[GRANULARITY_SLOT],
            page[RESULT_SIZE_SLOT],
            page[POSITION_LIMIT_SLOT],
            page[STASH_THRESHOLD_SLOT],
        )

    while True:
        request: WalkRequest | None = channel.receive()
        if request is None:
            continue
        number = request.number

        def is_cancelled(number: int = number) -> bool:
            return page[setup.slot] == number

        walk = Walk(request.scan, request.encoder, limits, is_cancelled, stash=request.stash)
        progress[PROGRESS_NUMBER_SLOT] = 0
        scan = walk.scan
        while not walk.step():
            progress[PROGRESS_POSITIONS_SLOT], progress[PROGRESS_ROWS_SLOT] = scan.positions, scan.count
            progress[PROGRESS_NUMBER_SLOT] = number
        try:
            channel.send(_ended(number, walk, arena))
        except ChannelClosedError:
            raise
        except Exception as error:  # noqa: BLE001 - no memory for the answer, say: that costs one peek
            failed = raised_response(scan, error)
            channel.send(WalkEnded(number, failed, None, True, scan.positions, scan.count, scan.times))
            del failed
        # Let go of the batches before waiting: this process must not be the last to hold them, nor the
        # server of an answer's memory until this process sends the next.
        del request, walk, scan
        if channel.owes_notice:
            channel.send(None)


def _ended(number: int, walk: Walk, arena: SharedArena) -> WalkEnded:
    """Return what a walk came to, its answer placed where the server can read it."""
    scan, response, wire = walk.scan, walk.response, None
    if isinstance(response, Rows):
        response, wire = _placed(response, arena)
    elif isinstance(response, Stashed):
        rest, wire = _placed(response.rest, arena)
        response = replace(response, rest=rest)
    return WalkEnded(number, response, wire, walk.raised, scan.positions, scan.count, scan.times)


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
