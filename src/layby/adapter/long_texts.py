"""Long statement texts: parsed and planned apart, as a pass over one would hold the serving loop up.

A script is split first, then each of its statements is planned when its turn comes, since one before may
create what it names: a short one on the loop, a long one apart. A script of one statement is planned in the
job that parses it. A large text (`EncodedText`) is decoded by the jobs too. A short text whose plan takes
long (`TooLongError`) is planned apart as well: one of many short parts, or one that reads a table of many
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from layby.adapter.execution import Execution
from layby.adapter.transaction import in_failed_block
from layby.adapter.transaction_block import TransactionBlock
from layby.errors import SqlError
from layby.memory.arena import HEAP, Arena
from layby.sql.catalog import Catalog
from layby.sql.pack import PackedPlan, pack
from layby.sql.parse import ParsedStatement, parse_script
from layby.sql.plan import PlannedStatement
from layby.sql.planner import plan
from layby.sql.statement_text import EncodedText, StatementText, cut, decoded, shown
from layby.types.scalar import SqlType

LONGEST_AT_ONCE: Final = 4_096
"""Characters of a text up to which it is parsed on the loop: 1 ms. To plan apart takes 0.3 ms more."""

LONGEST_KEPT: Final = 8_192
"""Characters of a text whose plan is worth keeping: longer ones are bulk inserts, seen once."""

_MANY_STATEMENTS: Final = 4_096


@dataclass(frozen=True, slots=True)
class LongStatement:
    """A prepared statement of a long text: its tree is not kept. `kind` is its name in the grammar."""

    source: StatementText
    kind: str

    @property
    def text(self) -> str:
        """What is told of its text."""
        return shown(self.source)


@dataclass(frozen=True, slots=True)
class PlannedApart:
    """What planning a text apart came to: the plan, None for an empty text."""

    kind: str
    packed: PackedPlan | None


@dataclass(frozen=True, slots=True)
class PlanText:
    """Parses and plans the text of one statement; in a failed block, only one that ends it."""

    text: StatementText
    catalog: Catalog
    types: Sequence[SqlType | None]
    failed: bool

    def __call__(self, arena: Arena) -> PlannedApart:
        """Return the plan; raises what parsing and planning raise, and 42601 for several statements."""
        with _told_briefly(self.text):
            return self._plan(parse_script(decoded(self.text)), arena)

    def _plan(self, statements: list[ParsedStatement], arena: Arena) -> PlannedApart:
        if len(statements) > 1:
            raise SqlError("42601", "cannot insert multiple commands into a prepared statement")
        if not statements:
            return PlannedApart("", None)
        return _planned(statements[0], self.catalog, self.types, arena, failed=self.failed)


@dataclass(frozen=True, slots=True)
class SplitText:
    """A script's statements: where they begin and end in its text, as `cut` counts, and how many characters
    come before them; `only` is the plan of a sole one."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    offsets: NDArray[np.int64]
    only: PlannedApart | None


@dataclass(frozen=True, slots=True)
class SplitScript:
    """Parses a script, and plans its statement where it is but one."""

    text: StatementText
    catalog: Catalog
    failed: bool

    def __call__(self, arena: Arena) -> SplitText:
        """Return the statements' places; raises what parsing and planning a sole statement raise."""
        with _told_briefly(self.text):
            text = decoded(self.text)
            return self._split(text, parse_script(text), arena)

    def _split(self, text: str, statements: list[ParsedStatement], arena: Arena) -> SplitText:
        raw = text.encode()
        offsets = np.empty(len(statements), np.int64)
        characters = location = 0
        for number, statement in enumerate(statements):
            characters += len(raw[location : statement.location].decode())
            location = statement.location
            offsets[number] = characters
        if isinstance(self.text, EncodedText):
            starts = np.array([s.location for s in statements], np.int64)
            lengths = [len(s.text.encode()) for s in statements]
        else:
            starts, lengths = offsets, [len(s.text) for s in statements]
        stops = starts + np.array(lengths, np.int64)
        starts, stops, offsets = (_by_reference(each, arena) for each in (starts, stops, offsets))
        only = None
        if len(statements) == 1:
            only = _planned(statements[0], self.catalog, (), arena, failed=self.failed)
        return SplitText(starts, stops, offsets, only)


