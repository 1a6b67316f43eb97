"""Figures: DCG@4 by bucket, and the examination curves of Figure 4."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clickprism.examination.examine import Examination
from reproduce.adr.tables import AFFINE, DEFAULT, PUBLISHED, Row
from reproduce.adr.world import BUCKETS

SHOWN = ("engine", "no_correction", "rand", "affine", AFFINE, PUBLISHED, DEFAULT, "log_model", "oracle: labels")


def plot_buckets(rows: Sequence[Row], file: Path) -> None:
    """Plot DCG@4 of the main methods by bucket."""
    import matplotlib.pyplot as plt

    found = {(row.method, row.bucket): row for row in rows if row.table == "levels"}
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    width = 0.8 / len(SHOWN)
    for place, method in enumerate(SHOWN):
        own = [found[method, bucket] for bucket in BUCKETS]
        values = np.array([row.value for row in own])
        ends = np.abs(np.array([[row.low, row.high] for row in own]).T - values)
        axes.bar(np.arange(len(BUCKETS)) + place * width, values, width, yerr=ends, label=method)
    axes.set_xticks(np.arange(len(BUCKETS)) + 0.4 - width / 2, BUCKETS)
    axes.set_ylabel("DCG@4")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    _save(figure, file)


def plot_examination(examined: Examination, file: Path) -> None:
    """Plot the mean estimated examination by position, and below a click (Figure 4)."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained", sharey=True)
    left.plot([point.position for point in examined.by_position], [point.value for point in examined.by_position])
    left.set(xlabel="position", ylabel="estimated examination", title="(a) by position")
    for anchor, curve in examined.below_anchor.items():
        right.plot([point.position for point in curve], [point.value for point in curve], label=f"click at {anchor}")
    right.set(xlabel="position", title="(b) below a click")
    right.legend(fontsize=7)
    _save(figure, file)


def _save(figure: object, file: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(file, metadata={"Date": None})  # type: ignore[attr-defined]
    plt.close(figure)  # type: ignore[arg-type]
