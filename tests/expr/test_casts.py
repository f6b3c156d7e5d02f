"""Casts: what becomes of a value, what does not fit, and where a cast may go unwritten."""

from __future__ import annotations

import pytest

from layby.expr.function import CastContext, cast_between
from layby.expr.scalar import ColumnRef
from layby.types.column import column_from_values
from layby.types.scalar import (
    ALL,
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE_PRECISION,
    INTEGER,
    REAL,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    PhysicalValue,
    SqlType,
)
from tests.expr.helpers import Outcome, Raised, applied, cast, computed, evaluated, literal, typed

IMPLICIT, ASSIGNMENT, EXPLICIT = CastContext.IMPLICIT, CastContext.ASSIGNMENT, CastContext.EXPLICIT

CONTEXTS = {
    (SMALLINT, INTEGER): IMPLICIT,
    (SMALLINT, BIGINT): IMPLICIT,
    (SMALLINT, REAL): IMPLICIT,
    (SMALLINT, DOUBLE_PRECISION): IMPLICIT,
    (INTEGER, SMALLINT): ASSIGNMENT,
    (INTEGER, BIGINT): IMPLICIT,
    (INTEGER, REAL): IMPLICIT,
    (INTEGER, DOUBLE_PRECISION): IMPLICIT,
    (INTEGER, BOOLEAN): EXPLICIT,
    (BOOLEAN, INTEGER): EXPLICIT,
    (BIGINT, SMALLINT): ASSIGNMENT,
    (BIGINT, INTEGER): ASSIGNMENT,
    (BIGINT, REAL): IMPLICIT,
    (BIGINT, DOUBLE_PRECISION): IMPLICIT,
    (REAL, SMALLINT): ASSIGNMENT,
    (REAL, INTEGER): ASSIGNMENT,
    (REAL, BIGINT): ASSIGNMENT,
    (REAL, DOUBLE_PRECISION): IMPLICIT,
    (DOUBLE_PRECISION, SMALLINT): ASSIGNMENT,
    (DOUBLE_PRECISION, INTEGER): ASSIGNMENT,
    (DOUBLE_PRECISION, BIGINT): ASSIGNMENT,
    (DOUBLE_PRECISION, REAL): ASSIGNMENT,
    (DATE, TIMESTAMP): IMPLICIT,
    (DATE, TIMESTAMPTZ): IMPLICIT,
    (TIMESTAMP, DATE): ASSIGNMENT,
    (TIMESTAMP, TIMESTAMPTZ): IMPLICIT,
    (TIMESTAMPTZ, DATE): ASSIGNMENT,
    (TIMESTAMPTZ, TIMESTAMP): ASSIGNMENT,
    (UNKNOWN, TEXT): IMPLICIT,
}
"""Every cast of pg_cast among these types; those from and to text go by rule."""


def test_casts_have_the_contexts_of_pg_cast() -> None:
    for source in ALL:
        for target in ALL:
            expected = CONTEXTS.get((source, target))
            if TEXT in (source, target) and source is not target and UNKNOWN not in (source, target):
                expected = ASSIGNMENT if target is TEXT else EXPLICIT
            found = cast_between(source, target)
            assert (found and found[1]) == expected, (source, target)


