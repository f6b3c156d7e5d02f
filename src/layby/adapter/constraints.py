"""Row constraints: NOT NULL and the length of `varchar(n)`, checked on whole columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc

from layby.errors import SqlError
from layby.sql.catalog import Table
from layby.types.column import Column, TextColumn
from layby.types.formats import render


def check_rows(table: Table, columns: Sequence[Column]) -> None:
    """Raise SqlError 23502 for a NULL in a NOT NULL column, 22001 for a text that is too long.

    The first row with either counts; within a row lengths come first, since they belong to its making.
    """
    violations: list[tuple[int, bool, SqlError]] = []
    for desc, column in zip(table.desc.columns, columns, strict=True):
        if not desc.nullable and column.valid is not None and not column.valid.all():
            row = int(np.argmin(column.valid))
            error = SqlError(
                "23502",
                f'null value in column "{desc.name}" of relation "{table.name}" violates not-null constraint',
                detail=f"Failing row contains ({', '.join(_shown(c, row) for c in columns)}).",
                schema=table.schema,
                table=table.name,
                column=desc.name,
            )
            violations.append((row, True, error))
        if desc.max_length is not None and isinstance(column, TextColumn) and len(column):
            row = pc.index(pc.greater(pc.utf8_length(column.arrow), desc.max_length), True).as_py()
            if row >= 0:
                error = SqlError("22001", f"value too long for type character varying({desc.max_length})")
                violations.append((row, False, error))
    if violations:
        raise min(violations, key=lambda violation: violation[:2])[2]


def _shown(column: Column, row: int) -> str:
    value = column.value(row)
    return "null" if value is None else render(column.type, value)
