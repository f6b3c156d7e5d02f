"""Orderings: how SQL sorts the values of a column, as arrays that numpy can sort and search."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ordering:
    """Direction and place of NULLs; PostgreSQL's default puts NULLs last going up and first going down."""

    descending: bool = False
    nulls_first: bool = False


ASCENDING = Ordering()
DESCENDING = Ordering(descending=True, nulls_first=True)
