"""Plans: what a statement comes to, made once a statement and executed any number of times.

A plan is immutable. Values that differ between executions stand in it as `Param` and `SessionValue` nodes;
`layby.sql.instantiate` puts the values in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from layby.expr.finishing import OrderKey
from layby.expr.function import EXPANSIVE
from layby.expr.mfp import Mfp
from layby.expr.packed import PackedMfp
from layby.expr.scalar import Call, ColumnRef, Expr, Literal, walk
from layby.sql.catalog import Index, IndexKey, Table
from layby.trace.constraints import KeyList
from layby.types.column import Column
from layby.types.relation import WIDE, ColumnDesc, RelationDesc
from layby.types.scalar import SqlType


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table read through `index`, or where that is None as its whole shard.

    The MFP's input are the index's stored columns, or the table's own.
    """

    table: Table
    index: Index | None


@dataclass(frozen=True, slots=True)
class ValuesSource:
    """Rows written in the statement; a SELECT without FROM reads one row of no columns."""

    rows: tuple[tuple[Expr, ...], ...]
    types: tuple[SqlType, ...]


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of one column that are one expression, each of another parameter.

    The expression reads the value of the cell's parameter, of type `param`, as its column 0; where `param` is
    None all cells are the same. `rows` says where they stand, `numbers` which parameters they are of.
    """

    expr: Expr
    param: SqlType | None
    rows: NDArray[np.int64]
    numbers: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MixedColumn:
    """A column of constants, and what the cells are that are none; they are NULL in `constants`."""

    constants: Column
    cells: tuple[Cells, ...]


@dataclass(frozen=True, slots=True)
class ColumnsSource:
    """The rows of a long VALUES list by columns."""

    columns: tuple[Column | MixedColumn, ...]
    types: tuple[SqlType, ...]
    count: int


@dataclass(frozen=True, slots=True)
class SeriesSource:
    """`generate_series(start, stop, step)` over integers or bigints: one column of `type`."""

    start: Expr
    stop: Expr
    step: Expr
    type: SqlType


Source = TableSource | ValuesSource | ColumnsSource | SeriesSource


@dataclass(frozen=True, slots=True)
class BoundTemplate:
    """One end of a range; the value has the key column's type, or one compared with it without loss."""

    value: Expr
    inclusive: bool


@dataclass(frozen=True, slots=True)
class RangeTemplate:
    """A key range whose values are expressions without columns; several bounds hold together (AND).

    Each prefix item is a tuple of alternatives (`=` has one, IN many): the ranges are their product. A NULL
    literal among them seeks the NULLs (IS NULL); any other value that turns out NULL matches nothing. A
    plan's templates have prefixes of one length and the same bounds.
    """

    prefix: tuple[tuple[Expr, ...], ...]
    lower: tuple[BoundTemplate, ...] = ()
    upper: tuple[BoundTemplate, ...] = ()


_MANY_NODES: Final = 1_000
"""Nodes of its expressions from which on a read is not begun on the serving loop."""


def is_heavy(exprs: Iterable[Expr]) -> bool:
    """Return whether to evaluate expressions on one row may take long; see `SelectPlan.is_heavy`."""
    nodes = 0
    for expr in exprs:
        for node in walk(expr):
            nodes += 1
            if nodes > _MANY_NODES or (isinstance(node, Call) and node.function.name in EXPANSIVE):
                return True
    return False


MANY_RANGES: Final = 512
"""Ranges from which on a read is not begun on the serving loop: to seek so many takes 2 ms."""


def is_wide(select: SelectPlan, *, encoded: bool) -> bool:
    """Return whether to read a single row, and to encode it where it is to be, may take long."""
    written = isinstance(select.source, ValuesSource | ColumnsSource) and bool(select.source.types)
    return len(select.projection) > WIDE and (encoded or not written)


@dataclass(frozen=True, slots=True, eq=False)
class PackedRecipe:
    """What of a select depends on an execution's values, as bytes that are taken apart away from the loop.

    `names` are the session values among it (`layby.sql.apart`).
    """

    data: NDArray[np.uint8]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Signal:
    """A result column that acts on a session for each row of the answer: the read gives the process id there,
    and the session, in place of it, whether that was done. `kind` is "cancel" or "terminate".
    """

    column: int
    kind: str


