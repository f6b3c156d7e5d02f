"""Sealed values: they go through a process unopened, and are opened one by one."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from layby.compute.arrangement import Updates
from layby.memory.channel import Channel
from layby.memory.sealed import FEW, Crossing, Sealed, sealed
from layby.memory.segment import mapped_bytes, segment_of
from layby.memory.shared_arena import SharedArena
from layby.peek.answer import Rows
from layby.trace.batch import Batch, build_batch
from layby.trace.constraints import KeyRange
from layby.trace.layout import Layout
from layby.trace.search import seek
from layby.types.column import FixedColumn, column_from_values
from layby.types.ordering import ASCENDING
from layby.types.scalar import BIGINT, TEXT

WIDTH = 200
LAYOUT = Layout((BIGINT, TEXT) * (WIDTH // 2), (ASCENDING,))

opened: list[int] = []


class Noted:
    """A value that notes where it is taken out of a pickle."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return note, (self.number,)


def note(number: int) -> Noted:
    opened.append(number)
    return Noted(number)


@pytest.fixture(autouse=True)
def nothing_opened() -> None:
    opened.clear()


@pytest.fixture
def ways() -> Iterator[list[tuple[Channel, Channel]]]:
    """Two channels, the second of which leads on from where the first ends."""
    before = mapped_bytes()
    made = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2)]
    pairs = [(Channel(left), Channel(right)) for left, right in made]
    yield pairs
    for pair in pairs:
        for channel in pair:
            channel.close()
    del pairs, pair, channel
    gc.collect()
    assert mapped_bytes() == before


def through(ways: list[tuple[Channel, Channel]], value: object) -> Any:
    """Send a value on from the process that it is sent to."""
    for sender, receiver in ways:
        sender.send(value)
        value = receiver.receive()
    return value


def batch_of(arena: SharedArena, count: int) -> Batch:
    numbers = [column_from_values(BIGINT, [at * k for k in range(count)]) for at in range(1, WIDTH // 2 + 1)]
    texts = [column_from_values(TEXT, [f"{at} {k}" for k in range(count)]) for at in range(WIDTH // 2)]
    columns = [column for pair in zip(numbers, texts, strict=True) for column in pair]
    return build_batch(LAYOUT, columns, 5, 1, 5, 6, 0, arena)


def test_many_values_cross_two_channels_unopened(ways: list[tuple[Channel, Channel]]) -> None:
    got = through(ways, sealed([Noted(n) for n in range(FEW + 1)]))
    assert opened == []
    assert len(got) == FEW + 1
    assert got[7].number == got[7].number == 7
    assert got[-1].number == FEW
    assert opened == [7, FEW]
    assert [value.number for value in got] == list(range(FEW + 1))
    assert [value.number for value in got[2:5]] == [2, 3, 4]
    assert len(opened) == FEW + 1
    with pytest.raises(IndexError):
        got[FEW + 1]


def test_a_long_part_of_sealed_values_is_sealed_too(ways: list[tuple[Channel, Channel]]) -> None:
    got = through(ways, sealed([Noted(n) for n in range(3 * FEW)]))
    part = got[FEW : 2 * FEW + 1]
    assert opened == []
    assert len(part) == FEW + 1
    assert [part[0].number, part[-1].number] == [FEW, 2 * FEW]
    assert [value.number for value in through(ways, part)] == list(range(FEW, 2 * FEW + 1))
    assert [value.number for value in got[::-1][:2]] == [3 * FEW - 1, 3 * FEW - 2]


def test_many_values_that_lie_open_arrive_sealed_and_few_open(ways: list[tuple[Channel, Channel]]) -> None:
    many, few = Crossing(map(Noted, range(FEW + 1))), Crossing(map(Noted, range(FEW)))
    got = through(ways, (many, few))
    assert isinstance(many, tuple)
    assert isinstance(got[0], Sealed)
    assert type(got[1]) is tuple
    assert [value.number for value in got[1]] == list(range(FEW))
    assert [value.number for value in got[0]] == list(range(FEW + 1))


def test_the_size_of_updates_is_known_without_opening_them(ways: list[tuple[Channel, Channel]]) -> None:
    columns = tuple(column_from_values(BIGINT, [at, at]) for at in range(WIDTH))
    got = through(ways, Updates(columns, np.ones(2, np.int64)))
    assert isinstance(got.columns, Sealed)
    assert got.nbytes == 2 * 8 * WIDTH
    assert [c.to_list() for c in got.columns] == [[at, at] for at in range(WIDTH)]


def test_rows_of_many_columns_cross_unopened(ways: list[tuple[Channel, Channel]]) -> None:
    got = through(ways, Rows(2, tuple(column_from_values(BIGINT, [at, at]) for at in range(WIDTH))))
    assert (got.count, type(got.columns), len(got.columns)) == (2, Sealed, WIDTH)
    assert got.columns[7].to_list() == [7, 7]


def test_few_values_cross_as_they_are() -> None:
    values = [Noted(n) for n in range(FEW)]
    assert sealed(values) is values


def test_what_is_sealed_is_not_sealed_again() -> None:
    once = sealed(list(range(FEW + 1)))
    assert isinstance(once, Sealed)
    assert sealed(once) is once


def test_sealed_arrays_lie_in_the_segments_that_they_came_from(
    ways: list[tuple[Channel, Channel]],
) -> None:
    arena = SharedArena()
    placed = [arena.place(np.arange(n, n + 3)) for n in range(FEW)]
    own = arena.place(np.full(1 << 18, 9))
    got: Sequence[Any] = through(ways, sealed([*placed, own, np.arange(3)]))
    del placed, own
    assert [a.tolist() for a in got[:FEW]] == [[n, n + 1, n + 2] for n in range(FEW)]
    segments = {segment_of(a) for a in got}
    assert len(segments) == 3
    assert segment_of(got[-1]) is None
    assert (len(got[FEW]), int(got[FEW].min()), int(got[FEW].max())) == (1 << 18, 9, 9)
    assert got[FEW].strides == (8,)
    del segments


def test_a_wide_batch_crosses_unopened_and_reads_the_same(ways: list[tuple[Channel, Channel]]) -> None:
    batch = batch_of(SharedArena(), 50)
    got = through(ways, batch)
    assert isinstance(got.columns, Sealed)
    assert (len(got), got.layout, got.nbytes) == (50, LAYOUT, batch.nbytes)
    assert [c.to_list() for c in got.columns] == [c.to_list() for c in batch.columns]
    assert segment_of(got.columns[0].values) is not None
    assert segment_of(got.columns[1].offsets) is not None


def test_a_search_opens_the_columns_that_it_searches(ways: list[tuple[Channel, Channel]]) -> None:
    got = through(ways, batch_of(SharedArena(), 50))
    assert seek(got, KeyRange((20,))) == (20, 21)
    assert [at for at, column in enumerate(got.columns._opened) if column is not None] == [0]


def test_a_narrow_batch_crosses_open(ways: list[tuple[Channel, Channel]]) -> None:
    columns = [column_from_values(BIGINT, [1, 2])]
    got = through(ways, build_batch(Layout((BIGINT,), (ASCENDING,)), columns, 5, 1, 5, 6, 0, SharedArena()))
    assert isinstance(got.columns, tuple)
    assert isinstance(got.columns[0], FixedColumn)
