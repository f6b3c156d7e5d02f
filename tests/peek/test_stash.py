"""The stash: what is written, when, and that nothing is left of it."""

from __future__ import annotations

import logging
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from layby.errors import SqlError
from layby.expr.finishing import Finishing, OrderKey
from layby.peek import upload
from layby.peek.answer import EncodedRows, Failed, PeekResponse, RowEncoder, Rows, Stashed
from layby.peek.fuel import Fuel
from layby.peek.outcome import Complete, ScanFailed, ScanOutcome, Suspended
from layby.peek.pending import PeekState, PendingPeek
from layby.peek.pool import Work
from layby.peek.scan import PeekScan
from layby.peek.stash import StashReader
from layby.peek.walk import Walk, WalkLimits
from layby.persist.folder import FolderBlob
from layby.trace.bundle import TraceBundle
from layby.types.column import Column, column_from_values
from layby.types.ordering import ASCENDING, DESCENDING
from layby.types.scalar import BIGINT, TEXT
from tests.peek.benches import GatedProcesses
from tests.peek.harness import (
    Harness,
    HarnessOn,
    StandingClock,
    append_error,
    bundle_of,
    error_of,
    finishing,
    keys,
    pairs,
    rows_of,
    spec,
)
from tests.persist.memory_blob import MemoryBlob

HUNDRED = tuple((k, k) for k in range(100))
"""Rows of 16 bytes each."""


class Lines:
    """An encoder of a line a row, behind the number of rows that it was given."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        lines = [f"{v};".encode() for v in columns[0].to_list()]
        lines[0] = f"{count} rows: ".encode() + lines[0]
        return EncodedRows(b"".join(lines), np.cumsum([len(line) for line in lines]), count)


class Broken:
    """An encoder with a bug."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        raise ZeroDivisionError


def stashing(
    harness_on: HarnessOn, bundle: TraceBundle | None = None, **parameters: object
) -> tuple[Harness, MemoryBlob]:
    """Return a harness whose walks write what is more than nine rows, ten positions at a time."""
    blob = MemoryBlob()
    chosen = {"inline_budget": 1, "granularity": 10, "stash_threshold": 150} | parameters
    return harness_on(bundle or bundle_of(pairs(*HUNDRED)), blob=blob, **chosen), blob


ON_THE_WIRE = 441
"""What nine rows of two bigints are with an encoder, which makes 47 bytes of 16."""


def stashed_of(response: PeekResponse | None) -> Stashed:
    assert isinstance(response, Stashed), response
    return response


def open_reader(harness: Harness, stashed: Stashed, encoder: RowEncoder | None = None) -> StashReader:
    assert harness.stash is not None
    return harness.stash.open(stashed, encoder)


def fetch(harness: Harness, reader: StashReader) -> Rows | SqlError | None:
    """Fetch one piece; None where none is left."""
    pieces: list[Rows | SqlError] = []
    if not reader.fetch(pieces.append):
        return None
    while not pieces:
        harness.jobs.popleft()()
    return pieces[0]


def read_all(harness: Harness, stashed: Stashed) -> list[tuple[object, ...]]:
    """Read a stashed answer to its end."""
    reader = open_reader(harness, stashed)
    rows: list[tuple[object, ...]] = []
    while (piece := fetch(harness, reader)) is not None:
        assert isinstance(piece, Rows), piece
        rows += rows_of(piece)
    harness.run_jobs()
    return rows


# Which answers, and how they are written


def test_rows_past_the_threshold_are_written_while_the_walk_goes_on(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on)
    peek, _ = harness.peek()
    assert blob.calls == []
    written = []
    while not harness.pool.step():
        written.append(len(blob.objects))
    assert written == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    harness.settle()
    stashed = stashed_of(harness.answers[peek])
    assert [part.count for part in stashed.handle.parts] == [11, 10, 10, 10, 10, 10, 10, 10, 10]
    assert (stashed.rest.count, stashed.count) == (9, 100)
    assert read_all(harness, stashed) == list(HUNDRED)


def test_a_stashed_walk_visits_each_position_once_and_counts_as_offloaded(harness_on: HarnessOn) -> None:
    harness, _ = stashing(harness_on)
    harness.ask()
    assert harness.metrics.row_iteration_rows.sum == 100
    assert harness.metrics.result_sort_rows.sum == 100
    assert (harness.metrics.walks_inline, harness.metrics.walks_offloaded) == (0, 1)


