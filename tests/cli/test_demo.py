"""The demo: its data, its table, its picture, and a short run of the whole."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from rich.console import Console

from layby.cli.demo import Distribution, results_table
from layby.cli.flights import COLUMNS, csv_chunks, flights_archive
from layby.cli.picture import draw

PNG = b"\x89PNG\r\n\x1a\n"


def archive_of(folder: Path, text: str) -> Path:
    archive = folder / "flights.csv.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("flights.csv", text)
    return archive


def test_the_flights_are_all_there() -> None:
    lines = b"".join(csv_chunks(flights_archive())).splitlines()

    assert len(lines) == 336_776
    assert (
        lines[0] == b"2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
    )


def test_the_header_is_left_out_and_the_rest_unchanged(tmp_path: Path) -> None:
    header = ",".join(name for name, _ in COLUMNS)
    body = "x" * 200_000 + "\n"

    chunks = list(csv_chunks(archive_of(tmp_path, f"{header}\n{body}")))

    assert len(chunks) > 1
    assert b"".join(chunks) == body.encode()


def test_other_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="other columns than expected: a, b"):
        list(csv_chunks(archive_of(tmp_path, "a,b\n1,2\n")))


def test_the_table_has_both_runs_side_by_side() -> None:
    out = io.StringIO()
    runs = [
        Distribution("offload off", [float(ms) for ms in range(1, 101)], walks=5, walk_p50_ms=80.0),
        Distribution("offload on"),
    ]

    Console(file=out, width=80).print(results_table(runs))

    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.getvalue().splitlines()]
    cells = {line[0]: line[1:] for line in lines if len(line) == 3}
    assert cells["p50"] == ["50.00 ms", "–"]
    assert cells["p99"] == ["99.00 ms", "–"]
    assert cells["max"] == ["100.00 ms", "–"]
    assert cells["lookups answered"] == ["100", "0"]
    assert cells["walks answered"] == ["5", "–"]


def test_a_picture_is_written(tmp_path: Path) -> None:
    picture = tmp_path / "demo.png"

    draw(picture, [("off", [10.0, 20.0, 30.0]), ("on", [0.1, 0.2])])

    assert picture.read_bytes().startswith(PNG)


def test_a_run_without_latencies_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without any answered lookup"):
        draw(tmp_path / "demo.png", [("off", [1.0]), ("on", [])])


def test_the_demo_runs_without_a_terminal_and_writes_its_picture(tmp_path: Path) -> None:
    picture = tmp_path / "demo.png"

    ran = subprocess.run(
        [sys.executable, "-m", "layby", "demo", "--seconds", "1", "--picture", str(picture)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert ran.returncode == 0, ran.stderr
    assert "336,776 flights loaded and indexed" in ran.stdout
    assert ran.stdout.count("lookup latency beside long walks") == 1
    assert picture.read_bytes().startswith(PNG)
