"""Access: which index a read goes through, the ranges it seeks, and whether the index serves its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from layby.expr.scalar import ColumnRef, Expr
from layby.sql.catalog import Index, Table
from layby.sql.conditions import Bounds, Condition, Equals, EqualsRows, conditions
from layby.sql.plan import BoundTemplate, RangeTemplate
from layby.types.ordering import Ordering
from layby.types.scalar import FLOATING

RANGE_LIMIT: Final = 10_000
"""The ranges that a product of alternatives may come to; further key columns are left to the filter."""

OrderBy = Sequence[tuple[Expr, Ordering]]


@dataclass(frozen=True, slots=True)
class Access:
    """A way to read a table.

    `used` are the numbers of the predicates that `ranges` express exactly. `order` is "forward" or "reverse"
    where the walk comes in the order asked for.
    """

    index: Index | None
    ranges: tuple[RangeTemplate, ...] | None
    used: frozenset[int]
    order: str | None


@dataclass(slots=True)
class _Match:
    """What the predicates give to one index, key column by key column."""

    rows: list[tuple[tuple[Expr, ...], ...]] = field(default_factory=lambda: [()])
    """The prefixes so far, each item a tuple of alternatives."""
    length: int = 0
    fixed: set[int] = field(default_factory=set)
    """The key columns that have one value."""
    count: int = 1
    used: set[int] = field(default_factory=set)
    lower: list[BoundTemplate] = field(default_factory=list)
    upper: list[BoundTemplate] = field(default_factory=list)

    @property
    def ranges(self) -> tuple[RangeTemplate, ...] | None:
        if not self.length and not self.lower and not self.upper:
            return None
        lower, upper = tuple(self.lower), tuple(self.upper)
        return tuple(RangeTemplate(prefix, lower, upper) for prefix in self.rows)


def choose(table: Table, predicates: Sequence[Expr], order: OrderBy) -> Access:
    """Choose how to read a table under AND-ed predicates in an order; expressions are over its columns.

    The index with the longest equality prefix wins, then one that is unique and wholly given, then a range,
    then one that serves the order, then the one with the fewest key columns. An index is preferred to the
    table's shard, unless it gives nothing but a walk of all that has to raise the errors of its keys: a row
    whose key raises could never be deleted through it.
    """
    says = [(number, c) for number, p in enumerate(predicates) for c in conditions(p)]
    best: tuple[tuple[int, ...], Access] | None = None
    for index in table.indexes:
        match = _match(index, says)
        whole = index.unique and match.length == len(index.keys)
        served = _serves(table, index, match, order)
        ranges = match.ranges
        plain = all(isinstance(k.expr, ColumnRef) for k in index.keys)
        if not plain and ranges is None and served is None:
            continue
        score = (
            match.length,
            int(whole),
            int(bool(match.lower)) + int(bool(match.upper)),
            int(served is not None),
            -len(index.keys),
        )
        if best is None or score > best[0]:
            best = score, Access(index, ranges, frozenset(match.used), served)
    if best is None:
        return Access(None, None, frozenset(), None)
    return best[1]


def _match(index: Index, says: Sequence[tuple[int, Condition]]) -> _Match:
    match = _Match()
    keys = [k.expr for k in index.keys]
    while match.length < len(keys):
        if not (_take_equals(match, keys[match.length], says) or _take_rows(match, keys, says)):
            break
    if match.length < len(keys):
        key = keys[match.length]
        for number, condition in says:
            if isinstance(condition, Bounds) and condition.key == key:
                (match.lower if condition.lower else match.upper).append(condition.bound)
                if condition.exact:
                    match.used.add(number)
    return match


def _take_equals(match: _Match, key: Expr, says: Sequence[tuple[int, Condition]]) -> bool:
    """Extend the prefix by the equality on the next key with the fewest alternatives."""
    found = [(len(c.values), n, c.values) for n, c in says if isinstance(c, Equals) and c.key == key]
    if not found:
        return False
    count, number, values = min(found, key=lambda f: f[:2])
    if match.count * count > RANGE_LIMIT:
        return False
    match.rows = [(*row, values) for row in match.rows]
    if count == 1:
        match.fixed.add(match.length)
    match.count *= count
    match.length += 1
    match.used.add(number)
    return True


def _take_rows(match: _Match, keys: Sequence[Expr], says: Sequence[tuple[int, Condition]]) -> bool:
    """Extend the prefix by a condition on the next few keys together."""
    for number, condition in says:
        if not isinstance(condition, EqualsRows):
            continue
        width = len(condition.keys)
        wanted = list(keys[match.length : match.length + width])
        if len(wanted) < width or set(wanted) != set(condition.keys):
            continue
        if match.count * len(condition.rows) > RANGE_LIMIT:
            continue
        places = [condition.keys.index(k) for k in wanted]
        match.rows = [
            (*row, *((given[p],) for p in places)) for row in match.rows for given in condition.rows
        ]
        match.count *= len(condition.rows)
        match.length += width
        match.used.add(number)
        return True
    return False


def _serves(table: Table, index: Index, match: _Match, order: OrderBy) -> str | None:
    """Tell the direction in which the index's order begins with the order asked for, None for neither.

    Key columns of one value may be passed over, in the index and in the order alike. A float is no key
    column before another: an index keeps -0.0 before 0.0, which are one value to ORDER BY.
    """
    if not order:
        return None
    fixed = {index.keys[i].expr for i in match.fixed}
    wanted = [(e, o) for e, o in order if e not in fixed]
    offered = [k for i, k in enumerate(index.keys) if i not in match.fixed]
    whole = index.unique and match.length == len(index.keys) and match.count == 1
    if not wanted or whole:
        return "forward"
    if len(wanted) > len(offered):
        return None
    last = index.keys.index(offered[len(wanted) - 1])
    if any(key.expr.type in FLOATING for key in index.keys[:last]):
        return None
    directions = set()
    for (expr, ordering), key in zip(wanted, offered, strict=False):
        if expr != key.expr:
            return None
        directions.add(_direction(ordering, key.ordering, _nullable(table, expr)))
    if len(directions) != 1:
        return None
    return directions.pop()


def _nullable(table: Table, expr: Expr) -> bool:
    return not isinstance(expr, ColumnRef) or table.desc.columns[expr.index].nullable


def _direction(wanted: Ordering, offered: Ordering, nullable: bool) -> str | None:
    same = wanted.descending == offered.descending
    if nullable and (wanted.nulls_first == offered.nulls_first) != same:
        return None
    return "forward" if same else "reverse"
