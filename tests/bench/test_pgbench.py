"""pgbench's summary, as release 15 prints it."""

from __future__ import annotations

import pytest

from layby.bench.pgbench import PgbenchError, Throughput, read_summary

SUMMARY = """\
pgbench (15.18 (Debian 15.18-0+deb12u1))
transaction type: script.sql
scaling factor: 1
query mode: prepared
number of clients: 4
number of threads: 2
maximum number of tries: 1
duration: 1 s
number of transactions actually processed: 43210
number of failed transactions: 3 (0.007%)
latency average = 0.092 ms
initial connection time = 4.321 ms
tps = 43321.987654 (without initial connection time)
"""


def test_the_figures_are_read_from_the_summary() -> None:
    assert read_summary(SUMMARY) == Throughput(n=43210, errors=3, tps=43321.987654)


def test_a_run_without_a_summary_is_an_error_with_what_was_printed() -> None:
    with pytest.raises(PgbenchError, match="connection refused"):
        read_summary("pgbench: error: connection refused\n")
