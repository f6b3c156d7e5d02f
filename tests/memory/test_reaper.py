"""The reaper: large segments are unmapped where it runs, not where they were let go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from layby.memory.reaper import LARGE, Reaper
from layby.memory.segment import Segment, mapped_bytes

BYTES = np.dtype(np.uint8)


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    reaper = Reaper()
    Segment.on_unused = reaper.take
    yield reaper
    Segment.on_unused = None
    while reaper.step(wait=False):
        pass


def _is_mapped(address: int) -> bool:
    """Whether a segment is mapped at an address, by what the kernel says."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return any(int(line.split("-")[0], 16) == address and "memfd:layby" in line for line in lines)


def _is_open(descriptor: int) -> bool:
    try:
        return "memfd:layby" in str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except FileNotFoundError:
        return False


def test_a_large_segment_is_unmapped_by_the_reaper_and_nothing_of_it_is_left(reaper: Reaper) -> None:
    before = mapped_bytes()
    segment = Segment.create(LARGE)
    address, descriptor = segment.address, segment.fd
    array = segment.view(0, BYTES, LARGE)
    array[:] = 1
    del segment
    assert not reaper.step(wait=False)
    del array

    assert _is_mapped(address)
    assert mapped_bytes() == before + LARGE
    assert reaper.step(wait=False)
    assert not _is_mapped(address)
    assert not _is_open(descriptor)
    assert mapped_bytes() == before
    assert not reaper.step(wait=False)


def test_a_small_segment_is_unmapped_where_it_is_let_go(reaper: Reaper) -> None:
    segment = Segment.create(LARGE // 2)
    address, descriptor = segment.address, segment.fd
    del segment

    assert not reaper.step(wait=False)
    assert not _is_mapped(address)
    assert not _is_open(descriptor)


def test_the_contents_live_on_where_another_mapping_holds_them(reaper: Reaper) -> None:
    first = Segment.create(LARGE)
    first.view(0, BYTES, LARGE)[:] = 7
    other = Segment.map(first.identity, os.dup(first.fd), LARGE)
    del first
    assert reaper.step(wait=False)

    assert other.view(0, BYTES, LARGE).min() == 7