def test_an_answer_that_does_not_pass_the_threshold_never_touches_the_store(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on, stash_threshold=1_600)
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert blob.calls == []
    assert harness.metrics.stashed == 0


def test_a_threshold_of_zero_stashes_whatever_is_offloaded(harness_on: HarnessOn) -> None:
    harness, _ = stashing(harness_on, bundle_of(pairs((1, 1), (2, 2))), stash_threshold=0)
    stashed = stashed_of(harness.ask())
    assert (stashed.count, stashed.rest.count) == (2, 0)
    assert read_all(harness, stashed) == [(1, 1), (2, 2)]


def test_an_answer_without_rows_is_not_stashed_at_a_threshold_of_zero(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on, stash_threshold=0)
    assert rows_of(harness.ask(spec(0))) == []
    assert blob.calls == []


def test_a_walk_that_ends_inline_is_never_stashed(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on, stash_threshold=0, inline_budget=1_000)
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert blob.calls == []


def test_with_the_offload_off_nothing_is_stashed(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on, stash_threshold=0, offload="off")
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert blob.calls == []


def test_with_the_stash_off_nothing_is_stashed(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on, stash_threshold=0, stash_on="off")
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert blob.calls == []


def test_a_reader_that_wants_columns_gets_them_whatever_their_size(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on, stash_threshold=0)
    peek = harness.pending()
    peek.takes_stashed = False
    harness.worker.peek(peek)
    harness.settle()
    assert rows_of(harness.answers[peek]) == list(HUNDRED)
    assert blob.calls == []


def test_a_changed_threshold_reaches_a_walk_under_way(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on, stash_threshold=1_000_000)
    peek, _ = harness.peek()
    harness.pool.step()
    assert blob.calls == []
    harness.parameters.set("peek_response_stash_threshold_bytes", "0")
    harness.pool.step()
    assert len(blob.objects) == 1
    harness.settle()
    assert read_all(harness, stashed_of(harness.answers[peek])) == list(HUNDRED)


def test_a_walk_that_has_begun_to_stash_goes_on_when_the_stash_is_switched_off(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on)
    peek, _ = harness.peek()
    harness.pool.step()
    harness.parameters.set("enable_compute_peek_response_stash", "off")
    harness.settle()
    stashed = stashed_of(harness.answers[peek])
    assert (len(blob.objects), stashed.rest.count) == (1, 89)
    assert read_all(harness, stashed) == list(HUNDRED)


def test_a_walk_that_has_not_begun_to_stash_does_not_when_the_stash_is_switched_off(
    harness_on: HarnessOn,
) -> None:
    harness, blob = stashing(harness_on, stash_threshold=800)
    peek, _ = harness.peek()
    harness.pool.step()
    harness.parameters.set("enable_compute_peek_response_stash", "off")
    harness.settle()
    assert rows_of(harness.answers[peek]) == list(HUNDRED)
    assert blob.calls == []


def test_writing_to_the_stash_and_encoding_what_is_left_is_timed_as_collection() -> None:
    clock = StandingClock()

    class SlowBlob(MemoryBlob):
        def put(self, key: str, data: bytes | memoryview) -> None:
            clock.now += 5.0
            super().put(key, data)

    class SlowLines(Lines):
        def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
            clock.now += 7.0
            return super().__call__(columns, count)

    clock.now = 100.0
    scan = PeekScan(spec(), bundle_of(pairs(*HUNDRED[:25])).snapshot(), 1 << 30, clock)
    limits = WalkLimits(10, 1 << 30, 0, ON_THE_WIRE)
    target = upload.StashTarget(SlowBlob(), "p/")
    walk = Walk(scan, SlowLines(), lambda: limits, clock=clock, stash=target)
    while not walk.step():
        pass
    stashed = stashed_of(walk.response)
    assert (len(stashed.handle.parts), stashed.rest.count) == (2, 5)
    assert scan.times.collection == 5.0 + 5.0 + 7.0


def test_once_there_is_a_part_rows_are_written_at_the_size_of_a_part(
    harness_on: HarnessOn,
) -> None:
    harness, _ = stashing(harness_on, stash_threshold=800)
    harness.pool.patches |= {"layby.peek.walk.PART_BYTES": 300, "layby.peek.upload.PART_BYTES": 300}
    stashed = stashed_of(harness.ask())
    # 51 rows pass 800 bytes and are halved until no piece passes 300; then every 20 rows pass 300.
    assert [part.count for part in stashed.handle.parts] == [12, 13, 13, 13, 10, 10, 10, 10]
    assert stashed.rest.count == 9
    assert read_all(harness, stashed) == list(HUNDRED)


