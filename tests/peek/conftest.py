"""Fixtures of the peek tests: harnesses on each of the three walk pools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peek.benches import bench_of
from tests.peek.gates import Bench
from tests.peek.harness import HarnessOn
from tests.peek.pools import KINDS


@pytest.fixture(scope="session", params=KINDS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """What runs the walks of one kind of pool: each test runs once on each."""
    bench = bench_of(request.param)
    yield bench
    bench.close()


@pytest.fixture
def harness_on(bench: Bench) -> Iterator[HarnessOn]:
    """Make harnesses whose walks run on the bench; what a test leaves under way ends with it."""
    yield HarnessOn(bench)
    bench.clear()
