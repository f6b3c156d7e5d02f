"""The scenarios by name, and what a run of any of them is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rich.console import Console

from layby.bench.isolation import isolation
from layby.bench.lookup import lookup
from layby.bench.plan import Plan
from layby.bench.result import Result

__all__ = ["SCENARIOS", "Plan"]

SCENARIOS: Final[dict[str, Callable[[Plan, Console], list[Result]]]] = {
    "isolation": isolation,
    "lookup": lookup,
}
