"""Plots of an examination model: by position, below a click (Figure 4 of the doubly robust paper), calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clickprism._util.files import make_folder
from clickprism.evaluation.plots import COLOURS, GRID, INK, MARKERS, add_legend, new_figure, position_axis, styled, svg
from clickprism.evaluation.report import write_report
from clickprism.examination.examine import Examination, Point
from clickprism.settings import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_ROWS = 20  # of a point below a click; means of fewer rows are too noisy


def write_examination_report(found: Examination, log: Path, out: Path, *, next_command: str) -> list[Path]:
    """Write an HTML report with the plots beside it as PNG, and return the paths of all files."""
    make_folder(out.parent)
    plots = {
        "position": ("Examination by position", examination_curve(found)),
        "anchor": ("Examination below a click", anchor_curves(found)),
        "calibration": ("Calibration on the held-out searches", calibration_curve(found)),
    }
    written = [out]
    for name, (_, figure) in plots.items():
        path = out.with_name(f"{out.stem}-{name}.png")
        figure.savefig(path, dpi=150)
        written.append(path)
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
        figures={caption: svg(figure, title=caption) for caption, figure in plots.values()},
        settings={"log": str(log), "fingerprint": found.fingerprint, "examination": plain(found.settings)},
        more={"In detail": tables[2:]},
        notes=[
            "Estimates are calibrated to the labels, which exclude display times between the thresholds.",
            "Below a click: rows whose nearest click above is at that position; the first point is the click itself.",
            *([] if found.warning is None else [f"{found.warning}."]),
        ],
        next_commands=[next_command],
    )
    return written


@styled
def examination_curve(examination: Examination) -> Figure:
    """Return a plot of the mean estimate at each position, with the share of positive labels and the truth if known.

    This is Figure 4 (a). Only rows with a long or a short display time have a label, so the share of positives may
    differ from the mean estimate. Each page has its own line, because only users who opened it are counted there.
    """
    figure, axes = new_figure(height=3.8)
    if examination.truth is not None:
        x, y = _xy(examination.truth.by_position)
        axes.plot(x, y, color=INK, linewidth=2.6, alpha=0.85, label="truly observed (held out)", zorder=2)
    x, y = _xy(examination.labels)
    axes.plot(x, y, color=GRID, linestyle="--", linewidth=1.4, label="share of positive labels", zorder=2)
    x, y = _xy(examination.by_position)
    axes.plot(x, y, color=COLOURS[0], marker=MARKERS[0], markersize=5, linewidth=1.6, label="mean estimate", zorder=3)
    position_axis(axes, max([point.position for point in examination.by_position], default=1), "position")
    axes.set_ylabel("examination")
    axes.set_ylim(0, 1.03)
    _legend(axes)
    return figure


@styled
def anchor_curves(examination: Examination) -> Figure:
    """Return a plot of the mean estimate at a click and below it on its page, one line per position of the click.

    This is Figure 4 (b). Thin dark lines are the truth, if known. Points of fewer than 20 rows are omitted.
    """
    figure, axes = new_figure(height=4.0)
    true = {} if examination.truth is None else examination.truth.below_anchor
    deepest = 1
    for place, (anchor, curve) in enumerate(examination.below_anchor.items()):
        points = _on_its_page(curve)
        deepest = max([deepest, *(point.position for point in points)])
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        axes.plot(
            *_xy(points),
            color=colour,
            marker=marker,
            markersize=4.5,
            linewidth=1.6,
            label=f"click at {anchor}",
            zorder=3,
        )
    for anchor, curve in true.items():
        label = "truly observed (held out)" if anchor == max(true) else None
        axes.plot(*_xy(_on_its_page(curve)), color=INK, linewidth=1.0, alpha=0.6, label=label, zorder=2)
    position_axis(axes, deepest, "position")
    axes.set_ylabel("examination")
    axes.set_ylim(0, 1.03)
    _legend(axes)
    return figure


@styled
def calibration_curve(examination: Examination) -> Figure:
    """Return a plot of the share of positives among rows with similar estimates, on held-out searches.

    With the truth if known. The area of a marker grows with the number of its rows.
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
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("mean estimate")
    axes.set_ylabel("share that is positive")
    add_legend(axes)
    return figure


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


def _legend(axes: Axes) -> None:
    """Draw the legend above the axes, where no line is."""
    axes.legend(
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=3,
        columnspacing=1.4,
    )
