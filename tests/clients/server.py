"""Where the server under test is, in the words of each client."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import LiteralString

import psycopg

TIMEOUT = 60.0
"""Seconds within which anything a client does must end."""


@dataclass(frozen=True)
class Server:
    """The address of a server."""

    host: str
    port: int

    @property
    def conninfo(self) -> str:
        return f"host={self.host} port={self.port} user=layby dbname=layby connect_timeout=20"

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://layby@{self.host}:{self.port}/layby"

    def run(
        self, program: str, *arguments: str, stdin: str = "", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a PostgreSQL client program against the server."""
        environment = {
            **os.environ,
            "PGHOST": self.host,
            "PGPORT": str(self.port),
            "PGUSER": "layby",
            "PGDATABASE": "layby",
        }
        done = subprocess.run(
            [program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
            env=environment,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done


@contextmanager
def table(server: Server, name: str, *statements: LiteralString) -> Iterator[None]:
    """Make a table by its statements, and drop it afterwards."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)
        try:
            yield
        finally:
            connection.execute(f"DROP TABLE {name}".encode())


SLOW: LiteralString = "SELECT g FROM generate_series(1, 1000000000000) g WHERE g % 7 = -1"
"""A statement that runs for hours unless it is cancelled, and gives no rows meanwhile."""
