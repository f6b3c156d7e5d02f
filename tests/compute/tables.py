"""The table of the compute tests."""

from __future__ import annotations

from layby.sql.catalog import Catalog, Table
from layby.types.relation import ColumnDesc, RelationDesc
from layby.types.scalar import INTEGER, TEXT

PAIRS = Table(1, "public", "t", RelationDesc((ColumnDesc("a", INTEGER), ColumnDesc("b", TEXT))), (None, None))


def catalog_of(*tables: Table) -> Catalog:
    """Return a catalog of some tables."""
    return Catalog(1, tables)
