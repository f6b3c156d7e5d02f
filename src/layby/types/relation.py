"""Relation descriptions: the names and types of a relation's columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from layby.types.scalar import SqlType

WIDE: Final = 256
"""Columns up to which the serving loop may pass over those of a row: 1 to 10 µs each, by what is done."""


@dataclass(frozen=True, slots=True)
class ColumnDesc:
    """One column of a relation.

    `max_length` is the n of `varchar(n)` and `char(n)`, in characters: a longer value is refused (22001).
    """

    name: str
    type: SqlType
    nullable: bool = True
    max_length: int | None = None


@dataclass(frozen=True, slots=True)
class RelationDesc:
    """The columns of a relation, in order."""

    columns: tuple[ColumnDesc, ...]

    @property
    def types(self) -> tuple[SqlType, ...]:
        """The columns' types."""
        return tuple(c.type for c in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(c.name for c in self.columns)
