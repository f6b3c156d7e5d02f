"""Walk processes that die, hang or cannot live: what it costs, and that nothing is left of it."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from layby.errors import InternalError
from layby.memory import heap, segment, serving_core
from layby.memory.segment import mapped_bytes
from layby.memory.serving_core import ServingCore
from layby.memory.shared_arena import SharedArena
from layby.peek.answer import EncodedRows, Rows
from layby.peek.scan import PeekScan
from layby.trace.bundle import TraceBundle
from layby.types.column import Column
from tests.memory.fragmented import SIZE, fragment, resident
from tests.peek.harness import PAIR, append, bundle_of, error_of, pairs, rows_of
from tests.peek.pools import PoolHarness, Walks, walks_of
from tests.peek.test_pool_conformance import HUNDRED, Long, send_endless


@pytest.fixture
def walks() -> Iterator[Walks]:
    with walks_of("processes", 1, hard_stop_s=0.2) as found:
        yield found


@pytest.fixture
def harness(walks: Walks) -> Iterator[PoolHarness]:
    harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=10, yield_granularity=16)
    yield harness
    harness.until_idle()


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


def restarts(walks: Walks) -> int:
    return walks.metrics.walk_process_restarts


def test_a_walk_whose_process_is_killed_is_answered_and_the_next_one_runs(harness: PoolHarness) -> None:
    walks = harness.walks
    (killed,) = walks.processes.process_ids
    peek = send_endless(harness)
    queued = harness.send()
    harness.until_walking(peek)
    os.kill(killed, signal.SIGKILL)
    assert error_of(harness.answer(peek)) == ("XX000", 'the process that walked "test" died')
    assert rows_of(harness.answer(queued)) == list(HUNDRED)
    assert restarts(walks) == 1
    assert walks.processes.process_ids not in ([], [killed])
    assert (harness.metrics.walks_inline, harness.metrics.walks_offloaded) == (0, 1)


def test_a_process_killed_while_idle_costs_no_peek(harness: PoolHarness) -> None:
    assert rows_of(harness.ask()) == list(HUNDRED)
    (killed,) = harness.walks.processes.process_ids
    os.kill(killed, signal.SIGKILL)
    harness.walks.until(lambda: Path(f"/proc/{killed}").exists() is False or restarts(harness.walks))
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert restarts(harness.walks) == 1


def test_a_walk_handed_to_a_process_that_is_dead_already_is_taken_by_the_next(harness: PoolHarness) -> None:
    assert rows_of(harness.ask()) == list(HUNDRED)
    (walker,) = harness.walks.processes._walkers
    walker.child.process.kill()
    walker.child.process.wait()
    # The loop has not had a turn to notice.
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert harness.metrics.walks_offloaded == 2


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


def test_a_walk_cancelled_in_a_pass_leaves_the_process_to_the_others(
    walks: Walks, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldStops(walks, monkeypatch)
    harness = PoolHarness(
        walks,
        bundle_of(pairs(*HUNDRED)),
        inline_budget=10,
        yield_granularity=16,
        enable_compute_index_peek_shared_walks="on",
    )
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


def test_a_walk_that_cannot_be_handed_over_gives_its_permit_back_and_counts_nowhere(
    harness: PoolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise MemoryError("no segment")

    monkeypatch.setattr(PeekScan, "place_found", full)
    peek = harness.send()
    assert error_of(harness.answer(peek)) == ("XX000", "a walk could not be handed over: no segment")
    harness.until_idle()
    assert (harness.metrics.permits_in_use, harness.metrics.walks_offloaded) == (0, 0)
    monkeypatch.undo()
    assert rows_of(harness.ask()) == list(HUNDRED)


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
    # The hard stop of the walk that was cancelled must not hit the one after it.
    [stop] = held.stops
    stop()
    harness.worker.cancel(later)
    harness.until_idle()
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
    harness: PoolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise InternalError("unreadable")

    monkeypatch.setattr(harness.walks.processes, "_ended", unreadable)
    peek = harness.send()
    assert error_of(harness.answer(peek))[0] == "XX000"
    monkeypatch.undo()
    assert rows_of(harness.ask()) == list(HUNDRED)
    assert restarts(harness.walks) == 1


def test_processes_that_cannot_live_make_the_pool_unwell_and_leave_walks_to_be_cancelled() -> None:
    with walks_of("processes", 1, program="tests.processes.dying") as walks:
        harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=10)
        walks.until(lambda: not walks.pool.healthy and not walks.processes.process_ids)
        assert restarts(walks) >= 3
        peek = harness.send()
        harness.worker.cancel(peek)
        harness.until_idle()
        assert error_of(harness.answers[peek])[0] == "57014"


def test_closing_ends_the_processes_though_one_is_stopped() -> None:
    with walks_of("processes", 2) as walks:
        harness = PoolHarness(walks, bundle_of(pairs(*HUNDRED)), inline_budget=10)
        peek = send_endless(harness)
        harness.until_walking(peek)
        processes = walks.processes.process_ids
        harness.worker.cancel(peek)
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)


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
