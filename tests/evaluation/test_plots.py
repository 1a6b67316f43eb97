"""Figures: what they show, that they do not change, and that they touch no global state."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import combinations

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from clickprism.errors import DataError
from clickprism.evaluation.compare import compare
from clickprism.evaluation.measures import Evaluation, Measure
from clickprism.evaluation.plots import (
    COLOURS,
    INK,
    looks_of,
    method_dots,
    observation_curve,
    svg,
    training_curve,
)

TRUTH = np.array([0.68, 0.61, 0.48, 0.34])


def dots() -> Figure:
    rng = np.random.default_rng(0)
    measures = (Measure.parse("nDCG@10"),)
    ids = np.arange(40).astype(str)
    made = {name: Evaluation(measures, rng.random((1, 40)), ids, "drop") for name in ("click", "dla")}
    return method_dots(compare(made, baseline="click"))


FIGURES: dict[str, Callable[[], Figure]] = {
    "observation": lambda: observation_curve(
        TRUTH, {"dla": TRUTH * 0.5}, intervals={"dla": (TRUTH * 0.4, TRUTH * 0.6)}
    ),
    "training": lambda: training_curve({"dla": ([0, 10, 20], [0.5, 0.7, 0.6])}, measure="nDCG@10"),
    "dots": dots,
}


def lines(figure: Figure) -> dict[str, list[float]]:
    return {str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in figure.axes[0].get_lines()}


@pytest.mark.parametrize("name", FIGURES)
def test_svg_is_well_formed_repeatable_and_follows_the_page(name: str) -> None:
    text = svg(FIGURES[name](), title="a <title> & more")
    assert text == svg(FIGURES[name](), title="a <title> & more")
    root = ET.fromstring(text)  # noqa: S314 - made here
    assert root.get("role") == "img"
    assert root.get("aria-label") == "a <title> & more"
    assert "currentColor" in text
    assert text.count(INK) == 1
    assert "#000000" not in text
    assert "<dc:date>" not in text
    ids = [element.get("id") for element in root.iter() if element.get("id") is not None]
    assert len(ids) == len(set(ids))
    assert not [name for name in ids if name and "_" in name]


def test_drawing_leaves_the_settings_of_matplotlib_alone() -> None:
    before = dict(matplotlib.rcParams)
    for make in FIGURES.values():
        svg(make(), title="x")
    assert dict(matplotlib.rcParams) == before


def test_pyplot_is_never_imported_and_matplotlib_only_when_drawing() -> None:
    code = (
        "import sys, clickprism.evaluation.plots as plots; assert 'matplotlib' not in sys.modules;"
        "plots.svg(plots.training_curve({'a': ([0, 1], [0, 1])}, measure='MAP'), title='t');"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_observation_is_relative_to_the_first_position() -> None:
    drawn = lines(FIGURES["observation"]())
    np.testing.assert_allclose(drawn["truth"], TRUTH / 0.68)
    np.testing.assert_allclose(drawn["dla"], TRUTH / 0.68)
    with pytest.raises(DataError, match="dla"):
        observation_curve(None, {"dla": np.array([0.0, 1.0])})


def test_the_best_step_is_marked() -> None:
    assert lines(FIGURES["training"]())["dla: 0.7000 at step 10"] == [0.7]
    lower = training_curve({"dla": ([0, 10, 20], [3.0, np.nan, 2.0])}, measure="ARP", xlabel="epoch")
    assert lines(lower)["dla: 2.0000 at epoch 20"] == [2.0]
    with pytest.raises(DataError, match="as many steps"):
        training_curve({"dla": ([0, 1], [0.5])}, measure="MAP")


def test_looks_differ_and_do_not_depend_on_order() -> None:
    names = [f"method {i}" for i in range(20)]
    looks = looks_of(names)
    assert looks == looks_of(reversed(names))
    assert len(set(looks.values())) == 20
    assert {look.colour for look in looks_of(names[:8]).values()} == set(COLOURS)


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colour", COLOURS)
def test_colours_have_contrast_three_on_white_and_on_near_black(colour: str) -> None:
    light, dark = luminance("#ffffff"), luminance("#161b22")
    assert (light + 0.05) / (luminance(colour) + 0.05) >= 3
    assert (luminance(colour) + 0.05) / (dark + 0.05) >= 3


def test_colours_are_all_different() -> None:
    for one, other in combinations(COLOURS, 2):
        assert sum(abs(int(one[i : i + 2], 16) - int(other[i : i + 2], 16)) for i in (1, 3, 5)) > 60
