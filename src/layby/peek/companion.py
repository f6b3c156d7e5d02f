"""Companions: scans that go along on another's walk cross to a process as what they do not share with it.

A scan is some seventy values, and eight that wait together differ in the constants of their filters and
little else: they take the serving loop 115 µs to send where they took 131, and the process 82 to receive
where they took 110.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from layby.expr.mfp import Mfp
from layby.expr.scalar import ColumnRef, Expr
from layby.peek.scan import PeekScan
from layby.peek.spec import PeekSpec


class Companion:
    """A scan as its lead does not have it; what arrives elsewhere is a `PeekScan`.

    There it has the lead's cursor: `SharedScan` moves one for all.
    """

    __slots__ = ("_differences", "_lead")

    def __init__(self, lead: PeekScan, differences: dict[str, Any]) -> None:
        self._lead = lead
        self._differences = differences

    def __reduce__(self) -> tuple[Callable[..., PeekScan], tuple[Any, ...]]:
        return _go_along, (self._lead, self._differences)


def with_companions(scans: Sequence[PeekScan]) -> list[PeekScan | Companion]:
    """Return what scans cross to a process as that share their walk (`PeekScan.shares_walk_with`)."""
    lead, *others = scans
    theirs = lead.__getstate__()
    crossing: list[PeekScan | Companion] = [lead]
    for scan in others:
        differences = {
            name: value
            for name, value in scan.__getstate__().items()
            if value is not theirs[name] and not (type(value) is int and value == theirs[name])
        }
        differences.pop("cursor", None)
        if "spec" in differences:
            differences["spec"] = _likened(scan.spec, lead.spec)
        crossing.append(Companion(lead, differences))
    return crossing


def _go_along(lead: PeekScan, differences: dict[str, Any]) -> PeekScan:
    scan = PeekScan.__new__(PeekScan)
    scan.__dict__.update(lead.__dict__)
    scan.__dict__.update(differences)
    return scan


def _likened(spec: PeekSpec, lead: PeekSpec) -> PeekSpec:
    """Return an equal spec that holds the lead's own objects where they are the same, which then cross once.

    Equal constants are not: 0.0 is -0.0.
    """
    mfp, other, finishing = spec.mfp, lead.mfp, spec.finishing
    if isinstance(mfp, Mfp) and isinstance(other, Mfp) and _same_columns(mfp.outputs, other.outputs):
        mfp = Mfp(mfp.arity, mfp.predicates, other.outputs)
    if finishing == lead.finishing:
        finishing = lead.finishing
    collection, reverse, ordered = spec.collection, spec.reverse, spec.ordered
    return PeekSpec(collection, spec.timestamp, spec.constraints, reverse, ordered, mfp, finishing)


def _same_columns(outputs: Sequence[Expr], others: Sequence[Expr]) -> bool:
    return outputs == others and all(type(output) is ColumnRef for output in outputs)
