"""`layby serve`: puts a server together and runs it until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import uvloop

from layby import __version__
from layby.adapter.coordinator import Coordinator
from layby.cli.realtime import set_realtime
from layby.cli.rest import at_rest
from layby.compute.process_runtime import ProcessMaintenanceRuntime
from layby.config import SystemParameters
from layby.http.app import control_app
from layby.http.control import ControlPlane
from layby.memory.child import run_apart
from layby.memory.heap import give_memory_back
from layby.memory.huge_pages import collapse_heap
from layby.memory.reaper import reap_apart
from layby.memory.segment import mapped_bytes
from layby.memory.serving_core import ServingCore
from layby.metrics import PeekMetrics, registry
from layby.peek.process_pool import ProcessWalkPool
from layby.persist.blob import Blob
from layby.persist.folder import FolderBlob
from layby.persist.private_folder import PrivateFolder, temporary_place
from layby.pgwire.listener import listen
from layby.turns import EventLoop, Turns

# A collection of the young generation costs the loop more than it frees: hot objects are in no cycle. One of
# 20,000 objects takes 0.5 ms, one of 50,000, which leave the cache, 3 ms.
_GC_THRESHOLDS = (20_000, 125, 100)
# How long a thread in the interpreter may keep the loop waiting for the GIL; the default of 5 ms would be
# the lookups' tail.
_SWITCH_INTERVAL_S = 0.0005


class ServeError(Exception):
    """The server cannot start; the message is one line for the terminal."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def serve(
    parameters: SystemParameters,
    sql: Address,
    http: Address,
    announce: Callable[[str], None],
    workers: str = "processes",
    walk_nice: int = 10,
) -> None:
    """Serve until SIGTERM or SIGINT; `announce` gets the one line when connections are accepted.

    `workers` says where walks and maintenance run: "processes" or "threads"; processes for walks have the
    nice value `walk_nice`. Raises ServeError where an address cannot be listened on.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    uvloop.run(_serve(parameters, sql, http, announce, workers, walk_nice))


async def _serve(
    parameters: SystemParameters,
    sql: Address,
    http: Address,
    announce: Callable[[str], None],
    workers: str,
    walk_nice: int,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = PeekMetrics()
    try:
        stash = PrivateFolder(temporary_place("layby-stash"))
    except OSError as error:
        raise ServeError(f"cannot make a folder for large answers: {error}") from None
    blob = FolderBlob(stash.path, durable=False)
    serving_core = ServingCore.create()
    turns = Turns(loop, metrics.turn_seconds, on_enter=serving_core.note)
    if workers == "processes":
        coordinator = with_processes(parameters, turns, metrics, blob, serving_core, walk_nice)
    else:
        coordinator = Coordinator(parameters, loop=turns, metrics=metrics, blob=blob)
    coordinator.start()

    def set_priority() -> None:
        wanted = bool(parameters.get("enable_serving_loop_realtime"))
        if wanted != metrics.serving_loop_realtime:
            metrics.serving_loop_realtime = set_realtime(wanted)
            serving_core.ask(not metrics.serving_loop_realtime)

    try:
        try:
            control = ControlPlane(control_app(coordinator.healthy, registry(metrics)), http.host, http.port)
        except OSError as error:
            raise _refused(http, error) from None
        try:
            try:
                listener = await listen(coordinator, sql.host, sql.port, turns=turns)
            except OSError as error:
                raise _refused(sql, error) from None
            try:
                set_priority()
                parameters.on_change.append(set_priority)
                at_rest(
                    turns,
                    lambda: (metrics.walks_inline, metrics.walks_offloaded, coordinator.state.upper),
                    lambda: run_apart(give_memory_back, lambda _: None),
                )
                gc.collect()
                gc.freeze()
                gc.set_threshold(*_GC_THRESHOLDS)
                collapse_heap()  # a part of what a start takes, before anybody waits
                bound, http_bound = Address(sql.host, listener.port), Address(http.host, control.port)
                announce(f"layby {__version__} accepts connections on {bound} (http {http_bound})")
                await stop.wait()
            finally:
                await listener.close()
        finally:
            control.close()
    finally:
        await coordinator.close()
        stash.close()


def with_processes(
    parameters: SystemParameters,
    loop: EventLoop,
    metrics: PeekMetrics,
    blob: Blob,
    serving_core: ServingCore,
    walk_nice: int,
) -> Coordinator:
    """Return a coordinator whose walks and maintenance run in processes of their own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a descriptor for each segment
    reap_apart()
    metrics.shared_memory_bytes = mapped_bytes
    pool = ProcessWalkPool(
        os.cpu_count() or 1,
        loop,
        lambda: parameters.peek,
        nice=walk_nice,
        metrics=metrics,
        serving_core=serving_core,
    )
    parameters.on_change.append(pool.parameters_changed)
    return Coordinator(
        parameters,
        loop=loop,
        metrics=metrics,
        pool=pool,
        maintenance=partial(ProcessMaintenanceRuntime, loop=loop, metrics=metrics),
        blob=blob,
    )


def _refused(address: Address, error: OSError) -> ServeError:
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return ServeError(f"cannot listen on {address}: {reason}")
