"""A walk process whose steps wait at a gate: the far side of `tests.peek.gates`."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.connection import Client, Connection
from typing import Any

from layby.peek import walk_process
from layby.peek.shared_walk import SharedWalk
from layby.peek.walk import Walk
from layby.persist.blob import BlobError
from tests.peek.patches import patched
from tests.persist import memory_blob

ADDRESS = "LAYBY_TEST_GATES"
"""The environment variable that names the socket of the gates."""


class Gate:
    """Stops the walk of this process before each step, and tells what it is asked while it stands there."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._open_for: object = None
        self._patches: dict[str, object] = {}

    def step(self, work: Walk | SharedWalk, step: Callable[[], bool]) -> bool:
        if self._open_for is not work:
            self._wait(work)
        with patched(self._patches):
            return step()

    def call_store(self, number: int, method: str, *args: Any) -> Any:
        """Call a method of a store that lives in the process of the tests."""
        self._connection.send(("store", number, method, args))
        result = self._connection.recv()
        if isinstance(result, BlobError):
            raise result
        return result

    def _wait(self, work: Walk | SharedWalk) -> None:
        self._connection.send(("stands",))
        while True:
            match self._connection.recv():
                case ("look", look):
                    self._connection.send(("seen", look(work)))
                case ("pass", opened, patches):
                    self._open_for = work if opened else None
                    self._patches = patches
                    return


def main() -> None:
    with Client(os.environ[ADDRESS]) as connection:
        connection.send(os.getpid())
        gate = Gate(connection)
        memory_blob.elsewhere = gate.call_store

        class GatedWalk(Walk):
            def step(self) -> bool:
                return gate.step(self, super().step)

        class GatedSharedWalk(SharedWalk):
            def __init__(self, walks: Any, limits: Any, any_cancelled: Any) -> None:
                # Its clock stands: what a step settles does not depend on the machine.
                super().__init__(walks, limits, any_cancelled, clock=lambda: 0.0)

            def step(self) -> bool:
                return gate.step(self, super().step)

        vars(walk_process).update(Walk=GatedWalk, SharedWalk=GatedSharedWalk)
        walk_process.main()
