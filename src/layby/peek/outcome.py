"""What a step of a scan comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from layby.errors import SqlError
from layby.types.column import Column


@dataclass(frozen=True, slots=True)
class Suspended:
    """The fuel is spent and there is more to visit."""


@dataclass(frozen=True, slots=True)
class Complete:
    """Every row that the answer needs has been found: columns of the MFP's output, not yet finished."""

    columns: tuple[Column, ...]
    count: int


@dataclass(frozen=True, slots=True)
class ScanFailed:
    """The peek's error."""

    error: SqlError


ScanOutcome = Suspended | Complete | ScanFailed
SUSPENDED: Final = Suspended()
