"""pgbench as the client: PostgreSQL's own, so that neither server is measured by a client of ours."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from layby.bench.server import Server

_TPS = re.compile(r"^tps = ([0-9.]+)", re.MULTILINE)
_DONE = re.compile(r"^number of transactions actually processed: (\d+)", re.MULTILINE)
_FAILED = re.compile(r"^number of failed transactions: (\d+)", re.MULTILINE)
_SLACK_S = 60.0


class PgbenchError(Exception):
    """pgbench could not be run to its end; says what it printed."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Transactions done, failed, and done a second (connecting not counted)."""

    n: int
    errors: int
    tps: float


def find_pgbench() -> Path | None:
    """The program, from the path or from Debian's folder of the newest release."""
    on_path = shutil.which("pgbench")
    if on_path:
        return Path(on_path)
    return max(Path("/usr/lib/postgresql").glob("*/bin/pgbench"), default=None)


def read_summary(text: str) -> Throughput:
    """The figures in what pgbench printed. Raises PgbenchError where they are missing."""
    tps, done, failed = _TPS.search(text), _DONE.search(text), _FAILED.search(text)
    if tps is None or done is None:
        raise PgbenchError(f"pgbench printed no result: {text.strip()}")
    return Throughput(n=int(done[1]), errors=int(failed[1]) if failed else 0, tps=float(tps[1]))


def run_pgbench(
    program: Path, server: Server, script: str, *, mode: str, clients: int, seconds: float
) -> Throughput:
    """Run a script in a closed loop, `mode` being `prepared` or `simple`. Raises PgbenchError.

    pgbench counts time in whole seconds, so a run lasts at least one.
    """
    with tempfile.TemporaryDirectory(prefix="layby-bench-pgbench-") as folder:
        file = Path(folder) / "script.sql"
        file.write_text(script)
        whole = max(round(seconds), 1)
        command: list[str | Path] = [
            program, "--no-vacuum", f"--file={file}", f"--protocol={mode}", f"--client={clients}",
            f"--jobs={min(clients, 2)}", f"--time={whole}", f"--host={server.host}", f"--port={server.port}",
            "--username=layby", "layby",
        ]  # fmt: skip
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=whole + _SLACK_S
            )
        except subprocess.TimeoutExpired:
            raise PgbenchError(f"pgbench did not end within {whole + _SLACK_S:g} s") from None
    if ran.returncode:
        raise PgbenchError(f"pgbench failed: {ran.stderr.strip()}")
    return read_summary(ran.stdout)
