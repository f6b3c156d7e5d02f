"""Packed MFPs: what is told without unpacking one, and that it evaluates as the MFP does."""

from __future__ import annotations

import pickle

from layby.expr.mfp import Mfp
from layby.expr.packed import PackedMfp, pack
from layby.expr.scalar import ColumnRef, Expr, Literal, Param, SessionValue
from layby.types.column import column_from_values
from layby.types.scalar import BIGINT, TEXT, PhysicalValue
from tests.expr.helpers import call

COLUMN = ColumnRef(0, BIGINT)
FIXED = Mfp(1, (call(">", COLUMN, Literal(2, BIGINT)),), (COLUMN, Literal("x", TEXT)))
VARYING = Mfp(1, (call(">", COLUMN, Param(3, BIGINT)),), (COLUMN, SessionValue("current_user", TEXT)))
SESSION: dict[str, PhysicalValue] = {"current_user": "layby", "now": 0}


def is_packed(mfp: PackedMfp) -> bool:
    return mfp._whole is None


def rows(mfp: Mfp | PackedMfp) -> list[tuple[object, ...]]:
    """Return what becomes of the rows 1, 2, 3, 4."""
    kernel = mfp.compile()
    column = column_from_values(BIGINT, [1, 2, 3, 4])
    passed, _ = kernel.filter((column,), 4)
    taken = column if passed is None else column.take(passed)
    outputs, _ = kernel.project((taken,), len(taken))
    return list(zip(*(c.to_list() for c in outputs), strict=True))


def test_it_is_told_without_unpacking_whether_it_filters_and_takes_values() -> None:
    for mfp in (FIXED, VARYING, Mfp(1, (), (COLUMN,))):
        packed = pack(mfp)
        assert (packed.filters, packed.varies) == (mfp.filters, mfp.varies)
        assert is_packed(packed)


def test_it_crosses_and_takes_its_values_without_being_unpacked() -> None:
    packed = pack(VARYING)
    filled = pickle.loads(pickle.dumps(packed)).with_values((0, "unused", 3), SESSION)
    assert not filled.varies
    crossed = pickle.loads(pickle.dumps(filled))
    assert is_packed(packed)
    assert is_packed(filled)
    assert is_packed(crossed)
    assert rows(crossed) == [(4, "layby")]
    assert not is_packed(crossed)


def test_unpacked_it_is_what_was_packed() -> None:
    packed = pack(FIXED)
    expected: tuple[int, tuple[Expr, ...], tuple[Expr, ...]] = (1, FIXED.predicates, FIXED.outputs)
    assert (packed.arity, packed.predicates, packed.outputs) == expected
    assert rows(pack(FIXED)) == rows(FIXED) == [(3, "x"), (4, "x")]


def test_the_values_of_an_execution_are_its_own() -> None:
    packed = pack(VARYING)
    three, none = packed.with_values((0, 0, 3), SESSION), packed.with_values((0, 0, None), SESSION)
    assert (rows(three), rows(none)) == ([(4, "layby")], [])
    assert packed.varies
