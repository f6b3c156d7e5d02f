"""The controller: the end of the protocol that commands, and the link to a replica in the same process."""

from __future__ import annotations

from collections.abc import Callable

from layby.compute.history import CommandHistory
from layby.compute.protocol import Answer, Command, PeekResponse
from layby.compute.replica import Replica


class Link:
    """One connection to a replica of this process. It keeps the order, and loses what comes after its end."""

    def __init__(self, replica: Replica, on_answer: Callable[[Answer], None]) -> None:
        self._replica = replica
        self._on_answer = on_answer
        self._open = True
        replica.connect(self._answer)

    def send(self, command: Command) -> None:
        """Hand a command over; the replica takes it at its next activation."""
        if self._open:
            self._replica.receive(command)

    def close(self) -> None:
        """End the connection, whoever's end broke."""
        if self._open:
            self._open = False
            self._replica.disconnect()

    def _answer(self, answer: Answer) -> None:
        if self._open:
            self._on_answer(answer)


class Controller:
    """Commands a replica over one link after the other, and hands on each peek's answer once."""

    def __init__(self, on_answer: Callable[[Answer], None]) -> None:
        self.history = CommandHistory()
        self._on_answer = on_answer
        self._link: Link | None = None

    def connect(self, replica: Replica) -> Link:
        """Open a link, and bring the replica to where the commands so far have led."""
        if self._link is not None:
            self._link.close()
        self._link = link = Link(replica, self._answered)
        for command in self.history.commands():
            link.send(command)
        return link

    def send(self, command: Command) -> None:
        """Send a command now, or with the next connection."""
        self.history.push(command)
        if self._link is not None:
            self._link.send(command)

    def _answered(self, answer: Answer) -> None:
        if not isinstance(answer, PeekResponse) or self.history.answered(answer.number):
            self._on_answer(answer)
