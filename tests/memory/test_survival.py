"""Survival: how soon a process that died is replaced."""

from __future__ import annotations

from layby.memory.survival import Survival


def test_the_first_death_costs_no_pause_and_the_next_ones_ever_more_up_to_a_bound() -> None:
    survival = Survival(lambda: 100.0)
    pauses = [survival.died(99.0) for _ in range(10)]
    assert pauses == [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_process_that_lived_long_is_replaced_at_once_again() -> None:
    survival = Survival(lambda: 100.0)
    for _ in range(5):
        survival.died(99.0)
    assert survival.died(90.0) == 0.0


def test_three_deaths_in_a_row_soon_after_the_start_leave_no_hope_until_one_does_its_work() -> None:
    survival = Survival(lambda: 100.0)
    hopes = []
    for _ in range(3):
        survival.died(99.0)
        hopes.append(survival.hopeful)
    survival.lives()
    hopes.append(survival.hopeful)
    assert hopes == [True, True, False, True]