def _by_reference(places: NDArray[np.int64], arena: Arena) -> NDArray[np.int64]:
    """Return the places of many statements in an arena: they cross without being copied on the loop."""
    return arena.place(places) if len(places) > _MANY_STATEMENTS else places


@contextmanager
def _told_briefly(text: StatementText) -> Iterator[None]:
    """Shorten what is raised for a large text: it may quote much of it."""
    try:
        yield
    except SqlError as error:
        if isinstance(text, EncodedText):
            raise error.shortened() from None
        raise


def _planned(
    statement: ParsedStatement,
    catalog: Catalog,
    types: Sequence[SqlType | None],
    arena: Arena,
    *,
    failed: bool,
) -> PlannedApart:
    if failed and statement.kind != "transaction_stmt":
        raise in_failed_block()
    if len(statement.source) <= LONGEST_KEPT:
        arena = HEAP  # a plan that is kept would keep a whole segment, for a few columns of it
    return PlannedApart(statement.kind, pack(plan(statement, catalog, types), arena))


@dataclass(slots=True)
class ScriptPart:
    """A statement of a long script; `offset` are the script's characters before it."""

    text: StatementText
    offset: int
    planned: PlannedStatement | None = None
    """Its plan, where it is the script's only statement."""
    base: Catalog | None = None
    """The catalog in force when that was made."""


class LongScript:
    """The statements of a long script that have not been run."""

    __slots__ = ("_at", "_only", "_split", "_text")

    def __init__(self, text: StatementText, split: SplitText, only: ScriptPart | None) -> None:
        self._text = text
        self._split = split
        self._only = only
        self._at = 0

    def __len__(self) -> int:
        return len(self._split.starts) - self._at

    def popleft(self) -> ScriptPart:
        """Take the next statement off."""
        at = self._at
        self._at += 1
        if self._only is not None:
            part, self._only = self._only, None
            return part
        start, stop = int(self._split.starts[at]), int(self._split.stops[at])
        return ScriptPart(cut(self._text, start, stop), int(self._split.offsets[at]))

    def clear(self) -> None:
        """Run no more."""
        self._at = len(self._split.starts)
        self._only = None


def moved(error: SqlError, offset: int) -> SqlError:
    """Return the error of a statement with its position in the script that the statement is part of."""
    if error.position is not None:
        error.position += offset
    return error


def split_apart(
    block: TransactionBlock, text: StatementText, execution: Execution, then: Callable[[LongScript], None]
) -> None:
    """Have a script split, and a sole statement planned; `then` is called in an attempt of `execution`."""
    coordinator, catalog = block.coordinator, block.catalog
    base = coordinator.catalog

    def split(result: SplitText) -> None:
        only = result.only
        part = None
        if only is not None and only.packed is not None:
            planned = only.packed.unpack(catalog)
            coordinator.statements.keep(text, (), planned)
            part = ScriptPart(text, 0, planned, base)
        then(LongScript(text, result, part))

    coordinator.run_part(execution, SplitScript(text, catalog, block.failed), split)


def known_plan(
    block: TransactionBlock, text: StatementText, types: Sequence[SqlType | None] = ()
) -> PlannedStatement | None:
    """Return the plan of a long text if it is kept, and may be run."""
    return None if block.failed else block.coordinator.statements.known(text, block.catalog, types)


def plan_apart(
    block: TransactionBlock,
    text: StatementText,
    types: Sequence[SqlType | None],
    execution: Execution,
    then: Callable[[str, PlannedStatement | None], None],
    offset: int = 0,
    refused: Callable[[], None] | None = None,
) -> None:
    """Have a statement planned, again where the catalog changes meanwhile.

    `then` gets its kind and plan, in an attempt of `execution`; "" and None for an empty text. Where the
    statement is in error, `refused` is called instead, or without that the execution fails.
    """
    coordinator, catalog = block.coordinator, block.catalog
    base = coordinator.catalog

    def made(result: PlannedApart) -> None:
        if coordinator.catalog is not base:
            plan_apart(block, text, types, execution, then, offset, refused)
        elif result.packed is None:
            then(result.kind, None)
        else:
            planned = result.packed.unpack(catalog)
            coordinator.statements.keep(text, types, planned)
            then(result.kind, planned)

    def in_error(error: SqlError) -> None:
        if refused is None:
            raise moved(error, offset)
        refused()

    coordinator.run_part(execution, PlanText(text, catalog, types, block.failed), made, in_error)
