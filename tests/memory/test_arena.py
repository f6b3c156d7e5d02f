"""Arenas: where buffers live."""

from __future__ import annotations

import numpy as np

from layby.memory.arena import HEAP


def test_placing_an_array_that_owns_its_memory_copies_nothing() -> None:
    array = np.arange(10)
    owned = array.copy()
    assert HEAP.place(owned) is owned


def test_placing_a_view_lets_go_of_its_base() -> None:
    base = np.arange(1000)
    placed = HEAP.place(base[10:20])
    assert placed.base is None
    assert placed.tolist() == list(range(10, 20))


def test_placing_a_strided_view_makes_it_contiguous() -> None:
    placed = HEAP.place(np.arange(10)[::-3])
    assert placed.flags.c_contiguous
    assert placed.tolist() == [9, 6, 3, 0]


def test_an_empty_array_has_the_length_and_type_asked_for() -> None:
    array = HEAP.empty(3, np.dtype(np.int16))
    assert (len(array), array.dtype) == (3, np.dtype(np.int16))
