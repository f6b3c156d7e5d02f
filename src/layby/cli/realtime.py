"""Real-time priority of the serving loop, where the system permits it.

A thread of the real-time class gets a core the moment it wants one, before every program of normal priority.
That is what keeps the lookups' tail where outside programs compute on all cores: p99 0.6 ms beside them and
walks, where a loop of normal priority has 4.4 ms, and 0.9 ms without walks. It is right for this loop, whose
turns are short by design. The threads that the loop waits for, since they hold the interpreter lock now and
then, come next: a commit that is put off by another program with the lock in its hand would put off the loop,
too (beside writes and a load of ten, p99 0.6 ms in place of 1.3). Walks and maintenance have normal priority,
whatever they run on. The kernel keeps a twentieth of each core for others whatever happens.

Permitted to root, with CAP_SYS_NICE, or under an `rtprio` limit of at least 2 (`ulimit -r`, systemd
`LimitRTPRIO=2`, Docker `--ulimit rtprio=2`).
"""

from __future__ import annotations

import os
import threading
from typing import Final

_NORMAL: Final = 0
_BESIDE_THE_LOOP: Final = 1
_LOOP: Final = 2

_SHARE_THE_LOCK: Final = ("layby-commit", "layby-maintenance-send", "layby-http", "layby-reaper")


def set_realtime(wanted: bool) -> bool:
    """Put the calling thread, which runs the serving loop, and those that it may wait for into the real-time
    class, or back; return whether they are in it now. What they start does not inherit it.
    """
    if not _set(threading.get_native_id(), _LOOP if wanted else _NORMAL):
        return False
    for thread in threading.enumerate():
        if thread.name in _SHARE_THE_LOCK and thread.native_id is not None:
            _set(thread.native_id, _BESIDE_THE_LOOP if wanted else _NORMAL)
    return wanted


def _set(thread: int, priority: int) -> bool:
    policy = os.SCHED_RR if priority else os.SCHED_OTHER
    try:
        os.sched_setscheduler(thread, policy | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    except (PermissionError, ProcessLookupError):
        return False
    return True
