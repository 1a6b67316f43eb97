"""Pictures that several findings share, in the look of all our figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from clickprism.evaluation.plots import COLOURS, GRID, INK, new_figure, styled
from clickprism.types import Float64

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def bars_with_intervals(
    values: Mapping[str, tuple[float, float, float]], *, label: str, reference: float | None = None
) -> Figure:
    """A point for each name with its interval: value, lower, upper."""
    figure, axes = new_figure(height=0.9 + 0.45 * max(len(values), 2))
    for place, (value, lower, upper) in enumerate(values.values()):
        axes.hlines(place, lower, upper, color=COLOURS[0], linewidth=2.5, alpha=0.7)
        axes.plot(value, place, color=COLOURS[0], marker="o", markersize=7)
    if reference is not None:
        axes.axvline(reference, color=INK, linewidth=1.2)
    axes.set_yticks(range(len(values)), list(values))
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.grid(visible=True, axis="x", color=GRID, alpha=0.3)
    return figure


@styled
def link_matrix(strength: Float64, *, least: float) -> Figure:
    """How strongly each two positions are linked, in clicks, on a scale of powers of ten, [positions, positions]."""
    size = len(strength)
    figure, axes = new_figure(height=4.2)
    shade = np.log10(1 + np.where(np.isfinite(strength), strength, 0.0))
    np.fill_diagonal(shade, np.nan)
    axes.imshow(shade, cmap="Blues", vmin=0.0, vmax=max(float(np.nanmax(shade, initial=1.0)), 1.0))
    if size <= 12:
        half = 0.6 * max(float(np.nanmax(shade, initial=1.0)), 1.0)
        for row, column in np.argwhere(np.isfinite(shade) & (strength > 0)):
            strong = strength[row, column] >= least
            axes.text(
                column,
                row,
                short(float(strength[row, column])),
                ha="center",
                va="center",
                fontsize=7.5,
                color="white" if shade[row, column] > half else "#24292e",
                fontweight="normal" if strong else "bold",
            )
    ticks = np.arange(0, size, max(1, size // 10))
    axes.set_xticks(ticks, [str(tick + 1) for tick in ticks])
    axes.set_yticks(ticks, [str(tick + 1) for tick in ticks])
    axes.set_xlabel("position")
    axes.set_ylabel("position")
    axes.set_title(f"clicks in effect that link two positions ({least:g} are needed)", fontsize=10)
    return figure


@styled
def lines_by(
    x: Sequence[float] | Float64,
    lines: Mapping[str, Float64],
    *,
    xlabel: str,
    ylabel: str,
    low: float | None = 0.0,
    intervals: Mapping[str, tuple[Float64, Float64]] | None = None,
) -> Figure:
    """Lines over one axis, one a name, some with lower and upper ends."""
    from matplotlib.ticker import MaxNLocator

    from clickprism.evaluation.plots import add_legend

    figure, axes = new_figure(height=3.4)
    for place, (name, values) in enumerate(lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(x, values, color=colour, marker="o", markersize=4, linewidth=1.6, label=name)
        if intervals and name in intervals:
            axes.fill_between(x[: len(intervals[name][0])], *intervals[name], color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if (np.asarray(x) % 1 == 0).all():  # positions and days, between which there is nothing
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    if low is not None:
        axes.set_ylim(bottom=low)
    if len(lines) > 1:
        add_legend(axes)
    return figure


def short(number: float) -> str:
    """A count in few letters.

    >>> short(12), short(1234), short(45678.0), short(0.4)
    ('12', '1.2k', '46k', '0.4')
    """
    if number < 10:
        return f"{number:.2g}"
    if number < 1000:
        return f"{number:.0f}"
    return f"{number / 1000:.1f}k" if number < 10_000 else f"{number / 1000:.0f}k"


@styled
def histogram(values: Float64, *, label: str, reference: float) -> Figure:
    """How many documents have which value."""
    figure, axes = new_figure(height=3.0)
    axes.hist(values, bins=40, color=COLOURS[0], alpha=0.8)
    axes.axvline(reference, color=INK, linewidth=1.2)
    axes.set_xlabel(label)
    axes.set_ylabel("documents")
    return figure
