"""System relations: what clients read of pg_catalog when they connect."""

from __future__ import annotations

from typing import Final

from layby.sql.catalog import Table
from layby.sql.coerce import PREFERRED
from layby.sql.typenames import INTERNAL_NAME
from layby.types.column import Column, column_from_values
from layby.types.relation import ColumnDesc, RelationDesc
from layby.types.scalar import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE_PRECISION,
    INTEGER,
    REAL,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    PhysicalValue,
    SqlType,
)

_ARRAY_OIDS: Final[dict[SqlType, int]] = {
    BOOLEAN: 1000,
    SMALLINT: 1005,
    INTEGER: 1007,
    BIGINT: 1016,
    REAL: 1021,
    DOUBLE_PRECISION: 1022,
    TEXT: 1009,
    DATE: 1182,
    TIMESTAMP: 1115,
    TIMESTAMPTZ: 1185,
}
_PG_CATALOG_OID: Final = 11

_PG_TYPE: Final = RelationDesc(
    (
        ColumnDesc("oid", BIGINT, nullable=False),
        ColumnDesc("typname", TEXT, nullable=False),
        ColumnDesc("typnamespace", BIGINT, nullable=False),
        ColumnDesc("typlen", SMALLINT, nullable=False),
        ColumnDesc("typtype", TEXT, nullable=False),
        ColumnDesc("typcategory", TEXT, nullable=False),
        ColumnDesc("typispreferred", BOOLEAN, nullable=False),
        ColumnDesc("typdelim", TEXT, nullable=False),
        ColumnDesc("typrelid", BIGINT, nullable=False),
        ColumnDesc("typelem", BIGINT, nullable=False),
        ColumnDesc("typarray", BIGINT, nullable=False),
        ColumnDesc("typbasetype", BIGINT, nullable=False),
    )
)


def _types() -> tuple[Column, ...]:
    rows: list[tuple[PhysicalValue, ...]] = [
        (
            type_.oid,
            name,
            _PG_CATALOG_OID,
            type_.size,
            "b",
            type_.category,
            type_ in PREFERRED,
            ",",
            0,
            0,
            _ARRAY_OIDS[type_],
            0,
        )
        for type_, name in INTERNAL_NAME.items()
    ]
    return tuple(
        column_from_values(desc.type, [row[i] for row in rows]) for i, desc in enumerate(_PG_TYPE.columns)
    )


SYSTEM_TABLES: Final = (
    Table(
        id=-1,
        schema="pg_catalog",
        name="pg_type",
        desc=_PG_TYPE,
        defaults=(None,) * len(_PG_TYPE.columns),
        rows=_types,
    ),
)
"""The system relations; their ids are negative, so that they never meet those of tables."""
