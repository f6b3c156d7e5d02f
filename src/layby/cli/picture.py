"""The demo's picture: latency distributions on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from layby.bench.result import percentile

mpl.use("Agg")

from matplotlib import pyplot as plt

_COLORS = ("#c2452d", "#2a6f97")
_BINS = 80


def draw(path: Path, runs: Sequence[tuple[str, Sequence[float]]]) -> None:
    """Draw `(name, latencies in ms)` of each run into `path`, one panel a run over one common axis.

    The format is the path's suffix. Raises ValueError where a run has no latency, OSError where the file
    cannot be written.
    """
    if not all(latencies for _, latencies in runs):
        raise ValueError("a run without any answered lookup cannot be drawn")
    low = min(min(latencies) for _, latencies in runs)
    high = max(max(latencies) for _, latencies in runs)
    bins = np.geomspace(low * 0.9, high * 1.1, _BINS)
    figure, panels = plt.subplots(
        len(runs), 1, sharex=True, sharey=True, figsize=(9, 2.6 * len(runs) + 0.8), squeeze=False
    )
    for axes, (name, latencies), color in zip(panels[:, 0], runs, _COLORS, strict=False):
        ordered = sorted(latencies)
        weights = np.full(len(ordered), 100.0 / len(ordered))
        axes.hist(ordered, bins=bins, weights=weights, color=color)
        for percent, style in ((50.0, ":"), (99.0, "--")):
            value = percentile(ordered, percent)
            axes.axvline(value, color="black", linestyle=style, label=f"p{percent:.0f}  {value:.2f} ms")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_ylabel("% of lookups")
        axes.set_title(f"{name}  ({len(ordered):,} lookups)", loc="left", fontsize=11)
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=2, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1, 0].set_xlabel("latency from the scheduled arrival to the answer, ms (logarithmic)")
    figure.suptitle("layby: point lookups beside long walks", x=0.02, ha="left", fontweight="bold")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
