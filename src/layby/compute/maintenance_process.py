"""The maintenance process: keeps all spines apart from the serving loop, on batches in shared memory.

Started by `ProcessMaintenanceRuntime` as a program of its own. Inside, it is the thread runtime: one thread
applies and merges, others build. What it publishes goes to the server as descriptions of batches; a batch
that was sent before goes as a number.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from layby.compute.arrangement import ArrangementDesc
from layby.compute.maintenance import ApplyWrites, CreateArrangement, DropArrangement, TableWrite
from layby.compute.runtime import Job, ThreadMaintenanceRuntime
from layby.errors import InternalError, SqlError
from layby.memory.channel import Channel, ChannelClosedError
from layby.memory.child import start_child
from layby.memory.control_page import ControlPage
from layby.memory.heap import Rest, give_memory_back
from layby.memory.shared_arena import SharedArena
from layby.trace.batch import Batch
from layby.trace.bundle import Snapshot

log = logging.getLogger("layby.maintenance")

FRONTIER_SLOT: Final = 0
"""Where the server writes the compaction frontier."""

_HOUSEKEEPING_S: Final = 1.0
"""How often the server is told what is gone, where no message has."""


class Start(NamedTuple):
    """The first message: where the process that came before had got to, if there was one."""

    page: ControlPage
    nice: int
    upper: int
    adopt: tuple[tuple[ArrangementDesc, Snapshot], ...]


class Apply(NamedTuple):
    """`ApplyWrites`, answered by a `Done` of its token."""

    token: int
    time: int
    writes: tuple[TableWrite, ...]


class Create(NamedTuple):
    """`CreateArrangement`, answered by a `Done` of its token."""

    token: int
    desc: ArrangementDesc
    verify: Callable[[Batch], SqlError | None] | None


class Drop(NamedTuple):
    """`DropArrangement`, answered by a `Done` of its token."""

    token: int
    id: int


class RunJob(NamedTuple):
    """A job apart, answered by a `JobDone` of its token."""

    token: int
    job: Job


class Ready(NamedTuple):
    """The first message to the server: what there was is adopted."""


class Published(NamedTuple):
    """New snapshots, and the frontier that all are complete up to."""

    snapshots: dict[int, Snapshot]
    upper: int


class Dropped(NamedTuple):
    """A collection is gone."""

    id: int


class Done(NamedTuple):
    """The end of an `Apply`, a `Create` or a `Drop`."""

    token: int
    error: SqlError | None


class JobDone(NamedTuple):
    """A job's result, or the exception that it raised."""

    token: int
    result: object


class _Publisher:
    """The publication that leads to the server."""

    def __init__(self, channel: Channel, upper: int) -> None:
        self._channel = channel
        self.upper = upper

    def publish(self, snapshots: Mapping[int, Snapshot], upper: int) -> None:
        """Send snapshots and their frontier."""
        self.upper = upper
        _send(self._channel, Published(dict(snapshots), upper))

    def drop(self, collection: int) -> None:
        """Send that a collection is gone."""
        _send(self._channel, Dropped(collection))


def run(channel: Channel) -> None:
    """Serve until the channel closes."""
    start: Start = channel.receive()
    os.nice(start.nice)
    arena, page = SharedArena(), start.page
    runtime = ThreadMaintenanceRuntime(
        _Publisher(channel, start.upper),
        lambda: page[FRONTIER_SLOT],
        arena,
        adopt=start.adopt,
    )
    del start

    _send(channel, Ready())
    threading.Thread(target=_keep_house, args=(channel,), daemon=True).start()
    while True:
        _handle(channel.receive(), runtime, channel)


def _handle(message: object, runtime: ThreadMaintenanceRuntime, channel: Channel) -> None:
    def answer(token: int) -> Callable[[SqlError | None], None]:
        return lambda error: _send(channel, Done(token, error))

    match message:
        case None:
            pass  # the channel's own housekeeping came with it
        case Rest():
            give_memory_back()
        case Apply(token, time, writes):
            runtime.submit(ApplyWrites(time, writes, answer(token)))
        case Create(token, desc, verify):
            runtime.submit(CreateArrangement(desc, answer(token), verify))
        case Drop(token, id_):
            runtime.submit(DropArrangement(id_, lambda: _send(channel, Done(token, None))))
        case RunJob(token, job):
            runtime.run_apart(job, lambda result: _send_result(channel, token, result))
        case unknown:
            raise InternalError(f"unknown message {unknown!r}")


def _send_result(channel: Channel, token: int, result: object) -> None:
    try:
        channel.send(JobDone(token, result))
    except ChannelClosedError:
        _end(0)
    except Exception as error:  # noqa: BLE001 - a result that cannot travel must answer its statement too
        _send(channel, JobDone(token, InternalError(f"a job's result cannot be sent: {error}")))


def _send(channel: Channel, message: object) -> None:
    """Send a message, or end this process: the server would wait for it for ever, and knows how to go on
    without this process."""
    try:
        channel.send(message)
    except ChannelClosedError:
        _end(0)
    except BaseException:
        log.exception("a message to the server could not be sent")
        _end(1)


def _keep_house(channel: Channel) -> None:
    """Tell the server what is gone, so that it does not keep its memory until something happens."""
    never = threading.Event()
    while not never.wait(_HOUSEKEEPING_S):
        if channel.owes_notice:
            _send(channel, None)


def _end(code: int) -> None:
    """End this process at once: threads of builds under way are of no use to anybody now."""
    os._exit(code)


def main() -> None:
    """Run as a program, with the channel's descriptor as its argument."""
    sock = start_child()
    gc.freeze()
    try:
        with contextlib.suppress(ChannelClosedError):
            run(Channel(sock))
    except BaseException:
        log.exception("the maintenance process failed")
        _end(1)
    _end(0)