def test_in_a_pass_each_walk_writes_at_the_size_of_a_part_once_it_has_one(harness_on: HarnessOn) -> None:
    harness, _ = stashing(harness_on, stash_threshold=800, shared="on")
    harness.pool.patches |= {"layby.peek.walk.PART_BYTES": 300, "layby.peek.upload.PART_BYTES": 300}
    harness.peek(spec(constraints=keys(1, 2)))  # has the only permit
    waiting = [harness.peek()[0] for _ in range(2)]
    harness.settle()
    assert harness.metrics.shared_walks == 2
    parts = [[part.count for part in stashed_of(harness.answers[peek]).handle.parts] for peek in waiting]
    assert parts == [[12, 13, 13, 13, 10, 10, 10, 10]] * 2


def test_one_row_wider_than_a_part_is_a_part() -> None:
    wide = "x" * (3 << 20)
    written = upload.Upload(upload.StashTarget(MemoryBlob(), "p/"))
    assert written.write([column_from_values(TEXT, ["a", wide, "b"])], 3, lambda: False)
    assert [part.count for part in written.handle.parts] == [1, 1, 1]


def test_rows_of_exactly_the_size_of_a_part_are_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "PART_BYTES", 80)
    written = upload.Upload(upload.StashTarget(MemoryBlob(), "p/"))
    for count in (10, 11):
        assert written.write([column_from_values(BIGINT, list(range(count)))], count, lambda: False)
    assert [part.count for part in written.handle.parts] == [10, 5, 6]


@pytest.mark.parametrize(("batch_bytes", "rows"), [(0, 20), (319, 20), (320, 40)])
def test_a_step_ends_as_soon_as_a_batch_is_full(
    monkeypatch: pytest.MonkeyPatch, batch_bytes: int, rows: int
) -> None:
    monkeypatch.setattr("layby.peek.scan.CHUNK", 20)
    scan = PeekScan(spec(), bundle_of(pairs(*HUNDRED)).snapshot(), 1 << 30)
    scan.batch_bytes = batch_bytes
    assert isinstance(scan.step(Fuel(1_000)), Suspended)
    assert scan.count == rows


def test_a_row_that_is_there_many_times_is_stashed_as_often(harness_on: HarnessOn) -> None:
    harness, _ = stashing(harness_on, bundle_of([((1, 1), 1, 30), ((2, 2), 1, 1)], pairs((3, 3), time=2)))
    assert read_all(harness, stashed_of(harness.ask())) == [(1, 1)] * 30 + [(2, 2), (3, 3)]


def test_parts_are_compressed_arrow_files_under_one_prefix_a_peek(harness_on: HarnessOn) -> None:
    same = bundle_of(pairs(*((7, 7) for _ in range(5_000))))
    harness, blob = stashing(harness_on, same, granularity=100_000)
    first, _ = harness.peek()
    second, _ = harness.peek()
    harness.settle()
    prefixes = {key.partition("/")[0] for key in blob.objects}
    assert len(prefixes) == 2
    for peek in (first, second):
        parts = stashed_of(harness.answers[peek]).handle.parts
        assert len({part.key.partition("/")[0] for part in parts}) == 1
        assert all(part.key.endswith(".arrow") for part in parts)
    data = next(iter(blob.objects.values()))
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    assert (table.num_rows, table.column(0)[0].as_py()) == (5_000, 7)
    assert len(data) < 5_000 * 16 / 10


def test_the_rest_is_encoded_where_the_walk_ran_and_the_parts_where_they_are_read(
    harness_on: HarnessOn,
) -> None:
    harness, _ = stashing(harness_on, bundle_of(pairs(*HUNDRED[:15])), stash_threshold=ON_THE_WIRE)
    peek = harness.pending(encoder=Lines())
    harness.worker.peek(peek)
    harness.settle()
    stashed = stashed_of(harness.answers[peek])
    assert stashed.rest.encoded is not None
    assert bytes(stashed.rest.encoded.data) == b"4 rows: 11;12;13;14;"
    reader = open_reader(harness, stashed, Lines())
    pieces = [fetch(harness, reader), fetch(harness, reader), fetch(harness, reader)]
    assert isinstance(pieces[0], Rows)
    assert isinstance(pieces[1], Rows)
    assert pieces[2] is None
    assert pieces[0].encoded is not None
    assert bytes(pieces[0].encoded.data) == b"11 rows: 0;1;2;3;4;5;6;7;8;9;10;"
    assert [int(end) for end in pieces[0].encoded.ends][-3:] == [27, 29, 32]
    assert pieces[1].encoded is not None
    assert bytes(pieces[1].encoded.data) == b"4 rows: 11;12;13;14;"


