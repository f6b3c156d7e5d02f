"""The row iteration limit, wide rows, and parameters that change while peeks are under way."""

from __future__ import annotations

import pytest

from layby.config import PARAMETERS, SystemParameters
from layby.errors import SqlError
from layby.expr.function import overloads
from layby.expr.scalar import Call, ColumnRef, Literal
from layby.peek.process_pool import ProcessWalkPool
from layby.trace.layout import Layout
from layby.types.ordering import ASCENDING
from layby.types.scalar import BIGINT, TEXT
from tests.peek.harness import (
    Harness,
    HarnessOn,
    append_error,
    bundle_of,
    error_of,
    finishing,
    keys,
    pairs,
    rows_of,
    spec,
)

HUNDRED = tuple((k, k) for k in range(100))
TOO_FAR = ("54000", 'peek of "test" exceeds the row iteration limit of 99')


def walks(harness: Harness) -> tuple[int, int]:
    """Return the walks that ended inline and offloaded."""
    return harness.metrics.walks_inline, harness.metrics.walks_offloaded


# The row iteration limit


def test_a_peek_of_as_many_positions_as_the_limit_is_answered() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), iteration_limit=100)
    assert rows_of(harness.ask()) == list(HUNDRED)


def test_an_inline_peek_fails_at_the_first_position_beyond_the_limit() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), iteration_limit=99)
    assert error_of(harness.ask()) == TOO_FAR
    assert walks(harness) == (1, 0)
    assert harness.metrics.row_iteration_rows.sum == 100


def test_the_row_that_passes_the_limit_is_not_looked_at() -> None:
    divide = next(f for f in overloads("/") if f.args == (BIGINT, BIGINT))
    minus = next(f for f in overloads("-") if f.args == (BIGINT, BIGINT))
    raises_at_99 = Call(
        divide, (Literal(1, BIGINT), Call(minus, (ColumnRef(0, BIGINT), Literal(99, BIGINT))))
    )
    asked = spec(outputs=[raises_at_99])
    assert error_of(Harness(bundle_of(pairs(*HUNDRED))).ask(asked))[0] == "22012"
    assert error_of(Harness(bundle_of(pairs(*HUNDRED)), iteration_limit=99).ask(asked)) == TOO_FAR


def test_the_limit_bounds_a_peek_with_the_offload_off() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), offload="off", iteration_limit=99)
    assert error_of(harness.ask()) == TOO_FAR


def test_an_offloaded_peek_fails_at_the_first_position_beyond_the_limit(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=30, granularity=30, iteration_limit=99)
    assert error_of(harness.ask()) == TOO_FAR
    assert walks(harness) == (0, 1)
    assert harness.metrics.row_iteration_rows.sum == 100
    assert harness.metrics.permits_in_use == 0
    assert harness.metrics.pinned_bytes == 0


def test_the_error_says_what_to_do() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), iteration_limit=99)
    response = harness.ask()
    assert "compute_peek_row_iteration_limit" in str(getattr(response, "error").hint)  # noqa: B009


def test_the_limit_counts_both_phases_together() -> None:
    bundle = bundle_of(pairs(*HUNDRED))
    append_error(bundle, "gone", 10, 1, 11)
    append_error(bundle, "gone", 11, -1, 12)
    assert rows_of(Harness(bundle, iteration_limit=102).ask()) == list(HUNDRED)
    assert error_of(Harness(bundle, iteration_limit=101).ask()) == (
        "54000",
        'peek of "test" exceeds the row iteration limit of 101',
    )


def test_the_error_phase_alone_can_pass_the_limit() -> None:
    bundle = bundle_of(pairs((1, 1)))
    for time in range(10, 20, 2):
        append_error(bundle, "gone", time, 1, time + 1)
        append_error(bundle, "gone", time + 1, -1, time + 2)
    harness = Harness(bundle, iteration_limit=9)
    assert error_of(harness.ask())[0] == "54000"
    assert harness.metrics.row_iteration_rows.sum == 10


def test_a_walk_that_a_limit_clause_ends_before_the_limit_is_answered() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), iteration_limit=10)
    assert rows_of(harness.ask(spec(finish=finishing(2, limit=10)))) == list(HUNDRED[:10])


def test_lookups_that_miss_count_too() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), iteration_limit=2)
    assert rows_of(harness.ask(spec(constraints=keys(500, 501)))) == []
    assert error_of(harness.ask(spec(constraints=keys(500, 501, 502))))[0] == "54000"


def test_a_lower_limit_reaches_a_walk_under_way_at_its_next_slice(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=10, granularity=10)
    peek, _ = harness.peek()
    harness.pool.step()
    walk = harness.pool.walk()
    assert walk.progress == (20, 20)
    harness.parameters.set("compute_peek_row_iteration_limit", "15")
    harness.settle()
    assert walk.scan.positions == 21
    assert error_of(harness.answers[peek])[0] == "54000"


def test_a_higher_limit_reaches_a_walk_under_way(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=10, granularity=10, iteration_limit=50)
    peek, _ = harness.peek()
    harness.parameters.set("compute_peek_row_iteration_limit", "0")
    harness.settle()
    assert rows_of(harness.answers[peek]) == list(HUNDRED)


def test_the_limit_is_told_to_walks_in_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = SystemParameters({"compute_peek_row_iteration_limit": "7"})
    pool = ProcessWalkPool.__new__(ProcessWalkPool)
    page: dict[int, int] = {}
    monkeypatch.setattr(pool, "_page", page, raising=False)
    monkeypatch.setattr(pool, "_parameters", lambda: parameters.peek, raising=False)
    pool.parameters_changed()
    assert 7 in page.values()


