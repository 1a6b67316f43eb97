"""Figures of matplotlib without global state, and SVG that follows the light or dark theme of a page.

Ink (text, axes, the truth) is drawn in one colour, which `svg` turns into that of the surrounding text. The colours of
the methods are safe for colour-blind readers and legible on white and on near-black.
"""

from __future__ import annotations

import functools
import io
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from clickprism._util.files import write_file
from clickprism.errors import DataError
from clickprism.evaluation.compare import Comparison
from clickprism.evaluation.measures import Measure
from clickprism.types import Float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from clickprism.log_model.model import LogModel

MOST_INSIDE = 7  # names of a legend
INK = "#24292f"
INK_ON_DARK = "#e6edf3"
GRID = "#8c959f"
COLOURS = ("#1f7fc4", "#d9660a", "#0f9d76", "#c767a3", "#b8860b", "#7a6ff0", "#d64550", "#5b8c1a")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "h")
_INKED = ("text.color", "xtick.color", "ytick.color", *(f"axes.{name}color" for name in ("label", "edge", "title")))
_STYLE: dict[Any, Any] = {"svg.hashsalt": "clickprism", "svg.fonttype": "none", "legend.labelcolor": INK}
_STYLE |= {"font.family": ["DejaVu Sans"], "font.size": 10.0} | dict.fromkeys(_INKED, INK)

