"""Literals as parameters: one plan serves every literal of a simple query.

Clients without prepared statements send each value within the text. libpg_query's `normalize` writes `$1`,
`$2` for the literals (3 µs); what is left is the statement's shape, which is parsed and planned once. The
values are read from the text, between the parts of the shape, and take the types that the literals have.
A statement whose shape is no statement (`date $1`), or is refused, goes the ordinary way, so its errors are
those of its own text.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

import postgast

from layby.errors import SqlError
from layby.expr.scalar import ColumnRef
from layby.sql.parse import ParsedStatement, parse_script
from layby.sql.plan import PlannedStatement, SelectPlan, TableSource
from layby.types.formats import parse
from layby.types.scalar import BIGINT, DOUBLE_PRECISION, INTEGER, TEXT, UNKNOWN, PhysicalValue, SqlType

LONGEST: Final = 2_048
"""Characters of a text that is looked at: longer ones are lists of values, each with a shape of its own."""

_MOST_LITERALS: Final = 32
_KINDS: Final = frozenset({"select_stmt", "insert_stmt", "update_stmt", "delete_stmt"})
_LITERAL: Final = re.compile(r"-?(?:\d+\.\d*|\.?\d+)(?:[eE][-+]?\d+)?|'(?:[^'\\]|'')*'")
_PARAMETER: Final = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True)
class Shape:
    """A statement with parameters for its literals, and its text `before` each of them and after the last.

    These are compared one by one: a pattern made of them would take 3 ms to compile for 2,000 characters.
    `places` tells for each parameter which of the literals it is: they are numbered in the order of the
    grammar, where OFFSET comes before LIMIT.
    """

    parsed: ParsedStatement
    before: tuple[str, ...]
    last: str
    places: tuple[int, ...]

    def find(self, sql: str) -> list[str] | None:
        """Return the literals of a text as they are written, None where it has another form."""
        found: list[str] = []
        at = 0
        for piece in self.before:
            if not sql.startswith(piece, at):
                return None
            match = _LITERAL.match(sql, at + len(piece))
            if match is None:
                return None
            found.append(match[0])
            at = match.end()
        return found if sql[at:] == self.last else None


@dataclass(frozen=True, slots=True)
class ShapedStatement:
    """One text of a shape: its literals, an untyped string where `types` has None."""

    text: str
    shape: Shape
    types: tuple[SqlType | None, ...]
    literals: tuple[int | float | str, ...]

    @property
    def kind(self) -> str:
        """The statement's name in the grammar."""
        return self.shape.parsed.kind

    def values(self, planned: PlannedStatement) -> tuple[PhysicalValue, ...] | None:
        """Return the literals as the parameters of the shape's plan.

        None where that does not suit, or one is no value of its type: that is told in terms of the text.
        """
        if not _suits(planned):
            return None
        try:
            return tuple(
                parse(wanted, str(literal)) if type_ is None and wanted not in (TEXT, UNKNOWN) else literal
                for literal, type_, wanted in zip(self.literals, self.types, planned.params, strict=True)
            )
        except SqlError:
            return None


def _suits(planned: PlannedStatement) -> bool:
    """Return whether a shape's plan is as good as that of a text with its literals.

    It is not where the table has an index on an expression: `100 / a` is found in it, `$1 / a` is not.
    """
    plan = planned.plan
    select = plan if isinstance(plan, SelectPlan) else getattr(plan, "select", None)
    if not isinstance(select, SelectPlan) or not isinstance(select.source, TableSource):
        return True
    indexes = select.source.table.indexes
    return all(isinstance(key.expr, ColumnRef) for index in indexes for key in index.keys)


def shape_text(sql: str) -> str | None:
    """Return a text with `$1`, `$2`, ... for its literals, None where it has none or is no statement."""
    if "$" in sql:
        return None
    try:
        normalized = postgast.normalize(sql)
    except postgast.PgQueryError:
        return None
    return None if normalized == sql else normalized


def make_shape(normalized: str) -> Shape | None:
    """Return the shape of a normalized text, None where its statements are to be taken as they come."""
    pieces = _PARAMETER.split(normalized)
    texts, numbers = pieces[::2], [int(number) for number in pieces[1::2]]
    if len(numbers) > _MOST_LITERALS or sorted(numbers) != list(range(1, len(numbers) + 1)):
        return None
    try:
        statements = parse_script(normalized)
    except SqlError:
        return None
    if len(statements) != 1 or statements[0].kind not in _KINDS:
        return None
    places = tuple(numbers.index(number) for number in range(1, len(numbers) + 1))
    return Shape(statements[0], tuple(texts[:-1]), texts[-1], places)


def read_literals(sql: str, shape: Shape) -> ShapedStatement | None:
    """Return a text as a statement of its shape, None where a literal is of a form that is not read here."""
    found = shape.find(sql)
    if found is None:
        return None
    types: list[SqlType | None] = []
    literals: list[int | float | str] = []
    for text in (found[place] for place in shape.places):
        if text[0] == "'":
            types.append(None)
            literals.append(text[1:-1].replace("''", "'"))
        elif text.lstrip("-").isdigit():
            number = int(text)
            if not -(2**63) <= number < 2**63:
                return None
            types.append(INTEGER if -(2**31) <= number < 2**31 else BIGINT)
            literals.append(number)
        else:
            value = float(text)
            if math.isinf(value):
                return None
            types.append(DOUBLE_PRECISION)
            literals.append(value)
    return ShapedStatement(sql, shape, tuple(types), tuple(literals))
