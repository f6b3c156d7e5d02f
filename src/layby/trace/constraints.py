"""Literal constraints: the keys, key prefixes and key ranges that a peek seeks to."""

from __future__ import annotations

from dataclasses import dataclass

from layby.types.scalar import PhysicalValue


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range of the column after the prefix; the value is not NULL."""

    value: PhysicalValue
    inclusive: bool


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows whose first key columns equal `prefix` and whose next one lies between the bounds.

    A None in the prefix seeks the NULLs (IS NULL). `lower` and `upper` are in SQL order of the values,
    whatever the direction of the index; a range with either bound leaves NULLs out, one with neither takes
    every row of the prefix. A full key is a prefix as long as the key.
    """

    prefix: tuple[PhysicalValue, ...]
    lower: Bound | None = None
    upper: Bound | None = None


Constraints = tuple[KeyRange, ...]
"""Disjoint ranges in the order of the index; empty: nothing matches. No constraints at all is None."""
