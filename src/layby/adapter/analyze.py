"""EXPLAIN ANALYZE: runs a select, drops its rows, and tells where its walk ran and what it cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from layby.adapter.execution import Execution
from layby.adapter.outcome import EncoderFor
from layby.adapter.reads import read
from layby.errors import SqlError
from layby.peek.answer import Failed, PeekResponse, Stashed
from layby.peek.profile import PeekProfile
from layby.sql.explain import explain
from layby.sql.params import BoundParams
from layby.sql.plan import ExplainPlan, SelectPlan

if TYPE_CHECKING:
    from layby.adapter.session import Session


def analyze(
    session: Session,
    plan: ExplainPlan,
    params: BoundParams,
    encoder_for: EncoderFor,
    execution: Execution,
    answer: Callable[[list[str]], None],
) -> None:
    """Run the select of an EXPLAIN ANALYZE as it would be run, up to the encoding of its rows.

    `answer` gets the lines: those of EXPLAIN, then the figures. Raises SqlError 0A000 for what is no select,
    or acts on other sessions; an error of the select is that of the statement.
    """
    select = plan.target
    if not isinstance(select, SelectPlan) or select.signals:
        raise SqlError("0A000", "EXPLAIN ANALYZE of statements that change something is not supported")
    profile = PeekProfile()
    encoder = encoder_for(select.columns)
    start = time.perf_counter()

    def answered(response: PeekResponse) -> None:
        if isinstance(response, Failed):
            execution.fail(response.error)
            return
        lines = [*explain(plan), *_figures(profile)]
        if isinstance(response, Stashed):
            parts = response.handle.parts
            lines.append(f"  Stash: {len(parts)} parts, {sum(part.nbytes for part in parts)} bytes")
            session.open_stashed(response, encoder).close()
        lines.append(f"Execution Time: {_milliseconds(time.perf_counter() - start)}")
        answer(lines)

    read(session, select, params, encoder, execution, answered, takes_stashed=True, profile=profile)


def _figures(profile: PeekProfile) -> list[str]:
    """Return a profile's lines; the phases bear the names of their metrics."""
    times = profile.times
    lines = [
        f"  Substrate: {profile.substrate}",
        f"  Positions: {profile.inline_positions} inline, {profile.offloaded_positions} offloaded",
        f"  Rows: {profile.rows}",
    ]
    phases = [
        ("Frontier check", profile.frontier_seconds),
        ("Inline slice", profile.inline_seconds),
    ]
    if profile.substrate == "offloaded":
        phases += [
            ("Permit wait", profile.permit_wait_seconds),
            ("Offloaded, permit wait included", profile.offload_seconds),
        ]
    phases += [
        ("Cursor setup", times.setup),
        ("Error scan", times.errors),
        ("Row iteration", times.rows),
        ("Result sort", times.sort),
        ("Row collection", times.collection),
    ]
    return lines + [f"  {name}: {_milliseconds(seconds)}" for name, seconds in phases]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3f} ms"
