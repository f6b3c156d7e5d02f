"""Walk processes that die, hang or cannot live: what it costs, and that nothing is left of it."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from layby.errors import InternalError
from layby.expr.scalar import ColumnRef, Literal
from layby.memory import heap, segment, serving_core
from layby.memory.child import Child
from layby.memory.segment import mapped_bytes
from layby.memory.serving_core import ServingCore
from layby.memory.shared_arena import SharedArena
from layby.peek.answer import EncodedRows, Rows
from layby.peek.process_pool import _parts
from layby.peek.scan import PeekScan
from layby.peek.spec import PeekSpec
from layby.peek.upload import StashTarget
from layby.peek.walk import Walk, WalkLimits
from layby.peek.walk_process import FIRST_WALKER_SLOT, WalkEnded
from layby.persist.folder import FolderBlob
from layby.pgwire.data_row import DataRowEncoder
from layby.trace.bundle import TraceBundle
from layby.types.column import Column
from layby.types.scalar import BIGINT
from tests.expr.helpers import call
from tests.memory.fragmented import SIZE, fragment, resident
from tests.peek.harness import PAIR, append, bundle_of, error_of, pairs, rows_of, spec
from tests.peek.pools import PoolHarness, Walks, walks_of
from tests.peek.test_pool_conformance import ENDLESS, HUNDRED, Long, send_endless
from tests.processes.noting import Noted


@pytest.fixture
def walks() -> Iterator[Walks]:
    with walks_of("processes", 1, hard_stop_s=0.2) as found:
        yield found


@pytest.fixture
def harness(walks: Walks) -> Iterator[PoolHarness]:
    harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=10, yield_granularity=16)
    yield harness
    harness.until_idle()


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[PeekScan]:
    """The scans that have been handed to a process."""
    handed: list[PeekScan] = []
    place_found = PeekScan.place_found

    def noted(scan: PeekScan, arena: Any) -> None:
        handed.append(scan)
        place_found(scan, arena)

    monkeypatch.setattr(PeekScan, "place_found", noted)
    return handed


class HeldStops:
    """The loop of a pool, but that hard stops wait until a test makes them due: however slow the machine is,
    none comes by itself."""

    def __init__(self, walks: Walks, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = walks.loop
        self.stops: list[Callable[[], object]] = []
        self._delay = walks.processes._hard_stop_s
        monkeypatch.setattr(walks.processes, "_loop", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Any:
        if delay == self._delay:
            self.stops.append(callback)
            return None
        return self.loop.call_later(delay, callback)


def failing_at(number: int) -> PeekSpec:
    """Return a peek that fails (22012) at a number of `ENDLESS`."""
    n = ColumnRef(0, BIGINT)
    inverse = call("/", Literal(1, BIGINT), call("-", n, Literal(number, BIGINT)))
    return spec(types=(BIGINT,), predicates=[call("<", inverse, Literal(-1, BIGINT))])


def restarts(walks: Walks) -> int:
    return walks.metrics.walk_process_restarts


def test_a_walk_whose_process_is_killed_is_answered_and_the_next_one_runs(
    harness: PoolHarness, caplog: pytest.LogCaptureFixture
) -> None:
    walks = harness.walks
    (killed,) = walks.processes.process_ids
    peek = send_endless(harness)
    queued = harness.send()
    harness.until_walking(peek)
    os.kill(killed, signal.SIGKILL)
    assert error_of(harness.answer(peek)) == ("XX000", 'the process that walked "test" died')
    assert rows_of(harness.answer(queued)) == list(HUNDRED)
    assert restarts(walks) == 1
    assert f"walk process {killed} died, replaced" in caplog.text
    assert walks.processes.process_ids not in ([], [killed])
    assert (harness.metrics.walks_inline, harness.metrics.walks_offloaded) == (0, 1)


def test_a_process_killed_while_idle_costs_no_peek(harness: PoolHarness, handed: list[PeekScan]) -> None:
    assert rows_of(harness.ask()) == list(HUNDRED)
    (killed,) = harness.walks.processes.process_ids
    os.kill(killed, signal.SIGKILL)
    harness.walks.until(lambda: restarts(harness.walks))
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert restarts(harness.walks) == 1
    assert len(handed) == 2


def test_a_walk_handed_to_a_process_that_is_dead_already_is_taken_by_the_next(harness: PoolHarness) -> None:
    assert rows_of(harness.ask()) == list(HUNDRED)
    (walker,) = harness.walks.processes._walkers
    walker.child.process.kill()
    walker.child.process.wait()
    # The loop has not had a turn to notice.
    peek = harness.send()
    assert restarts(harness.walks) == 1
    assert rows_of(harness.answer(peek)) == list(HUNDRED)
    assert harness.metrics.walks_offloaded == 2


def test_a_walk_handed_to_a_process_that_is_dead_already_leaves_at_once_when_it_is_cancelled(
    harness: PoolHarness, handed: list[PeekScan]
) -> None:
    (walker,) = harness.walks.processes._walkers
    walker.child.process.kill()
    walker.child.process.wait()
    # The loop has not had a turn to notice.
    peek = harness.send()
    assert restarts(harness.walks) == 1
    harness.worker.cancel(peek)
    assert harness.metrics.permits_in_use == 0
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert len(handed) == 2


def stopped_before_it_reads(harness: PoolHarness) -> int:
    """Stop the process that has been found alive, so that what it is sent stays unread; return its id."""
    (process,) = harness.walks.processes.process_ids
    os.kill(process, signal.SIGSTOP)
    return process


def test_a_walk_whose_process_is_killed_before_it_begins_is_taken_by_the_next(harness: PoolHarness) -> None:
    assert rows_of(harness.ask()) == list(HUNDRED)
    stopped = stopped_before_it_reads(harness)
    peek = harness.send()
    os.kill(stopped, signal.SIGKILL)
    assert rows_of(harness.answer(peek)) == list(HUNDRED)
    assert restarts(harness.walks) == 1
    assert (harness.metrics.walks_offloaded, harness.metrics.permits_in_use) == (2, 0)


def test_a_walk_cancelled_before_its_process_is_killed_unread_leaves_with_it(
    harness: PoolHarness, handed: list[PeekScan]
) -> None:
    stopped = stopped_before_it_reads(harness)
    peek = harness.send()
    harness.worker.cancel(peek)
    os.kill(stopped, signal.SIGKILL)
    harness.walks.until(lambda: restarts(harness.walks))
    assert harness.metrics.permits_in_use == 0
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert len(handed) == 2


def test_a_walk_whose_processes_die_before_they_begin_it_is_given_to_three() -> None:
    with walks_of("processes", 1, program="tests.processes.deaf") as walks:
        harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=10)
        response = harness.ask()
        assert error_of(response) == ("XX000", 'the process that walked "test" died')
        harness.until_idle()
        assert restarts(walks) == 3


def test_a_walk_that_ignores_its_cancellation_has_its_process_killed(
    harness: PoolHarness, caplog: pytest.LogCaptureFixture
) -> None:
    walks = harness.walks
    (stopped,) = walks.processes.process_ids
    peek = send_endless(harness)
    harness.until_walking(peek)
    os.kill(stopped, signal.SIGSTOP)
    harness.worker.cancel(peek)
    assert error_of(harness.answers[peek])[0] == "57014"
    harness.until_idle()
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert restarts(walks) == 1
    assert f"walk process {stopped} did not stop within 0.2 s, killed" in caplog.text


def sharing(walks: Walks) -> PoolHarness:
    """Return a harness whose walks go together where they wait together."""
    return PoolHarness(
        walks,
        bundle_of(pairs(*HUNDRED)),
        inline_budget=10,
        yield_granularity=16,
        enable_compute_index_peek_shared_walks="on",
    )


def test_walks_that_go_together_cross_with_their_own_encoder_and_stash(tmp_path: Path) -> None:
    snapshot = bundle_of(pairs(*HUNDRED)).snapshot()
    limits = WalkLimits(1_000, 1 << 20, 0, -1)
    text, binary = DataRowEncoder((BIGINT,) * 2, (0, 0)), DataRowEncoder((BIGINT,) * 2, (1, 1))
    encoders = [text, binary, DataRowEncoder((BIGINT,) * 2, (0, 0)), None]
    stashes = [StashTarget(FolderBlob(tmp_path), f"{at}/") for at in range(4)]
    parts = _parts(
        [
            Walk(PeekScan(spec(), snapshot, 1_000), encoder, lambda: limits, stash=stash)
            for encoder, stash in zip(encoders, stashes, strict=True)
        ]
    )
    assert [part.encoder for part in parts] == [text, binary, text, None]
    assert parts[2].encoder is text
    assert [part.stash for part in parts] == stashes


def test_a_walk_cancelled_in_a_pass_leaves_the_process_to_the_others(
    walks: Walks, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, harness = HeldStops(walks, monkeypatch), sharing(walks)
    before = walks.processes.process_ids
    blocker = send_endless(harness)
    gone, other = send_endless(harness), send_endless(harness)
    harness.until_walking(blocker)
    harness.worker.cancel(blocker)
    harness.until_walking(gone)
    assert harness.metrics.shared_walks == 2
    harness.worker.cancel(gone)
    for stop in held.stops:
        stop()
    assert len(held.stops) == 2
    harness.until_walking(other)
    harness.worker.cancel(other)
    harness.until_idle()
    assert (walks.processes.process_ids, restarts(walks)) == (before, 0)


def test_a_pass_whose_walks_are_cancelled_or_over_and_that_goes_on_has_its_process_killed(
    walks: Walks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held, harness = HeldStops(walks, monkeypatch), sharing(walks)
    (stopped,) = walks.processes.process_ids
    blocker, failing = send_endless(harness), harness.send(failing_at(20), ENDLESS)
    hanging = send_endless(harness)
    harness.worker.cancel(blocker)
    assert error_of(harness.answer(failing))[0] == "22012"
    assert harness.metrics.shared_walks == 2
    os.kill(stopped, signal.SIGSTOP)
    harness.worker.cancel(hanging)
    for stop in held.stops:
        stop()
    assert f"walk process {stopped} did not stop within 0.2 s, killed" in caplog.text
    harness.until_idle()
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert restarts(walks) == 1


def test_a_walk_that_cannot_be_handed_over_gives_its_permit_back_and_counts_nowhere(
    harness: PoolHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise MemoryError("no segment")

    monkeypatch.setattr(PeekScan, "place_found", full)
    peek = harness.send()
    assert error_of(harness.answer(peek)) == ("XX000", "a walk could not be handed over: no segment")
    assert "a walk could not be handed over" in caplog.text
    harness.until_idle()
    assert (harness.metrics.permits_in_use, harness.metrics.walks_offloaded) == (0, 0)
    monkeypatch.undo()
    assert rows_of(harness.ask()) == list(HUNDRED)


def test_a_walk_that_waits_for_a_process_leaves_at_once_when_it_is_cancelled(
    walks: Walks, handed: list[PeekScan]
) -> None:
    harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=10, permit_fraction=1000.0)
    blocker, other, gone, last = (
        send_endless(harness),
        harness.send(),
        send_endless(harness),
        harness.send(),
    )
    assert harness.metrics.permits_in_use == 4
    harness.worker.cancel(gone)
    assert harness.metrics.permits_in_use == 3
    assert [peek for peek, _ in harness.worker.offload.progress()] == [blocker, other, last]
    harness.worker.cancel(blocker)
    assert rows_of(harness.answer(other)) == list(HUNDRED)
    assert rows_of(harness.answer(last)) == list(HUNDRED)
    assert len(handed) == 3


def test_a_pass_that_waits_for_a_process_stays_until_all_its_walks_are_cancelled(
    walks: Walks, handed: list[PeekScan]
) -> None:
    harness = PoolHarness(
        walks,
        bundle_of(pairs(*HUNDRED)),
        inline_budget=10,
        permit_fraction=2.0,
        enable_compute_index_peek_shared_walks="on",
    )
    blocker, waiting, first, second = (send_endless(harness) for _ in range(4))
    assert harness.metrics.permits_queued == 2
    harness.worker.cancel(waiting)
    assert (harness.metrics.shared_walks, harness.metrics.permits_queued) == (2, 0)
    harness.worker.cancel(first)
    assert harness.metrics.permits_in_use == 2
    harness.worker.cancel(second)
    assert harness.metrics.permits_in_use == 1
    harness.worker.cancel(blocker)
    harness.until_idle()
    assert len(handed) == 1


def test_many_walks_that_cannot_be_handed_over_fail_one_after_the_other(
    walks: Walks, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = PoolHarness(
        walks,
        bundle_of(pairs(*HUNDRED)),
        inline_budget=10,
        enable_compute_index_peek_shared_walks="off",
    )
    blocker = send_endless(harness)
    peeks = [harness.send() for _ in range(300)]

    def full(*_: object) -> None:
        raise MemoryError("no segment")

    monkeypatch.setattr(PeekScan, "place_found", full)
    harness.worker.cancel(blocker)
    errors = [error_of(harness.answer(peek)) for peek in peeks]
    assert errors == [("XX000", "a walk could not be handed over: no segment")] * 300


def test_a_closed_pool_hands_nothing_over(handed: list[PeekScan]) -> None:
    with walks_of("processes", 1) as walks:
        harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=10)
        assert rows_of(harness.ask()) == list(HUNDRED)
        walks.pool.close()
        assert walks.processes.process_ids == []
        harness.send()
    assert len(handed) == 1


class Watched:
    """The loop of a pool, and what the pool has it watch and call later."""

    def __init__(self, walks: Walks, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = walks.loop
        self.writers: set[int] = set()
        self.no_longer_read: set[int] = set()
        self.timers: list[Any] = []
        monkeypatch.setattr(walks.processes, "_loop", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def remove_reader(self, descriptor: int) -> None:
        self.no_longer_read.add(descriptor)
        self._loop.remove_reader(descriptor)

    def add_writer(self, descriptor: int, callback: Callable[[], object]) -> None:
        self.writers.add(descriptor)
        self._loop.add_writer(descriptor, callback)

    def remove_writer(self, descriptor: int) -> None:
        self.writers.discard(descriptor)
        self._loop.remove_writer(descriptor)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Any:
        self.timers.append(self._loop.call_later(delay, callback))
        return self.timers[-1]


@dataclass(frozen=True)
class Padded:
    """An encoder that no socket takes at once."""

    padding: bytes = bytes(8 << 20)

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        return EncodedRows(b"x" * count, range(1, count + 1), count)


def test_a_process_that_dies_before_it_has_read_its_request_is_no_longer_written_to(
    harness: PoolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = harness.walks
    assert rows_of(harness.ask()) == list(HUNDRED)
    watched = Watched(walks, monkeypatch)
    (stopped,) = walks.processes.process_ids
    os.kill(stopped, signal.SIGSTOP)
    peek = harness.send(encoder=Padded())
    assert len(watched.writers) == 1
    (walker,) = walks.processes._walkers
    walker.child.process.kill()
    walker.child.process.wait()
    # Whether the loop finds its end by reading or by writing.
    walks.processes._writable(walker)
    assert restarts(walks) == 1
    assert watched.writers == set()
    # Another one takes what it had not begun.
    assert isinstance(harness.answer(peek), Rows)
    assert restarts(walks) == 1


def test_a_long_request_is_written_as_the_process_reads_it(
    harness: PoolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(harness.walks, monkeypatch)
    peek = harness.send(encoder=Padded())
    assert len(watched.writers) == 1
    answer = harness.answer(peek)
    assert isinstance(answer, Rows)
    assert answer.encoded is not None
    assert bytes(answer.encoded.data) == b"x" * 100
    assert watched.writers == set()


def test_a_pool_that_has_had_no_walk_keeps_house_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with walks_of("processes", 2) as walks:
        watched = Watched(walks, monkeypatch)
        walks.processes._keep_house()
        assert [walker.slot for walker in walks.processes._walkers] == [8, 9]
        assert [timer.cancelled() for timer in watched.timers] == [False]
        walks.pool.close()
        assert [timer.cancelled() for timer in watched.timers] == [True]


def test_a_pool_that_is_closed_watches_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    with walks_of("processes", 2) as walks:
        watched = Watched(walks, monkeypatch)
        descriptors = {walker.channel.socket.fileno() for walker in walks.processes._walkers}
        walks.pool.close()
        assert len(descriptors) == 2
        assert watched.no_longer_read == descriptors


def test_all_processes_are_asked_to_end_before_the_end_of_one_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminate, end = Child.terminate, Child.end
    asked: set[int] = set()
    asked_before_each: list[set[int]] = []

    def noted_terminate(child: Child) -> None:
        asked.add(child.pid)
        terminate(child)

    def noted_end(child: Child) -> int:
        asked_before_each.append(set(asked))
        return end(child)

    with walks_of("processes", 2) as walks:
        processes = set(walks.processes.process_ids)
        monkeypatch.setattr(Child, "terminate", noted_terminate)
        monkeypatch.setattr(Child, "end", noted_end)
        walks.pool.close()
    assert asked_before_each == [processes, processes]


def test_an_idle_process_that_is_found_dead_when_house_is_kept_is_replaced(
    harness: PoolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rows_of(harness.ask()) == list(HUNDRED)
    monkeypatch.setattr(heap, "REST", 1)
    processes = harness.walks.processes
    (walker,) = processes._walkers
    walker.idleness = heap.Idleness()
    walker.child.process.kill()
    walker.child.process.wait()
    # The loop has not had a turn to notice.
    processes._keep_house()
    assert restarts(harness.walks) == 1
    assert rows_of(harness.ask()) == list(HUNDRED)


def test_a_process_that_cannot_be_started_is_tried_again(
    harness: PoolHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    processes = harness.walks.processes
    refusals = [OSError(11, "no more processes")] * 2
    start = processes._new_walker

    def refused(slot: int) -> object:
        if refusals:
            raise refusals.pop()
        return start(slot)

    monkeypatch.setattr(processes, "_new_walker", refused)
    os.kill(processes.process_ids[0], signal.SIGKILL)
    harness.walks.until(lambda: restarts(harness.walks) == 1)
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert caplog.text.count("a walk process cannot be started: [Errno 11] no more processes") == 2


class Unsendable:
    """An encoder of an answer that no message can carry."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        return EncodedRows(b"x", (end for end in list[int]()), count)  # type: ignore[arg-type]


