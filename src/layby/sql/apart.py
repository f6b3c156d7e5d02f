"""Instantiation apart: a plan takes its values away from the serving loop where they are many or large.

What comes back is a peek in a form that the loop hands on without a pass over it: keys as columns,
expressions packed, both by reference where they lie in an arena.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, cast

from layby.expr.mfp import Mfp
from layby.expr.packed import PackedMfp, pickled
from layby.expr.packed import pack as pack_mfp
from layby.expr.scalar import ColumnRef, Expr, Literal, SessionValue, walk
from layby.memory.arena import Arena
from layby.sql.instantiate import (
    ReadyPeek,
    Recipe,
    SourceValues,
    instantiate_source,
    prefix_columns,
    prepare,
)
from layby.sql.params import BoundParams, PackedParams
from layby.sql.plan import (
    MANY_RANGES,
    ColumnsSource,
    MixedColumn,
    PackedRecipe,
    SeriesSource,
    ValuesSource,
    is_heavy,
)
from layby.trace.constraints import Bound, BoundColumn, Constraints, KeyList, KeyRange
from layby.trace.layout import Layout
from layby.types.column import Column, column_from_values
from layby.types.scalar import TEXT, PhysicalValue

_LARGE: Final = 1 << 15
"""Bytes of keys, expressions or rows from which on a read of them is not begun on the serving loop."""

_LARGE_BOUND: Final = 1_024
"""Characters of a text from which on it bounds a range as a column."""


class Instantiated(NamedTuple):
    """A peek without its snapshot, the values of its source, and whether they are too large for the loop."""

    ready: ReadyPeek
    values: SourceValues
    is_large: bool


def pack_recipe(recipe: Recipe, arena: Arena, *, packs: bool) -> PackedRecipe:
    """Return what of a plan depends on values as the serving loop holds it.

    `packs` says that the plan's expressions are not for the loop, however few they are.
    """
    return PackedRecipe(pickled((recipe, packs), arena), session_names(recipe))


def session_names(recipe: Recipe) -> tuple[str, ...]:
    """Return the session values that a recipe takes."""
    names = set(recipe.mfp.names) if isinstance(recipe.mfp, PackedMfp) else set()
    names.update(node.name for e in _exprs(recipe) for node in walk(e) if isinstance(node, SessionValue))
    return tuple(sorted(names))


def _exprs(recipe: Recipe) -> Iterator[Expr]:
    if isinstance(recipe.mfp, Mfp):
        yield from recipe.mfp.predicates
        yield from recipe.mfp.outputs
    if isinstance(recipe.ranges, tuple):
        for template in recipe.ranges:
            for alternatives in template.prefix:
                yield from alternatives
            yield from (bound.value for bound in (*template.lower, *template.upper))
    yield from (e for e in (recipe.limit, recipe.offset) if e is not None)
    match recipe.values:
        case SeriesSource(start=start, stop=stop, step=step):
            yield from (start, stop, step)
        case ColumnsSource(columns=columns):
            yield from (c.expr for column in columns if isinstance(column, MixedColumn) for c in column.cells)
        case ValuesSource(rows=rows):
            yield from (cell for row in rows for cell in row if not isinstance(cell, Literal))


def instantiate_apart(
    recipe: Recipe | PackedRecipe, params: BoundParams, session: Mapping[str, PhysicalValue], arena: Arena
) -> Instantiated:
    """Put an execution's values into a recipe, with what is large in `arena`.

    Raises what `instantiate` and evaluating the source's values raise.
    """
    packs = False
    if isinstance(recipe, PackedRecipe):
        recipe, packs = cast("tuple[Recipe, bool]", pickle.loads(recipe.data.data))
    values = params.unpack() if isinstance(params, PackedParams) else params
    ready = prepare(recipe)(values, session)
    mfp = ready.mfp
    if isinstance(mfp, PackedMfp):
        mfp, packs = mfp.unpack(), True
    elif not packs:
        packs = is_heavy((*mfp.predicates, *(e for e in mfp.outputs if not isinstance(e, ColumnRef))))
    compact = pack_mfp(mfp, arena)
    if packs or len(compact.data) > _LARGE:
        ready = ready._replace(mfp=compact)
    constraints = _placed(ready.constraints, recipe.layout, arena)
    ready = ready._replace(constraints=constraints)
    given = None if recipe.values is None else instantiate_source(recipe.values, values, session)
    if given is not None and not isinstance(recipe.values, SeriesSource):
        given = tuple(column.place(arena) for column in cast("tuple[Column, ...]", given))
    size = sum(item.nbytes for item in given or () if isinstance(item, Column)) + _size(constraints)
    many = constraints is not None and len(constraints) > MANY_RANGES
    return Instantiated(ready, given, many or size > _LARGE)


def rows_as_given(made: Instantiated) -> tuple[Column, ...] | None:
    """Return the rows of a source that a plan reads as they are and all of them, None for any other plan."""
    ready, finishing = made.ready, made.ready.finishing
    mfp = ready.mfp.unpack() if isinstance(ready.mfp, PackedMfp) else ready.mfp
    whole = finishing.limit is None and not finishing.offset and not finishing.order_by
    every = tuple(range(mfp.arity))
    plain = tuple(e.index if isinstance(e, ColumnRef) else -1 for e in mfp.outputs)
    if mfp.predicates or not whole or plain != every or finishing.projection != every:
        return None
    return cast("tuple[Column, ...]", made.values)


def _placed(constraints: Constraints | None, layout: Layout | None, arena: Arena) -> Constraints | None:
    """Return constraints as columns that lie in `arena`."""
    if not constraints or layout is None:
        return constraints
    if isinstance(constraints, KeyList):
        columns, lower, upper = constraints.columns, constraints.lower, constraints.upper
    else:
        first: KeyRange = constraints[0]
        columns, lower, upper = prefix_columns(constraints, layout), first.lower, first.upper
    columns = tuple(column.place(arena) for column in columns)
    return KeyList(columns, _placed_bound(lower, arena), _placed_bound(upper, arena))


def _size(constraints: Constraints | None) -> int:
    """Return the bytes of keys and bounds that lie in columns."""
    if not isinstance(constraints, KeyList):
        return 0
    bounds = [b.column for b in (constraints.lower, constraints.upper) if isinstance(b, BoundColumn)]
    return sum(column.nbytes for column in (*constraints.columns, *bounds))


def _placed_bound(bound: Bound | BoundColumn | None, arena: Arena) -> Bound | BoundColumn | None:
    if isinstance(bound, Bound) and isinstance(bound.value, str) and len(bound.value) > _LARGE_BOUND:
        return BoundColumn(column_from_values(TEXT, [bound.value]).place(arena), bound.inclusive)
    return bound
