"""Server-side times are what the walks between two scrapes took, all phases together."""

from __future__ import annotations

from layby.bench.scrape import mean_walk_ms, scrape
from layby.bench.server import LaybyServer

PHASES = ("error_scan", "cursor_setup", "row_iteration", "result_sort", "row_collection")


def _sample(walks: float, *sums: float) -> dict[str, float]:
    names = [f"layby_index_peek_{phase}_seconds_sum" for phase in PHASES]
    return {"layby_index_peek_row_iteration_seconds_count": walks} | dict(zip(names, sums, strict=True))


def test_the_mean_is_over_the_walks_between_and_all_their_phases() -> None:
    before = _sample(10.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    after = _sample(12.0, 1.001, 1.002, 1.004, 1.008, 1.016)

    assert round(mean_walk_ms(before, after) or 0.0, 9) == 15.5


def test_without_a_walk_there_is_no_mean() -> None:
    assert mean_walk_ms(_sample(3.0, *[1.0] * 5), _sample(3.0, *[1.0] * 5)) is None


def test_a_server_shows_the_phases_of_its_walks() -> None:
    with LaybyServer() as server:
        before = scrape(server)
        with server.connect() as connection:
            connection.query("CREATE TABLE t (k int)")
            connection.query("INSERT INTO t VALUES (1), (2)")
            assert connection.query("SELECT k FROM t WHERE k = 2").rows == [("2",)]
        after = scrape(server)

    assert {f"layby_index_peek_{phase}_seconds_sum" for phase in PHASES} <= before.keys()
    assert (mean_walk_ms(before, after) or 0.0) > 0.0