P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that draws a figure, so that it has the style of all our figures."""

    @functools.wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> R:
        from matplotlib import rc_context

        with rc_context(_STYLE):
            return draw(*args, **kwargs)

    return in_style


class Look(NamedTuple):
    """How a method is drawn in every figure."""

    colour: str
    marker: str


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """Return a look for each method; give the same mapping to every figure of a report.

    A name gets the colour of its checksum or the next free one, so most names keep their colour beside other methods.
    With more than eight methods colours repeat, with other markers.
    """
    taken: dict[str, tuple[int, int]] = {}
    for name in sorted(set(names)):
        slot, lap = zlib.crc32(name.encode()) % len(COLOURS), len(taken) // len(COLOURS)
        while (lap, slot) in taken.values():
            slot = (slot + 1) % len(COLOURS)
        taken[name] = lap, slot
    return {name: Look(COLOURS[slot], MARKERS[(slot + 3 * lap) % len(MARKERS)]) for name, (lap, slot) in taken.items()}


@styled
def observation_curve(
    truth: Float64 | None,
    estimates: Mapping[str, Float64],
    *,
    intervals: Mapping[str, tuple[Float64, Float64]] | None = None,
    looks: Mapping[str, Look] | None = None,
) -> Figure:
    """Plot observation by position, true (if known) and by method, each relative to its own first position.

    The intervals are lower and upper ends by method, on the scale of the estimate.
    """
    figure, axes = new_figure(height=3.6)
    drawn = looks or looks_of(estimates)
    deepest = 1
    if truth is not None:
        curve = _relative(truth, "the truth")
        deepest = len(curve)
        axes.plot(_positions(curve), curve, color=INK, linewidth=2.6, alpha=0.85, label="truth", zorder=2)
    for name, estimate in estimates.items():
        curve = _relative(estimate, name)
        deepest = max(deepest, len(curve))
        style: dict[str, Any] = {"color": drawn[name].colour, "marker": drawn[name].marker, "markersize": 5}
        axes.plot(_positions(curve), curve, linewidth=1.6, label=name, zorder=3, **style)
        if intervals is not None and name in intervals:
            low, high = (np.asarray(end, dtype=np.float64) / float(estimate[0]) for end in intervals[name])
            axes.fill_between(_positions(curve), low, high, color=drawn[name].colour, alpha=0.2, linewidth=0)
    position_axis(axes, deepest)
    axes.set_ylabel("observation relative to position 1")
    axes.set_ylim(bottom=0)
    add_legend(axes)
    return figure


@styled
def relevance_by_position(
    curve: Mapping[str, Any],
    *,
    click_rate: Sequence[float | None],
    relevance: Sequence[float | None],
    relevance_reranked: Sequence[float | None],
) -> Figure:
    """Draw click rate, observation with its interval, and mean relevance by position, relative to position 1.

    Args:
        curve: `values` of the observation relative to position 1, and `lower` and `upper` ends, [positions] each.
        click_rate: Click rate at each position, None where nothing was shown, [positions].
        relevance: Mean relevance at each position, in the order of the log, [positions].
        relevance_reranked: Mean relevance at each position if each list is re-ranked, [positions].
    """
    figure, axes = new_figure(height=3.8)
    seen, low, high = (np.array(curve[name], dtype=np.float64) for name in ("values", "lower", "upper"))
    rate, before, after = (np.array(each, dtype=np.float64) for each in (click_rate, relevance, relevance_reranked))
    lines = {
        "click rate (before the correction)": (rate / (rate[0] or np.nan), INK, ":"),
        "observation, with 95% interval": (seen, COLOURS[0], "-"),
        "relevance, order of the log": (before / (before[0] or np.nan), COLOURS[1], "--"),
        "relevance, re-ranked": (after / (before[0] or np.nan), COLOURS[2], "-"),
    }
    for label, (values, colour, style) in lines.items():
        places = _positions(values)
        axes.plot(places, values, color=colour, linestyle=style, marker="o", markersize=4, label=label)
    axes.fill_between(_positions(seen), low, high, color=COLOURS[0], alpha=0.2, linewidth=0)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("relative to position 1 of the log")
    position_axis(axes, len(seen))
    add_legend(axes)
    return figure


def write_curves(model: LogModel, folder: Path, *, truth: Float64 | None = None) -> list[str]:
    """Plot the curve of a model, those of its contexts and the model-free ones as SVG and PNG.

    Returns the names of the files. `truth` is the true observation of a simulated log, [positions].
    """
    curves = {model.curve.name: model.curve, **model.contexts}
    curves |= {name: each.curve for name, each in model.references.items()}
    intervals = {name: (curve.lower, curve.upper) for name, curve in curves.items() if np.isfinite(curve.lower).any()}
    figure = observation_curve(truth, {name: each.values for name, each in curves.items()}, intervals=intervals)
    title = f"Observation by position: {', '.join(curves)}"
    write_file(folder / "curves.svg", svg(figure, title=title), durable=False)
    figure.savefig(folder / "curves.png", dpi=150)
    return ["curves.svg", "curves.png"]


@styled
def training_curve(
    runs: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    measure: Measure | str,
    xlabel: str = "step",
    looks: Mapping[str, Look] | None = None,
) -> Figure:
    """Plot a measure over training, a line a run, with the best step of each; `runs` has steps and values by method."""
    what = Measure.parse(measure) if isinstance(measure, str) else measure
    figure, axes = new_figure(height=3.6)
    drawn = looks or looks_of(runs)
    for name, (steps, values) in runs.items():
        x, y = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
        if x.shape != y.shape or x.ndim != 1 or np.isnan(y).all():
            raise DataError(f"the training of {name} needs as many steps as values, got {x.shape} and {y.shape}")
        best = int(np.nanargmax(y) if what.higher_is_better else np.nanargmin(y))
        label = f"{name}: {y[best]:.4f} at {xlabel} {x[best]:g}"
        colour: dict[str, Any] = {"color": drawn[name].colour, "linewidth": 1.6}
        axes.plot(x, y, zorder=3, **colour)
        axes.plot(x[best], y[best], marker="o", markersize=7, label=label, zorder=4, **colour)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(f"validation {what}")
    add_legend(axes)
    return figure


@styled
def method_dots(comparison: Comparison, *, looks: Mapping[str, Look] | None = None) -> Figure:
    """Plot a dot for each method with its interval, for the first measure of the comparison."""
    what = comparison.measures[0]
    rows = comparison.of(what)
    figure, axes = new_figure(height=0.9 + 0.42 * len(rows))
    drawn = looks or looks_of(row.method for row in rows)
    for place, row in enumerate(rows):
        colour, marker = drawn[row.method]
        axes.plot([row.low, row.high], [place, place], color=colour, linewidth=3, alpha=0.45, solid_capstyle="round")
        axes.plot(row.mean, place, color=colour, marker=marker, markersize=8)
        above: dict[str, Any] = {"xytext": (0, 7), "textcoords": "offset points", "ha": "center", "fontsize": 8.5}
        axes.annotate(f"{row.mean:.4f}", (row.mean, place), fontweight="bold" if row.best else "normal", **above)
    axes.set_yticks(range(len(rows)), [row.method for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.7)
    axes.margins(x=0.08)
    axes.set_xlabel(f"{what}, {comparison.confidence:.0%} interval")
    axes.grid(visible=False, axis="y")
    return figure


@styled
def svg(figure: Figure, *, title: str) -> str:
    """Return a figure as an SVG element for a page or a file; the same figure gives the same text.

    Screen readers read the title.
    """
    buffer = io.StringIO()
    unstamped = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=unstamped)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor").replace("*{stroke", "svg.clickprism *{stroke")
    text = text.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    text = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", text)
    head, body = text.split(">", 1)
    spoken = escape(title)
    style = f"svg.clickprism{{color:{INK}}}@media (prefers-color-scheme:dark){{svg.clickprism{{color:{INK_ON_DARK}}}}}"
    return (
        f'{head} class="clickprism" role="img" aria-label="{spoken}">'
        f"<title>{spoken}</title><style>{style}</style>{body.strip()}\n"
    )


def new_figure(*, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure with one pair of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color=GRID, alpha=0.3, linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def add_legend(axes: Axes) -> None:
    """Add a legend without a frame; one with many names is beside the axes, where it covers nothing."""
    style: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": INK}
    if len(axes.legend(**style).get_texts()) > MOST_INSIDE:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), **style)


def position_axis(axes: Axes, deepest: int) -> None:
    """Label the x axis with positions from 1, about ten of them."""
    step = max(1, -(-deepest // 10))
    axes.set_xticks([1, *range(1 + step, deepest + 1, step)])
    axes.set_xlabel("position")


def _positions(curve: Float64) -> Float64:
    return np.arange(1, len(curve) + 1, dtype=np.float64)


def _relative(curve: Float64, name: str) -> Float64:
    values = np.asarray(curve, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not values[0] > 0:
        raise DataError(f"the observation of {name} must be a curve that is above 0 at position 1")
    return np.asarray(values / values[0])
