"""Figures: percentiles, repeats, and what is printed."""

from __future__ import annotations

import io
import json

from rich.console import Console

from layby.bench.result import Result, combine, percentile, ratio, show, summarize


def test_a_percentile_is_the_nearest_rank() -> None:
    values = [float(value) for value in range(1, 201)]

    assert percentile(values, 50) == 100.0
    assert percentile(values, 99) == 198.0
    assert percentile(values, 99.9) == 200.0
    assert percentile(values, 100) == 200.0
    assert percentile(values, 0) == 1.0
    assert percentile([3.0], 50) == 3.0


def test_a_run_is_summed_up_in_the_units_of_its_names() -> None:
    result = summarize("s", "a", [4.0, 1.0, 2.0, 3.0], errors=1, seconds=2.0)

    assert json.loads(result.line()) == {
        "scenario": "s",
        "arm": "a",
        "n": 4,
        "errors": 1,
        "p50_ms": 2.0,
        "p90_ms": 4.0,
        "p99_ms": 4.0,
        "max_ms": 4.0,
        "qps": 2.0,
    }


def test_a_run_without_an_answer_has_no_figures_but_its_errors() -> None:
    assert json.loads(summarize("s", "a", [], errors=5, seconds=1.0).line()) == {
        "scenario": "s",
        "arm": "a",
        "n": 0,
        "errors": 5,
    }


def test_repeats_are_combined_by_the_median_and_counts_are_added() -> None:
    repeats = [
        Result("s", "a", n=10, errors=0, p99_ms=1.0, max_ms=2.0, extra={"walks": 3, "walk_p50_ms": 5.0}),
        Result("s", "a", n=10, errors=2, p99_ms=9.0, max_ms=50.0, extra={"walks": 2, "error": "gone"}),
        Result("s", "a", n=11, errors=0, p99_ms=2.0, max_ms=3.0, extra={"walks": 3, "walk_p50_ms": 7.0}),
    ]

    assert combine(repeats) == Result(
        "s",
        "a",
        n=31,
        errors=2,
        p99_ms=2.0,
        max_ms=50.0,
        extra={"repeats": 3, "walks": 8, "walk_p50_ms": 6.0, "error": "gone"},
    )


def test_a_ratio_is_left_out_where_there_is_nothing_to_divide_by() -> None:
    assert ratio("s", "r", 3.0, 2.0, of="x").extra == {"of": "x", "ratio": 1.5}
    assert ratio("s", "r", None, 2.0, of="x").extra == {"of": "x"}
    assert ratio("s", "r", 3.0, 0.0, of="x").extra == {"of": "x"}


def test_json_is_one_object_a_line_and_nothing_else() -> None:
    out = io.StringIO()
    show(Console(file=out, width=20), [Result("s", "a", n=1), Result("s", "b", n=2)], as_json=True)

    assert [json.loads(line)["arm"] for line in out.getvalue().splitlines()] == ["a", "b"]


def test_a_table_has_the_columns_that_apply_and_the_ratios_below() -> None:
    out = io.StringIO()
    results = [Result("s", "arm-a", n=1234, qps=1.5), ratio("s", "ratio-a", 3.0, 2.0, of="ours / theirs")]
    show(Console(file=out, width=100), results, as_json=False)

    assert [line.strip() for line in out.getvalue().splitlines()] == [
        "s",
        "",
        "| arm   |     n | errors | qps |",
        "|-------|-------|--------|-----|",
        "| arm-a | 1,234 |        | 1.5 |",
        "",
        "ratio-a: 1.5  (ours / theirs)",
    ]
