"""Profiles: what one peek cost and where, for EXPLAIN ANALYZE."""

from __future__ import annotations

from dataclasses import dataclass, field

from layby.pickling import pickled_as_call


@pickled_as_call
@dataclass(slots=True)
class PhaseTimes:
    """Seconds that a scan has spent, by phase, over all its slices."""

    setup: float = 0.0
    errors: float = 0.0
    rows: float = 0.0
    sort: float = 0.0
    collection: float = 0.0


@dataclass(slots=True)
class PeekProfile:
    """Filled in by the driver that ended the peek's walk; times are in seconds.

    `substrate` is None until then, and stays so where the walk was cancelled or raised.
    """

    substrate: str | None = None
    """"inline" or "offloaded"."""
    inline_positions: int = 0
    offloaded_positions: int = 0
    rows: int = 0
    """Rows found, before LIMIT and OFFSET."""
    frontier_seconds: float = 0.0
    inline_seconds: float = 0.0
    permit_wait_seconds: float = 0.0
    offload_seconds: float = 0.0
    """Away from the loop, the wait for a permit included."""
    times: PhaseTimes = field(default_factory=PhaseTimes)
