"""Segments, the shared arena and channels: what is shared, by reference, and that nothing is left."""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layby.memory.channel import Channel, ChannelClosedError
from layby.memory.segment import Segment, mapped_bytes, segment_of
from layby.memory.shared_arena import SharedArena
from layby.trace.batch import Batch, build_batch
from layby.trace.layout import Layout
from layby.types.column import column_from_values
from layby.types.ordering import ASCENDING
from layby.types.scalar import BIGINT, TEXT

LAYOUT = Layout((BIGINT, TEXT), (ASCENDING,))


def descriptors() -> int:
    """Return how many descriptors of segments this process has open."""
    return sum(1 for p in Path("/proc/self/fd").iterdir() if _target(p).startswith("/memfd:layby"))


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except FileNotFoundError:
        return ""


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    before = descriptors()
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    pair = Channel(left), Channel(right)
    yield pair
    for channel in pair:
        channel.close()
    del pair
    gc.collect()
    assert descriptors() == before


def batch_of(arena: SharedArena, *keys: int) -> Batch:
    columns = [column_from_values(BIGINT, keys), column_from_values(TEXT, [f"row {k}" for k in keys])]
    return build_batch(LAYOUT, columns, 5, 1, 5, 6, 0, arena)


def test_only_its_creator_can_write_to_a_segment() -> None:
    segment = Segment.create(4096)
    segment.view(0, np.dtype(np.int64), 1)[0] = 7
    mapped = Segment.map(segment.identity, os.dup(segment.fd), 4096)
    assert mapped.view(0, np.dtype(np.int64), 1)[0] == 7
    with pytest.raises(ValueError, match="read-only"):
        mapped.view(0, np.dtype(np.int64), 1)[0] = 8
    with pytest.raises(PermissionError):
        mmap.mmap(segment.fd, 4096)


def test_a_segment_lives_as_long_as_an_array_over_it_and_no_longer() -> None:
    before = descriptors()
    segment = Segment.create(4096)
    gone = weakref.ref(segment)
    part = segment.view(0, np.dtype(np.int64), 512)[100:200][::2]
    del segment
    assert gone() is not None
    assert segment_of(part) is gone()
    del part
    assert gone() is None
    assert descriptors() == before


def test_small_buffers_share_a_segment_and_large_ones_have_their_own() -> None:
    arena = SharedArena()
    small = [arena.place(np.arange(100)) for _ in range(1_000)]
    assert arena.segment_count == 1
    large = arena.place(np.zeros(1 << 20))
    assert arena.segment_count == 2
    assert segment_of(large) is not segment_of(small[0])
    assert all((s == np.arange(100)).all() for s in small)
    del large
    assert arena.segment_count == 1


def test_placing_what_lies_in_a_segment_copies_nothing() -> None:
    arena = SharedArena()
    placed = arena.place(np.arange(10))
    assert arena.place(placed) is placed


def test_a_batch_crosses_by_reference_and_reads_the_same(channels: tuple[Channel, Channel]) -> None:
    left, right = channels
    arena = SharedArena()
    batch = batch_of(arena, *range(1_000))
    left.send({"batch": batch})
    got = right.receive()["batch"]
    assert [c.to_list() for c in got.columns] == [list(range(1_000)), [f"row {k}" for k in range(1_000)]]
    assert (got.lower, got.upper, got.inserts_only, got.layout) == (5, 6, True, LAYOUT)
    assert segment_of(got.columns[0].values) is not None
    with pytest.raises(ValueError, match="read-only"):
        got.columns[0].values[0] = 1


def test_an_object_that_was_sent_before_is_only_referred_to(channels: tuple[Channel, Channel]) -> None:
    left, right = channels
    batch = batch_of(SharedArena(), 1, 2, 3)
    left.send([batch, batch])
    first, second = right.receive()
    assert first is second
    left.send(batch)
    assert right.receive() is first


def test_what_is_gone_here_is_let_go_there(channels: tuple[Channel, Channel]) -> None:
    left, right = channels
    gc.collect()
    before = descriptors()
    arena = SharedArena()
    batch = batch_of(arena, 1, 2, 3)
    left.send(batch)
    there = weakref.ref(right.receive())
    assert there() is not None
    del batch
    gc.collect()
    arena = SharedArena()
    left.send("next")
    assert right.receive() == "next"
    gc.collect()
    assert there() is None
    assert descriptors() == before