def test_an_answer_that_cannot_be_sent_costs_its_peek_and_not_the_process(harness: PoolHarness) -> None:
    before = harness.walks.processes.process_ids
    sqlstate, message = error_of(harness.ask(encoder=Unsendable()))
    assert sqlstate == "XX000"
    assert message.startswith('the walk of "test" raised TypeError: ')
    assert harness.metrics.walks_offloaded == 0
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert (harness.walks.processes.process_ids, restarts(harness.walks)) == (before, 0)


def test_a_walk_process_is_less_urgent_than_the_server(harness: PoolHarness) -> None:
    harness.ask()
    (process,) = harness.walks.processes.process_ids
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, process) == min(19, ours + 10)


def test_a_walk_that_stops_in_time_keeps_its_process(
    harness: PoolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = harness.walks
    held = HeldStops(walks, monkeypatch)
    before = walks.processes.process_ids
    peek = send_endless(harness)
    harness.until_walking(peek)
    harness.worker.cancel(peek)
    harness.until_idle()
    later = send_endless(harness)
    harness.until_walking(later)
    # The hard stop of the walk that was cancelled must not hit the one after it, be it cancelled too.
    [stop] = held.stops
    stop()
    harness.worker.cancel(later)
    stop()
    harness.until_idle()
    stop()
    assert (walks.processes.process_ids, restarts(walks)) == (before, 0)


def test_the_memory_of_an_answer_is_free_once_nobody_holds_the_answer(harness: PoolHarness) -> None:
    def mapped() -> int:
        gc.collect()
        return sum(size == 3_203_072 for _, size in segment._open.values())

    harness.ask(encoder=Long())
    assert mapped() == 1
    harness.answers.clear()
    harness.walks.until(lambda: mapped() == 0)


def test_a_process_holds_nothing_of_a_walk_that_is_over(harness: PoolHarness) -> None:
    arena = SharedArena()
    bundle = TraceBundle(PAIR, arena, upper=0)
    append(bundle, pairs(*HUNDRED), 2)
    (inode,) = (os.fstat(held.fd).st_ino for held in arena._segments)
    (process,) = harness.walks.processes.process_ids

    def held() -> bool:
        gc.collect()  # of the harness, in this process
        found = set()
        for entry in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found.add(entry.stat().st_ino)
        return inode in found

    assert rows_of(harness.answer(harness.send(target=bundle.snapshot().oks))) == list(HUNDRED)
    assert held()
    harness.answers.clear()
    del arena, bundle
    harness.walks.until(lambda: not held())


@dataclass(frozen=True)
class Fragment:
    """An encoder that leaves freed memory behind; its answer is what the process then has."""

    def __call__(self, columns: Sequence[Column], count: int) -> EncodedRows:
        fragment()
        return EncodedRows(b"%d" % resident(), range(1, count + 1), count)


def test_a_process_at_rest_gives_back_what_it_has_freed(
    harness: PoolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heap, "REST", 1)
    answer = harness.ask(encoder=Fragment())
    assert isinstance(answer, Rows)
    assert answer.encoded is not None
    left = int(bytes(answer.encoded.data))
    (process,) = harness.walks.processes.process_ids
    harness.walks.until(lambda: resident(process) < left - SIZE // 2)


def test_a_process_works_on_huge_pages_on_one_thread_and_gives_memory_back_after_a_large_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heap, "REST", 0)  # never: what follows would give memory back too
    with walks_of("processes", 1, program="tests.processes.noting") as walks:
        harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=10)

        def told() -> str:
            answer = harness.ask(encoder=Noted())
            assert isinstance(answer, Rows)
            assert answer.encoded is not None
            return bytes(answer.encoded.data).decode()

        empty = send_endless(harness)
        harness.worker.cancel(empty)
        harness.until_idle()
        assert told() == "Arrow's threads: 1, frozen, collapse_heap"
        assert told() == "Arrow's threads: 1, frozen, collapse_heap, give_memory_back"


