"""The pace of a step: when it ends, how long its next visit may be, and how many go without a look."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from layby.peek.pace import Pace


def pace(*looks: float, most: int | None = None, even: bool = False) -> Pace:
    """Return the pace of a step of 160 seconds that began at 0, with visits of up to 1,000 positions."""
    times: Iterator[float] = iter(looks)
    return Pace(lambda: next(times), 160.0, 0.0, 0.0, most, 1_000, even)


@pytest.mark.parametrize(
    ("most", "looks", "over"),
    [
        pytest.param(None, (80.0,), False, id="another-just-fits"),
        pytest.param(None, (81.0,), True, id="another-does-not-fit"),
        pytest.param(10, (150.0,), False, id="a-shorter-one-fits"),
        pytest.param(10, (151.0,), True, id="the-last-sixteenth"),
        pytest.param(10, (161.0,), True, id="no-time-is-left"),
    ],
)
def test_a_step_is_over_where_no_other_visit_fits(
    most: int | None, looks: tuple[float, ...], over: bool
) -> None:
    assert pace(*looks, most=most).is_over(10) is over


@pytest.mark.parametrize(
    ("most", "look", "positions", "next_"),
    [
        pytest.param(10, 32.0, 10, 40, id="what-fits"),
        pytest.param(10, 1.0, 10, 640, id="64-times-as-long"),
        pytest.param(10, 0.0, 10, 640, id="no-time-at-all"),
        pytest.param(100, 8.0, 100, 1_000, id="no-longer-than-the-longest"),
        pytest.param(10, 150.0, 10, 1, id="at-least-one"),
        pytest.param(1_000, 120.0, 900, 300, id="shorter-again"),
        pytest.param(1_000, 80.0, 10, 1_000, id="a-short-one-that-fits-shortens-none"),
        pytest.param(None, 1.0, 10, 1_000, id="not-made-to-fit"),
    ],
)
def test_the_next_visit_is_as_long_as_the_last_shows_to_fit(
    most: int | None, look: float, positions: int, next_: int
) -> None:
    made = pace(look, most=most)
    assert not made.is_over(positions)
    assert made.most == next_


@pytest.mark.parametrize(("look", "unwatched"), [(10.0, 15), (10.1, 7), (40.0, 1), (60.0, 0)])
def test_of_visits_that_take_alike_half_of_those_that_fit_go_unwatched_or_fifteen_where_all_do(
    look: float, unwatched: int
) -> None:
    made = pace(look, even=True)
    assert not made.is_over(1_000)
    assert made.unwatched == unwatched


def test_a_visit_that_took_no_time_at_the_end_of_it_tells_nothing() -> None:
    made = Pace(lambda: 160.0, 160.0, 0.0, 160.0, 10, 1_000, even=True)
    assert not made.is_over(10)
    assert (made.most, made.unwatched) == (640, 15)


def test_what_a_visit_took_is_its_part_of_the_time_between_two_looks() -> None:
    made = pace(10.0, 90.0, 125.0, even=True, most=1_000)
    assert not made.is_over(1_000)
    assert made.unwatched == 15
    # 80 seconds for sixteen visits are 5 each: of those that fit into 70 seconds, half go unwatched.
    assert not made.is_over(1_000)
    assert made.unwatched == 7
    # 35 for eight, and as many are left.
    assert not made.is_over(1_000)
    assert made.unwatched == 4


def test_how_many_go_unwatched_is_reckoned_of_visits_as_long_as_the_next() -> None:
    made = pace(4.0, even=True, most=100)
    assert not made.is_over(100)
    # A visit of 1,000 takes 40 seconds, and three of them fit.
    assert (made.most, made.unwatched) == (1_000, 1)
