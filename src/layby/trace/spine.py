"""Spines: the batches of one trace, in layers of geometrically growing size.

Batches lie in the order of time. Wherever one is no larger than what follows it (within a factor of two),
the two are due to be merged; so sizes fall geometrically once nothing is due, and each update is merged
O(log n) times in its life. Merging is work that somebody grants fuel for; until it is done readers see the
inputs, so what they see is always complete.
"""

from __future__ import annotations

from typing import Final

from layby.errors import InternalError
from layby.memory.arena import Arena
from layby.trace.batch import MIN_TIME, Batch
from layby.trace.layout import Layout
from layby.trace.merge import Merge

_WIDEST: Final = 64
"""The most batches that one merge takes: each visit bisects in every one of them."""


class Spine:
    """The batches of one trace up to `upper`, and the merges under way.

    `append`, `work` and `advance_since` belong to one thread; `batches` is replaced in one assignment and may
    be read by any.
    """

    def __init__(self, layout: Layout, arena: Arena, upper: int = MIN_TIME) -> None:
        self.layout = layout
        self.batches: tuple[Batch, ...] = ()
        """Every update before `upper`, oldest batch first; none of them is empty."""
        self.upper = upper
        self.since = MIN_TIME
        """Times below this one may be advanced to it by the merges that start from now on."""
        self._arena = arena
        self._merges: list[Merge] = []
        self._settled = True

    def __len__(self) -> int:
        """How many updates there are."""
        return sum(len(batch) for batch in self.batches)

    @property
    def nbytes(self) -> int:
        """The bytes of all batches; what merges have produced so far is not counted."""
        return sum(batch.nbytes for batch in self.batches)

    def append(self, batch: Batch) -> None:
        """Add a batch that begins where the spine ends. An empty one only moves `upper`."""
        if batch.lower != self.upper or batch.upper < batch.lower:
            raise InternalError(
                f"a batch of [{batch.lower}, {batch.upper}) does not follow a spine up to {self.upper}"
            )
        self.upper = batch.upper
        if len(batch):
            self.batches = (*self.batches, batch)
            self._settled = False

    def adopt(self, batches: tuple[Batch, ...], upper: int) -> None:
        """Take over the batches of another spine up to `upper`; this one has none yet."""
        if self.batches:
            raise InternalError("a spine that has batches cannot adopt those of another")
        self.batches, self.upper = batches, upper
        self._settled = False

    def advance_since(self, since: int) -> None:
        """Allow what merges to forget at which time before `since` things happened. Never moves back."""
        if since > self.since:
            self.since = since
            self._settled = False

    @property
    def idle(self) -> bool:
        """Whether there is nothing to merge."""
        self._schedule()
        return not self._merges

    def work(self, fuel: int) -> int:
        """Merge for at most `fuel` positions and return how many were spent; less where nothing is left.

        Newer, smaller merges go first: they are soon done and keep the number of batches down.
        """
        spent = 0
        while spent < fuel:
            self._schedule()
            if not self._merges:
                break
            merge = max(self._merges, key=lambda m: m.inputs[-1].upper)
            spent += merge.step(fuel - spent)
            if merge.result is not None:
                self._merges.remove(merge)
                self._replace(merge.inputs, merge.result)
        return spent

    def _replace(self, inputs: tuple[Batch, ...], result: Batch) -> None:
        at = next(i for i, batch in enumerate(self.batches) if batch is inputs[0])
        middle = (result,) if len(result) else ()
        self.batches = (*self.batches[:at], *middle, *self.batches[at + len(inputs) :])
        self._settled = False

    def _schedule(self) -> None:
        """Start the merges that are due; a walk over the batches, done only after something has changed."""
        if self._settled:
            return
        self._settled = True
        busy = {id(batch) for merge in self._merges for batch in merge.inputs}
        batches = self.batches
        newest = len(batches) - 1
        while newest >= 0:
            oldest, total = newest, len(batches[newest])
            if id(batches[newest]) not in busy:
                while (
                    oldest > 0
                    and newest - oldest + 1 < _WIDEST
                    and id(batches[oldest - 1]) not in busy
                    and len(batches[oldest - 1]).bit_length() <= total.bit_length()
                ):
                    oldest -= 1
                    total += len(batches[oldest])
            if oldest < newest:
                self._start(batches[oldest : newest + 1])
            newest = oldest - 1
        if not self._merges:
            for batch in batches:
                if self._collapses(batch):
                    self._start((batch,))

    def _collapses(self, batch: Batch) -> bool:
        """Whether the batch holds history that nobody can read any more; merged alone it holds none."""
        return not batch.inserts_only and batch.min_time < batch.max_time <= self.since

    def _start(self, inputs: tuple[Batch, ...]) -> None:
        self._merges.append(Merge(inputs, self.since, self._arena))