def test_the_memory_of_a_killed_walk_is_free(harness: PoolHarness) -> None:
    gc.collect()
    before = mapped_bytes()
    peek = send_endless(harness)
    harness.until_walking(peek)
    os.kill(harness.walks.processes.process_ids[0], signal.SIGKILL)
    harness.answer(peek)
    harness.answers.clear()
    del peek
    harness.until_idle()
    gc.collect()
    # The pool's own segment for rows found inline is there from the first walk on.
    assert mapped_bytes() <= before + (4 << 20) + 8_192


def test_a_message_that_cannot_be_read_costs_the_walk_and_the_process(
    harness: PoolHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreadable(*_: object) -> None:
        raise InternalError("unreadable")

    monkeypatch.setattr(harness.walks.processes, "_ended", unreadable)
    (process,) = harness.walks.processes.process_ids
    peek = harness.send()
    assert error_of(harness.answer(peek))[0] == "XX000"
    assert f"a message of walk process {process} cannot be read" in caplog.text
    monkeypatch.undo()
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert restarts(harness.walks) == 1


def test_an_answer_to_another_request_is_none(harness: PoolHarness) -> None:
    peek = send_endless(harness)
    processes = harness.walks.processes
    (walker,) = processes._walkers
    processes._ended(walker, WalkEnded(walker.number - 1, {}))
    assert walker.errand is not None
    harness.worker.cancel(peek)
    harness.until_idle()


def test_processes_that_cannot_live_make_the_pool_unwell_and_leave_walks_to_be_cancelled() -> None:
    with walks_of("processes", 1, program="tests.processes.dying") as walks:
        harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=10)
        walks.until(lambda: not walks.pool.healthy and not walks.processes.process_ids)
        assert restarts(walks) >= 3
        peek = harness.send()
        harness.worker.cancel(peek)
        harness.until_idle()
        assert error_of(harness.answers[peek])[0] == "57014"