def test_an_answer_goes_to_the_stash_by_its_size_on_the_wire(harness_on: HarnessOn) -> None:
    ten = bundle_of(pairs(*HUNDRED[:10]))
    for threshold, is_stashed in ((469, True), (471, False)):
        harness, _ = stashing(harness_on, ten, stash_threshold=threshold)
        peek = harness.pending(encoder=Lines())
        harness.worker.peek(peek)
        harness.settle()
        assert isinstance(harness.answers[peek], Stashed) is is_stashed


# Which finishings stream


def test_an_order_that_is_not_the_walks_is_never_stashed(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on, stash_threshold=0)
    asked = spec(finish=finishing(2, [(1, DESCENDING)]))
    assert rows_of(harness.ask(asked)) == list(reversed(HUNDRED))
    assert blob.calls == []


def test_an_order_that_is_the_walks_is_stashed_in_that_order(harness_on: HarnessOn) -> None:
    for order, reverse in ((ASCENDING, False), (DESCENDING, True)):
        harness, _ = stashing(harness_on, bundle_of(pairs(*HUNDRED[::2]), pairs(*HUNDRED[1::2], time=2)))
        asked = spec(finish=finishing(2, [(0, order)]), ordered=True, reverse=reverse)
        expected = list(reversed(HUNDRED)) if reverse else list(HUNDRED)
        assert read_all(harness, stashed_of(harness.ask(asked))) == expected


def test_the_projection_is_done_in_place(harness_on: HarnessOn) -> None:
    harness, _ = stashing(harness_on, bundle_of(pairs(*((k, 100 + k) for k in range(100)))))
    projected = Finishing((OrderKey(0, ASCENDING),), None, 0, (1,))
    stashed = stashed_of(harness.ask(spec(finish=projected, ordered=True)))
    assert [type_.name for type_ in stashed.handle.types] == ["bigint"]
    assert read_all(harness, stashed) == [(100 + k,) for k in range(100)]


@pytest.mark.parametrize(
    ("limit", "offset", "expected"),
    [
        (50, 0, range(50)),
        (50, 5, range(5, 55)),
        (50, 15, range(15, 65)),
        (51, 0, range(51)),
        (None, 33, range(33, 100)),
        (30, 90, range(90, 100)),
        (11, 0, range(11)),
    ],
)
def test_limit_and_offset_count_over_all_parts(
    harness_on: HarnessOn, limit: int | None, offset: int, expected: range
) -> None:
    harness, _ = stashing(harness_on, stash_threshold=100)
    answer = harness.ask(spec(finish=finishing(2, limit=limit, offset=offset)))
    assert answer is not None
    assert not isinstance(answer, Failed)
    assert answer.count == len(expected)
    assert read_all(harness, stashed_of(answer)) == [(k, k) for k in expected]


def test_rows_within_the_offset_are_not_written(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on)
    peek, _ = harness.peek(spec(finish=finishing(2, limit=40, offset=25)))
    harness.pool.step()
    harness.pool.step()
    assert blob.calls == []
    harness.pool.step()
    assert len(blob.objects) == 1
    harness.settle()
    assert read_all(harness, stashed_of(harness.answers[peek])) == [(k, k) for k in range(25, 65)]


def test_an_offset_past_the_end_leaves_an_answer_without_rows_and_the_store_untouched(
    harness_on: HarnessOn,
) -> None:
    harness, blob = stashing(harness_on)
    assert rows_of(harness.ask(spec(finish=finishing(2, offset=100)))) == []
    assert blob.calls == []


def test_a_stashed_walk_that_has_enough_rows_ends_early(harness_on: HarnessOn) -> None:
    harness, _ = stashing(harness_on)
    stashed = stashed_of(harness.ask(spec(finish=finishing(2, limit=25, offset=10))))
    assert stashed.count == 25
    assert harness.metrics.row_iteration_rows.sum == 41


# Reading


