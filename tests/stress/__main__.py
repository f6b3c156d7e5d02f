"""`python -m tests.stress --minutes N --seed S`: sessions at random against a real server.

Every answer is checked, and that nothing is left at the end. Exits 1 with what was
found. The seed makes the choices of each session the same again; their timing is the machine's, so a finding
may need several runs to come back.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
from functools import partial

from tests.stress.run import StressRun


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--workers", choices=("processes", "threads"), default="processes")
    parser.add_argument("--kills", action="store_true", help="kill walk and maintenance processes as well")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)  # as an exception, for the server must not outlive the run
    say = partial(print, flush=True)
    say(f"seed {given.seed}")
    run = StressRun(given.seed, sessions=given.sessions, kills=given.kills, workers=given.workers, say=say)
    findings = run.run(given.minutes * 60)
    for finding in findings:
        say(f"FOUND: {finding}")
    say("nothing wrong, nothing left" if not findings else f"{len(findings)} findings, seed {given.seed}")
    return 1 if findings else 0


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
