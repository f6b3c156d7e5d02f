"""A stress run that is told to end takes its server along."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path


def test_a_run_that_is_terminated_ends_its_server() -> None:
    command = [sys.executable, "-m", "tests.stress", "--minutes", "1", "--sessions", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        started = [line.split() for line in (run.stdout.readline(), run.stdout.readline())]
        assert [words[0] for words in started] == ["seed", "server"]
        server = int(started[1][1])
        assert Path(f"/proc/{server}").exists()
        run.terminate()
        code = run.wait()
        try:
            assert code == 128 + signal.SIGTERM
            assert not Path(f"/proc/{server}").exists()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
