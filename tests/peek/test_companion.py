"""Companions: what arrives is the scan that was sent, and what it has in common with others arrives once."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest

from layby.expr.scalar import ColumnRef, Expr, Literal
from layby.peek.companion import Companion, with_companions
from layby.peek.fuel import Fuel
from layby.peek.outcome import SUSPENDED, Complete, ScanFailed
from layby.peek.scan import PeekScan
from layby.peek.shared_scan import SharedScan
from layby.trace.bundle import TraceBundle
from layby.types.ordering import DESCENDING
from layby.types.scalar import BIGINT, DOUBLE_PRECISION
from tests.expr.helpers import call
from tests.peek.harness import Row, bundle_of, finishing, pairs, spec

V = ColumnRef(1, BIGINT)
ROWS = pairs(*((k, k % 4) for k in range(40)))


def equal(value: int) -> list[Expr]:
    return [call("=", V, Literal(value, BIGINT))]


def begun(bundle: TraceBundle) -> list[PeekScan]:
    """Return scans of other filters, outputs and orders, at one place, with what each has found."""
    asked = [
        spec(predicates=equal(1)),
        spec(predicates=equal(2)),
        spec(types=(BIGINT,), outputs=[V], finish=finishing(1)),
        spec(predicates=equal(3), finish=finishing(2, [(0, DESCENDING)])),
    ]
    scans = [PeekScan(each, bundle.snapshot(), 1_000 + at) for at, each in enumerate(asked)]
    scans[2].position_limit = 35
    for scan in scans:
        assert scan.step(Fuel(10)) is SUSPENDED
    assert all(scan.shares_walk_with(scans[0]) for scan in scans)
    return scans


def crossed(scans: Sequence[PeekScan]) -> list[PeekScan]:
    found: list[PeekScan] = pickle.loads(pickle.dumps(with_companions(scans)))
    return found


def found_by(scan: PeekScan) -> list[Row] | str:
    """Return what a scan has come to."""
    outcome = scan.latched()
    if isinstance(outcome, ScanFailed):
        return outcome.error.message
    assert isinstance(outcome, Complete)
    return list(zip(*(column.to_list() for column in outcome.columns), strict=True))


@pytest.mark.parametrize("summed", [False, True])
def test_companions_arrive_as_the_scans_that_they_were_and_go_on_together(summed: bool) -> None:
    updates = [*ROWS, ((39, 3), 2, -1)] if summed else ROWS
    scans = begun(bundle_of(updates))
    arrived = crossed(scans)
    SharedScan().step(arrived, Fuel(1_000))
    gone = 1 if summed else 0
    assert [found_by(scan) for scan in arrived] == [
        [(k, 1) for k in range(1, 40, 4)],
        [(k, 2) for k in range(2, 40, 4)],
        'peek of "test" exceeds the row iteration limit of 35',
        [(k, 3) for k in range(3, 40 - 4 * gone, 4)],
    ]
    assert [scan.max_result_size for scan in arrived] == [1_000, 1_001, 1_002, 1_003]
    assert [scan.spec for scan in arrived] == [scan.spec for scan in scans]
    # Those that stayed are as they were.
    assert [scan.positions for scan in scans] == [10] * 4


def test_constants_that_are_equal_and_not_the_same_arrive_as_they_are() -> None:
    snapshot = bundle_of(ROWS).snapshot()
    zeros = [spec(types=(DOUBLE_PRECISION,), outputs=[Literal(z, DOUBLE_PRECISION)]) for z in (0.0, -0.0)]
    arrived = crossed([PeekScan(each, snapshot, 1_000) for each in zeros])
    SharedScan().step(arrived, Fuel(1_000))
    assert [str(row) for scan in arrived for row in found_by(scan)[:1]] == ["(0.0,)", "(-0.0,)"]


def test_what_scans_have_in_common_arrives_once() -> None:
    snapshot = bundle_of(ROWS).snapshot()
    sizes = [int(size) for size in ("1000", "1000", "1001")]  # two that are equal and not one object
    scans = [
        PeekScan(spec(predicates=equal(value)), snapshot, size)
        for value, size in zip((1, 2, 2), sizes, strict=True)
    ]
    _, alike, other_size = with_companions(scans)
    assert isinstance(alike, Companion)
    assert isinstance(other_size, Companion)
    assert set(alike._differences) == {"spec", "times", "_found", "_raised"}
    assert set(other_size._differences) - set(alike._differences) == {"max_result_size"}
    lead, *others = crossed(scans)
    for other in others:
        assert other.cursor is lead.cursor
        assert other.snapshot.oks[0] is lead.snapshot.oks[0]
        assert other.spec.finishing is lead.spec.finishing
        assert other.spec.mfp.outputs is lead.spec.mfp.outputs
        assert other.spec.mfp != lead.spec.mfp
        assert other.times is not lead.times
        assert other._found is not lead._found