def test_a_part_is_deleted_once_it_is_read_and_not_fetched_before_it_is_asked_for(
    harness_on: HarnessOn,
) -> None:
    harness, blob = stashing(harness_on, bundle_of(pairs(*HUNDRED[:35])))
    stashed = stashed_of(harness.ask())
    keys = [part.key for part in stashed.handle.parts]
    assert len(keys) == 3
    reader = open_reader(harness, stashed)
    blob.calls.clear()
    for at, key in enumerate(keys):
        assert isinstance(fetch(harness, reader), Rows)
        harness.run_jobs()
        assert blob.calls == [("get", key), ("delete", key)]
        assert sorted(blob.objects) == keys[at + 1 :]
        blob.calls.clear()
    assert rows_of(fetch(harness, reader)) == [(k, k) for k in range(31, 35)]  # type: ignore[arg-type]
    closed: list[str] = []
    reader.on_closed = lambda: closed.append("closed")
    assert not reader.fetch(lambda piece: closed.append("brought"))
    assert closed == []
    assert not harness.jobs
    assert blob.calls == []


def test_a_reader_says_once_that_it_is_done_when_its_last_rows_are_out_or_when_it_is_closed(
    harness_on: HarnessOn,
) -> None:
    harness, _ = stashing(harness_on, bundle_of(pairs(*HUNDRED[:15])))
    for close_early in (False, True):
        reader = open_reader(harness, stashed_of(harness.ask()))
        closed: list[str] = []
        reader.on_closed = partial(closed.append, "closed")
        assert isinstance(fetch(harness, reader), Rows)
        assert closed == []
        if close_early:
            reader.close()
        else:
            assert isinstance(fetch(harness, reader), Rows)
        assert closed == ["closed"]
        assert not reader.fetch(lambda piece: None)
        reader.close()
        assert closed == ["closed"]


def test_a_reader_that_is_closed_deletes_the_rest_and_brings_nothing_more(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on)
    reader = open_reader(harness, stashed_of(harness.ask()))
    fetch(harness, reader)
    pieces: list[Rows | SqlError] = []
    reader.fetch(pieces.append)
    reader.close()
    reader.close()
    harness.run_jobs()
    assert pieces == []
    assert blob.objects == {}
    assert fetch(harness, reader) is None


def test_the_metrics_tell_what_lies_in_the_stash(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on)
    assert (harness.metrics.stashed, harness.metrics.stash_bytes) == (0, 0)
    reader = open_reader(harness, stashed_of(harness.ask()))
    assert harness.metrics.stashed == 1
    assert harness.metrics.stash_bytes == sum(map(len, blob.objects.values())) > 0
    fetch(harness, reader)
    harness.run_jobs()
    assert harness.metrics.stash_bytes == sum(map(len, blob.objects.values())) > 0
    reader.close()
    harness.run_jobs()
    assert (harness.metrics.stashed, harness.metrics.stash_bytes) == (1, 0)


def test_a_handle_leads_to_the_parts_from_another_process(harness_on: HarnessOn, tmp_path: Path) -> None:
    blob = FolderBlob(tmp_path, durable=False)
    harness = harness_on(
        bundle_of(pairs(*HUNDRED)), blob=blob, inline_budget=1, granularity=10, stash_threshold=0
    )
    stashed: Stashed = pickle.loads(pickle.dumps(stashed_of(harness.ask())))
    assert read_all(harness, stashed) == list(HUNDRED)
    assert list(tmp_path.iterdir()) == []


# Failures


def negative_at_the_end() -> TraceBundle:
    return bundle_of(pairs(*HUNDRED[:50]), [((99, 99), 2, -1)])


@pytest.mark.parametrize(
    ("bundle", "parameters", "error"),
    [
        (negative_at_the_end(), {}, "XX000"),
        (None, {"max_result_size": 800}, "54000"),
        (None, {"iteration_limit": 50}, "54000"),
    ],
)
def test_a_walk_that_fails_after_it_has_written_deletes_its_parts(
    harness_on: HarnessOn, bundle: TraceBundle | None, parameters: dict[str, object], error: str
) -> None:
    harness, blob = stashing(harness_on, bundle, **parameters)
    assert error_of(harness.ask())[0] == error
    assert [method for method, _ in blob.calls].count("put") >= 3
    assert blob.objects == {}
    assert (harness.metrics.stashed, harness.metrics.stash_bytes) == (0, 0)


