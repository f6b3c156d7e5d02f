"""One real server for all client tests, as a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.clients.server import Server

_LINE = re.compile(r"accepts connections on ([^ ]+):(\d+) ")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Start `layby serve` on free ports; end it by its pid and hold it to a clean exit."""
    command = [sys.executable, "-c", "from layby.cli import main; main()"]
    process = subprocess.Popen(
        [*command, "serve", "--port", "0", "--http-port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = _LINE.search(line)
        assert found is not None, f"the server printed {line!r}"
        yield Server(found[1], int(found[2]))
        process.terminate()
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(30)
        if process.stdout is not None:
            process.stdout.close()
