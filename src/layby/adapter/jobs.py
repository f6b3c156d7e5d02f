"""Jobs: the work of statements that grows with their rows, run apart from the serving loop.

A job is a plain value that can be pickled to another process; it gets the arena to place its result in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layby.adapter.constraints import check_rows
from layby.adapter.copy_format import CopyParser
from layby.adapter.own_writes import put_together
from layby.compute.arrangement import Arranged, ArrangementDesc, Updates, arrange
from layby.compute.maintenance import TableWrite
from layby.errors import SqlError
from layby.expr.evaluate import evaluate
from layby.expr.scalar import Expr
from layby.memory.arena import Arena
from layby.memory.sealed import Crossing
from layby.sql.apart import Instantiated, instantiate_apart, rows_as_given
from layby.sql.catalog import Table
from layby.sql.instantiate import Recipe
from layby.sql.params import BoundParams
from layby.sql.plan import PackedRecipe
from layby.trace.batch import repeated
from layby.types.column import Column, TextColumn, concat, empty_column
from layby.types.formats import parse_column
from layby.types.scalar import PhysicalValue


def placed(updates: Updates, arena: Arena) -> Updates:
    """Return updates that lie in the arena, so that they cross to another process by reference."""
    diffs = updates.diffs
    if diffs.strides != (0,):  # one number for all rows crosses as that number
        diffs = arena.place(diffs)
    return Updates(tuple(column.place(arena) for column in updates.columns), diffs)


@dataclass(frozen=True, slots=True)
class MakeUpdates:
    """Turns the rows that a statement read into updates: `old` columns go, `new` ones come (None: none)."""

    table: Table
    old: Sequence[Column] | None
    new: Sequence[Column] | None
    count: int

    def __call__(self, arena: Arena) -> Updates:
        """Return the updates; raises SqlError where a new row breaks a constraint."""
        if self.new is not None:
            check_rows(self.table, self.new)
        if self.old is None:
            updates = Updates(self.new or (), repeated(1, self.count))
        elif self.new is None:
            updates = Updates(self.old, repeated(-1, self.count))
        else:
            both = tuple(concat([a, b]) for a, b in zip(self.old, self.new, strict=True))
            updates = Updates(both, np.repeat(np.array([-1, 1]), self.count))
        return placed(updates, arena)


@dataclass(frozen=True, slots=True)
class SortWrites:
    """Sorts large writes for every arrangement of their tables, at a time that the commit replaces."""

    parts: Mapping[int, tuple[Updates, ...]]
    """What was written to each table."""
    arrangements: Mapping[int, tuple[ArrangementDesc, ...]]

    def __call__(self, arena: Arena) -> tuple[TableWrite, ...]:
        """Return the writes with what was sorted."""
        ready = []
        for table_id, parts in self.parts.items():
            # The parts may lie on the heap; from here on they go by reference.
            updates = placed(put_together(parts), arena)
            times = repeated(0, len(updates.diffs))
            arranged: dict[int, Arranged] = {
                desc.id: arrange(desc, updates, times, 0, 1, arena) for desc in self.arrangements[table_id]
            }
            ready.append(TableWrite(table_id, updates, arranged))
        return tuple(ready)


@dataclass(frozen=True, slots=True)
class WriteTogether:
    """Makes the updates of a statement, and puts them together with earlier ones of its table."""

    job: MakeUpdates | InsertValues
    earlier: tuple[Updates, ...]

    def __call__(self, arena: Arena) -> Updates | None:
        """Return all of the updates, None where the job does; raises what that raises."""
        made = self.job(arena)
        return None if made is None else placed(put_together([*self.earlier, made]), arena)


@dataclass(frozen=True, slots=True)
class ArrangeRuns:
    """Puts groups of a transaction's own writes together, and arranges them like what they are laid over, at
    time 0."""

    desc: ArrangementDesc
    groups: tuple[tuple[Updates, ...], ...]

    def __call__(self, arena: Arena) -> tuple[tuple[Updates | None, Arranged], ...]:
        """Return what each group comes to: its updates together, None for a group of one, and arranged."""
        return tuple(self._arranged(group, arena) for group in self.groups)

    def _arranged(self, group: tuple[Updates, ...], arena: Arena) -> tuple[Updates | None, Arranged]:
        together = group[0] if len(group) == 1 else placed(put_together(group), arena)
        arranged = arrange(self.desc, together, repeated(0, len(together.diffs)), 0, 1, arena)
        return None if len(group) == 1 else together, arranged


@dataclass(frozen=True, slots=True)
class Instantiate:
    """Puts an execution's values into a plan, where they are many or large or one may take long to make."""

    recipe: Recipe | PackedRecipe
    params: BoundParams
    session: Mapping[str, PhysicalValue]

    def __call__(self, arena: Arena) -> Instantiated:
        """Return the peek and the values of its source; raises the first SqlError met."""
        return instantiate_apart(self.recipe, self.params, self.session, arena)


