"""Runs SQL logic test files against a server over pgwire.

By hand: `python -m tests.slt.runner HOST PORT FILE-OR-FOLDER…` prints the failures by message, most
frequent first, with a place where each occurs, and exits 1 where there are any.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from layby.bench.wire import Connection, LostConnectionError, ServerError
from tests.slt.records import Record, RecordError, arrange, digest, matches, parse

_CREATED = re.compile(
    r"\s*CREATE\s+(?:TEMP\w*\s+)?(TABLE|VIEW)\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)", re.IGNORECASE
)
_TIMEOUT_S = 60.0
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that did not come out as its file says."""

    file: str
    line: int
    sql: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}\n    {' '.join(self.sql.split())[:200]}"


@dataclass(slots=True)
class Tally:
    """How many records ran, and which failed."""

    records: int = 0
    failures: list[Failure] = field(default_factory=list)


def run_file(path: Path, connect: Callable[[], Connection], tally: Tally) -> None:
    """Run every record of a file, then drop the tables and views that it made."""
    connection = connect()
    labels: dict[str, str] = {}
    created: list[tuple[str, str]] = []
    try:
        for record in parse(path.read_text()):
            tally.records += 1
            try:
                message = run_record(connection, record, labels)
            except (LostConnectionError, OSError) as error:
                message = f"connection lost: {error}"
                connection.close()
                connection = connect()
            made = _CREATED.match(record.sql)
            if message:
                tally.failures.append(Failure(path.name, record.line, record.sql, message))
            elif made is not None and record.error is None:
                created.append((made[1], made[2]))
        for kind, name in reversed(created):
            try:
                connection.query(f"DROP {kind} IF EXISTS {name}")
            except ServerError as error:
                tally.failures.append(Failure(path.name, 0, f"DROP {kind} {name}", error.message))
    except RecordError as error:
        tally.failures.append(Failure(path.name, 0, "", str(error)))
    finally:
        connection.close()


def run_record(connection: Connection, record: Record, labels: dict[str, str]) -> str:
    """Run one record; what is wrong with its outcome, empty where nothing is.

    `labels` keeps the values seen by label: records with the same label have to give the same values.
    """
    try:
        reply = connection.query(record.sql)
    except ServerError as error:
        if record.error is None:
            return f"{error.sqlstate} {error.message}"
        if record.error not in error.message:
            return f"expected an error with {record.error!r}, got {error.message!r}"
        return ""
    if record.error is not None:
        return f"expected an error{f' with {record.error!r}' if record.error else ''}, got none"
    if not record.types:
        return ""
    try:
        values = arrange(reply.rows, record.types, record.sort)
    except ValueError:
        return f"expected {len(record.types)} columns, got {len(reply.rows[0])}"
    if record.expected is not None and not matches(values, record.expected):
        return f"wrong values: expected {_short(record.expected)}, got {_short(values)}"
    if record.label and labels.setdefault(record.label, digest(values)) != digest(values):
        return f"other values than before under label {record.label}"
    return ""


def _short(values: Sequence[str]) -> str:
    return f"{len(values)} values {' '.join(values[:8])}" + (" …" if len(values) > 8 else "")


def files_in(paths: Sequence[str]) -> list[Path]:
    """The files named, and all `.test` and `.slt` files below the folders named."""
    found: list[Path] = []
    for path in map(Path, paths):
        found += (
            sorted(file for file in path.rglob("*") if file.suffix in (".test", ".slt"))
            if path.is_dir()
            else [path]
        )
    return found


def main(arguments: Sequence[str]) -> int:
    """Run files by hand; the exit status."""
    if len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    host, port, *paths = arguments
    total = Tally()
    for path in files_in(paths):
        tally = Tally()
        run_file(path, lambda: Connection(host, int(port), timeout=_TIMEOUT_S), tally)
        print(f"{path.name}: {tally.records - len(tally.failures)} of {tally.records} passed")
        total.records += tally.records
        total.failures += tally.failures
    # Numbers and names vary from record to record: what is left of a message is its kind.
    kinds = Counter(_kind(failure.message) for failure in total.failures)
    for kind, count in kinds.most_common(_SHOWN):
        first = next(failure for failure in total.failures if _kind(failure.message) == kind)
        print(f"\n{count} × {first}")
    print(f"\n{total.records - len(total.failures)} of {total.records} records passed")
    return 1 if total.failures else 0


def _kind(message: str) -> str:
    if message.startswith("wrong values"):
        return "wrong values"
    return re.sub(r'"[^"]*"|\d+', "…", message)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
