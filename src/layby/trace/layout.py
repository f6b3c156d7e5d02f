"""Layouts: which columns the rows of a trace have, and in what order they are sorted."""

from __future__ import annotations

from dataclasses import dataclass, field

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
    is_fixed: bool = field(init=False, repr=False, compare=False)
    """Whether all rows are of one size: numbers, no text."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_fixed", all(type_.size > 0 for type_ in self.types))

    @property
    def orderings(self) -> tuple[Ordering, ...]:
        """One ordering a column: those of the key, then ascending with NULLs last."""
        return self.key + (ASCENDING,) * (len(self.types) - len(self.key))
