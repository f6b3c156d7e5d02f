"""Scopes: the columns that names in a statement can mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from layby.errors import SqlError
from layby.expr.scalar import ColumnRef
from layby.sql.context import BindContext, Bound
from layby.types.scalar import SqlType


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns of at most one relation.

    `relation` is the name it goes by, None without FROM; `hidden` its own name where an alias hides it.
    `schema` is the schema that may qualify the name, None where an alias or a function has none.
    """

    relation: str | None = None
    names: tuple[str, ...] = ()
    types: tuple[SqlType, ...] = ()
    hidden: str | None = None
    schema: str | None = None
    scalar: bool = False
    """The relation is a function's single column: its name stands for the column too."""
    _places: dict[str, int] | None = field(default=None, init=False, compare=False, repr=False)
    """Where each name stands, -1 for one that several columns have; made when a column is first named."""

    def column(self, context: BindContext, path: Sequence[str], location: int) -> Bound:
        """Resolve a column name of one to three parts; raises 42703, 42702 or 42P01."""
        *qualifier, name = path
        if qualifier:
            self.check_relation(context, qualifier, location)
        at = self._place(name)
        if at is not None:
            if at < 0:
                raise context.error("42702", f'column reference "{name}" is ambiguous', location)
            return Bound(ColumnRef(at, self.types[at]), location)
        if not qualifier and name == self.relation:
            if self.scalar:
                return Bound(ColumnRef(0, self.types[0]), location)
            raise context.unsupported("whole-row references are", location)
        shown = f'"{name}"' if not qualifier else f"{qualifier[-1]}.{name}"
        raise context.error("42703", f"column {shown} does not exist", location)

    def _place(self, name: str) -> int | None:
        places = self._places
        if places is None:
            places = {}
            for at, known in enumerate(self.names):
                places[known] = -1 if known in places else at
            object.__setattr__(self, "_places", places)
        return places.get(name)

    def check_relation(self, context: BindContext, qualifier: Sequence[str], location: int) -> None:
        """Check that a qualifier (`t` or `schema.t`) names this relation; raises 42P01."""
        table = qualifier[-1]
        if len(qualifier) > 2:
            raise context.error(
                "0A000", f"cross-database references are not implemented: {'.'.join(qualifier)}", location
            )
        fits = table == self.relation and (len(qualifier) == 1 or qualifier[0] == self.schema)
        if not fits:
            raise self._no_relation(context, table, location)

    def _no_relation(self, context: BindContext, table: str, location: int) -> SqlError:
        if table == self.hidden:
            return context.error(
                "42P01",
                f'invalid reference to FROM-clause entry for table "{table}"',
                location,
                hint=f'Perhaps you meant to reference the table alias "{self.relation}".',
            )
        return context.error("42P01", f'missing FROM-clause entry for table "{table}"', location)
