"""A walk process that is always on core 7, and dies of giving way there."""

import os

from layby.memory import serving_core
from layby.peek import walk_process


def main() -> None:
    vars(serving_core)["current_core"] = lambda: 7
    vars(os)["sched_yield"] = lambda: os._exit(3)
    walk_process.main()
