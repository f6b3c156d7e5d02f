"""Rows that stand for many: the copies are made in pieces, and on the loop no more than one of them."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layby.expr.function import overloads
from layby.expr.scalar import Call, ColumnRef, Expr, Literal
from layby.peek import scan as scan_module
from layby.peek.found import FoundRows
from layby.peek.pending import PeekState
from layby.types.ordering import DESCENDING
from layby.types.scalar import BIGINT
from tests.peek.harness import Harness, HarnessOn, bundle_of, error_of, finishing, keys, pairs, rows_of, spec

MANY = 200_000
K, V = ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)


def call(name: str, *args: Expr) -> Call:
    types = tuple(arg.type for arg in args)
    return Call(next(f for f in overloads(name) if f.args == types), args)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many rows are taken at once."""
    counts: list[int] = []
    add = FoundRows.add

    def noted(found: FoundRows, columns: Any, count: int) -> None:
        counts.append(count)
        add(found, columns, count)

    monkeypatch.setattr(FoundRows, "add", noted)
    return counts


def test_of_a_row_that_stands_for_many_one_piece_is_made_on_the_loop(
    harness_on: HarnessOn, added: list[int]
) -> None:
    harness = harness_on(bundle_of(pairs((1, 2), diff=MANY), pairs((2, 3), time=2)), inline_budget=16_384)
    peek, response = harness.peek(spec())
    assert response is None
    assert peek.state is PeekState.WALKING
    assert added == [16_384]
    harness.settle()
    assert rows_of(harness.answers[peek]) == [(1, 2)] * MANY + [(2, 3)]


def test_pieces_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch, added: list[int]) -> None:
    monkeypatch.setattr(scan_module, "_PIECE_BYTES", 16 * 100)
    harness = Harness(bundle_of(pairs((1, 2), diff=250)), inline_budget=16_384)
    assert rows_of(harness.ask(spec())) == [(1, 2)] * 250
    assert added == [25, 100, 100, 25]  # the first on the loop


def test_an_order_with_a_limit_makes_no_more_copies_than_it_needs(added: list[int]) -> None:
    harness = Harness(
        bundle_of(pairs((1, 2), diff=MANY), pairs((2, 3), time=2, diff=MANY)), inline_budget=1_000
    )
    finish = finishing(2, [(1, DESCENDING)], limit=3, offset=4)
    assert rows_of(harness.ask(spec(finish=finish))) == [(2, 3)] * 3
    assert harness.metrics.walks_inline == 1
    assert sum(added) == 14


def test_with_the_offload_off_all_pieces_are_made_inline(added: list[int]) -> None:
    harness = Harness(bundle_of(pairs((1, 2), diff=MANY)), offload="off")
    assert rows_of(harness.ask(spec())) == [(1, 2)] * MANY
    assert harness.metrics.walks_inline == 1
    assert len(added) == 4


def test_walks_go_together_once_their_copies_are_made(harness_on: HarnessOn) -> None:
    bundle = bundle_of(pairs((1, 2), diff=MANY), pairs(*((k, k % 2 * 2) for k in range(2, 100)), time=2))
    harness = harness_on(bundle, inline_budget=10, granularity=20, shared="on")
    blocker, _ = harness.peek(spec(constraints=keys(*range(60))))
    waiting = [harness.peek(spec(predicates=[call("=", V, Literal(v, BIGINT))]))[0] for v in (2, 0)]
    assert blocker.state is PeekState.WALKING
    harness.settle()
    assert [len(rows_of(harness.answers[peek])) for peek in waiting] == [MANY + 49, 49]


def test_an_error_after_a_row_that_stands_for_many_comes_after_its_copies(harness_on: HarnessOn) -> None:
    bundle = bundle_of(pairs((1, 1), diff=MANY), pairs((2, 0), time=2))
    quotient = call("=", call("/", Literal(1, BIGINT), V), Literal(1, BIGINT))
    for limit, failed in ((MANY, False), (MANY + 1, True)):
        harness = harness_on(bundle, inline_budget=16_384)
        peek, _ = harness.peek(spec(predicates=[quotient], finish=finishing(2, limit=limit)))
        harness.settle()
        if failed:
            assert error_of(harness.answers[peek])[0] == "22012"
        else:
            assert rows_of(harness.answers[peek]) == [(1, 1)] * MANY


@settings(max_examples=100, deadline=None)
@given(
    copies=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    piece=st.integers(1, 200),
    limit=st.none() | st.integers(0, 30),
    offset=st.integers(0, 5),
    budget=st.integers(1, 10),
)
def test_in_whatever_pieces_the_copies_are_all_there(
    copies: list[int], piece: int, limit: int | None, offset: int, budget: int
) -> None:
    bundle = bundle_of(*(pairs((k, k), time=1, diff=n) for k, n in enumerate(copies)))
    harness = Harness(bundle, inline_budget=budget, granularity=budget)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_module, "_PIECE_BYTES", piece)
        found = rows_of(harness.ask(spec(finish=finishing(2, limit=limit, offset=offset))))
    expected = [(k, k) for k, n in enumerate(copies) for _ in range(n)]
    stop = None if limit is None else offset + limit
    assert found == expected[offset:stop]
    assert harness.metrics.permits_in_use == 0
    assert list(accumulate(copies))[-1] >= len(found)
