"""Figures of bias: what they show, and that they are legible and repeatable."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.figure import Figure

from clickprism.evaluation.bias_plots import exposure_bars, moved_curve
from clickprism.evaluation.curves import Curve, Shares
from clickprism.evaluation.plots import svg

ONES = np.ones(3)


def curve(*value: float, axis: str = "position", at: tuple[float, ...] = (1, 2, 3)) -> Curve:
    return Curve("position" if axis == "position" else "frequency", np.array(at), np.array(value), ONES)


def shares(*value: float) -> Shares:
    return Shares("popularity", np.array([0.1, 0.2, 1.0]), np.array(value), ONES / 3)


def figures() -> dict[str, Figure]:
    return {
        "position": moved_curve({"dla": curve(1, 2, 3), "near": curve(2, 2, 2.3)}, curve(2, 2, 2)),
        "frequency": moved_curve(
            {"dla": curve(1, 2, 3, axis="frequency", at=(0.01, 0.3, 1))},
            curve(2, 2, 2, axis="frequency", at=(0.01, 0.3, 1)),
        ),
        "exposure": exposure_bars({"dla": shares(0, 0.1, 0.9)}, shares(0.2, 0.3, 0.5)),
    }


def legend(figure: Figure) -> list[str]:
    shown = figure.axes[0].get_legend()
    assert shown is not None
    return [text.get_text() for text in shown.get_texts()]


@pytest.mark.parametrize("name", ["position", "frequency", "exposure"])
def test_svg_is_well_formed_and_repeatable(name: str) -> None:
    text = svg(figures()[name], title="bias")
    assert text == svg(figures()[name], title="bias")
    assert ET.fromstring(text).get("aria-label") == "bias"  # noqa: S314 - made here
    assert "#000000" not in text


def test_the_legend_names_the_nearest_first_and_its_distance() -> None:
    made = figures()
    assert legend(made["position"]) == ["labels' own", "near: 0.10 from labels' own", "dla: 0.67 from labels' own"]
    assert legend(made["exposure"])[-2:] == ["dla: 40.0% from labels' own", "labels' own"]


def test_the_legend_of_exposure_is_below_the_marks() -> None:
    figure = figures()["exposure"]
    figure.draw_without_rendering()
    axes = figure.axes[0]
    shown = axes.get_legend()
    assert shown is not None
    assert 0 <= shown.get_window_extent().y0 < shown.get_window_extent().y1 < axes.get_window_extent().y0


def test_the_top_is_up_and_wide_frequencies_are_on_a_log_scale() -> None:
    made = figures()
    low, high = made["position"].axes[0].get_ylim()
    assert low > high
    assert made["frequency"].axes[0].get_xscale() == "log"
    assert made["position"].axes[0].get_xscale() == "linear"


def test_a_legend_of_many_names_covers_no_curve() -> None:
    at = np.arange(1.0, 5.0)
    flat = Curve("position", at, at, np.ones(4))
    for count, outside in ((3, False), (9, True)):
        figure = moved_curve({f"method-{each}": flat for each in range(count)}, flat)
        figure.draw_without_rendering()
        axes = figure.axes[0]
        legend = axes.get_legend()
        assert legend is not None
        assert bool(legend.get_window_extent().x0 >= axes.get_window_extent().x1) is outside
