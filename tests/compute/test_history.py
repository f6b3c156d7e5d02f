"""The reduced command history: what stands for all commands so far, and no more."""

from __future__ import annotations

from layby.compute.history import CommandHistory
from layby.compute.protocol import (
    AllowCompaction,
    CancelPeek,
    Command,
    CreateInstance,
    InitializationComplete,
    UpdateConfiguration,
)
from tests.compute.replicas import index, peek, table


def reduced(*commands: Command) -> list[Command]:
    history = CommandHistory()
    for command in commands:
        history.push(command)
    return history.commands()


def test_what_exists_stays_in_the_order_of_its_making() -> None:
    commands: list[Command] = [
        CreateInstance("a"),
        table(1, 1),
        index(2, 1),
        peek(1, 2),
        InitializationComplete(),
    ]
    assert reduced(*commands) == commands


def test_a_dropped_dataflow_leaves_nothing() -> None:
    assert reduced(table(1, 1), index(2, 1), AllowCompaction(2, 5), AllowCompaction(2, None)) == [table(1, 1)]


def test_configurations_become_one_and_the_last_value_counts() -> None:
    first = UpdateConfiguration((("a", "1"), ("b", "1")))
    assert reduced(first, UpdateConfiguration((("a", "2"),))) == [
        UpdateConfiguration((("a", "2"), ("b", "1")))
    ]


def test_the_furthest_frontier_counts() -> None:
    assert reduced(table(1, 1), AllowCompaction(1, 5), AllowCompaction(1, 9), AllowCompaction(1, 7)) == [
        table(1, 1),
        AllowCompaction(1, 9),
    ]


def test_compaction_of_what_does_not_exist_is_left_out() -> None:
    assert reduced(AllowCompaction(1, 5), AllowCompaction(2, None)) == []


def test_peeks_come_before_what_may_be_compacted_so_that_they_pin_it() -> None:
    assert reduced(table(1, 1), AllowCompaction(1, 50), peek(1, 1)) == [
        table(1, 1),
        peek(1, 1),
        AllowCompaction(1, 50),
    ]


def test_a_cancelled_peek_leaves_nothing() -> None:
    assert reduced(peek(1, 1), peek(2, 1), CancelPeek(1)) == [peek(2, 1)]


def test_an_answered_peek_leaves_nothing_and_is_answered_once() -> None:
    history = CommandHistory()
    history.push(peek(1, 1))
    assert history.answered(1)
    assert not history.answered(1)
    assert history.commands() == []


def test_another_instance_begins_with_nothing() -> None:
    before: list[Command] = [CreateInstance("a"), UpdateConfiguration((("a", "1"),)), table(1, 1), peek(1, 1)]
    assert reduced(*before, InitializationComplete(), CreateInstance("b")) == [CreateInstance("b")]


def test_a_reduced_history_reduces_to_itself() -> None:
    once = reduced(
        CreateInstance("a"),
        UpdateConfiguration((("a", "1"),)),
        table(1, 1),
        index(2, 1),
        peek(3, 2),
        AllowCompaction(2, 7),
        InitializationComplete(),
    )
    assert reduced(*once) == once
