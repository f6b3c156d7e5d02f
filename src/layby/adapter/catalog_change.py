"""Changes of the catalog that take effect together.

A version of the catalog takes 10 µs to make, and what a transaction with hundreds of tables takes back, or a
DROP of as many drops, is one change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from layby.sql.catalog import Table

if TYPE_CHECKING:
    from layby.adapter.coordinator import Coordinator


class CatalogChange:
    """Tables put and removed, in any order and as often as there is reason to; a table keeps its name."""

    __slots__ = ("_before", "_coordinator", "_tables")

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._tables: dict[int, Table | None] = {}
        """By identity, as they shall be; None for one that shall not."""
        self._before: dict[int, Table | None] = {}
        """As they are in the catalog, of those that have been looked at."""

    def table(self, id_: int) -> Table | None:
        """Return the table of an identity as the changes so far leave it."""
        return self._tables[id_] if id_ in self._tables else self._known(id_)

    def put(self, table: Table) -> None:
        """Have a table be there, in place of the one of its identity."""
        self._tables[table.id] = table

    def remove(self, table: Table) -> None:
        """Have a table be gone."""
        self._tables[table.id] = None

    def apply(self) -> None:
        """Put the changes in force, if there are any; once."""
        put = [table for table in self._tables.values() if table is not None]
        found = [self._known(id_) for id_, table in self._tables.items() if table is None]
        gone = [table for table in found if table is not None]
        if put or gone:
            self._coordinator.change_catalog(put, gone)

    def _known(self, id_: int) -> Table | None:
        before = self._before
        if id_ not in before:
            before[id_] = self._coordinator.table_by_id(id_)
        return before[id_]


Undo = Callable[[CatalogChange], None]
"""Takes a step of DDL back."""
