"""Rows of much text: what is done with them on the loop is bounded by its bytes, one row or many."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from layby.compute.worker import HEAVIEST
from layby.expr.function import overloads
from layby.expr.mfp import MfpKernel
from layby.expr.scalar import Call, ColumnRef, Expr, Literal
from layby.peek.found import FoundRows
from layby.peek.pending import PeekState
from layby.peek.spec import PeekSpec
from layby.trace import cursor as cursor_module
from layby.trace.cursor import TOO_HEAVY, Cursor
from layby.trace.layout import Layout
from layby.trace.width import UNIT
from layby.types.column import Column, TextColumn
from layby.types.ordering import ASCENDING
from layby.types.scalar import BIGINT, TEXT
from tests.peek.harness import Harness, HarnessOn, append, bundle_of, keys, rows_of, spec
from tests.trace.model import batch_of

LAYOUT = Layout((BIGINT, TEXT), (ASCENDING,))
MOST = HEAVIEST * UNIT
"""Bytes of text that are worked on at a time."""

HEAVY = "x" * (MOST + 2 * UNIT)
KEY, BODY = ColumnRef(0, BIGINT), ColumnRef(1, TEXT)


def call(name: str, *args: Expr) -> Call:
    types = tuple(arg.type for arg in args)
    return Call(next(f for f in overloads(name) if f.args == types), args)


LENGTH = call("length", BODY)
LONGER = call(">", LENGTH, Literal(3, LENGTH.type))


def asked(*outputs: Expr, predicates: Sequence[Expr] = (), of: Sequence[int] | None = None) -> PeekSpec:
    constraints = None if of is None else keys(*of)
    return spec(types=LAYOUT.types, outputs=outputs, predicates=predicates, constraints=constraints)


@pytest.fixture
def worked_on(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the bytes of text that expressions are evaluated on at a time, in this thread."""
    sizes: list[int] = []
    filter_, project = MfpKernel.filter, MfpKernel.project

    def noted(columns: Sequence[Column | None]) -> None:
        texts = [column for column in columns if isinstance(column, TextColumn)]
        if threading.current_thread() is threading.main_thread():
            sizes.append(sum(int(t.offsets[-1] - t.offsets[0]) for t in texts))

    def filtering(kernel: MfpKernel, columns: Any, *rest: Any) -> Any:
        noted(columns)
        return filter_(kernel, columns, *rest)

    def projecting(kernel: MfpKernel, columns: Any, length: int) -> Any:
        if not kernel.is_plain:
            noted(columns)
        return project(kernel, columns, length)

    monkeypatch.setattr(MfpKernel, "filter", filtering)
    monkeypatch.setattr(MfpKernel, "project", projecting)
    return sizes


@pytest.mark.parametrize(
    ("question", "found"),
    [
        (asked(LENGTH), [(3,), (len(HEAVY),), (2,)]),
        (asked(KEY, predicates=[LONGER]), [(2,)]),
        (asked(KEY, LENGTH), [(1, 3), (2, len(HEAVY)), (3, 2)]),
    ],
    ids=["output", "filter", "both"],
)
def test_expressions_are_evaluated_on_a_heavy_row_elsewhere(
    harness_on: HarnessOn, worked_on: list[int], question: PeekSpec, found: list[Any]
) -> None:
    rows = [((1, "abc"), 1, 1), ((2, HEAVY), 1, 1), ((3, "de"), 1, 1)]
    harness = harness_on(bundle_of(rows, layout=LAYOUT), inline_budget=16_384)
    peek, response = harness.peek(question)
    assert response is None
    assert max(worked_on, default=0) <= MOST
    harness.settle()
    assert rows_of(harness.answers[peek]) == found
    assert harness.metrics.walks_offloaded == 1


def test_light_rows_beside_a_heavy_one_are_read_on_the_loop(worked_on: list[int]) -> None:
    rows = [((1, "abc"), 1, 1), ((2, HEAVY), 1, 1), ((3, "de"), 1, 1)]
    harness = Harness(bundle_of(rows, layout=LAYOUT), inline_budget=16_384)
    assert rows_of(harness.ask(asked(KEY, LENGTH, of=[1, 3]))) == [(1, 3), (3, 2)]
    # Nor does it matter where its text is not looked at.
    assert rows_of(harness.ask(asked(KEY))) == [(1,), (2,), (3,)]
    assert rows_of(harness.ask(asked(KEY, predicates=[call(">", KEY, Literal(1, BIGINT))]))) == [(2,), (3,)]
    assert harness.metrics.walks_inline == 3
    assert not harness.pool.walks


