"""Pictures of bias: where documents go by where they stood or how frequent they were, who is exposed, Delta-CI.

They show the values of `curves` and `independence`, in the look of `plots`; methods differ by marker as well as colour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from clickprism.evaluation.curves import Curve, Shares
from clickprism.evaluation.plots import GRID, INK, Look, add_legend, looks_of, new_figure, position_axis, styled
from clickprism.types import Float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

C = TypeVar("C", Curve, Shares)

OWN: Final = "labels' own"
WIDE: Final = 20.0  # frequencies that differ more than this are drawn on a log scale


@styled
def moved_curve(
    curves: Mapping[str, Curve],
    labels: Curve,
    *,
    away: Mapping[str, float] | None = None,
    looks: Mapping[str, Look] | None = None,
) -> Figure:
    """The mean position after re-ranking, by position before or by item frequency, beside the labels' own.

    The legend says how far each is from the labels, in positions.

    Args:
        curves: by method, all by position or all by frequency.
        labels: the curve of the grades.
        away: by method, its distance from the labels, where the curves are means over runs; else that of the curves.
        looks: by method; see `plots.looks_of`.
    """
    figure, axes = new_figure(height=3.8)
    drawn, far = looks or looks_of(curves), _away(curves, labels) if away is None else away
    axes.plot(labels.at, labels.value, color=INK, linewidth=2.6, alpha=0.85, label=OWN, zorder=2)
    for name in sorted(curves, key=lambda name: far[name]):
        look, curve, label = drawn[name], curves[name], f"{name}: {far[name]:.2f} from {OWN}"
        axes.plot(curve.at, curve.value, color=look.colour, marker=look.marker, markersize=5, label=label, zorder=3)
    if labels.axis == "position":
        position_axis(axes, int(labels.at[-1]) if len(labels.at) else 1, "position before")
    else:
        _frequency_axis(axes, labels.at)
    axes.set_ylabel("mean position after")
    axes.invert_yaxis()
    add_legend(axes)
    return figure


@styled
def exposure_bars(
    shares: Mapping[str, Shares],
    labels: Shares,
    *,
    away: Mapping[str, float] | None = None,
    looks: Mapping[str, Look] | None = None,
) -> Figure:
    """The share of exposure that groups of items get, from the least to the most popular, beside the labels' own.

    A bar a group is the share by the labels, a marker a method; the dashes say how many of the items are in the group.

    Args:
        shares: by method.
        labels: the shares of the grades.
        away: by method, its distance from the labels, where the shares are means over runs; else that of the shares.
        looks: by method; see `plots.looks_of`.
    """
    figure, axes = new_figure(height=3.8 + 0.09 * (len(shares) + 2))
    drawn, far = looks or looks_of(shares), _away(shares, labels) if away is None else away
    places = np.arange(len(labels.value), dtype=np.float64)
    axes.bar(places, labels.value, width=0.86, color=GRID, alpha=0.35, label=OWN, zorder=1)
    axes.hlines(
        labels.items,
        places - 0.43,
        places + 0.43,
        color=INK,
        linewidth=1.4,
        linestyle=(0, (3, 2)),
        label="share of items",
    )
    for slot, name in enumerate(sorted(shares, key=lambda name: far[name])):
        shift = 0.7 * ((slot + 0.5) / len(shares) - 0.5)
        look, share = drawn[name], shares[name]
        label = f"{name}: {100 * far[name]:.1f}% from {OWN}"
        axes.plot(places + shift, share.value, color=look.colour, linewidth=0.9, alpha=0.35, zorder=3)
        axes.plot(
            places + shift, share.value, color=look.colour, marker=look.marker, linestyle="", label=label, zorder=4
        )
    axes.set_xticks(places, [_group_name(i, len(places)) for i in range(len(places))])
    axes.set_xlabel("groups of items by popularity in the log")
    axes.set_ylabel("share of exposure")
    axes.set_ylim(bottom=0)
    axes.grid(visible=False, axis="x")
    below = (0.5, -0.17)  # marks may stand anywhere above
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc="upper center", bbox_to_anchor=below, ncols=2)
    return figure


def _away(curves: Mapping[str, C], labels: C) -> dict[str, float]:
    """The distance of each from the labels, in whose order they stand in the legend."""
    return {name: curve.distance(labels) for name, curve in curves.items()}


def _frequency_axis(axes: Axes, at: Float64) -> None:
    axes.set_xlabel("frequency of the item in the log, relative to the most frequent")
    if len(at) and at[0] > 0 and at[-1] > WIDE * at[0]:
        axes.set_xscale("log")
        ticks = [step * 10.0**power for power in range(-12, 1) for step in (1, 2, 5)]
        axes.set_xticks([tick for tick in ticks if at[0] * 0.7 <= tick <= at[-1] * 1.4])
        axes.set_xticks([], minor=True)
        axes.xaxis.set_major_formatter("{x:g}")


def _group_name(group: int, groups: int) -> str:
    return "least" if group == 0 else "most" if group == groups - 1 else str(group + 1)
