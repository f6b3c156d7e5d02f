"""MFP: map, filter, project: what is done to each visited row."""

from __future__ import annotations

from dataclasses import dataclass

from layby.expr.scalar import Expr


@dataclass(frozen=True, slots=True)
class Mfp:
    """Filters, then maps and projects, rows of `arity` columns.

    A row passes where every predicate is true, in their order. `outputs` are expressions over the input
    columns, one an output column; a plain `ColumnRef` projects.
    """

    arity: int
    predicates: tuple[Expr, ...]
    outputs: tuple[Expr, ...]
