"""A walk process: runs offloaded walks one after the other, at low priority, on batches in shared memory.

Started by `ProcessWalkPool` as a program of its own with one end of a socket pair. It ends when the server
closes the other end or dies.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from layby.memory.channel import Channel, ChannelClosedError
from layby.memory.child import start_child
from layby.memory.control_page import ControlPage
from layby.memory.heap import Rest, give_memory_back
from layby.memory.huge_pages import collapse_heap
from layby.memory.serving_core import ServingCore
from layby.memory.shared_arena import SharedArena
from layby.peek.answer import PeekResponse, RowEncoder, Rows, Stashed
from layby.peek.companion import Companion
from layby.peek.profile import PhaseTimes
from layby.peek.scan import PeekScan
from layby.peek.shared_walk import SharedWalk
from layby.peek.upload import StashTarget
from layby.peek.walk import Walk, WalkLimits, raised_response

GRANULARITY_SLOT: Final = 0
RESULT_SIZE_SLOT: Final = 1
POSITION_LIMIT_SLOT: Final = 2
STASH_THRESHOLD_SLOT: Final = 3
FIRST_WALKER_SLOT: Final = 8
"""Where walker 0 reads which of its walks are cancelled, a bit each; the others follow. The server clears it
before it hands a request over."""

TAKEN_SLOT: Final = 0
PROGRESS_NUMBER_SLOT: Final = 1
PROGRESS_POSITIONS_SLOT: Final = 2
PROGRESS_ROWS_SLOT: Final = 3
"""Of the page that a walk process writes: which request it has begun, which one it tells the progress of, the
positions so far, and from the last slot on the rows of each walk."""

_LARGE: Final = 16 << 20
"""Bytes of found rows after which a process gives its freed memory back."""

_INLINE_ANSWER: Final = 32_768
"""Bytes up to which an answer travels in the message itself."""


class Setup(NamedTuple):
    """The first message to a walk process."""

    page: ControlPage
    slot: int
    nice: int
    serving_core: ControlPage


class Ready(NamedTuple):
    """The first message from a walk process: the page on which it shows how far its walk is."""

    page: ControlPage


class WalkPart(NamedTuple):
    """A scan to be walked to its end."""

    scan: PeekScan | Companion
    """Arrives as a `PeekScan`."""
    encoder: RowEncoder | None
    stash: StashTarget | None


class WalkRequest(NamedTuple):
    """Scans to be walked to their end, together where they are several.

    None in place of a request keeps the channel's housekeeping going.
    """

    number: int
    parts: tuple[WalkPart, ...]


class WalkResult(NamedTuple):
    """What a walk came to; `response` is None where it was cancelled."""

    response: PeekResponse | None
    wire: tuple[NDArray[np.uint8], NDArray[np.int64]] | None
    """A large encoded answer, or the rest of a stashed one, in a segment: its bytes, and where each row ends.
    `response` is without it."""
    raised: bool
    positions: int
    found: int
    times: PhaseTimes


class WalkEnded(NamedTuple):
    """The results of those of a request's walks that have just ended, by their places."""

    number: int
    results: dict[int, WalkResult]


def run(channel: Channel) -> None:
    """Serve walk requests until the channel closes."""
    setup: Setup = channel.receive()
    os.nice(setup.nice)
    page, progress, serving_core = setup.page, ControlPage.create(), ServingCore(setup.serving_core)
    channel.send(Ready(progress))
    arena = SharedArena()

    def limits() -> WalkLimits:
        return WalkLimits(
            page[GRANULARITY_SLOT],
            page[RESULT_SIZE_SLOT],
            page[POSITION_LIMIT_SLOT],
            page[STASH_THRESHOLD_SLOT],
        )

    def answer(request: WalkRequest) -> bool:
        """Walk a request's scans, send what each comes to as it ends, and tell whether they took much memory.

        Its names end with it, so nothing of a request is held while the next one is waited for: this process
        must not be the last to hold batches, nor the server of an answer's memory.
        """
        walks = [
            Walk(
                cast("PeekScan", part.scan),
                part.encoder,
                limits,
                _canceller(page, setup.slot, bit),
                stash=part.stash,
            )
            for bit, part in enumerate(request.parts)
        ]
        work = walks[0] if len(walks) == 1 else SharedWalk(walks, limits, lambda: page[setup.slot] != 0)
        left = dict(enumerate(walks))
        while left:
            if work.step():
                ended = {at: left.pop(at) for at, walk in enumerate(walks) if at in left and walk.over}
                send_results(request.number, ended)
            if left:
                progress[PROGRESS_POSITIONS_SLOT] = work.positions
                if work.settled or progress[PROGRESS_NUMBER_SLOT] != request.number:
                    for at, walk in enumerate(walks, PROGRESS_ROWS_SLOT):
                        progress[at] = walk.scan.count
                    progress[PROGRESS_NUMBER_SLOT] = request.number
                serving_core.give_way()
        return any(walk.scan.nbytes > _LARGE for walk in walks)

    def send_results(number: int, ended: dict[int, Walk]) -> None:
        try:
            channel.send(WalkEnded(number, {at: _result(walk, arena) for at, walk in ended.items()}))
        except ChannelClosedError:
            raise
        except Exception as error:  # noqa: BLE001 - no memory for the answers, say: that costs their peeks
            channel.send(WalkEnded(number, {at: _unsendable(walk, error) for at, walk in ended.items()}))

    while True:
        request: WalkRequest | Rest | None = channel.receive()
        if isinstance(request, WalkRequest):
            progress[TAKEN_SLOT] = request.number
        freed = isinstance(request, Rest) or (request is not None and answer(request))
        del request
        if freed:
            give_memory_back()
        if channel.owes_notice:  # the server keeps the segments of answers until it is told
            channel.send(None)


def _canceller(page: ControlPage, slot: int, bit: int) -> Callable[[], bool]:
    return lambda: bool(page[slot] >> bit & 1)


def _result(walk: Walk, arena: SharedArena) -> WalkResult:
    """Return what a walk came to, its answer placed where the server can read it."""
    scan, response, wire = walk.scan, walk.response, None
    if isinstance(response, Rows):
        response, wire = _placed(response, arena)
    elif isinstance(response, Stashed):
        rest, wire = _placed(response.rest, arena)
        response = replace(response, rest=rest)
    return WalkResult(response, wire, walk.raised, scan.positions, scan.count, scan.times)


def _unsendable(walk: Walk, error: Exception) -> WalkResult:
    scan = walk.scan
    return WalkResult(raised_response(scan, error), None, True, scan.positions, scan.count, scan.times)


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
    collapse_heap()
    with contextlib.suppress(ChannelClosedError):
        run(Channel(sock))
