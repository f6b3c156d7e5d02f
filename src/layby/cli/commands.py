"""The commands and their options. What a command needs is imported when it runs, so that help is instant."""

from __future__ import annotations

import os
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from layby import __version__

app = typer.Typer(
    name="layby",
    help="A database server for live data: no point lookup is slower because somebody else asked for a scan.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_FILE_WIDTH = 160


class Workers(StrEnum):
    """What long walks and maintenance run on."""

    PROCESSES = "processes"
    THREADS = "threads"


_WORKERS: Final = Workers.PROCESSES if hasattr(os, "memfd_create") else Workers.THREADS


class Scenario(StrEnum):
    """The workloads of `layby bench`."""

    ISOLATION = "isolation"
    SATURATION = "saturation"
    HOT_KEY = "hot-key"
    BIG_ANSWER = "big-answer"
    SLOW_READER = "slow-reader"
    FILTER_AB = "filter-ab"
    LOOKUP = "lookup"
    WALK = "walk"
    HYDRATION = "hydration"
    GROWTH = "growth"
    SHARED_WALKS = "shared-walks"
    TUNE = "tune"
    ALL = "all"


class Rival(StrEnum):
    """What layby can be measured against."""

    POSTGRES = "postgres"


def main() -> None:
    """Run the command line of this process."""
    app()


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"layby {__version__}")
        raise typer.Exit


def _fail(message: object) -> typer.Exit:
    """Say why on standard error, in one line; the exit to raise."""
    typer.echo(f"layby: {message}", err=True)
    return typer.Exit(1)


def _clean_up_on_sigterm() -> None:
    """Leave every context when told to end, so that no server of ours is left running."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


@app.command()
def serve(
    data: Annotated[Path | None, typer.Option(help="Folder to keep the data in (not yet).")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port for SQL; 0 takes a free one.", min=0, max=65535)] = 6877,
    http_port: Annotated[
        int, typer.Option(help="Port for health and metrics; 0 takes a free one.", min=0, max=65535)
    ] = 6878,
    config: Annotated[Path | None, typer.Option(help="TOML file with a table \\[system_parameters].")] = None,
    workers: Annotated[Workers, typer.Option(help="What long walks and maintenance run on.")] = _WORKERS,
    walk_nice: Annotated[
        int, typer.Option(help="Nice value of the processes that long walks run on.", min=0, max=19)
    ] = 10,
) -> None:
    """Start the server."""
    from layby.cli.serve import Address, ServeError
    from layby.cli.serve import serve as run
    from layby.cli.settings import SettingsError, system_parameters

    if data is not None:
        raise _fail("--data is not supported yet: data lives in memory and ends with the server")
    try:
        parameters = system_parameters(config, os.environ)
        run(parameters, Address(host, port), Address(host, http_port), typer.echo, workers.value, walk_nice)
    except (SettingsError, ServeError) as error:
        raise _fail(error) from None


@app.command()
def bench(
    scenario: Annotated[Scenario, typer.Argument(help="The workload.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, one an arm.")] = False,
    seconds: Annotated[
        float | None,
        typer.Option(help="Length of one run of one arm; else the scenario's own.", min=0.1),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="How often each arm runs, medians are printed; else the scenario's own.", min=1),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Rows of the table; else the scenario's own.", min=2_000)
    ] = None,
    vs: Annotated[Rival | None, typer.Option(help="Run the same work against this, too.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run: small and short.")] = False,
) -> None:
    """Measure the speed of this machine's layby, on a server of its own."""
    from layby.bench.drive import LoadError
    from layby.bench.pgbench import PgbenchError
    from layby.bench.result import show
    from layby.bench.scenario import SCENARIOS, run_scenarios
    from layby.bench.server import StartError
    from layby.bench.wire import LostConnectionError, ServerError

    _clean_up_on_sigterm()
    console = Console(stderr=True)
    # A table that goes to a file is not cut to the 80 columns of an imagined terminal.
    out = Console() if Console().is_terminal else Console(width=_FILE_WIDTH)
    names = list(SCENARIOS) if scenario is Scenario.ALL else [scenario.value]
    sizes = {name: SCENARIOS[name].plan(seconds, rounds, rows, postgres=vs is not None) for name in names}
    try:
        for results in run_scenarios(sizes, console, quick=quick):
            show(out, results, as_json=json)
    except (StartError, LoadError, PgbenchError, ServerError, LostConnectionError, OSError) as error:
        raise _fail(error) from None


@app.command()
def demo(
    picture: Annotated[Path, typer.Option(help="Where to write the picture.")] = Path("layby-demo.png"),
    seconds: Annotated[float, typer.Option(help="Length of each of the two runs.", min=0.5)] = 12.0,
) -> None:
    """Look up flights beside long walks, with the offload off and then on, and compare."""
    from layby.bench.drive import LoadError
    from layby.bench.server import StartError
    from layby.bench.wire import LostConnectionError, ServerError
    from layby.cli.demo import demo as run
    from layby.cli.flights import MissingExtraError

    _clean_up_on_sigterm()
    try:
        run(Console(), picture, seconds)
    except (MissingExtraError, StartError, LoadError, ServerError, LostConnectionError, OSError) as error:
        raise _fail(error) from None