@dataclass(frozen=True, slots=True)
class InsertValues:
    """Makes the rows that an INSERT writes out, where there are many columns of them."""

    table: Table
    values: Instantiate

    def __call__(self, arena: Arena) -> Updates | None:
        """Return the updates, None where the rows are not read as they are written; raises SqlError where a
        value raises, or a row breaks a constraint."""
        columns = rows_as_given(self.values(arena))
        if columns is None:
            return None
        return MakeUpdates(self.table, None, columns, len(columns[0]))(arena)


@dataclass(frozen=True, slots=True)
class ParseCopy:
    """Splits and parses the next bytes of a COPY; `last` where the data ends with them."""

    table: Table
    numbers: tuple[int, ...]
    """The columns that the data has, as numbers of the table's columns."""
    parser: CopyParser
    data: NDArray[np.uint8]
    last: bool

    def __call__(self, arena: Arena) -> tuple[CopyParser, tuple[Column, ...] | None]:
        """Return the parser as it stands now, and the columns of the rows that came whole."""
        parser = self.parser
        parser.feed(self.data.tobytes())
        if self.last:
            parser.finish()
        first_row = parser.row_count
        texts = parser.take()
        if texts is None:
            return parser, None
        columns = Crossing(self._typed(at, text, first_row).place(arena) for at, text in enumerate(texts))
        return parser, columns

    def _typed(self, at: int, text: TextColumn, first_row: int) -> Column:
        column, errors = parse_column(self.table.desc.columns[self.numbers[at]].type, text)
        if errors:
            row = min(errors)
            raise self.parser.locate(errors[row], first_row + row, at, text.value(row))
        return column


@dataclass(frozen=True, slots=True)
class CompleteCopy:
    """Puts the rows of a COPY together, with the defaults of the columns it left out, and checks them."""

    table: Table
    numbers: tuple[int, ...]
    parts: tuple[Sequence[Column], ...]
    count: int
    defaults: Mapping[int, Expr]

    def __call__(self, arena: Arena) -> Updates:
        """Return the rows as insertions; raises SqlError where one breaks a constraint."""
        columns: list[Column] = []
        for number, desc in enumerate(self.table.desc.columns):
            if number in self.numbers:
                at = self.numbers.index(number)
                parts = [part[at] for part in self.parts]
                columns.append(concat(parts) if parts else empty_column(desc.type))
            else:
                columns.append(self._default(self.defaults[number]))
        check_rows(self.table, columns)
        return placed(Updates(columns, repeated(1, self.count)), arena)

    def _default(self, default: Expr) -> Column:
        vector = evaluate(default, (), self.count)
        if vector.errors is not None:
            error: SqlError = vector.errors.errors[0]
            raise error
        if vector.constant:
            return vector.column.take(np.zeros(self.count, np.int64))
        return vector.column
