"""Finishing: ORDER BY, LIMIT, OFFSET and the final projection of an answer."""

from __future__ import annotations

from dataclasses import dataclass

from layby.types.ordering import Ordering


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One item of ORDER BY: a column of the MFP's output."""

    column: int
    ordering: Ordering


@dataclass(frozen=True, slots=True)
class Finishing:
    """What is done to the rows of an answer once they are all there.

    `order_by` and `projection` count columns of the MFP's output; the projection drops what only the order
    needed. `limit` None is no limit.
    """

    order_by: tuple[OrderKey, ...]
    limit: int | None
    offset: int
    projection: tuple[int, ...]
