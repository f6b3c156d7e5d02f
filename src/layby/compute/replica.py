"""The replica: carries out a controller's commands on the serving worker and the maintenance runtime.

Commands wait until the next activation, which takes all of them before its sweep. A new connection begins
with the controller's reduced history, up to `InitializationComplete`; against that the replica reconciles.
What it has and still fits is kept as it is, arrangements with their batches and peeks in the middle of their
walk; the rest is dropped, and what is missing is made.

A server whose coordinator is in the same process calls the worker and the runtime itself: a peek that is
ready and cheap is then one plain call, with no command, queue or turn of the loop in between.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from layby.compute.history import CommandHistory
from layby.compute.maintenance import CreateArrangement, DropArrangement
from layby.compute.protocol import (
    AllowCompaction,
    Answer,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateInstance,
    Frontiers,
    InitializationComplete,
    Peek,
    PeekResponse,
    Status,
    UpdateConfiguration,
)
from layby.compute.runtime import MaintenanceRuntime
from layby.compute.state import ServingState
from layby.compute.worker import ServingWorker, query_cancelled
from layby.config import SystemParameters
from layby.errors import SqlError
from layby.peek import answer
from layby.peek.answer import Failed
from layby.peek.pending import PeekState, PendingPeek
from layby.trace.batch import MIN_TIME

log = logging.getLogger("layby.replica")


@dataclass(slots=True)
class Dataflow:
    """A dataflow that the replica has: `ready` once it can be read, and how far it may be compacted."""

    command: CreateDataflow
    ready: bool = False
    allowed: int = MIN_TIME


class Replica:
    """One replica. Everything here runs on its serving loop.

    Whoever publishes to the serving state has the worker activated, so that peeks that waited for it are
    served and the controller learns the frontiers.
    """

    def __init__(
        self,
        state: ServingState,
        worker: ServingWorker,
        maintenance: Callable[[Callable[[], int]], MaintenanceRuntime],
        parameters: SystemParameters,
        deliver: Callable[[Callable[[], None]], None],
    ) -> None:
        """`maintenance` makes the runtime, from what gives the compaction frontier.

        `deliver` runs a function on the serving loop, from any thread.
        """
        self._state = state
        self._worker = worker
        self._parameters = parameters
        self._deliver = deliver
        self._send: Callable[[Answer], None] | None = None
        self._commands: deque[Command] = deque()
        self._beginning: CommandHistory | None = None
        """The history that a new connection begins with, while it is coming in."""
        self._told: Frontiers | None = None
        self.instance: CreateInstance | None = None
        self.dataflows: dict[int, Dataflow] = {}
        self.peeks: dict[int, tuple[Peek, PendingPeek]] = {}
        """Those that are not answered yet; in state NEW while their dataflow is being built."""
        self._configured: set[str] = set()
        self._maintenance = maintenance(self.compaction_frontier)
        worker.before_sweep = self.drain

    def compaction_frontier(self) -> int:
        """Return the time below which nothing is read any more: by any peek that is not answered, or by one
        that may still come."""
        # Copies, since the runtime's thread asks too.
        allowed = [dataflow.allowed for dataflow in list(self.dataflows.values())]
        pinned = [peek.spec.timestamp for peek, _ in list(self.peeks.values())]
        return min([*allowed, *pinned], default=self._state.upper - 1)

    # The connection

    def connect(self, send: Callable[[Answer], None]) -> None:
        """Begin a connection, whose answers go to `send`. What was under way goes on meanwhile."""
        self.disconnect()
        self._send = send
        self._told = None
        self._beginning = CommandHistory()

    def disconnect(self) -> None:
        """The connection is gone, and with it the commands that have not been taken."""
        self._send = None
        self._commands.clear()
        self._beginning = None

    def receive(self, command: Command) -> None:
        """Take a command in; it is carried out in the next activation."""
        self._commands.append(command)
        self._worker.request_activation()

    def drain(self) -> None:
        """Carry out every command that has come, then tell the frontiers where they have moved."""
        while self._commands:
            command = self._commands.popleft()
            try:
                self._take(command)
            except Exception:
                log.exception("command %r raised", command)
        self.report()

    def report(self) -> None:
        """Tell the controller the frontiers, where it has not been told these."""
        found = Frontiers(self._state.upper, self.compaction_frontier())
        if found != self._told and self._send is not None and self._beginning is None:
            self._told = found
            self._send(found)

    def _take(self, command: Command) -> None:
        beginning = self._beginning
        if beginning is None:
            self._do(command)
        elif isinstance(command, InitializationComplete):
            self._beginning = None
            self._reconcile(beginning)
        else:
            beginning.push(command)

    # Commands

    def _do(self, command: Command) -> None:
        match command:
            case CreateInstance():
                if command != self.instance:
                    self._start_over(command)
            case UpdateConfiguration(values):
                self._configure(dict(values))
            case CreateDataflow():
                self._create(command)
            case AllowCompaction(collection, None):
                self._drop(collection)
            case AllowCompaction(collection, int() as frontier):
                dataflow = self.dataflows.get(collection)
                if dataflow is not None:
                    dataflow.allowed = max(frontier, dataflow.allowed)
            case Peek():
                self._peek(command)
            case CancelPeek(number):
                if number in self.peeks:
                    self._cancel(self.peeks[number][1], query_cancelled())
            case InitializationComplete():
                pass  # there was nothing to reconcile with

    def _configure(self, values: dict[str, str]) -> None:
        for name, value in values.items():
            try:
                self._parameters.set(name, value)
                self._configured.add(name)
            except SqlError as error:  # a controller of another version may know more than we do
                log.warning("parameter %s is left as it is: %s", name, error)

    def _unset(self, names: set[str]) -> None:
        for name in names:
            self._parameters.reset(name)
        self._configured = self._configured - names

    def _create(self, command: CreateDataflow) -> None:
        desc = command.desc
        if desc.id in self.dataflows:
            return
        self.dataflows[desc.id] = dataflow = Dataflow(command)

        def created(error: SqlError | None) -> None:
            if self.dataflows.get(desc.id) is not dataflow:
                return  # dropped meanwhile
            if error is None:
                dataflow.ready = True
            else:
                del self.dataflows[desc.id]
            self._tell(Status(desc.id, error))
            for pending in self._unstarted(desc.id):
                if error is None:
                    self._start(pending)
                else:
                    pending.respond(Failed(error))

        self._maintenance.submit(
            CreateArrangement(desc, lambda error: self._deliver(lambda: created(error)), command.verify)
        )

    def _drop(self, collection: int) -> None:
        dataflow = self.dataflows.pop(collection, None)
        if dataflow is None:
            return
        name = dataflow.command.desc.name
        gone = SqlError("57014", f'canceling statement because "{name}" was dropped')
        self._worker.cancel_reads_of(collection, gone)
        for pending in self._unstarted(collection):
            pending.respond(Failed(gone))
        self._maintenance.submit(DropArrangement(collection))

    def _peek(self, command: Peek) -> None:
        number = command.number
        if number in self.peeks:
            return

        def respond(response: answer.PeekResponse) -> None:
            # One that is not wanted any more has been taken out.
            if self.peeks.pop(number, None) is not None:
                self._tell(PeekResponse(number, response))

        pending = PendingPeek(command.spec, command.collection, command.encoder, respond, command.overlay)
        self.peeks[number] = (command, pending)
        dataflow = self.dataflows.get(command.collection)
        if dataflow is None or dataflow.ready:
            self._start(pending)

    def _start(self, pending: PendingPeek) -> None:
        response = self._worker.peek(pending)
        if response is not None:
            pending.respond(response)

    def _unstarted(self, collection: int) -> list[PendingPeek]:
        """Return the peeks that wait for their dataflow to be built."""
        return [
            pending
            for peek, pending in self.peeks.values()
            if peek.collection == collection and pending.state is PeekState.NEW
        ]

    def _cancel(self, pending: PendingPeek, error: SqlError) -> None:
        if pending.state is PeekState.NEW:
            pending.respond(Failed(error))
        else:
            self._worker.cancel(pending, error)

    def _tell(self, told: Answer) -> None:
        """Answer, where somebody listens.

        What is lost while nobody does, or while it is not known yet who does, is asked for again by the
        history that the next connection begins with.
        """
        if self._send is not None and self._beginning is None:
            self._send(told)

    # Reconciliation

    def _start_over(self, instance: CreateInstance) -> None:
        for number in list(self.peeks):
            self._give_up(number)
        for collection in reversed(list(self.dataflows)):
            self._drop(collection)
        self._unset(self._configured)
        self.instance = instance

    def _reconcile(self, wanted: CommandHistory) -> None:
        """Become what the history says, and keep what fits it."""
        if wanted.instance is not None and wanted.instance != self.instance:
            self._start_over(wanted.instance)
        self._unset(self._configured - set(wanted.configuration))
        self._configure(wanted.configuration)
        unfit = self._unfit(wanted)
        for number, (command, _) in list(self.peeks.items()):
            # One that is wanted, but of a dataflow that goes, is taken up anew below: it is answered once.
            if wanted.peeks.get(number) != command or command.collection in unfit:
                self._give_up(number)
        for collection in reversed(list(self.dataflows)):  # a table's shard goes last
            if collection in unfit:
                self._drop(collection)
        for collection, dataflow in self.dataflows.items():
            dataflow.allowed = MIN_TIME
            if dataflow.ready:
                self._tell(Status(collection, None))
        for missing in wanted.commands():
            if not isinstance(missing, CreateInstance | UpdateConfiguration):
                self._do(missing)

    def _unfit(self, wanted: CommandHistory) -> set[int]:
        """Return the dataflows to drop: those that are not wanted as they are, and all of a table whose shard
        is among them.

        No time is compared: one built anew could be read from a later time only.
        """
        unfit = {
            collection
            for collection, dataflow in self.dataflows.items()
            if wanted.dataflows.get(collection) != dataflow.command
        }
        shards: dict[int, int] = {}
        for collection, dataflow in self.dataflows.items():
            table = dataflow.command.desc.table_id
            if shards.setdefault(table, collection) in unfit:
                unfit.add(collection)
        return unfit

    def _give_up(self, number: int) -> None:
        """End a peek that nobody waits for."""
        _, pending = self.peeks.pop(number)
        self._cancel(pending, query_cancelled())
