"""Long lists of keys: what a read seeks on the serving loop is bounded, however few positions it visits."""

from __future__ import annotations

import pytest

from layby.expr.function import overloads
from layby.expr.scalar import Call, ColumnRef, Literal
from layby.peek.budget import TURN_S
from layby.peek.pending import PeekState
from layby.trace.cursor import SEEKS, Cursor
from layby.trace.search import seek
from layby.types.scalar import BIGINT
from tests.peek.harness import Harness, bundle_of, keys, pairs, rows_of, spec

KEYS = 10_000
GREATER = next(f for f in overloads(">") if f.args == (BIGINT, BIGINT))
ROWS = tuple((k, -k) for k in range(0, KEYS, 2))


@pytest.fixture
def seeks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Count the seeks, and have each move the clocks given to it by so many seconds."""
    done: list[float] = []

    def counted(*args: object) -> object:
        done.append(0.0)
        return seek(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("layby.trace.cursor.seek", counted)
    return done


class SeekingClock:
    """Shows so many seconds for each seek done."""

    def __init__(self, seeks: list[float], each: float) -> None:
        self._seeks = seeks
        self._each = each

    def __call__(self) -> float:
        return len(self._seeks) * self._each


def harness(seeks: list[float], each: float, offload: str = "on") -> Harness:
    made = Harness(bundle_of(pairs(*ROWS)), inline_budget=16_384, offload=offload)
    made.worker._clock = SeekingClock(seeks, each)
    return made


def test_a_visit_seeks_a_bounded_number_of_ranges(seeks: list[float]) -> None:
    snapshot = bundle_of(pairs(*ROWS)).snapshot()
    walk = Cursor(snapshot.oks, keys(*range(KEYS)))
    visited = []
    while (visit := walk.advance(KEYS)) is not None:
        visited.append((visit.positions, len(visit.slices), len(seeks)))
        seeks.clear()
    assert visited[:-1] == [(SEEKS, SEEKS // 2, SEEKS)] * (KEYS // SEEKS)
    assert visited[-1] == (KEYS % SEEKS, KEYS % SEEKS // 2, KEYS % SEEKS)


def test_a_list_of_keys_that_takes_long_is_suspended_and_offloaded(seeks: list[float]) -> None:
    loop = harness(seeks, TURN_S / 150)
    peek, response = loop.peek(spec(constraints=keys(*range(KEYS))))
    assert response is None
    assert peek.state is PeekState.WALKING
    assert len(seeks) == 2 * SEEKS
    assert peek.inline_positions == 2 * SEEKS
    loop.settle()
    assert rows_of(loop.answers[peek]) == list(ROWS)
    assert loop.metrics.row_iteration_rows.sum == KEYS


def test_a_list_of_keys_that_takes_little_is_answered_at_once(seeks: list[float]) -> None:
    loop = harness(seeks, TURN_S / 150)
    _, response = loop.peek(spec(constraints=keys(*range(SEEKS + 20))))
    assert rows_of(response) == [r for r in ROWS if r[0] < SEEKS + 20]


def test_a_list_of_keys_after_a_long_range_is_bounded_in_its_own_turn(seeks: list[float]) -> None:
    """A quiet walk whose last slice visited many positions in no time gets no more seeks for that."""
    hot = tuple((-1, v) for v in range(200_000))
    loop = Harness(bundle_of(pairs(*hot, *ROWS)), inline_budget=1_000, quiet_budget=1_000_000)
    loop.worker._clock = SeekingClock(seeks, TURN_S / 50)
    wanted = Call(GREATER, (ColumnRef(1, BIGINT), Literal(1_000_000, BIGINT)))
    peek, _ = loop.peek(spec(constraints=keys(-1, *range(KEYS)), predicates=(wanted,)))
    assert (peek.state, len(seeks)) == (PeekState.QUIET, 1 + SEEKS)
    while peek.state is PeekState.QUIET:
        loop.turn()
    assert len(seeks) == 1 + 2 * SEEKS
    loop.settle()
    assert rows_of(loop.answers[peek]) == []


def test_with_the_offload_off_nothing_is_suspended(seeks: list[float]) -> None:
    loop = harness(seeks, TURN_S, offload="off")
    _, response = loop.peek(spec(constraints=keys(*range(KEYS))))
    assert rows_of(response) == list(ROWS)
