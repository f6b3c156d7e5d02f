"""Metrics: what the peek path counts and times.

A histogram of prometheus-client costs about 2 µs an observation, several of which would double the price of
a point lookup. These cost about 0.2 µs: plain attributes, written by the serving loop only, read by whoever
scrapes (a scrape may see an observation half made: a count without its sum). All exist, at zero, from the
start, so that "off" can be told from "never engaged".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

_BOUNDS: Final = (
    *(0.000_001, 0.000_002, 0.000_005, 0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5),
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0),
)
_ROW_BOUNDS: Final = tuple(float(10**n) for n in range(9))


class Histogram:
    """Counts by bucket, and a sum."""

    __slots__ = ("bounds", "counts", "help", "name", "sum")

    def __init__(self, name: str, help_: str, bounds: tuple[float, ...] = _BOUNDS) -> None:
        self.name = name
        self.help = help_
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value (seconds, or rows)."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self.counts)

    def family(self) -> HistogramMetricFamily:
        """Return the exposition of this histogram."""
        counts, total, buckets = list(self.counts), 0, []
        for bound, count in zip((*self.bounds, float("inf")), counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else repr(bound), total))
        return HistogramMetricFamily(self.name, self.help, buckets=buckets, sum_value=self.sum)


class PeekMetrics:
    """The metrics of the peek path; the names are those of the exposition without `layby_`."""

    def __init__(self) -> None:
        self.walks_inline = 0
        self.walks_offloaded = 0
        self.shared_walks = 0
        self.permits_granted = 0
        self.permits_in_use = 0
        self.permits_queued = 0
        self.pinned_bytes = 0
        self.queued_rows_bytes = 0
        self.stashed = 0
        self.stash_bytes = 0
        self.walk_process_restarts = 0
        self.maintenance_restarts = 0
        self.shared_memory_bytes: Callable[[], int] = lambda: 0
        self.serving_loop_realtime = False
        """What tells the bytes of shared memory in use; asked by the scrape, on its thread."""
        self.turn_seconds = Histogram(
            "layby_serving_loop_turn_seconds",
            "How long the serving loop was busy in one turn, in which no other client was served.",
        )
        self.total_seconds = Histogram(
            "layby_index_peek_total_seconds",
            "The serving loop's own handling of an index peek. With the offload on, an expensive peek leaves "
            "only its inline slice here; the rest is in layby_index_peek_offload_seconds.",
        )
        self.offload_seconds = Histogram(
            "layby_index_peek_offload_seconds",
            "Wall clock that an offloaded index peek spent away from the serving loop, its wait for a permit "
            "included.",
        )
        self.permit_wait_seconds = Histogram(
            "layby_index_peek_permit_wait_seconds", "How long an offloaded index peek waited for its permit."
        )
        self.error_scan_seconds = Histogram(
            "layby_index_peek_error_scan_seconds", "Time of a walk in the error trace."
        )
        self.cursor_setup_seconds = Histogram(
            "layby_index_peek_cursor_setup_seconds", "Time of a walk to set up its cursors."
        )
        self.row_iteration_seconds = Histogram(
            "layby_index_peek_row_iteration_seconds", "Time of a walk over the rows."
        )
        self.row_iteration_rows = Histogram(
            "layby_index_peek_row_iteration_rows", "Positions that a walk visited.", _ROW_BOUNDS
        )
        self.result_sort_seconds = Histogram(
            "layby_index_peek_result_sort_seconds", "Time of a walk to sort, cut and project its rows."
        )
        self.result_sort_rows = Histogram(
            "layby_index_peek_result_sort_rows", "Rows that a walk had found when it ended.", _ROW_BOUNDS
        )
        self.row_collection_seconds = Histogram(
            "layby_index_peek_row_collection_seconds", "Time of a walk to put its rows into an answer."
        )
        self.seek_fulfillment_seconds = Histogram(
            "layby_index_peek_seek_fulfillment_seconds",
            "Time from the start of a peek that is ready to its answer, its inline slice alone.",
        )
        self.frontier_check_seconds = Histogram(
            "layby_index_peek_frontier_check_seconds",
            "Time to find whether an index has reached a peek's time.",
        )

    def histograms(self) -> tuple[Histogram, ...]:
        """Return all histograms."""
        return tuple(v for v in vars(self).values() if isinstance(v, Histogram))


class PeekCollector(Collector):
    """Exposes `PeekMetrics` to a Prometheus registry."""

    def __init__(self, metrics: PeekMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """Yield every metric as it stands."""
        metrics = self._metrics
        walks = CounterMetricFamily(
            "layby_index_peek_walks",
            "Index peek walks that ended with an answer, by where they ended.",
            labels=["substrate"],
        )
        walks.add_metric(["inline"], metrics.walks_inline)
        walks.add_metric(["offloaded"], metrics.walks_offloaded)
        yield walks
        yield CounterMetricFamily(
            "layby_index_peek_permits_granted", "Permits granted to walks.", value=metrics.permits_granted
        )
        yield CounterMetricFamily(
            "layby_index_peek_shared_walks",
            "Index peeks whose walk was shared with others in one pass.",
            value=metrics.shared_walks,
        )
        yield CounterMetricFamily(
            "layby_index_peek_stashed",
            "Index peeks whose rows went to the stash, wholly or in part.",
            value=metrics.stashed,
        )
        yield CounterMetricFamily(
            "layby_walk_process_restarts",
            "Walk processes that died and were replaced.",
            value=metrics.walk_process_restarts,
        )
        yield CounterMetricFamily(
            "layby_maintenance_restarts",
            "Maintenance processes that died and were replaced.",
            value=metrics.maintenance_restarts,
        )
        for name, help_, value in (
            (
                "layby_shared_memory_bytes",
                "Bytes of shared memory that the server has mapped: tables, indexes, and answers under way.",
                metrics.shared_memory_bytes(),
            ),
            (
                "layby_serving_loop_realtime",
                "1 where the serving loop runs at real-time priority.",
                int(metrics.serving_loop_realtime),
            ),
            ("layby_index_peek_permits_in_use", "Walks that hold a permit.", metrics.permits_in_use),
            ("layby_index_peek_permits_queued", "Walks that wait for a permit.", metrics.permits_queued),
            (
                "layby_index_peek_pinned_bytes",
                "Bytes of batches that queued and running walks hold, each batch counted once.",
                metrics.pinned_bytes,
            ),
            (
                "layby_index_peek_queued_rows_bytes",
                "Bytes of rows that walks which wait for a permit have found before.",
                metrics.queued_rows_bytes,
            ),
            ("layby_peek_stash_bytes", "Bytes of answers that lie in the stash.", metrics.stash_bytes),
        ):
            yield GaugeMetricFamily(name, help_, value=value)
        for histogram in metrics.histograms():
            yield histogram.family()


def registry(metrics: PeekMetrics) -> CollectorRegistry:
    """Return a Prometheus registry that exposes `metrics`."""
    found = CollectorRegistry()
    found.register(PeekCollector(metrics))
    return found