def test_a_segment_that_was_let_go_and_comes_again_is_mapped_again(
    channels: tuple[Channel, Channel],
) -> None:
    left, right = channels
    original = SharedArena()
    array = original.place(np.arange(1_000))
    segment = segment_of(array)
    assert segment is not None
    relayed = Segment.map(segment.identity, os.dup(segment.fd), len(segment))
    left.send(relayed.view(0, np.dtype(np.int64), 10))
    assert right.receive().tolist() == list(range(10))
    del relayed
    again = Segment.map(segment.identity, os.dup(segment.fd), len(segment))
    left.send(again.view(0, np.dtype(np.int64), 3))
    assert right.receive().tolist() == [0, 1, 2]
    left.send(again.view(8, np.dtype(np.int64), 2))
    assert right.receive().tolist() == [1, 2]


def test_a_message_that_cannot_be_pickled_leaves_the_channel_as_it_was(
    channels: tuple[Channel, Channel],
) -> None:
    left, right = channels
    batch = batch_of(SharedArena(), 1)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        left.send([batch, lambda: None])
    left.send(batch)
    assert right.receive().columns[0].to_list() == [1]


def test_more_segments_than_one_call_can_pass_all_arrive(channels: tuple[Channel, Channel]) -> None:
    left, right = channels
    arena = SharedArena()
    arrays = [arena.place(np.full(1 << 17, i)) for i in range(450)]
    left.send(arrays)
    assert [int(a[-1]) for a in right.receive()] == list(range(450))


def test_messages_cut_anywhere_arrive_whole() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    between_in, between_out = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    sender, receiver = Channel(left), Channel(between_out)
    sender.send(list(range(100)))
    sender.send("second")
    raw = right.recv(1 << 20)
    found: list[object] = []
    for at in range(len(raw)):
        between_in.sendall(raw[at : at + 1])
        receiver.read()
        found.extend(receiver.received())
    assert found == [list(range(100)), "second"]
    right.close()
    between_in.close()
    sender.close()
    receiver.close()


def test_the_end_of_the_other_process_is_noticed_in_both_directions(
    channels: tuple[Channel, Channel],
) -> None:
    left, right = channels
    left.socket.close()
    with pytest.raises(ChannelClosedError):
        right.receive()
    with pytest.raises(ChannelClosedError):
        right.send("anybody")


def test_nothing_is_left_of_a_process_that_was_killed_with_segments_mapped() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    code = (
        "import socket, sys, numpy\n"
        "from layby.memory.channel import Channel\n"
        "channel = Channel(socket.socket(fileno=int(sys.argv[1])))\n"
        "kept = channel.receive()\n"
        "channel.send('mapped')\n"
        "channel.receive()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(right.fileno())], pass_fds=[right.fileno()])
    right.close()
    channel = Channel(left)
    arena = SharedArena()
    array = arena.place(np.zeros(1 << 20))
    channel.send(array)
    assert channel.receive() == "mapped"
    segment = segment_of(array)
    assert segment is not None
    inode = os.fstat(segment.fd).st_ino
    child.kill()
    child.wait()
    with pytest.raises(ChannelClosedError):
        channel.receive()
    channel.close()
    del array, segment
    gc.collect()
    assert arena.allocated_bytes == 0
    assert f" {inode} /memfd:layby" not in _maps("self")


def _maps(process: str) -> str:
    return Path(f"/proc/{process}/maps").read_text()


def test_what_the_socket_does_not_take_at_once_is_kept_and_sent_in_order() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    sender, receiver = Channel(left), Channel(right)
    arena = SharedArena()
    large = bytes(range(256)) * 8_192
    sender.send(large, wait=False)
    was_unsent = sender.unsent
    array = arena.place(np.arange(200_000))
    sender.send(array, wait=False)
    del array
    gc.collect()
    found: list[Any] = []
    while len(found) < 2:
        receiver.read()
        while messages := receiver.received():
            found.extend(messages)
        sender.flush()
    assert (was_unsent, sender.unsent) == (True, False)
    assert found[0] == large
    assert found[1].tolist() == list(range(200_000))
    sender.close()
    receiver.close()


def test_a_sender_that_waits_is_let_go_when_the_other_process_ends() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    left.setblocking(False)
    sender = Channel(left)
    failed = threading.Event()

    def send() -> None:
        try:
            sender.send(bytes(4 << 20))
        except ChannelClosedError:
            failed.set()

    thread = threading.Thread(target=send)
    thread.start()
    right.recv(1)
    right.close()
    thread.join(30)
    assert failed.is_set()
    sender.close()


def test_segments_are_counted_once_however_often_they_are_mapped() -> None:
    before = mapped_bytes()
    segment = Segment.create(8_192)
    assert mapped_bytes() == before + 8_192
    again = Segment.map(segment.identity, os.dup(segment.fd), 8_192)
    assert mapped_bytes() == before + 8_192
    del segment
    assert mapped_bytes() == before + 8_192
    del again
    assert mapped_bytes() == before
