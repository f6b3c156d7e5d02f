"""What the planner knows of tables and indexes: immutable descriptions, one catalog a version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from layby.expr.scalar import ColumnRef, Expr, compact, expanded, plain_columns
from layby.memory.channel import Shared
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

    def __reduce__(self) -> tuple[Any, ...]:
        parts = self.id, self.name, self.table_id, self.keys, compact(self.stored), self.layout
        return _index, (*parts, self.unique, self.primary)

    def position(self, column: int) -> int:
        """Return where the table's column lies among the stored columns."""
        return next(i for i, e in enumerate(self.stored) if isinstance(e, ColumnRef) and e.index == column)


def _index(
    id_: int,
    name: str,
    table_id: int,
    keys: tuple[IndexKey, ...],
    stored: tuple[int | Expr, ...],
    layout: Layout,
    unique: bool,
    primary: bool,
) -> Index:
    return Index(id_, name, table_id, keys, expanded(stored, layout.types), layout, unique, primary)


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
    rest = [column for column in plain_columns(table.desc.types) if column.index not in keyed]
    stored: tuple[Expr, ...] = (*(k.expr for k in keys), *rest)
    layout = Layout(tuple(e.type for e in stored), tuple(k.ordering for k in keys))
    return Index(id_, name, table.id, keys, stored, layout, unique, primary)


@dataclass(frozen=True, slots=True)
class Table(Shared):
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without what makes the rows of a system relation: a plan is made without them."""
        rows = None if self.rows is None else _rows_elsewhere
        return Table, (self.id, self.schema, self.name, self.desc, self.defaults, self.indexes, rows)


def _rows_elsewhere() -> tuple[Column, ...]:
    """Stand in for what makes the rows of a system relation, in a process that only plans."""
    raise AssertionError("a system relation is read on the serving loop")


_Key = tuple[str, str]
"""Schema and name."""

_BUCKETS: Final = 256


class _Bucket(Shared):
    """A part of a catalog: tables by schema and name, and the names of tables by their ids and indexes."""

    __slots__ = ("by_id", "by_index", "tables")

    def __init__(
        self, tables: Mapping[_Key, Table], by_id: Mapping[int, _Key], by_index: Mapping[_Key, _Key]
    ) -> None:
        self.tables = tables
        self.by_id = by_id
        self.by_index = by_index

    def __reduce__(self) -> tuple[Any, ...]:
        return _Bucket, (self.tables, self.by_id, self.by_index)

    def copy(self) -> _Bucket:
        """Return a bucket to be changed."""
        return _Bucket(dict(self.tables), dict(self.by_id), dict(self.by_index))


class Catalog(Shared):
    """One version of the catalog; DDL makes the next, which has all buckets that did not change from it.

    So neither a change nor sending it to another process is a pass over all tables, however many there are.
    """

    __slots__ = ("_buckets", "version")

    SEARCH_PATH = ("pg_catalog", "public")

    def __init__(self, version: int, tables: Iterable[Table] = ()) -> None:
        self.version = version
        self._buckets: tuple[_Bucket, ...] = (_Bucket({}, {}, {}),) * _BUCKETS
        self._buckets = self.changed(version, put=tables)._buckets

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.version, self._buckets)

    def changed(self, version: int, put: Iterable[Table] = (), remove: Iterable[Table] = ()) -> Catalog:
        """Return a version in which tables are gone, and others there, in place of any of their names."""
        changed: dict[int, Any] = {}

        def bucket(at: int) -> Any:
            if at not in changed:
                changed[at] = self._buckets[at].copy()
            return changed[at]

        def take_out(key: _Key) -> None:
            table = bucket(_place(key[1])).tables.pop(key)
            del bucket(table.id % _BUCKETS).by_id[table.id]
            for index in table.indexes:
                del bucket(_place(index.name)).by_index[table.schema, index.name]

        for table in remove:
            take_out((table.schema, table.name))
        for table in put:
            key = table.schema, table.name
            if key in bucket(_place(table.name)).tables:
                take_out(key)
            bucket(_place(table.name)).tables[key] = table
            bucket(table.id % _BUCKETS).by_id[table.id] = key
            for index in table.indexes:
                bucket(_place(index.name)).by_index[table.schema, index.name] = key
        buckets = list(self._buckets)
        for at, made in changed.items():
            buckets[at] = made
        return _arrived(version, tuple(buckets))

    @property
    def tables(self) -> dict[tuple[str, str], Table]:
        """All tables by schema and name: a pass over them."""
        return {key: table for bucket in self._buckets for key, table in bucket.tables.items()}

    def table(self, name: str, schema: str | None = None) -> Table | None:
        """Find a table by name, in `schema` or along the search path."""
        bucket = self._buckets[_place(name)]
        for candidate in self.SEARCH_PATH if schema is None else (schema,):
            found = bucket.tables.get((candidate, name))
            if found is not None:
                return found
        return None

    def table_by_id(self, id_: int) -> Table | None:
        """Find a table by its identity."""
        key = self._buckets[id_ % _BUCKETS].by_id.get(id_)
        return None if key is None else self._buckets[_place(key[1])].tables[key]

    def has_table(self, id_: int) -> bool:
        """Return whether there is a table of that identity."""
        return id_ in self._buckets[id_ % _BUCKETS].by_id

    def index(self, name: str, schema: str | None = None) -> tuple[Table, Index] | None:
        """Find an index and its table by the index's name, in `schema` or along the search path."""
        bucket = self._buckets[_place(name)]
        for candidate in self.SEARCH_PATH if schema is None else (schema,):
            key = bucket.by_index.get((candidate, name))
            if key is not None:
                table = self._buckets[_place(key[1])].tables[key]
                return table, next(i for i in table.indexes if i.name == name)
        return None


def _arrived(version: int, buckets: tuple[_Bucket, ...]) -> Catalog:
    catalog = Catalog.__new__(Catalog)
    catalog.version = version
    catalog._buckets = buckets
    return catalog


def _place(name: str) -> int:
    """Return the bucket of a name, the same in every process."""
    return crc32(name.encode("utf-8", "surrogatepass")) % _BUCKETS
