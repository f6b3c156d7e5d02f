"""The maintenance process: keeps all spines apart from the serving loop, on batches in shared memory.

Started by `ProcessMaintenanceRuntime` as a program of its own. Inside, it is the thread runtime: one thread
applies and merges, others build. What it publishes goes to the server as descriptions of batches; a batch
that was sent before goes as a number.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from layby.compute.arrangement import ArrangementDesc
from layby.compute.maintenance import ApplyWrites, CreateArrangement, DropArrangement, TableWrite
from layby.compute.runtime import Job, ThreadMaintenanceRuntime
from layby.errors import InternalError, SqlError
from layby.memory.channel import Channel, ChannelClosedError
from layby.memory.child import start_child
from layby.memory.control_page import ControlPage
from layby.memory.shared_arena import SharedArena
from layby.trace.batch import Batch
from layby.trace.bundle import Snapshot

FRONTIER_SLOT: Final = 0
"""Where the server writes the compaction frontier."""


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
    """`DropArrangement`."""

    id: int


class RunJob(NamedTuple):
    """A job apart, answered by a `JobDone` of its token."""

    token: int
    job: Job


class Published(NamedTuple):
    """New snapshots, and the frontier that all are complete up to."""

    snapshots: dict[int, Snapshot]
    upper: int


class Dropped(NamedTuple):
    """A collection is gone."""

    id: int


class Done(NamedTuple):
    """The end of an `Apply` or a `Create`."""

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

    def answer(token: int) -> Callable[[SqlError | None], None]:
        return lambda error: _send(channel, Done(token, error))

    def job_done(token: int) -> Callable[[object], None]:
        return lambda result: _send_result(channel, token, result)

    while True:
        match channel.receive():
            case None:
                pass  # the channel's own housekeeping came with it
            case Apply(token, time, writes):
                runtime.submit(ApplyWrites(time, writes, answer(token)))
            case Create(token, desc, verify):
                runtime.submit(CreateArrangement(desc, answer(token), verify))
            case Drop(id_):
                runtime.submit(DropArrangement(id_))
            case RunJob(token, job):
                runtime.run_apart(job, job_done(token))
            case unknown:
                raise InternalError(f"unknown message {unknown!r}")


def _send_result(channel: Channel, token: int, result: object) -> None:
    try:
        _send(channel, JobDone(token, result))
    except Exception as error:  # noqa: BLE001 - a result that cannot travel must answer its statement too
        _send(channel, JobDone(token, InternalError(f"a job's result cannot be sent: {error}")))


def _send(channel: Channel, message: object) -> None:
    # Where the server is gone, so is this process in a moment.
    with contextlib.suppress(ChannelClosedError):
        channel.send(message)


def main() -> None:
    """Run as a program, with the channel's descriptor as its argument."""
    sock = start_child()
    gc.freeze()
    with contextlib.suppress(ChannelClosedError):
        run(Channel(sock, (Batch,)))
    os._exit(0)  # threads of builds under way are of no use to anybody now