def test_the_whole_answer_counts_against_its_largest_size_and_not_what_is_held(harness_on: HarnessOn) -> None:
    fits, _ = stashing(harness_on, max_result_size=1_600)
    assert stashed_of(fits.ask()).count == 100
    larger, _ = stashing(harness_on, max_result_size=1_599)
    assert error_of(larger.ask()) == ("54000", "result exceeds max size of 1599 bytes")


def test_a_row_repeated_beyond_the_largest_size_is_refused_though_much_is_stashed_before_it(
    harness_on: HarnessOn,
) -> None:
    many = [((100, 100), 1, 10**12)]
    harness, blob = stashing(harness_on, bundle_of([*pairs(*HUNDRED), *many]))
    assert error_of(harness.ask())[0] == "54000"
    assert blob.objects == {}


@pytest.mark.parametrize("before", [0, 3])
def test_a_write_that_fails_fails_the_peek_and_nothing_else(harness_on: HarnessOn, before: int) -> None:
    harness, blob = stashing(harness_on, pool_size=2)
    peek, _ = harness.peek()
    other = harness.pending()
    other.takes_stashed = False
    harness.worker.peek(other)
    for _ in range(before):
        harness.pool.step()
    assert len(blob.objects) == before
    blob.failing.add("put")
    assert harness.pool.step()
    assert blob.objects == {}
    harness.settle()
    response = harness.answers[peek]
    assert error_of(response) == ("58030", "could not write an answer to the stash")
    assert isinstance(response, Failed)
    assert response.error.detail == "the store failed at put"
    assert rows_of(harness.answers[other]) == list(HUNDRED)
    assert harness.worker.offload.permits.in_use == 0
    blob.failing.clear()
    assert read_all(harness, stashed_of(harness.ask())) == list(HUNDRED)


def test_an_object_whose_write_failed_is_deleted_too_as_it_may_be_there(harness_on: HarnessOn) -> None:
    class Treacherous(MemoryBlob):
        def put(self, key: str, data: bytes | memoryview) -> None:
            self.objects[key] = bytes(data)
            super().put(key, data)

    blob = Treacherous()
    blob.failing.add("put")
    harness = harness_on(bundle_of(pairs(*HUNDRED)), blob=blob, inline_budget=1, stash_threshold=0)
    assert error_of(harness.ask())[0] == "58030"
    assert blob.objects == {}


def test_the_last_rows_are_not_answered_where_they_cannot_be_written(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on, granularity=1_000)
    blob.failing.add("put")
    assert error_of(harness.ask())[0] == "58030"


