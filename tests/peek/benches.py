"""Benches: what runs walks on threads and in processes behind gates, shared by all tests of a kind."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from layby.config import SystemParameters
from layby.peek.pool import Work
from layby.persist.blob import BlobError
from tests.peek.gated_process import ADDRESS
from tests.peek.gates import Bench, GatedPool, SteppedBench, UnderWay
from tests.peek.patches import patched
from tests.peek.pools import Walks
from tests.persist import memory_blob

_T = TypeVar("_T")

_WALKERS: Final = 3
"""The threads or processes of a bench: as many as any test has walks under way."""


class _ThreadGate:
    """A walk on a thread, behind a gate."""

    def __init__(self, work: Work, bench: ThreadBench, patches: dict[str, object]) -> None:
        self.stands = False
        self.opened = False
        self.work = work
        self._bench = bench
        self._patches = patches
        self._through = threading.Semaphore(0)

    def step(self) -> bool:
        if not self.opened:
            self._bench.tell(self._stand)
            self._through.acquire()
        with patched(self._patches):
            return self.work.step()

    @property
    def over(self) -> bool:
        return self.work.over

    def let_through(self, *, opened: bool) -> None:
        self.opened = opened
        self.stands = False
        self._through.release()

    def _stand(self) -> None:
        self.stands = True


class GatedThreads(GatedPool):
    """The pool of threads."""

    def __init__(self, bench: ThreadBench, size: int) -> None:
        super().__init__(size)
        self._bench = bench
        self._gates: dict[UnderWay, _ThreadGate] = {}

    def look(self, look: Callable[[Any], _T], at: int = 0) -> _T:
        under_way = self.walks[at]
        self._bench.walks.until(lambda: self._gates[under_way].stands)
        return look(under_way.work)

    def _start(self, under_way: UnderWay) -> None:
        gate = self._gates[under_way] = _ThreadGate(under_way.work, self._bench, self.patches)
        self._bench.walks.pool.submit(cast("Work", gate), lambda: self._ended(under_way))

    def _let_through(self, under_way: UnderWay, *, opened: bool) -> bool:
        gate = self._gates[under_way]
        self._bench.walks.until(lambda: gate.stands)
        gate.let_through(opened=opened)
        self._bench.walks.until(lambda: gate.stands or under_way not in self.walks)
        return under_way not in self.walks

    def _ended(self, under_way: UnderWay) -> None:
        if under_way.work.over:
            self._gates.pop(under_way, None)
        super()._ended(under_way)
        self._bench.walks.loop.stop()


class GatedProcesses(GatedPool):
    """The pool of processes."""

    def __init__(self, bench: ProcessBench, size: int, parameters: SystemParameters) -> None:
        super().__init__(size)
        self._bench = bench
        self._parameters = parameters
        parameters.on_change.append(self._show)

    def process_id(self, at: int = 0) -> int:
        """Return the id of the process that the walk at place `at` runs in."""
        work = self.walks[at].work
        found = self._bench.walks.processes._walkers
        [walker] = [w for w in found if w.errand is not None and w.errand.work is work]
        return walker.child.pid

    def look(self, look: Callable[[Any], _T], at: int = 0) -> _T:
        return cast("_T", self._bench.ask(self.process_id(at), look))

    def _show(self) -> None:
        self._bench.walks.show(self._parameters.peek)

    def _start(self, under_way: UnderWay) -> None:
        self._show()
        self._bench.walks.pool.submit(under_way.work, lambda: self._ended(under_way))

    def _let_through(self, under_way: UnderWay, *, opened: bool) -> bool:
        walks = self._bench.walks
        process = self.process_id(self.walks.index(under_way))
        self._bench.let_through(process, opened=opened, patches=self.patches)
        walks.until(lambda: self._bench.stands(process) or under_way not in self.walks)
        return under_way not in self.walks

    def _ended(self, under_way: UnderWay) -> None:
        super()._ended(under_way)
        self._bench.walks.loop.stop()


class ThreadBench(Bench):
    """Threads."""

    kind = "threads"

    def __init__(self) -> None:
        super().__init__()
        self.walks = Walks("threads", _WALKERS)

    def until(self, condition: Callable[[], object]) -> None:
        self.walks.until(condition)

    def tell(self, callback: Callable[[], None]) -> None:
        """Have the loop, on which the tests run, call a function; on any thread."""

        def called() -> None:
            callback()
            self.walks.loop.stop()

        self.walks.loop.call_soon_threadsafe(called)

    def close(self) -> None:
        super().close()
        self.walks.close()

    def _pool(self, size: int, parameters: SystemParameters) -> GatedPool:
        return GatedThreads(self, size)


class ProcessBench(Bench):
    """Processes, each of which has a connection to its gate."""

    kind = "processes"

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="layby-gates-")
        address = str(Path(self._folder.name) / "socket")
        self._listener = Listener(address, "AF_UNIX", backlog=2 * _WALKERS)
        self._connections: dict[int, Connection[Any, Any]] = {}
        self._standing: set[int] = set()
        self._seen: list[Any] = []
        os.environ[ADDRESS] = address
        self.walks = Walks("processes", _WALKERS, program="tests.peek.gated_process", hard_stop_s=1e6, nice=0)
        self._accepting = self._listener._listener._socket  # type: ignore[attr-defined]
        self.walks.loop.add_reader(self._accepting.fileno(), self._accept)

    def until(self, condition: Callable[[], object]) -> None:
        self.walks.until(condition)

    def stands(self, process: int) -> bool:
        """Return whether the walk of a process stands at its gate."""
        return process in self._standing

    def let_through(self, process: int, *, opened: bool, patches: dict[str, object]) -> None:
        """Let the walk of a process take a step, or all that it has left."""
        self.walks.until(lambda: self.stands(process))
        self._standing.remove(process)
        self._connections[process].send(("pass", opened, patches))

    def ask(self, process: int, look: Callable[[Any], object]) -> object:
        """Return what a function finds on the walk that stands in a process."""
        self.walks.until(lambda: self.stands(process))
        self._connections[process].send(("look", look))
        self.walks.until(lambda: self._seen)
        return self._seen.pop()

    def close(self) -> None:
        super().close()
        self.walks.loop.remove_reader(self._accepting.fileno())
        self._listener.close()
        for process in list(self._connections):
            self._forget(process)
        self.walks.close()
        del os.environ[ADDRESS]
        self._folder.cleanup()

    def _pool(self, size: int, parameters: SystemParameters) -> GatedPool:
        return GatedProcesses(self, size, parameters)

    def _accept(self) -> None:
        connection = self._listener.accept()
        process = connection.recv()
        self._connections[process] = connection
        self.walks.loop.add_reader(connection.fileno(), lambda: self._readable(process))

    def _forget(self, process: int) -> None:
        connection = self._connections.pop(process)
        self._standing.discard(process)
        self.walks.loop.remove_reader(connection.fileno())
        connection.close()

    def _readable(self, process: int) -> None:
        connection = self._connections[process]
        try:
            message = connection.recv()
        except (EOFError, OSError):  # it died
            self._forget(process)
            return
        match message:
            case ("stands",):
                self._standing.add(process)
            case ("seen", result):
                self._seen.append(result)
            case ("store", number, method, args):
                connection.send(_call(memory_blob.store(number), method, args))
        self.walks.loop.stop()


def _call(store: object, method: str, args: tuple[object, ...]) -> object:
    try:
        return getattr(store, method)(*args)
    except BlobError as error:
        return error


def bench_of(kind: str) -> Bench:
    """Return a new bench of a kind of pool."""
    benches: dict[str, Callable[[], Bench]] = {
        "stepped": SteppedBench,
        "threads": ThreadBench,
        "processes": ProcessBench,
    }
    return benches[kind]()