def test_rows_that_are_heavy_together_are_worked_on_in_pieces(worked_on: list[int]) -> None:
    rows = [((k, str(k) * (MOST // 5)), 1, 1) for k in range(10)]
    harness = Harness(bundle_of(rows, layout=LAYOUT), inline_budget=16_384)
    assert rows_of(harness.ask(asked(KEY, LENGTH))) == [(k, MOST // 5) for k in range(10)]
    assert harness.metrics.walks_inline == 1
    assert len(worked_on) >= 3
    assert max(worked_on) <= MOST


@pytest.mark.parametrize("width", [500, 1_000])
def test_rows_of_a_slice_on_the_loop_are_no_more_than_a_megabyte_together(
    harness_on: HarnessOn, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    sizes: list[int] = []
    add = FoundRows.add

    def noted(found: FoundRows, columns: Any, count: int) -> None:
        add(found, columns, count)
        sizes.append(found.nbytes)

    rows = [((k, "x" * width), 1, 1) for k in range(6_000)]
    harness = harness_on(bundle_of(rows, layout=LAYOUT), inline_budget=16_384)
    monkeypatch.setattr(FoundRows, "add", noted)
    peek, response = harness.peek(asked(KEY, BODY, predicates=[call("<>", KEY, Literal(5, BIGINT))]))
    monkeypatch.undo()
    assert response is None
    assert max(sizes) <= MOST
    harness.settle()
    assert [row[0] for row in rows_of(harness.answers[peek])] == [k for k in range(6_000) if k != 5]


@pytest.mark.parametrize("width", [200, 1])
def test_numbers_of_many_columns_count_as_text_does(harness_on: HarnessOn, width: int) -> None:
    layout = Layout((BIGINT,) * width, (ASCENDING,))
    rows = [((k,) * width, 1, 1) for k in range(2_000)]
    harness = harness_on(bundle_of(rows, layout=layout), inline_budget=16_384)
    outputs = [ColumnRef(at % width, BIGINT) for at in range(200)]
    blocker, peek = (harness.peek(spec(types=layout.types, outputs=outputs))[0] for _ in range(2))
    assert (blocker.state, peek.state) == (PeekState.WALKING, PeekState.QUEUED)
    assert 0 < harness.metrics.queued_rows_bytes <= MOST
    harness.settle()
    assert len(rows_of(harness.answers[peek])) == 2_000


def test_text_that_is_only_handed_on_may_be_eight_times_as_much(harness_on: HarnessOn) -> None:
    for size, moved in ((8 * MOST, False), (8 * MOST + 2 * UNIT, True)):
        harness = harness_on(bundle_of([((1, "x" * size), 1, 1)], layout=LAYOUT), inline_budget=16_384)
        peek, response = harness.peek(asked(BODY))
        assert (response is None) is moved
        harness.settle()
        assert rows_of(harness.answers[peek] if moved else response) == [("x" * size,)]


def test_heavy_rows_whose_multiplicities_are_summed_are_not_put_together_on_the_loop(
    harness_on: HarnessOn,
) -> None:
    rows = [((1, HEAVY), 1, 1), ((2, HEAVY), 1, 1), ((1, HEAVY), 2, -1)]
    harness = harness_on(bundle_of(rows, layout=LAYOUT), inline_budget=16_384)
    peek, response = harness.peek(asked(KEY))
    assert response is None
    harness.settle()
    assert rows_of(harness.answers[peek]) == [(2,)]


def test_heavy_rows_of_some_batches_are_not_compared_on_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bundle = bundle_of([((1, HEAVY), 1, 1)], layout=LAYOUT)
    append(bundle, [((1, HEAVY), 2, -1), ((1, HEAVY + "y"), 2, 1)], 3)
    harness = Harness(bundle, inline_budget=1_000)
    compared: list[str] = []
    for name in ("rows_equal", "row_position"):
        monkeypatch.setattr(cursor_module, name, lambda *_, name=name: compared.append(name))
    peek, response = harness.peek(asked(LENGTH, of=[0, 1]))
    assert response is None
    assert compared == []
    monkeypatch.undo()
    harness.settle()
    assert rows_of(harness.answers[peek]) == [(len(HEAVY) + 1,)]


def test_a_quiet_walk_leaves_the_loop_before_a_heavy_row(harness_on: HarnessOn, worked_on: list[int]) -> None:
    rows = [((k, "abc"), 1, 1) for k in range(100)]
    rows[70] = ((70, HEAVY), 1, 1)
    harness = harness_on(bundle_of(rows, layout=LAYOUT), inline_budget=50, quiet_budget=1 << 20)
    peek, response = harness.peek(asked(LENGTH))
    assert response is None
    while peek.state is PeekState.QUIET:
        assert harness.turn()
    assert peek.state is PeekState.WALKING
    assert max(worked_on) <= MOST
    harness.settle()
    assert rows_of(harness.answers[peek]) == [(len(HEAVY) if k == 70 else 3,) for k in range(100)]


def test_with_the_offload_off_a_heavy_row_is_read_inline() -> None:
    harness = Harness(bundle_of([((1, HEAVY), 1, 1)], layout=LAYOUT), offload="off")
    assert rows_of(harness.ask(asked(LENGTH))) == [(len(HEAVY),)]
    assert harness.metrics.walks_inline == 1


@pytest.mark.parametrize("reverse", [False, True])
def test_a_cursor_goes_back_and_visits_the_same_again(reverse: bool) -> None:
    batches = tuple(
        batch_of(LAYOUT, [((k, "y" * 3_000 if k % 5 == 0 else "y"), 0, 1) for k in range(at, 40, 2)])
        for at in range(2)
    )
    cursor = Cursor(batches, keys(*range(30)), reverse)
    for _ in range(20):
        place = cursor.place
        first = cursor.advance(5)
        cursor.go_back(place)
        assert cursor.advance(5) == first


def test_a_cursor_compares_no_row_that_is_too_heavy() -> None:
    heavy = batch_of(LAYOUT, [((1, "x" * 5_000), 0, 1), ((2, "x"), 0, 1)])
    light = batch_of(LAYOUT, [((0, "x"), 0, 1), ((1, "x"), 0, 1)])
    cursor = Cursor((heavy, light))
    place = cursor.place
    assert cursor.advance(2, 3) is TOO_HEAVY
    assert cursor.place == place
    visit = cursor.advance(2, 4)
    assert visit is not None
    assert visit is not TOO_HEAVY
    # All that is left is taken without comparing anything.
    assert Cursor((heavy, light)).advance(100, 3) is not TOO_HEAVY