def test_parts_that_cannot_be_deleted_cost_a_log_line_and_not_the_answer(
    harness_on: HarnessOn,
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness, blob = stashing(harness_on)
    stashed = stashed_of(harness.ask())
    blob.failing.add("delete")
    with caplog.at_level(logging.WARNING):
        assert read_all(harness, stashed) == list(HUNDRED)
    assert caplog.text.count("a part of a stashed answer is left: the store failed at delete") == 9


def test_a_store_that_raises_what_it_should_not_is_logged_when_parts_are_deleted(
    harness_on: HarnessOn,
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness, blob = stashing(harness_on)
    reader = open_reader(harness, stashed_of(harness.ask()))
    blob.delete = lambda key: 1 / 0  # type: ignore[assignment, method-assign]
    reader.close()
    with caplog.at_level(logging.ERROR):
        harness.run_jobs()
    assert "deleting from the stash raised ZeroDivisionError" in caplog.text
    assert harness.metrics.stash_bytes == 0


def test_deleting_parts_logs_nothing_where_it_works(
    harness_on: HarnessOn, caplog: pytest.LogCaptureFixture
) -> None:
    harness, _ = stashing(harness_on)
    with caplog.at_level(logging.WARNING):
        assert read_all(harness, stashed_of(harness.ask())) == list(HUNDRED)
    assert caplog.text == ""


def test_a_store_that_cannot_be_listed_costs_a_log_line_when_a_walk_raised(
    harness_on: HarnessOn,
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness, blob = stashing(harness_on, stash_threshold=ON_THE_WIRE)
    blob.failing.add("list_keys")
    peek = harness.pending(encoder=Broken())
    harness.worker.peek(peek)
    harness.settle()
    with caplog.at_level(logging.WARNING):
        harness.run_jobs()
    assert error_of(harness.answers[peek])[0] == "XX000"
    assert "parts of a stashed answer are left: the store failed at list_keys" in caplog.text


def test_reading_that_raises_what_it_should_not_ends_the_answer_with_an_internal_error(
    harness_on: HarnessOn,
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness, blob = stashing(harness_on)
    error = fetch(harness, open_reader(harness, stashed_of(harness.ask()), Broken()))
    assert isinstance(error, SqlError)
    assert (error.sqlstate, error.message) == (
        "XX000",
        "reading a stashed answer raised ZeroDivisionError: ",
    )
    assert "reading a stashed answer raised ZeroDivisionError()" in caplog.text
    harness.run_jobs()
    assert blob.objects == {}


@pytest.mark.parametrize(
    ("damage", "detail"),
    [
        (lambda blob, key: blob.failing.add("get"), "the store failed at get"),
        (lambda blob, key: blob.objects.pop(key), "there is no blob 'peek-1/000001.arrow'"),
        (lambda blob, key: blob.objects.update({key: b"not arrow"}), "a part of the answer is damaged"),
    ],
)
def test_a_part_that_cannot_be_read_ends_the_answer_and_the_rest_is_deleted(
    harness_on: HarnessOn, damage: Callable[[MemoryBlob, str], object], detail: str
) -> None:
    harness, blob = stashing(harness_on)
    stashed = stashed_of(harness.ask())
    reader = open_reader(harness, stashed)
    assert isinstance(fetch(harness, reader), Rows)
    damage(blob, stashed.handle.parts[1].key)
    error = fetch(harness, reader)
    assert isinstance(error, SqlError)
    assert (error.sqlstate, error.message) == ("58030", "could not read an answer from the stash")
    assert error.detail is not None
    assert error.detail.startswith(detail)
    harness.run_jobs()
    assert blob.objects == {}
    assert fetch(harness, reader) is None


def test_a_walk_that_raises_leaves_no_parts(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on, stash_threshold=ON_THE_WIRE)
    peek = harness.pending(encoder=Broken())
    harness.worker.peek(peek)
    harness.settle()
    harness.run_jobs()
    assert error_of(harness.answers[peek])[0] == "XX000"
    assert ("list_keys", "peek-1/") in blob.calls
    assert blob.objects == {}
    assert harness.metrics.walks_offloaded == 0


def burst(*_: object) -> float:
    raise RecursionError("deep")


def test_limits_that_cannot_be_put_in_force_cost_their_peek_and_nothing_else(harness_on: HarnessOn) -> None:
    harness, _ = stashing(harness_on, stash_threshold=ON_THE_WIRE)
    peek = harness.pending(encoder=Broken())
    harness.worker.peek(peek)
    harness.pool.patches["layby.peek.walk._share_of_wire"] = burst
    harness.settle()
    error = error_of(harness.answers[peek])
    assert error[0] == "XX000"
    assert "RecursionError" in error[1]
    assert harness.metrics.permits_in_use == 0


def lose(harness: Harness) -> None:
    """Have the process of the first walk die, or what the pool does then where there is none."""
    pool = harness.pool
    if isinstance(pool, GatedProcesses):
        os.kill(pool.process_id(), signal.SIGKILL)
        harness.bench.until(lambda: not pool.walks)
    else:
        dead, lost = pool.walk(), pool.walks.pop()
        dead.raised = dead.over = True
        dead.response = Failed(SqlError("XX000", 'the process that walked "test" died'))
        lost.done()


@pytest.mark.parametrize("bench", ["stepped", "processes"], indirect=True)
def test_what_a_walk_left_whose_process_died_is_deleted(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on)
    peek, _ = harness.peek()
    harness.pool.step()
    harness.pool.step()
    other_peeks_part = "peek-10/000000.arrow"
    blob.objects[other_peeks_part] = b"x"
    lose(harness)
    harness.settle()
    harness.run_jobs()
    assert error_of(harness.answers[peek]) == ("XX000", 'the process that walked "test" died')
    assert list(blob.objects) == [other_peeks_part]


def test_a_batch_of_a_scan_that_has_not_read_its_errors_is_refused_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bundle = bundle_of(pairs(*HUNDRED))
    append_error(bundle, "x", 2, 1, 3)
    append_error(bundle, "x", 3, -1, 4)
    scan = PeekScan(spec(), bundle.snapshot(), 1 << 30)
    assert isinstance(scan.step(Fuel(1)), Suspended)
    with caplog.at_level(logging.ERROR):
        outcome = scan.take_found()
    assert isinstance(outcome, ScanFailed)
    assert outcome.error.sqlstate == "XX000"
    assert outcome.error.message == "a peek handed rows over before its error trace had been read"
    assert "before its error trace had been read" in caplog.text
    assert scan.step(Fuel(1_000)) is outcome


def leave_errors(work: Work) -> None:
    """Have a scan say after each step that its error trace has not been read."""
    scan = work.walks[0].scan
    step = scan.step

    def broken(fuel: Fuel) -> ScanOutcome:
        outcome = step(fuel)
        scan._errors_left = True
        return outcome

    scan.step = broken  # type: ignore[method-assign]


def test_a_broken_invariant_at_a_full_batch_fails_the_peek(harness_on: HarnessOn) -> None:
    harness, blob = stashing(harness_on)
    peek, _ = harness.peek()
    harness.pool.look(leave_errors)
    assert harness.pool.step()
    harness.settle()
    assert error_of(harness.answers[peek])[0] == "XX000"
    assert blob.calls == []


def test_rows_handed_over_are_no_longer_held() -> None:
    scan = PeekScan(spec(), bundle_of(pairs(*HUNDRED)).snapshot(), 1 << 30)
    scan.step(Fuel(10))
    first = scan.take_found()
    assert isinstance(first, Complete)
    assert (first.count, scan.count, scan.nbytes) == (10, 10, 0)
    last = scan.step(Fuel(1_000))
    assert isinstance(last, Complete)
    assert (last.count, scan.count) == (90, 100)
    assert last.columns[0].value(0) == 10


# Cancellation


def test_a_peek_cancelled_while_it_writes_to_the_stash_stops_and_deletes_its_parts(
    harness_on: HarnessOn,
) -> None:
    harness, blob = stashing(harness_on)
    peek, _ = harness.peek()
    harness.pool.step()
    harness.pool.step()
    assert len(blob.objects) == 2
    harness.worker.cancel(peek)
    assert error_of(harness.answers[peek])[0] == "57014"
    assert harness.pool.step()
    assert blob.objects == {}
    assert [method for method, _ in blob.calls] == ["put", "put", "delete", "delete"]
    assert harness.worker.offload.permits.in_use == 0
    harness.settle()
    harness.run_jobs()
    assert len(harness.answers) == 1
    assert (harness.metrics.stashed, harness.metrics.stash_bytes) == (0, 0)


@pytest.mark.parametrize("granularity", [50, 1_000])
def test_a_peek_cancelled_in_the_middle_of_a_batch_writes_no_further_part(
    harness_on: HarnessOn, granularity: int
) -> None:
    asked: list[PendingPeek] = []

    class Cancelling(MemoryBlob):
        def put(self, key: str, data: bytes | memoryview) -> None:
            super().put(key, data)
            if len(self.objects) == 2:
                harness.worker.cancel(asked[0])

    blob = Cancelling()
    harness = harness_on(
        bundle_of(pairs(*HUNDRED)), blob=blob, inline_budget=1, granularity=granularity, stash_threshold=0
    )
    harness.pool.patches["layby.peek.upload.PART_BYTES"] = 100
    asked.append(harness.pending())
    harness.worker.peek(asked[0])
    assert not harness.pool.step()
    assert len(blob.objects) == 2
    assert harness.pool.step()
    assert blob.objects == {}
    harness.settle()
    assert error_of(harness.answers[asked[0]])[0] == "57014"


def test_a_stashed_answer_of_a_peek_cancelled_before_it_was_collected_is_dropped_with_its_parts(
    harness_on: HarnessOn,
) -> None:
    harness, blob = stashing(harness_on)
    peek, _ = harness.peek()
    harness.pool.run()
    assert len(blob.objects) == 9
    assert peek.state is PeekState.WALKING
    harness.worker.cancel(peek)
    harness.turn()
    harness.run_jobs()
    assert error_of(harness.answers[peek])[0] == "57014"
    assert blob.objects == {}
    assert (harness.metrics.stashed, harness.metrics.stash_bytes) == (0, 0)


def test_a_peek_cancelled_before_its_walk_has_written_leaves_the_store_untouched(
    harness_on: HarnessOn,
) -> None:
    harness, blob = stashing(harness_on)
    first, _ = harness.peek()
    queued, _ = harness.peek()
    harness.worker.cancel(first)
    harness.worker.cancel(queued)
    harness.settle()
    harness.run_jobs()
    assert blob.calls == []
