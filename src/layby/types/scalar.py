"""The SQL types, and how a value of each is held.

A *physical value* is what a column holds, as plain Python: `bool`, `int` (also days since 2000-01-01 of a
date, microseconds since 2000-01-01 00:00 UTC of a timestamp or timestamptz: PostgreSQL's own epoch, so the
binary format is a byte swap), `float`, `str`; `None` is NULL.

What PostgreSQL calls `typmod` (the 8 of `varchar(8)`) belongs to a column of a relation, not to the type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

PhysicalValue = bool | int | float | str | None


@dataclass(frozen=True, slots=True, eq=False)
class SqlType:
    """One SQL type. Compared by identity: the instances below are the only ones in a process.

    `size` is the width in bytes on the wire and in memory, -1 where it varies. `dtype` is the numpy type of
    a fixed-width column; text has none.
    """

    name: str
    oid: int
    size: int
    dtype: np.dtype[Any] | None
    category: str
    """One letter, as pg_type.typcategory: B boolean, N numeric, S string, D date/time, X unknown."""

    def __reduce__(self) -> str:
        """Pickle by name: a type is the same object in every process."""
        return self.name.upper().replace(" ", "_")

    def __repr__(self) -> str:
        return self.name


BOOLEAN: Final = SqlType("boolean", 16, 1, np.dtype(np.bool_), "B")
SMALLINT: Final = SqlType("smallint", 21, 2, np.dtype(np.int16), "N")
INTEGER: Final = SqlType("integer", 23, 4, np.dtype(np.int32), "N")
BIGINT: Final = SqlType("bigint", 20, 8, np.dtype(np.int64), "N")
REAL: Final = SqlType("real", 700, 4, np.dtype(np.float32), "N")
DOUBLE_PRECISION: Final = SqlType("double precision", 701, 8, np.dtype(np.float64), "N")
TEXT: Final = SqlType("text", 25, -1, None, "S")
DATE: Final = SqlType("date", 1082, 4, np.dtype(np.int32), "D")
TIMESTAMP: Final = SqlType("timestamp", 1114, 8, np.dtype(np.int64), "D")
TIMESTAMPTZ: Final = SqlType("timestamptz", 1184, 8, np.dtype(np.int64), "D")
UNKNOWN: Final = SqlType("unknown", 705, -1, None, "X")
"""The type of a string literal or parameter before it is resolved; held as text, never stored in a table."""

ALL: Final = (
    BOOLEAN,
    SMALLINT,
    INTEGER,
    BIGINT,
    REAL,
    DOUBLE_PRECISION,
    TEXT,
    DATE,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
)
BY_OID: Final = {t.oid: t for t in ALL}
INTEGRAL: Final = frozenset({SMALLINT, INTEGER, BIGINT})
FLOATING: Final = frozenset({REAL, DOUBLE_PRECISION})