# Wide rows

TEXTS = Layout((BIGINT, TEXT), (ASCENDING,))


def test_wide_rows_spend_an_inline_budget_that_as_many_narrow_ones_do_not(harness_on: HarnessOn) -> None:
    narrow = bundle_of([((k, "x" * 10), 1, 1) for k in range(20)], layout=TEXTS)
    wide = bundle_of([((k, "x" * 5000), 1, 1) for k in range(20)], layout=TEXTS)
    asked = spec(types=TEXTS.types)
    assert len(rows_of((one := harness_on(narrow, inline_budget=21)).ask(asked))) == 20
    assert walks(one) == (1, 0)
    other = harness_on(wide, inline_budget=20, granularity=25)
    peek, response = other.peek(asked)
    assert response is None
    walk = other.pool.walk()
    assert walk.progress == (20, 4)
    other.pool.step()
    assert walk.progress == (45, 9)
    other.settle()
    assert walk.scan.positions == 100
    assert rows_of(other.answers[peek]) == [(k, "x" * 5000) for k in range(20)]


def test_one_row_wider_than_any_budget_is_answered(harness_on: HarnessOn) -> None:
    bundle = bundle_of([((1, "x" * 100_000), 1, 1)], layout=TEXTS)
    harness = harness_on(bundle, inline_budget=1, granularity=1)
    assert rows_of(harness.ask(spec(types=TEXTS.types))) == [(1, "x" * 100_000)]
    assert harness.metrics.row_iteration_rows.sum == 98


# Changes of parameters


def test_a_changed_inline_budget_is_what_the_next_peek_gets(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=101)
    assert len(rows_of(harness.ask())) == 100
    harness.parameters.set("compute_index_peek_inline_budget", "99")
    assert len(rows_of(harness.ask())) == 100
    assert walks(harness) == (1, 1)


def test_a_changed_activation_budget_reaches_the_next_activation_and_not_the_one_under_way() -> None:
    harness = Harness(bundle_of(pairs(*HUNDRED)), inline_budget=101, activation_budget=100)
    assert harness.peek()[1] is not None
    harness.parameters.set("compute_index_peek_activation_budget", "1000")
    waiting = [harness.peek() for _ in range(4)]
    assert [response for _, response in waiting] == [None] * 4
    harness.turn()
    assert [len(rows_of(harness.answers[peek])) for peek, _ in waiting] == [100] * 4


def test_the_offload_can_be_switched_on_and_off_between_two_peeks(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), offload="off", inline_budget=1)
    assert harness.peek()[1] is not None
    harness.parameters.set("enable_compute_index_peek_offload", "on")
    assert harness.peek()[1] is None
    harness.settle()
    harness.parameters.reset("enable_compute_index_peek_offload")
    assert harness.peek()[1] is not None
    assert walks(harness) == (2, 1)


def test_a_changed_fraction_admits_walks_that_wait(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), pool_size=4, inline_budget=1, fraction=0.25)
    for _ in range(3):
        harness.peek()
    assert (harness.metrics.permits_in_use, harness.metrics.permits_queued) == (1, 2)
    harness.parameters.set("compute_index_peek_permit_fraction", "0.75")
    assert (harness.metrics.permits_in_use, harness.metrics.permits_queued) == (3, 0)


def test_a_changed_bound_of_the_queue_is_what_the_next_walk_meets(harness_on: HarnessOn) -> None:
    harness = harness_on(bundle_of(pairs(*HUNDRED)), inline_budget=1, activation_budget=100, max_queued=1)
    harness.peek()
    harness.peek()
    assert error_of(harness.peek()[1])[0] == "53400"
    harness.parameters.set("compute_index_peek_max_queued", "2")
    assert harness.peek()[1] is None
    assert harness.metrics.permits_queued == 2


@pytest.mark.parametrize(
    ("name", "default", "bad", "message"),
    [
        ("enable_compute_index_peek_offload", "off", "maybe", "requires a Boolean value"),
        ("compute_index_peek_inline_budget", None, "-1", "is outside the valid range"),
        ("compute_index_peek_activation_budget", None, "-1", "is outside the valid range"),
        ("compute_index_peek_yield_granularity", None, "0", "is outside the valid range"),
        ("compute_index_peek_permit_fraction", "1", "all", "invalid value"),
        ("compute_index_peek_max_queued", "1000", "-1", "is outside the valid range"),
        ("compute_peek_row_iteration_limit", "0", "-1", "is outside the valid range"),
        ("peek_response_stash_threshold_bytes", "16MB", "12 parsecs", "invalid value"),
        ("enable_compute_peek_response_stash", "on", "", "requires a Boolean value"),
        ("max_result_size", "1GB", "-1", "invalid value"),
    ],
)
def test_a_bad_value_is_refused_and_leaves_the_old_one_in_force(
    name: str, default: str | None, bad: str, message: str
) -> None:
    parameters = SystemParameters()
    before, peek = parameters.show(name), parameters.peek
    with pytest.raises(SqlError, match=message) as raised:
        parameters.set(name, bad)
    assert raised.value.sqlstate == "22023"
    assert parameters.show(name) == before
    assert default is None or before == default
    assert parameters.peek is peek
    described = PARAMETERS[name]
    assert described.scope == "system"
    assert described.description.rstrip(".").strip()
    assert described.description.endswith(".")
