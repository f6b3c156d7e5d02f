"""Statement caches: a text is parsed once and planned once a catalog version."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from layby.adapter.literals import LONGEST, Shape, ShapedStatement, make_shape, read_literals, shape_text
from layby.adapter.long_texts import PortableCatalog
from layby.sql.catalog import Catalog
from layby.sql.parse import ParsedStatement, parse_script
from layby.sql.plan import PlannedStatement
from layby.sql.planner import plan
from layby.types.scalar import SqlType

EFFORT: Final = 4_096
"""What may be spent on a plan on the loop (`BindContext.spend`): 2 ms. One that takes more is made apart."""

_LONGEST: Final = 8_192
"""Characters of a text that is worth keeping: longer ones are bulk inserts, seen once."""

_SCRIPTS: Final = 2_048
_PLANS: Final = 2_048

PlanKey = tuple[str, tuple[SqlType | None, ...]]


class StatementCache:
    """Parsed scripts and planned statements by their text, shared by all sessions; least recently used go."""

    def __init__(self) -> None:
        self._scripts: OrderedDict[str, list[ParsedStatement]] = OrderedDict()
        self._shapes: OrderedDict[str, Shape | None] = OrderedDict()
        self._plans: OrderedDict[PlanKey, PlannedStatement] = OrderedDict()
        self._portable: PortableCatalog | None = None

    def parse_simple(self, sql: str) -> Sequence[ParsedStatement | ShapedStatement]:
        """Return the statements of a simple query, one with literals as one of its shape where it can be.

        Raises SqlError 42601.
        """
        if sql not in self._scripts and len(sql) <= LONGEST:
            shaped = self._shaped(sql)
            if shaped is not None:
                return (shaped,)
        return self.parse(sql)

    def portable(self, catalog: Catalog) -> PortableCatalog:
        """Return a catalog as it goes out with jobs, the same for the same catalog."""
        if self._portable is None or self._portable.catalog is not catalog:
            self._portable = PortableCatalog(catalog)
        return self._portable

    def _shaped(self, sql: str) -> ShapedStatement | None:
        text = shape_text(sql)
        if text is None:
            return None
        if text in self._shapes:
            self._shapes.move_to_end(text)
            shape = self._shapes[text]
        else:
            shape = self._shapes[text] = make_shape(text)
            if len(self._shapes) > _SCRIPTS:
                self._shapes.popitem(last=False)
        return None if shape is None else read_literals(sql, shape)

    def parse(self, sql: str) -> list[ParsedStatement]:
        """Return the statements of a script; raises SqlError 42601."""
        found = self._scripts.get(sql)
        if found is None:
            found = parse_script(sql)
            if len(sql) <= _LONGEST:
                self._scripts[sql] = found
                if len(self._scripts) > _SCRIPTS:
                    self._scripts.popitem(last=False)
        else:
            self._scripts.move_to_end(sql)
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
        self, text: str, catalog: Catalog, param_types: Sequence[SqlType | None] = ()
    ) -> PlannedStatement | None:
        """Return the plan of a statement's text if it is kept, and of that catalog."""
        key = (text, tuple(param_types))
        found = self._plans.get(key)
        if found is None or found.catalog_version != catalog.version:
            return None
        self._plans.move_to_end(key)
        return found

    def keep(self, text: str, param_types: Sequence[SqlType | None], planned: PlannedStatement) -> None:
        """Keep the plan of a statement's text, wherever it was made."""
        if len(text) <= _LONGEST:
            key = (text, tuple(param_types))
            self._plans[key] = planned
            self._plans.move_to_end(key)
            if len(self._plans) > _PLANS:
                self._plans.popitem(last=False)
