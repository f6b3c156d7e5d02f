"""Membership: which values of a column are among some constants (`IN`, and what comes to it)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layby.expr.scalar import Call, Expr, In, Literal, Or, transform, walk
from layby.types.column import Array, Column, FixedColumn, Mask, TextColumn
from layby.types.scalar import FLOATING, INTEGRAL, PhysicalValue, SqlType

FEW = 8
"""Up to this many numbers are compared one by one: 2 µs each on 16,384 rows, `np.isin` starts at 60 µs."""


def gathered(expr: Expr) -> Expr:
    """Return an equal expression with `x = 1 OR x = 2 OR ...` as `x IN (1, 2, ...)`.

    An IN list of parameters comes as such an OR: of 65,535 comparisons, each with a pass over the rows.
    """
    return transform(expr, _gathered_node)


def _gathered_node(expr: Expr) -> Expr:
    if not isinstance(expr, Or) or len(expr.args) <= FEW:
        return expr
    subject: Expr | None = None
    values: list[PhysicalValue] = []
    for arg in expr.args:
        match arg:
            case Call(function=function, args=(left, Literal() as literal)) if function.name == "=":
                if subject is None:
                    subject = left
                if left != subject or not _compares_as(subject.type, literal):
                    return expr
                values.append(literal.value)
            case _:
                return expr
    if subject is None or any(isinstance(e, Call) and e.function.volatile for e in walk(subject)):
        return expr
    return In(subject, tuple(values))


def _compares_as(type_: SqlType, literal: Literal) -> bool:
    """Return whether a literal's value is one of `type_` as it stands."""
    if literal.type is type_:
        return True
    if type_ not in INTEGRAL or literal.type not in INTEGRAL:
        return False
    bound = 1 << (8 * type_.size - 1)
    return literal.value is None or -bound <= cast("int", literal.value) < bound


def member_set(type_: SqlType, values: Sequence[PhysicalValue]) -> Any:
    """Return the constants (none of them None) as what `is_member` looks them up in."""
    if type_.dtype is None:
        return pa.array(values, pa.large_string())
    return np.unique(np.array(values, type_.dtype))


def is_member(column: Column, members: Any) -> Mask:
    """Return a mask, True where the value equals a member; False where it is null."""
    if isinstance(column, TextColumn):
        return np.asarray(pc.is_in(column.arrow, value_set=members).to_numpy(zero_copy_only=False), np.bool_)
    values, valid = cast("FixedColumn", column).values, column.valid
    if not len(members):
        return np.zeros(len(values), np.bool_)
    found = among(values, members)
    if column.type in FLOATING and np.isnan(members[-1]):
        found = found | np.isnan(values)
    return found if valid is None else found & valid


def among(values: Array, members: Array) -> Mask:
    """Return a mask, True where the number is one of the members (at least one, distinct and sorted)."""
    if len(members) > FEW:
        return np.isin(values, members)
    found: Mask = values == members[0]
    for member in members[1:]:
        np.logical_or(found, values == member, out=found)
    return found
