"""Series and constant batches."""

from __future__ import annotations

import numpy as np
import pytest

from layby.errors import SqlError
from layby.trace.batch import Batch
from layby.trace.cursor import Cursor
from layby.trace.series import constant_batch, series_batch
from layby.types.column import column_from_values
from layby.types.scalar import BIGINT, INTEGER, TEXT, PhysicalValue, SqlType
from tests.trace.model import updates_of


def walked(batch: Batch, fuel: int) -> list[PhysicalValue]:
    cursor = Cursor((batch,))
    found: list[PhysicalValue] = []
    while (visit := cursor.advance(fuel)) is not None:
        for part, start, stop in visit.slices:
            found += part.columns[0].slice(start, stop).to_list()
    return found


@pytest.mark.parametrize(
    ("start", "stop", "step", "expected"),
    [
        (1, 5, 1, [1, 2, 3, 4, 5]),
        (1, 6, 2, [1, 3, 5]),
        (5, 1, -2, [5, 3, 1]),
        (5, 1, 1, []),
        (1, 5, -1, []),
        (3, 3, 7, [3]),
        (2**31 - 3, 2**31 - 1, 2, [2**31 - 3, 2**31 - 1]),
    ],
)
def test_a_series_has_the_values_of_generate_series(
    start: int, stop: int, step: int, expected: list[PhysicalValue]
) -> None:
    batch = series_batch(start, stop, step, INTEGER)
    assert len(batch) == len(expected)
    assert walked(batch, 2) == expected


@pytest.mark.parametrize(
    ("start", "stop", "step", "expected"),
    [
        (-(2**63), 2**63 - 1, 2**63 - 1, [-(2**63), -1, 2**63 - 2]),
        (2**63 - 1, -(2**63), -(2**63), [2**63 - 1, -1]),
        (2**63 - 2, 2**63 - 1, 5, [2**63 - 2]),
    ],
)
def test_a_series_ends_at_the_bounds_of_its_type_without_overflow(
    start: int, stop: int, step: int, expected: list[PhysicalValue]
) -> None:
    assert walked(series_batch(start, stop, step, BIGINT), 10) == expected


def test_a_series_of_all_bigints_costs_nothing_until_it_is_walked() -> None:
    batch = series_batch(-(2**63), 2**63 - 1, 1, BIGINT)
    assert batch.nbytes == 16
    assert batch.columns[0].slice(5, 8).to_list() == [-(2**63) + 5, -(2**63) + 6, -(2**63) + 7]


@pytest.mark.parametrize("type_", [INTEGER, BIGINT])
def test_a_series_has_the_type_asked_for(type_: SqlType) -> None:
    part = series_batch(0, 10, 1, type_).columns[0].slice(2, 4)
    assert part.type is type_
    assert getattr(part, "values").dtype == type_.dtype  # noqa: B009 - a column in general has no values
    assert part.to_list() == [2, 3]


def test_values_of_a_series_can_be_taken_one_by_one() -> None:
    column = series_batch(10, 0, -3, INTEGER).columns[0]
    assert [column.value(i) for i in range(4)] == [10, 7, 4, 1]
    assert column.to_list() == [10, 7, 4, 1]
    assert column.take(np.array([3, 0])).to_list() == [1, 10]


def test_a_step_of_zero_is_refused() -> None:
    with pytest.raises(SqlError, match=r"^step size cannot equal zero$") as raised:
        series_batch(1, 2, 0, INTEGER)
    assert raised.value.sqlstate == "22023"


def test_constant_rows_stay_in_the_order_given() -> None:
    columns = [column_from_values(INTEGER, [3, 1, 2]), column_from_values(TEXT, ["c", "a", "b"])]
    batch = constant_batch(columns, [INTEGER, TEXT])
    assert [u[0] for u in updates_of(batch)] == [(3, "c"), (1, "a"), (2, "b")]
    assert (batch.inserts_only, batch.min_time) == (True, -(2**63))
    assert walked(batch, 1) == [3, 1, 2]


def test_one_row_of_no_columns_can_be_read() -> None:
    visit = Cursor((constant_batch([], [], 1),)).advance(5)
    assert visit is not None
    assert visit.positions == 1
