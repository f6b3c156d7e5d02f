"""Introspection: what the server tells about its own work, as relations that SQL reads."""

from __future__ import annotations

from typing import Final

from layby.compute.worker import ActivePeek, ServingWorker
from layby.sql.catalog import Table
from layby.types.column import Column, column_from_values
from layby.types.relation import ColumnDesc, RelationDesc
from layby.types.scalar import BIGINT, DOUBLE_PRECISION, INTEGER, TEXT, PhysicalValue

_ACTIVE_PEEKS_ID: Final = -1_000
"""Negative as those of all system relations, and far from the ones that are numbered in a row."""

_ACTIVE_PEEKS: Final = RelationDesc(
    (
        ColumnDesc("id", BIGINT),
        ColumnDesc("session", INTEGER),
        ColumnDesc("index", TEXT, nullable=False),
        ColumnDesc("state", TEXT, nullable=False),
        ColumnDesc("substrate", TEXT, nullable=False),
        ColumnDesc("positions", BIGINT, nullable=False),
        ColumnDesc("rows", BIGINT, nullable=False),
        ColumnDesc("age", DOUBLE_PRECISION, nullable=False),
        ColumnDesc("query", TEXT),
    )
)


def active_peeks(worker: ServingWorker) -> Table:
    """Return `layby_active_peeks`: the peeks that wait or walk, one row each, as of the moment of the read.

    Positions and rows of a walk are at most one granularity old, wherever it runs; `age` is in seconds.
    """

    def rows() -> tuple[Column, ...]:
        found = [_row(peek) for peek in worker.active()]
        return tuple(
            column_from_values(column.type, [row[i] for row in found])
            for i, column in enumerate(_ACTIVE_PEEKS.columns)
        )

    return Table(
        id=_ACTIVE_PEEKS_ID,
        schema="pg_catalog",
        name="layby_active_peeks",
        desc=_ACTIVE_PEEKS,
        defaults=(None,) * len(_ACTIVE_PEEKS.columns),
        rows=rows,
    )


def _row(peek: ActivePeek) -> tuple[PhysicalValue, ...]:
    pending = peek.pending
    asker = pending.asker
    return (
        None if asker is None else asker.peek,
        None if asker is None else asker.session,
        pending.spec.collection,
        pending.state.value,
        "offloaded" if peek.offloaded else "inline",
        peek.positions,
        peek.rows,
        peek.age,
        None if asker is None else asker.query,
    )
