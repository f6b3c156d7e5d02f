"""Layouts: which columns the rows of a trace have, and in what order they are sorted."""

from __future__ import annotations

from dataclasses import dataclass

from layby.types.ordering import ASCENDING, Ordering
from layby.types.scalar import SqlType


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a trace's rows, the key columns first.

    `key` has one ordering a key column. The columns after the key are sorted too (ascending, NULLs last), so
    that equal rows lie together.
    """

    types: tuple[SqlType, ...]
    key: tuple[Ordering, ...]

    @property
    def orderings(self) -> tuple[Ordering, ...]:
        """One ordering a column: those of the key, then ascending with NULLs last."""
        return self.key + (ASCENDING,) * (len(self.types) - len(self.key))
