"""The command line: `layby serve`, `layby bench`, `layby demo`."""

from __future__ import annotations

from layby.cli.commands import main

__all__ = ["main"]
