"""The state that the maintenance runtime publishes and the serving worker reads."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from layby.trace.bundle import Snapshot


class ServingState:
    """The newest snapshot of every collection, and the frontier up to which all of them are complete.

    `upper` is published once for all collections after the snapshots that it speaks of, so a reader that
    looks at `upper` first and takes snapshots after sees all of a transaction at a time below it, whatever
    tables it touched. A snapshot may be ahead of `upper`; a read at a time leaves later updates out.
    """

    def __init__(self, upper: int) -> None:
        self.upper = upper
        self._snapshots: dict[int, Snapshot] = {}
        self._advanced = threading.Condition()
        self._stopped = False

    def publish(self, snapshots: Mapping[int, Snapshot], upper: int) -> None:
        """Make new snapshots and then their frontier known; from the maintenance runtime only."""
        self._snapshots.update(snapshots)
        if upper != self.upper:
            with self._advanced:
                self.upper = upper
                self._advanced.notify_all()

    def wait_until(self, time: int) -> bool:
        """Block the calling thread until all collections are complete at `time`; False: they may never be."""
        with self._advanced:
            self._advanced.wait_for(lambda: self.upper > time or self._stopped)
            return self.upper > time

    def stop_waiting(self) -> None:
        """Let go of whoever waits: the maintenance runtime may publish no more."""
        with self._advanced:
            self._stopped = True
            self._advanced.notify_all()

    def snapshot(self, collection: int) -> Snapshot | None:
        """Return the newest snapshot of a collection, None where it is gone."""
        return self._snapshots.get(collection)

    def drop(self, collection: int) -> None:
        """Forget a collection."""
        self._snapshots.pop(collection, None)
