"""What happens around the sessions: parameters flip, and on demand processes are killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from random import Random

import psycopg

from tests.stress.server import StressedServer

VALUES = {
    "enable_compute_index_peek_offload": ("on", "on", "on", "off"),
    "compute_index_peek_inline_budget": ("1", "100", "16384", "1000000000"),
    "compute_index_peek_quiet_budget": ("4194304", "4194304", "0", "1"),
    "compute_index_peek_activation_budget": ("1", "65536", "1000000000"),
    "compute_index_peek_yield_granularity": ("1", "1000", "100000"),
    "compute_index_peek_permit_fraction": ("1.0", "0.0001", "1000.0"),
    "compute_index_peek_max_queued": ("1000", "1000", "0", "1"),
    "max_result_size": ("1GB", "1GB", "1GB", "0", "100kB"),
    "compute_peek_row_iteration_limit": ("0", "0", "0", "1000"),
    "peek_response_stash_threshold_bytes": ("16MB", "0", "0", "10kB"),
    "enable_compute_peek_response_stash": ("on", "on", "off"),
    "enable_compute_index_peek_shared_walks": ("on", "off"),
}
"""By parameter the values to flip over; those that the server does not have are left out."""

_PAUSE_S = 0.05


def known(server: StressedServer) -> list[str]:
    """Return the parameters that the server has."""
    found = []
    with server.session() as connection:
        for name in VALUES:
            try:
                connection.execute(f"SHOW {name}".encode())
            except psycopg.errors.UndefinedObject:
                continue
            found.append(name)
    return found


def flip(server: StressedServer, random: Random, stop: threading.Event) -> int:
    """Flip parameters until told to stop, then put the defaults back; return how often."""
    names, flips = known(server), 0
    with server.session() as connection:
        while not stop.wait(_PAUSE_S):
            name = random.choice(names)
            connection.execute(f"ALTER SYSTEM SET {name} = '{random.choice(VALUES[name])}'".encode())
            flips += 1
        connection.execute("ALTER SYSTEM RESET ALL")
    return flips


def kill(server: StressedServer, random: Random, stop: threading.Event) -> int:
    """Kill a child process of the server now and then; return how often."""
    kills = 0
    pause: Callable[[], float] = lambda: 2 + 4 * random.random()  # noqa: E731
    while not stop.wait(pause()):
        children = server.children()
        if children:
            try:
                os.kill(random.choice(children), signal.SIGKILL)
            except ProcessLookupError:
                continue
            kills += 1
    return kills
