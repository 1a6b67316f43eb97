"""Plots of attention and examination, in the style of `plots`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from clickprism._util.files import make_folder
from clickprism.errors import DataError, SettingError
from clickprism.evaluation.plots import (
    COLOURS,
    GRID,
    INK,
    MARKERS,
    add_legend,
    new_figure,
    position_axis,
    styled,
    svg,
)
from clickprism.evaluation.report import write_report
from clickprism.examination.examine import Examination, Point
from clickprism.model import Model
from clickprism.settings import plain
from clickprism.types import Float64, Lists

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOCUMENTS: Final = 10_000  # maximum number of documents of an attention map
LONGEST: Final = 24  # characters of a name along an axis
NAMED: Final = 50  # most features that are named along an axis
LEAST_ROWS: Final = 20  # least number of rows of a point below a click; means of fewer rows are too noisy
TRUTH: Final = "truly observed (held out)"


def model_attention(model: Model, lists: Lists, *, documents: int = DOCUMENTS) -> Float64:
    """Return how much each feature (row) attends to each other (column), [features, features]; rows sum to 1.

    It is the mean over heads and over a limited number of documents, evenly spread over the data. Features that share a
    token share its weight evenly.
    """
    import torch

    from clickprism.rankers.attention import Attention, attention_map

    if model.ranker.name != Attention.name:
        raise SettingError("ranker", model.ranker.name, "be attention to show it")
    if lists.features.shape[1] != model.features:
        raise DataError(f"the model takes {model.features} features, the data has {lists.features.shape[1]}")
    if lists.documents == 0:
        raise DataError("there is no document to look at")
    features = lists.features if model.normaliser is None else model.normaliser(lists).features
    chosen = np.linspace(0, len(features) - 1, min(documents, len(features)), dtype=np.int64)
    return attention_map(model.network, torch.from_numpy(np.array(features[chosen], dtype=np.float32))).numpy()


@styled
def attention_heat_map(attention: Float64, *, names: Sequence[str] | None = None) -> Figure:
    """Plot an attention map, [features, features]; white is even attention, 1 / N. By default names are numbers."""
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.figure import Figure

    count = len(attention)
    if attention.shape != (count, count) or count == 0:
        raise DataError(f"an attention map has as many rows as columns, this one is {attention.shape}")
    if names is not None and len(names) != count:
        raise DataError(f"the map has {count} features, {len(names)} have names")
    times = attention * count
    most = max(float(np.quantile(times, 0.995)), 1.01)
    figure = Figure(figsize=(7.4, 6.4), layout="constrained")
    axes = figure.add_subplot()
    norm = TwoSlopeNorm(1.0, vmin=0.0, vmax=most)
    image = axes.imshow(times, cmap="RdBu_r", norm=norm, interpolation="nearest")
    ticks = list(range(0, count, -(-count // NAMED)))
    labels = [shorten(names[tick]) if names is not None else str(tick + 1) for tick in ticks]
    size = 6 if len(ticks) > 25 else 8
    axes.set_xticks(ticks, labels, rotation=90, fontsize=size)
    axes.set_yticks(ticks, labels, fontsize=size)
    axes.set(xlabel="feature that is attended to", ylabel="feature that attends")
    bar = figure.colorbar(image, ax=axes, shrink=0.85, extend="max" if times.max() > most else "neither")
    bar.set_label("attention relative to even attention")
    return figure


def shorten(name: str) -> str:
    """Return a name as an axis shows it: not too long, and without formulas."""
    return (name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…").replace("$", r"\$")


@styled
def save_picture(figure: Figure, file: Path) -> None:
    """Write a figure in the format that the name of the file ends in."""
    figure.savefig(file, dpi=150, bbox_inches="tight")


def write_examination_report(found: Examination, log: Path, out: Path, *, next_command: str) -> list[Path]:
    """Write an HTML report, and the plots as PNG in the same folder; return the paths of all files."""
    make_folder(out.parent)
    plots = {
        "Examination by position": ("position", examination_curve(found)),
        "Examination below a click": ("anchor", anchor_curves(found)),
        "Calibration on the held-out searches": ("calibration", calibration_curve(found)),
    }
    pictures = [out.with_name(f"{out.stem}-{name}.png") for name, _ in plots.values()]
    for path, (_, figure) in zip(pictures, plots.values(), strict=True):
        figure.savefig(path, dpi=150)
    days, tables = found.days, found.tables()
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    truth = "" if found.truth is None else f" Against true observation: AUC {found.truth.quality.auc:.4f}."
    write_report(
        out,
        title="The examination model",
        summary=(
            f"Trained on {found.learned:,} rows of the searches of {span}, merged into {found.cells:,} cells. "
            f"AUC {found.quality.auc:.4f} on the labels of held-out searches.{truth}"
        ),
        comparison=tables[:2],
        figures={caption: svg(figure, title=caption) for caption, (_, figure) in plots.items()},
        settings={"log": str(log), "fingerprint": found.fingerprint, "examination": plain(found.settings)},
        more={"In detail": tables[2:]},
        notes=[
            "Estimates are calibrated to the labels, which exclude display times between the thresholds.",
            "Below a click: rows whose nearest click above is at that position; the first point is the click itself.",
            *([] if found.warning is None else [f"{found.warning}."]),
        ],
        next_commands=[next_command],
    )
    return [out, *pictures]


@styled
def examination_curve(examination: Examination) -> Figure:
    """Plot the mean estimate at each position, with the share of positive labels and the truth if known.

    This is Figure 4 (a) of the doubly robust paper. Only rows with a long or a short display time have a label. Each
    page has its own line, because only users who opened it are counted there.
    """
    figure, axes = new_figure(height=3.8)
    if examination.truth is not None:
        axes.plot(*_xy(examination.truth.by_position), color=INK, linewidth=2.6, alpha=0.85, label=TRUTH, zorder=2)
    labels: dict[str, Any] = {"color": GRID, "linestyle": "--", "linewidth": 1.4, "label": "share of positive labels"}
    axes.plot(*_xy(examination.labels), **labels, zorder=2)
    _marked(axes, examination.by_position, 0, "mean estimate")
    _examination_axes(axes, max([point.position for point in examination.by_position], default=1))
    return figure


@styled
def anchor_curves(examination: Examination) -> Figure:
    """Plot the mean estimate at a click and below it on its page, one line per position of the click.

    This is Figure 4 (b). Thin dark lines are the truth, if known. Points of fewer than 20 rows are omitted.
    """
    figure, axes = new_figure(height=4.0)
    true, deepest = {} if examination.truth is None else examination.truth.below_anchor, 1
    for number, (anchor, curve) in enumerate(examination.below_anchor.items()):
        points = _on_its_page(curve)
        deepest = max([deepest, *(point.position for point in points)])
        _marked(axes, points, number, f"click at {anchor}")
    for anchor, curve in true.items():
        label = TRUTH if anchor == max(true) else None
        axes.plot(*_xy(_on_its_page(curve)), color=INK, linewidth=1.0, alpha=0.6, label=label, zorder=2)
    _examination_axes(axes, deepest)
    return figure


@styled
def calibration_curve(examination: Examination) -> Figure:
    """Plot the share of positives among rows with similar estimates, on held-out searches, and the truth if known.

    The area of a marker grows with the number of its rows.
    """
    figure, axes = new_figure(height=4.2)
    axes.plot([0, 1], [0, 1], color=GRID, linestyle="--", linewidth=1.2, label="calibrated", zorder=1)
    drawn = [(examination.quality, COLOURS[0], "o", "labels by display time")]
    if examination.truth is not None:
        drawn.append((examination.truth.quality, INK, "D", "true observation"))
    for quality, colour, marker, name in drawn:
        x, y = [one.estimate for one in quality.bins], [one.share for one in quality.bins]
        sizes = [12 + 160 * one.rows / quality.rows for one in quality.bins]
        label = f"{name}: {quality.calibration_error:.3f} off on average"
        axes.plot(x, y, color=colour, linewidth=1.2, alpha=0.7, zorder=2)
        axes.scatter(x, y, s=sizes, color=colour, marker=marker, alpha=0.85, linewidths=0, label=label, zorder=3)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="mean estimate", ylabel="share that is positive")
    add_legend(axes)
    return figure


def _marked(axes: Axes, points: Sequence[Point], number: int, label: str) -> None:
    """Draw a line with markers in the style of this number."""
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    axes.plot(*_xy(points), color=colour, marker=marker, markersize=4.5, linewidth=1.6, label=label, zorder=3)


def _on_its_page(curve: Sequence[Point]) -> list[Point]:
    """Return the points on the page of the first one that have enough rows."""
    return [point for point in curve if point.page == curve[0].page and point.rows >= LEAST_ROWS]


def _xy(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """Return positions and values, with a gap where a page ends."""
    x: list[float] = []
    y: list[float] = []
    for before, point in zip([None, *points], points, strict=False):
        if before is not None and before.page != point.page:
            x, y = [*x, point.position - 0.5], [*y, math.nan]
        x, y = [*x, float(point.position)], [*y, point.value]
    return x, y


def _examination_axes(axes: Axes, deepest: int) -> None:
    """Label the axes, and draw the legend above them, where no line is."""
    position_axis(axes, deepest)
    axes.set(ylabel="examination", ylim=(0, 1.03))
    above: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 3, "columnspacing": 1.4}
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, **above)
