"""What the planner knows of tables and indexes: immutable descriptions, one catalog a version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from layby.expr.scalar import ColumnRef, Expr
from layby.trace.layout import Layout
from layby.types.column import Column
from layby.types.ordering import Ordering
from layby.types.relation import RelationDesc


@dataclass(frozen=True, slots=True)
class IndexKey:
    """One key column of an index: an expression over the table's columns, and its direction."""

    expr: Expr
    ordering: Ordering


@dataclass(frozen=True, slots=True)
class Index:
    """An arrangement of a table by a key.

    Its rows are the key expressions followed by the table's columns that are not themselves keys: `stored`
    are those expressions over the table's columns, `layout` their types and orderings.
    """

    id: int
    name: str
    table_id: int
    keys: tuple[IndexKey, ...]
    stored: tuple[Expr, ...]
    layout: Layout
    unique: bool = False
    primary: bool = False

    def position(self, column: int) -> int:
        """Return where the table's column lies among the stored columns."""
        return next(i for i, e in enumerate(self.stored) if isinstance(e, ColumnRef) and e.index == column)


def make_index(
    id_: int,
    name: str,
    table: Table,
    keys: tuple[IndexKey, ...],
    *,
    unique: bool = False,
    primary: bool = False,
) -> Index:
    """Describe an index of `table` by `keys`."""
    keyed = {k.expr.index for k in keys if isinstance(k.expr, ColumnRef)}
    rest = tuple(ColumnRef(i, c.type) for i, c in enumerate(table.desc.columns) if i not in keyed)
    stored: tuple[Expr, ...] = (*(k.expr for k in keys), *rest)
    layout = Layout(tuple(e.type for e in stored), tuple(k.ordering for k in keys))
    return Index(id_, name, table.id, keys, stored, layout, unique, primary)


@dataclass(frozen=True, slots=True)
class Table:
    """A table and its indexes that can be read; `defaults` has one entry a column, None for NULL.

    A system relation (`pg_type` and its like) has `rows`, which makes its columns anew at each read.
    """

    id: int
    schema: str
    name: str
    desc: RelationDesc
    defaults: tuple[Expr | None, ...]
    indexes: tuple[Index, ...] = ()
    rows: Callable[[], tuple[Column, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """One version of the catalog; DDL makes the next. Keys are (schema, name)."""

    version: int
    tables: Mapping[tuple[str, str], Table] = field(default_factory=dict)

    SEARCH_PATH = ("pg_catalog", "public")

    def table(self, name: str, schema: str | None = None) -> Table | None:
        """Find a table by name, in `schema` or along the search path."""
        for candidate in self.SEARCH_PATH if schema is None else (schema,):
            found = self.tables.get((candidate, name))
            if found is not None:
                return found
        return None

    def index(self, name: str, schema: str | None = None) -> tuple[Table, Index] | None:
        """Find an index and its table by the index's name."""
        for (in_schema, _), table in self.tables.items():
            if schema is None or schema == in_schema:
                for index in table.indexes:
                    if index.name == name:
                        return table, index
        return None
