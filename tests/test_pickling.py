"""Dataclasses that are pickled as a call come back equal."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from layby.pickling import pickled_as_call


@pickled_as_call
@dataclass(frozen=True, slots=True)
class One:
    value: object


@pickled_as_call
@dataclass(frozen=True, slots=True)
class Two:
    left: One
    right: tuple[int, ...] = (1, 2)


@pytest.mark.parametrize("value", [One(None), One((3, 4)), Two(One("x")), Two(One(5), ())])
def test_an_instance_comes_back_equal(value: object) -> None:
    back = pickle.loads(pickle.dumps(value))
    assert type(back) is type(value)
    assert back == value


def test_what_is_held_twice_comes_back_as_one() -> None:
    one = One(object)
    first, second = pickle.loads(pickle.dumps((Two(one), Two(one))))
    assert first.left is second.left
