"""Servers to measure: layby as a user starts it, and a throw-away PostgreSQL beside it.

Both run as child processes on free loopback ports, with their data in a temporary folder, and are stopped
and removed when their context is left.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, TypedDict

from layby.bench.wire import Connection, LostConnectionError, ServerError

HOST = "127.0.0.1"
START_S = 60.0
STOP_S = 30.0
_ACCEPTS = re.compile(r"accepts connections on \S+:(\d+) \(http \S+:(\d+)\)")


class StartError(Exception):
    """A server could not be started; says what it printed."""


class _Identity(TypedDict, total=False):
    """Who a child process runs as."""

    user: int
    group: int
    extra_groups: tuple[int, ...]


class Server:
    """A running server: `name`, `host`, `port`; connect to it as user `layby`, database `layby`."""

    name: str
    stop_signal = signal.SIGTERM
    host = HOST
    port: int

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix=f"layby-bench-{self.name}-"))
        self._log = self._folder / "log"

    def __exit__(self, *_: object) -> None:
        """Stop it, where it runs, and remove its folder."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The id of the server's first process."""
        assert self._process is not None
        return self._process.pid

    def connect(self, timeout: float | None = 600.0) -> Connection:
        """A blocking connection to this server."""
        return Connection(self.host, self.port, timeout=timeout)

    def stop(self) -> int | None:
        """Ask the server to end, kill it if it does not; its exit status, None where it did not run."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(self.stop_signal)
            try:
                process.communicate(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        return process.returncode if process is not None else None

    def log_lines(self) -> list[str]:
        """What the server has written to its log so far."""
        return self._log.read_text(errors="replace").splitlines()

    def _said(self) -> str:
        """The last lines of the log."""
        return "\n".join(self.log_lines()[-5:])


class LaybyServer(Server):
    """`layby serve` in a child process, with system parameter defaults and options."""

    name = "layby"

    def __init__(self, parameters: Mapping[str, str] | None = None, *, options: Sequence[str] = ()) -> None:
        super().__init__()
        self._options = options
        self._parameters = parameters or {}
        self.http_port = 0

    def __enter__(self) -> Self:
        """Start it and wait for its line. Raises StartError."""
        settings = ";".join(f"{name}={value}" for name, value in self._parameters.items())
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "layby", "serve", "--port", "0", "--http-port", "0",
                 *self._options],
                env=os.environ | {"LAYBY_SYSTEM_PARAMETER_DEFAULT": settings},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = _ACCEPTS.search(line)
        if found is None:
            said = line.strip() or self._said()
            self.__exit__()
            raise StartError(f"layby did not start: {said}")
        self.port, self.http_port = int(found[1]), int(found[2])
        return self


class PostgresServer(Server):
    """A PostgreSQL cluster made for this run: default settings, trust on loopback, no Unix socket.

    PostgreSQL refuses to run as root, so under root it runs as user `postgres`, or `nobody` without one.
    """

    name = "postgres"
    stop_signal = signal.SIGINT  # ends the sessions too, where SIGTERM would wait for them

    def __enter__(self) -> Self:
        """Make the cluster, start it, make its database. Raises StartError."""
        try:
            self._start(postgres_programs())
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, programs: Path) -> None:
        owner = _unprivileged()
        if owner is not None:
            os.chown(self._folder, owner.pw_uid, owner.pw_gid)
        made = subprocess.run(
            [programs / "initdb", "--pgdata", self._folder / "data", "--auth=trust", "--username=layby",
             "--locale=C", "--encoding=UTF8", "--no-sync"],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            **_identity(owner),
        )  # fmt: skip
        if made.returncode:
            raise StartError(f"initdb failed: {made.stderr.strip()}")
        self.port = free_port()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [programs / "postgres", "-D", self._folder / "data", "-p", str(self.port),
                 "-c", f"listen_addresses={HOST}", "-c", "unix_socket_directories="],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                **_identity(owner),
            )  # fmt: skip
        deadline = time.monotonic() + START_S
        while True:
            try:
                with Connection(self.host, self.port, database="postgres") as connection:
                    connection.query("CREATE DATABASE layby")
                return
            except (OSError, ServerError, LostConnectionError):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise StartError(f"postgres did not start: {self._said()}") from None
                time.sleep(0.05)


def free_port() -> int:
    """A loopback port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def postgres_programs() -> Path:
    """The folder with `initdb` and `postgres`, the newest release's. Raises StartError without one."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else []
    found += sorted(
        (program.parent for program in Path("/usr/lib/postgresql").glob("*/bin/initdb")),
        key=lambda folder: float(folder.parent.name),
        reverse=True,
    )
    for folder in found:
        if (folder / "postgres").exists():
            return folder
    raise StartError("PostgreSQL is not installed: no initdb on the path (Debian: apt install postgresql)")


def _unprivileged() -> pwd.struct_passwd | None:
    """The user to run PostgreSQL as; None where this process is no root and runs it as itself."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _identity(owner: pwd.struct_passwd | None) -> _Identity:
    """The arguments of `subprocess` that start a program as `owner`."""
    if owner is None:
        return {}
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": ()}
