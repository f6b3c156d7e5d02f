"""Statement caches: a text is parsed once and planned once a catalog version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from layby.adapter.literals import LONGEST, Shape, ShapedStatement, make_shape, read_literals, shape_text
from layby.adapter.long_texts import LONGEST_KEPT
from layby.adapter.recent import Recent
from layby.sql.catalog import Catalog
from layby.sql.parse import ParsedStatement, parse_script
from layby.sql.plan import PlannedStatement
from layby.sql.planner import plan
from layby.sql.statement_text import StatementText
from layby.types.scalar import SqlType

EFFORT: Final = 4_096
"""What may be spent on a plan on the loop (`BindContext.spend`): 2 ms. One that takes more is made apart."""

_MOST: Final = 2_048
_CHARACTERS: Final = 1 << 20
"""Of the texts in each cache together; a list of 4,000 takes 110 to 150 KiB of memory, parsed and planned."""

_MOST_TYPES: Final = 2_048
"""Declared types of a statement whose plan is kept: 80 µs to look it up."""

PlanKey = tuple[str, tuple[SqlType | None, ...]]


class StatementCache:
    """Parsed scripts and planned statements by their text, shared by all sessions; least recently used go."""

    def __init__(self) -> None:
        self._scripts: Recent[str, list[ParsedStatement]] = Recent(_MOST, _CHARACTERS)
        self._shapes: Recent[str, tuple[Shape | None]] = Recent(_MOST, _CHARACTERS)
        self._plans: Recent[PlanKey, PlannedStatement] = Recent(_MOST, _CHARACTERS)

    def parse_simple(self, sql: str) -> Sequence[ParsedStatement | ShapedStatement]:
        """Return the statements of a simple query, one with literals as one of its shape where it can be.

        Raises SqlError 42601.
        """
        if sql not in self._scripts and len(sql) <= LONGEST:
            shaped = self._shaped(sql)
            if shaped is not None:
                return (shaped,)
        return self.parse(sql)

    def _shaped(self, sql: str) -> ShapedStatement | None:
        text = shape_text(sql)
        if text is None:
            return None
        found = self._shapes.get(text)
        if found is None:
            found = (make_shape(text),)
            self._shapes.put(text, found, len(text))
        (shape,) = found
        return None if shape is None else read_literals(sql, shape)

    def parse(self, sql: str) -> list[ParsedStatement]:
        """Return the statements of a script; raises SqlError 42601."""
        found = self._scripts.get(sql)
        if found is None:
            found = parse_script(sql)
            if len(sql) <= LONGEST_KEPT:
                self._scripts.put(sql, found, len(sql))
        return found

    def plan(
        self, parsed: ParsedStatement, catalog: Catalog, param_types: Sequence[SqlType | None] = ()
    ) -> PlannedStatement:
        """Return the plan of a statement under the catalog in force.

        Raises TooLongError for one that is to be made apart.
        """
        found = self.known(parsed.text, catalog, param_types)
        if found is None:
            found = plan(parsed, catalog, param_types, EFFORT)
            self.keep(parsed.text, param_types, found)
        return found

    def known(
        self, text: StatementText, catalog: Catalog, param_types: Sequence[SqlType | None] = ()
    ) -> PlannedStatement | None:
        """Return the plan of a statement's text if it is kept, and of that catalog."""
        if not isinstance(text, str) or len(text) > LONGEST_KEPT or len(param_types) > _MOST_TYPES:
            return None
        found = self._plans.get((text, tuple(param_types)))
        return found if found is not None and found.catalog_version == catalog.version else None

    def keep(
        self, text: StatementText, param_types: Sequence[SqlType | None], planned: PlannedStatement
    ) -> None:
        """Keep the plan of a statement's text, wherever it was made; not of one that is too long for that."""
        if isinstance(text, str) and len(text) <= LONGEST_KEPT and len(param_types) <= _MOST_TYPES:
            self._plans.put((text, tuple(param_types)), planned, len(text))
