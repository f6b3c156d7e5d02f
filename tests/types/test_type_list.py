"""Type lists: the types one by one, and from and to OIDs."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from layby.types.scalar import BIGINT, BOOLEAN, INTEGER, TEXT, TIMESTAMPTZ, UNKNOWN, SqlType
from layby.types.type_list import TypeList

TYPES = [INTEGER, TEXT, UNKNOWN, BOOLEAN, TIMESTAMPTZ, INTEGER]


def none_such(oid: int) -> SqlType:
    raise KeyError(oid)


def test_it_is_the_sequence_of_its_types() -> None:
    types = TypeList.of(TYPES)
    assert len(types) == 6
    assert list(types) == TYPES
    assert [types[at] for at in range(6)] == TYPES
    assert list(types[1:3]) == [TEXT, UNKNOWN]
    assert list(pickle.loads(pickle.dumps(types))) == TYPES


def test_a_client_is_told_text_for_an_unknown() -> None:
    assert TypeList.of(TYPES).oids.tobytes() == np.array([23, 25, 25, 16, 1184, 23], ">u4").tobytes()


def test_oids_are_taken_as_a_client_sends_them() -> None:
    oids = np.array([23, 0, 705, 20, 1184], ">u4")
    assert list(TypeList.with_oids(oids, none_such)) == [INTEGER, UNKNOWN, UNKNOWN, BIGINT, TIMESTAMPTZ]


def test_what_is_no_type_is_asked_for_once_the_first_of_them_first() -> None:
    asked: list[int] = []

    def other(oid: int) -> SqlType:
        asked.append(oid)
        return TEXT

    oids = np.array([23, 1043, 2**32 - 1, 24, 1043], ">u4")
    assert list(TypeList.with_oids(oids, other)) == [INTEGER, TEXT, TEXT, TEXT, TEXT]
    assert asked == [1043, 2**32 - 1, 24]
    with pytest.raises(KeyError, match="1043"):
        TypeList.with_oids(oids, none_such)