def test_a_process_that_has_told_of_itself_makes_the_pool_well_whatever_died_before() -> None:
    with walks_of("processes", 1) as walks:
        (walker,) = walks.processes._walkers
        for _ in range(3):
            walks.processes._survival.died(time.monotonic())
        assert not walks.pool.healthy
        walks.until(lambda: walker.progress is not None)
        assert walks.pool.healthy


def test_closing_ends_the_processes_though_one_is_stopped() -> None:
    with walks_of("processes", 2) as walks:
        harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=10)
        peek = send_endless(harness)
        harness.until_walking(peek)
        processes = walks.processes.process_ids
        harness.worker.cancel(peek)
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)


def test_a_process_whose_start_ends_after_the_pool_was_closed_is_ended_too() -> None:
    with walks_of("processes", 1) as walks:
        walker = walks.processes._new_walker(FIRST_WALKER_SLOT + 1)
        walks.pool.close()
        started: Future[Any] = Future()
        started.set_result(walker)
        walks.processes._launched(walker.slot, started)
    assert not Path(f"/proc/{walker.child.pid}").exists()
    assert walks.processes.process_ids == []


def test_a_process_whose_start_ends_after_the_loop_was_closed_is_ended_too() -> None:
    with walks_of("processes", 1) as walks:
        processes = walks.processes
        walker = processes._new_walker(FIRST_WALKER_SLOT + 1)
        started: Future[Any] = Future()
        started.set_result(walker)
    processes._in_loop(lambda: processes._launched(walker.slot, started))
    assert not Path(f"/proc/{walker.child.pid}").exists()


@pytest.mark.parametrize(("loop_is_on", "gives_way"), [(7, True), (6, False)])
def test_a_walk_gives_way_on_the_core_of_the_serving_loop(
    loop_is_on: int, gives_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_core, "current_core", lambda: loop_is_on)
    core = ServingCore.create()
    core.note()
    with walks_of("processes", 1, program="tests.processes.yielding", serving_core=core) as walks:
        harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=10, yield_granularity=16)
        response = harness.ask()
        if gives_way:
            assert error_of(response) == ("XX000", 'the process that walked "test" died')
        else:
            assert rows_of(response) == list(HUNDRED)
        harness.until_idle()