@dataclass(frozen=True, slots=True)
class SelectPlan:
    """A read of one source: seek, filter, map, project, finish.

    `ranges` are the literal constraints on the source's index (None: a walk of all of it), a `KeyList` where
    they are many, constant and from another process; what they do not express is left in the predicates.
    `order` tells that ORDER BY is a prefix of the index order: "forward" or "reverse" is then the direction
    of the walk, and `order_by` need not be sorted again.
    `mfp` is packed where it is large and from another process.
    `recipe` is there where the select has many parameters and is from another process: what depends on values
    (`ranges`, `mfp`, `limit`, `offset`, the source's rows) is in it, and there is nothing of it here.
    `signals` are the calls of pg_cancel_backend and its like among the columns.
    `ready` is what `layby.sql.instantiate` prepares at the first execution and keeps here.
    """

    source: Source
    ranges: tuple[RangeTemplate, ...] | KeyList | None
    mfp: Mfp | PackedMfp
    order_by: tuple[OrderKey, ...]
    order: str | None
    limit: Expr | None
    offset: Expr | None
    projection: tuple[int, ...]
    columns: tuple[ColumnDesc, ...]
    signals: tuple[Signal, ...] = ()
    recipe: PackedRecipe | None = None
    ready: Callable[..., Any] | None = field(default=None, compare=False, repr=False)
    _heavy: bool | None = field(default=None, init=False, compare=False, repr=False)
    _heavy_values: bool | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def is_heavy(self) -> bool:
        """Whether a single row may take long: its expressions are many, or one may make a text of any size,
        or it is sought in many ranges.

        Positions do not tell the cost of such a read, so it never starts on the serving loop. All whose
        expressions are packed are heavy, those that are wide too.
        """
        if self._heavy is None:
            mfp = self.mfp
            heavy = (
                isinstance(mfp, PackedMfp)
                or (isinstance(self.ranges, KeyList) and len(self.ranges) > MANY_RANGES)
                or is_heavy((*mfp.predicates, *(e for e in mfp.outputs if not isinstance(e, ColumnRef))))
            )
            object.__setattr__(self, "_heavy", heavy)
        return bool(self._heavy)

    @property
    def has_heavy_values(self) -> bool:
        """Whether the same is true of the values of a `ValuesSource`."""
        if self._heavy_values is None:
            rows = self.source.rows if isinstance(self.source, ValuesSource) else ()
            cells = (cell for row in rows for cell in row if not isinstance(cell, Literal))
            object.__setattr__(self, "_heavy_values", any(is_heavy((cell,)) for cell in cells))
        return bool(self._heavy_values)


@dataclass(frozen=True, slots=True)
class InsertPlan:
    """Rows for a table: the select's columns have the table's types, in the table's order."""

    table: Table
    select: SelectPlan


@dataclass(frozen=True, slots=True)
class DeletePlan:
    """The select's columns are the table's: the rows that go."""

    table: Table
    select: SelectPlan


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """The select's columns are the table's as they are, then the table's as they will be."""

    table: Table
    select: SelectPlan


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """COPY of a table (from or to) or of a query (to). `columns` are the table's column numbers, in order.

    `select` reads what COPY TO writes, also where that is a table; it is None for COPY FROM.

    `options` has `format` ("text" or "csv"), and `delimiter`, `null`, `header`, `quote`, `escape`, `encoding`
    with PostgreSQL's defaults for the format filled in.
    """

    table: Table | None
    columns: tuple[int, ...]
    select: SelectPlan | None
    options: CopyOptions


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """The options of COPY, resolved."""

    format: str
    delimiter: str
    null: str
    header: bool
    quote: str
    escape: str


@dataclass(frozen=True, slots=True)
class CreateTablePlan:
    """CREATE TABLE; `unique` are the key columns of its UNIQUE and PRIMARY KEY constraints, with names."""

    schema: str
    name: str
    desc: RelationDesc
    defaults: tuple[Expr | None, ...]
    unique: tuple[UniqueConstraint, ...]
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class UniqueConstraint:
    """A UNIQUE or PRIMARY KEY constraint, kept by a unique index of the same name."""

    name: str
    columns: tuple[int, ...]
    primary: bool


@dataclass(frozen=True, slots=True)
class CreateIndexPlan:
    """CREATE INDEX; the name has been chosen where none was given, as PostgreSQL chooses it."""

    name: str
    table: Table
    keys: tuple[IndexKey, ...]
    unique: bool
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropPlan:
    """DROP TABLE or DROP INDEX (`kind`); names that do not exist are an error unless `if_exists`."""

    kind: str
    names: tuple[tuple[str | None, str], ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class ExplainPlan:
    """EXPLAIN: the text of a plan, one line a row (`layby.sql.explain`), made where `lines` are there.

    The `target` is None where the lines are all that is asked for.
    """

    target: Plan | None
    analyze: bool
    lines: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ShowPlan:
    """SHOW name, or SHOW ALL where the name is None."""

    name: str | None


@dataclass(frozen=True, slots=True)
class SetPlan:
    """SET [LOCAL], RESET (value None; name None: all), and with `system` ALTER SYSTEM SET and RESET."""

    name: str | None
    value: str | None
    local: bool
    system: bool


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """BEGIN ("begin", "start transaction"), COMMIT ("commit") or ROLLBACK ("rollback"), with the modes that
    were named; `chain` begins the next block at once, with the modes of the one that ends.

    Also "savepoint", "release" and "rollback to", of the savepoint of that name.
    """

    kind: str
    isolation: str | None = None
    read_only: bool | None = None
    savepoint: str | None = None
    chain: bool = False


@dataclass(frozen=True, slots=True)
class DiscardPlan:
    """DISCARD ALL, DEALLOCATE [name | ALL], CLOSE ALL, UNLISTEN * and their like, as `kind`.

    `kind` is the command tag; `name` the statement that DEALLOCATE drops, None for all.
    """

    kind: str
    name: str | None = None


Plan = (
    SelectPlan
    | InsertPlan
    | DeletePlan
    | UpdatePlan
    | CopyPlan
    | CreateTablePlan
    | CreateIndexPlan
    | DropPlan
    | ExplainPlan
    | ShowPlan
    | SetPlan
    | TransactionPlan
    | DiscardPlan
)


@dataclass(frozen=True, slots=True)
class PlannedStatement:
    """A plan, its parameters' types, the result's columns (None: no rows), and the catalog's version."""

    plan: Plan
    params: Sequence[SqlType]
    columns: tuple[ColumnDesc, ...] | None
    catalog_version: int
