"""`layby serve` as a process: its line, its ports, its end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from layby.bench.server import LaybyServer
from layby.bench.wire import Connection

LAYBY = [sys.executable, "-m", "layby"]
TIMEOUT_S = 60


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [*LAYBY, "serve", "--port", "0", "--http-port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield started
    started.kill()
    started.communicate()


def refused(*arguments: str, **environment: str) -> str:
    """What a command that has to fail says."""
    ran = subprocess.run(
        [*LAYBY, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env=os.environ | environment,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    return ran.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_says_one_line_and_ends_with_status_zero_when_told_to(
    process: subprocess.Popen[str], number: signal.Signals
) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(number)
    rest, errors = process.communicate(timeout=TIMEOUT_S)

    assert re.fullmatch(
        r"layby \d+\.\d+\.\d+ accepts connections on 127\.0\.0\.1:\d+ \(http 127\.0\.0\.1:\d+\)\n", line
    )
    assert (rest, errors, process.returncode) == ("", "", 0)


def test_a_server_ends_although_sessions_are_open(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    port = int(process.stdout.readline().split(":")[1].split()[0])
    with Connection("127.0.0.1", port) as connection:
        assert connection.query("SELECT 1").rows == [("1",)]
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 0


def test_walk_processes_have_the_nice_value_that_is_asked_for() -> None:
    with LaybyServer(options=("--walk-nice", "7")) as server, server.connect() as connection:
        # More than the quiet budget: the process that has answered has begun.
        assert connection.query("SELECT g FROM generate_series(1, 10000000) AS g WHERE g < 0").rows == []
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        programs = {int(c): Path(f"/proc/{c}/cmdline").read_bytes() for c in children}
        walkers = [c for c, program in programs.items() if b"import layby.peek.walk_process" in program]
        assert 7 in [os.getpriority(os.PRIO_PROCESS, c) for c in walkers]


def test_a_running_server_is_healthy_and_has_the_offload_on() -> None:
    with LaybyServer() as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/healthz", timeout=30) as page:
            assert page.read() == b"ok\n"
        with server.connect() as connection:
            assert connection.query("SHOW enable_compute_index_peek_offload").rows == [("on",)]
        assert server.stop() == 0


def test_a_parameter_of_the_environment_is_in_force() -> None:
    with (
        LaybyServer({"compute_index_peek_inline_budget": "17", "max_result_size": "3MB"}) as server,
        server.connect() as connection,
    ):
        assert connection.query("SHOW compute_index_peek_inline_budget").rows == [("17",)]
        assert connection.query("SHOW max_result_size").rows == [("3MB",)]


@pytest.mark.parametrize("option", ["--port", "--http-port"])
def test_a_port_in_use_is_one_line_and_status_one(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = {"--port": "0", "--http-port": "0", option: str(port)}

        said = refused("serve", *(word for pair in options.items() for word in pair))

    assert said == f"layby: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_a_data_folder_is_refused_while_data_lives_in_memory() -> None:
    assert "data lives in memory" in refused("serve", "--data", "somewhere")


def test_a_bad_parameter_is_one_line_and_status_one() -> None:
    said = refused("serve", LAYBY_SYSTEM_PARAMETER_DEFAULT="max_result_size=much")

    assert said == (
        'layby: LAYBY_SYSTEM_PARAMETER_DEFAULT: invalid value for parameter "max_result_size": "much"\n'
    )