OUT = {t: Raised("22003", f"{t.name} out of range") for t in (SMALLINT, INTEGER, BIGINT)}


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (0.5, DOUBLE_PRECISION, INTEGER, 0),
        (1.5, DOUBLE_PRECISION, INTEGER, 2),
        (2.5, DOUBLE_PRECISION, INTEGER, 2),
        (-0.5, DOUBLE_PRECISION, INTEGER, 0),
        (-1.5, DOUBLE_PRECISION, INTEGER, -2),
        (2.5, REAL, SMALLINT, 2),
        (2147483647.4, DOUBLE_PRECISION, INTEGER, 2147483647),
        (2147483647.5, DOUBLE_PRECISION, INTEGER, OUT[INTEGER]),
        (-2147483648.5, DOUBLE_PRECISION, INTEGER, -2147483648),
        (-32769.0, DOUBLE_PRECISION, SMALLINT, OUT[SMALLINT]),
        (9.223372036854775e18, DOUBLE_PRECISION, BIGINT, 9223372036854774784),
        (9.223372036854775807e18, DOUBLE_PRECISION, BIGINT, OUT[BIGINT]),
        (-9.223372036854775808e18, DOUBLE_PRECISION, BIGINT, -(2**63)),
        (float("nan"), DOUBLE_PRECISION, INTEGER, OUT[INTEGER]),
        (float("inf"), REAL, BIGINT, OUT[BIGINT]),
        (32768, INTEGER, SMALLINT, OUT[SMALLINT]),
        (-32768, INTEGER, SMALLINT, -32768),
        (2**31, BIGINT, INTEGER, OUT[INTEGER]),
        (2**32, BIGINT, SMALLINT, OUT[SMALLINT]),
        (-5, SMALLINT, BIGINT, -5),
        (16777217, INTEGER, REAL, 16777216.0),
        (2**53 + 1, BIGINT, DOUBLE_PRECISION, 9007199254740992.0),
        (1e39, DOUBLE_PRECISION, REAL, Raised("22003", "value out of range: overflow")),
        (1e-50, DOUBLE_PRECISION, REAL, Raised("22003", "value out of range: underflow")),
        (float("inf"), DOUBLE_PRECISION, REAL, float("inf")),
        (0.5, REAL, DOUBLE_PRECISION, 0.5),
        (2, INTEGER, BOOLEAN, True),
        (0, INTEGER, BOOLEAN, False),
        (True, BOOLEAN, INTEGER, 1),
        (True, BOOLEAN, TEXT, "true"),
        (False, BOOLEAN, TEXT, "false"),
        (42, BIGINT, TEXT, "42"),
        (0.1, DOUBLE_PRECISION, TEXT, "0.1"),
        (0, DATE, TEXT, "2000-01-01"),
        (" 42 ", TEXT, INTEGER, 42),
        ("99999", TEXT, SMALLINT, Raised("22003", 'value "99999" is out of range for type smallint')),
        ("x", TEXT, INTEGER, Raised("22P02", 'invalid input syntax for type integer: "x"')),
        ("yes", TEXT, BOOLEAN, True),
        ("2000-01-02", TEXT, DATE, 1),
        ("it", UNKNOWN, TEXT, "it"),
    ],
)
def test_a_cast_gives_what_postgresql_gives(
    value: PhysicalValue, source: SqlType, target: SqlType, expected: Outcome
) -> None:
    found = computed(cast(literal(value, source), target))
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("zoned", [TIMESTAMP, TIMESTAMPTZ])
def test_dates_become_midnights_and_timestamps_their_day(zoned: SqlType) -> None:
    pairs = [
        (typed(DATE, "2020-02-29"), "2020-02-29 00:00:00"),
        (typed(DATE, "1999-12-31"), "1999-12-31 00:00:00"),
        (typed(DATE, "infinity"), "infinity"),
        (typed(DATE, "-infinity"), "-infinity"),
    ]
    for date, midnight in pairs:
        assert computed(cast(date, zoned)) == typed(zoned, midnight).value
        assert computed(cast(typed(zoned, midnight), DATE)) == date.value
    assert computed(cast(typed(zoned, "1999-12-31 23:59:59.999999"), DATE)) == -1
    late = computed(cast(typed(DATE, "294277-01-01"), zoned))
    assert late == Raised("22008", "date out of range for timestamp")
    assert computed(cast(typed(DATE, "294276-12-31"), zoned)) == 106_751_982 * 86_400_000_000


def test_nulls_pass_through_casts() -> None:
    for source in ALL:
        for target in ALL:
            if cast_between(source, target) is not None:
                columns = [column_from_values(source, [None, None])]
                assert evaluated(cast(ColumnRef(0, source), target), columns) == [None, None]


def test_booleans_among_nulls_are_spelled_out() -> None:
    columns = [column_from_values(BOOLEAN, [True, None, False])]
    assert evaluated(cast(ColumnRef(0, BOOLEAN), TEXT), columns) == ["true", None, "false"]


def test_text_is_put_together_with_what_is_cast_to_it() -> None:
    assert applied("||", "a", "b") == "ab"
    assert applied("||", literal(None, TEXT), "b") is None
    assert applied("||", 1, "b") == "1b"
    assert applied("||", "a", True) == "atrue"
    assert applied("||", typed(DATE, "2020-02-29"), "!") == "2020-02-29!"
