"""Visits on the serving loop: what the rows of one weigh together is bounded, however many it may visit."""

from __future__ import annotations

from typing import Final

from layby.expr.mfp import MfpKernel
from layby.expr.scalar import ColumnRef
from layby.trace.cursor import TOO_HEAVY, Cursor, Place, Visit
from layby.trace.layout import Layout
from layby.trace.width import UNIT, text_bytes

FEW: Final = 64
"""So many positions are visited whatever they weigh: rows of 1,600 numbers are 13 KiB each."""

_NUMBER_BYTES: Final = 8
"""Of the widest number."""

_COPIED: Final = 8
"""How many bytes are handed on in the time that one is worked on."""


def weigh_little(layout: Layout, kernel: MfpKernel, positions: int, heaviest: int, *, sums: bool) -> bool:
    """Return whether all is numbers, and so few that no visit of so many positions weighs more than that.

    Said once a step, it makes a walk of integers 3 % shorter: no visit has to be weighed.
    """
    numbers = len(kernel.outputs) + (len(layout.types) if sums else 0)
    return layout.is_fixed and positions * numbers * _NUMBER_BYTES <= heaviest * UNIT


class LightVisits:
    """Makes a visit again, smaller, whose rows weigh too much together.

    What counts is what is put out of them, and the text that is looked at.
    """

    __slots__ = (
        "_cursor",
        "_fixed",
        "_heaviest",
        "_looked_at",
        "_merged",
        "_plain",
        "_put_out",
    )

    def __init__(
        self, cursor: Cursor, layout: Layout, kernel: MfpKernel, heaviest: int, *, sums: bool, merges: bool
    ) -> None:
        """`heaviest` counts in `UNIT`. `sums` says that whole rows are put together, `merges` that keys are
        where they come from several batches."""
        types = layout.types
        self._cursor = cursor
        self._heaviest = heaviest
        self._plain = kernel.is_plain and not sums
        outputs = kernel.outputs
        put_out = (
            [o.index for o in outputs if isinstance(o, ColumnRef)] if self._plain else kernel.output_columns
        )
        whole = range(len(types)) if sums else ()
        self._put_out = [at for at in (*put_out, *whole) if types[at].size < 0]
        """Columns of text, as often as they are put out."""
        self._fixed = sum(max(0, t.size) for t in (*(o.type for o in outputs), *(types[at] for at in whole)))
        """Bytes of numbers that are put out of a row."""
        self._looked_at = kernel.filter_columns
        self._merged = self._looked_at.union(range(len(layout.key))) if merges else self._looked_at

    def lighter(self, visit: Visit, place: Place, fuel: int) -> Visit:
        """Return a visit of more than `FEW` positions, or a smaller one in its stead; `TOO_HEAVY` where the
        next row is so alone. It was made with `fuel` from `place`."""
        cursor, heaviest = self._cursor, self._heaviest
        size = self._size(visit)
        if size <= heaviest * UNIT:
            return visit
        cursor.go_back(place)
        fewer = visit.positions * heaviest * UNIT // size
        smaller = cursor.advance(max(1, min(fuel, heaviest, fewer)), heaviest)
        assert smaller is not None  # there was one
        handed_on = _COPIED if self._plain else 1
        if smaller.positions > heaviest and self._size(smaller, handed_on) > heaviest * UNIT:
            cursor.go_back(place)
            return TOO_HEAVY
        return smaller

    def _size(self, visit: Visit, handed_on: int = 1) -> int:
        """Return the bytes that count of a visit's rows; of what is put out one in `handed_on`."""
        slices = visit.slices
        rows = sum(stop - start for _, start, stop in slices)
        put_out = rows * self._fixed + text_bytes(slices, self._put_out)
        return put_out // handed_on + text_bytes(slices, self._merged if len(slices) > 1 else self._looked_at)
