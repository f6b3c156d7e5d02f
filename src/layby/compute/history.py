"""The command history: the least that a replica has to be told to be where the controller wants it.

Every command is folded in when it is sent, so the history grows with what exists, not with what happened: a
dropped dataflow, a peek that was answered or cancelled, a value that was set again leave nothing behind.
"""

from __future__ import annotations

from layby.compute.protocol import (
    AllowCompaction,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateInstance,
    InitializationComplete,
    Peek,
    UpdateConfiguration,
)


class CommandHistory:
    """What the commands so far come to. Dataflows and peeks stand in the order of their first command."""

    def __init__(self) -> None:
        self.instance: CreateInstance | None = None
        self.configuration: dict[str, str] = {}
        self.dataflows: dict[int, CreateDataflow] = {}
        self.frontiers: dict[int, int] = {}
        """How far each dataflow may be compacted; only those that may at all."""
        self.peeks: dict[int, Peek] = {}
        self.initialized = False

    def push(self, command: Command) -> None:
        """Fold a command in."""
        match command:
            case CreateInstance():
                if command != self.instance:
                    self._forget()
                self.instance = command
            case UpdateConfiguration(values):
                self.configuration.update(values)
            case CreateDataflow(desc):
                self.dataflows[desc.id] = command
            case AllowCompaction(collection, None):
                self.dataflows.pop(collection, None)
                self.frontiers.pop(collection, None)
            case AllowCompaction(collection, int() as frontier):
                if collection in self.dataflows:
                    self.frontiers[collection] = max(frontier, self.frontiers.get(collection, frontier))
            case Peek(number):
                self.peeks[number] = command
            case CancelPeek(number):
                self.peeks.pop(number, None)
            case InitializationComplete():
                self.initialized = True

    def answered(self, number: int) -> bool:
        """Forget a peek that has its answer; False where nobody waits for that any more."""
        return self.peeks.pop(number, None) is not None

    def commands(self) -> list[Command]:
        """Return the reduced history: peeks before what may be compacted, so that they pin what they read."""
        found: list[Command] = []
        if self.instance is not None:
            found.append(self.instance)
        if self.configuration:
            found.append(UpdateConfiguration(tuple(self.configuration.items())))
        found += self.dataflows.values()
        found += self.peeks.values()
        found += (AllowCompaction(collection, frontier) for collection, frontier in self.frontiers.items())
        if self.initialized:
            found.append(InitializationComplete())
        return found

    def _forget(self) -> None:
        """Another instance begins with nothing."""
        self.configuration.clear()
        self.dataflows.clear()
        self.frontiers.clear()
        self.peeks.clear()
        self.initialized = False
