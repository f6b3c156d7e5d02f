"""Pinned batches: the memory that queued and running walks hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from layby.trace.batch import Batch


class PinnedBatches:
    """The batches of all scans away from the loop, each distinct one counted once."""

    def __init__(self) -> None:
        self._holders: Counter[int] = Counter()
        self.nbytes = 0

    def pin(self, batches: Iterable[Batch]) -> None:
        """Count one more holder of each batch."""
        for batch in batches:
            self._holders[id(batch)] += 1
            if self._holders[id(batch)] == 1:
                self.nbytes += batch.nbytes

    def unpin(self, batches: Iterable[Batch]) -> None:
        """Count one holder less of each batch; call it before the batches are let go."""
        for batch in batches:
            self._holders[id(batch)] -= 1
            if not self._holders[id(batch)]:
                del self._holders[id(batch)]
                self.nbytes -= batch.nbytes
