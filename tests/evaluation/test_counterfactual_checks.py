"""Checks of the model on lists and on days: by arithmetic, on large counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.data.logged import Logged
from clickprism.evaluation.counterfactual.result import CounterfactualSettings
from clickprism.evaluation.counterfactual.run import counterfactual
from clickprism.evaluation.counterfactual.support import SLOPE_SPREAD, Days, Predictions, Slope, place, slope_of
from clickprism.types import Clicks, Int64, Lists
from tests.evaluation.known_model import known_model

MANY = 100_000
EASY = CounterfactualSettings(least_effective=1, least_queries=1, most_missing=1)


def two_lists(*clicked: float) -> Clicks:
    """Return one query: (0, 1) and (1, 0) equally often, with these click rates, from the top of the first list."""
    lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    counts = np.round(np.array(clicked) * MANY).astype(np.int64)
    return Clicks(
        lists, np.array([0, 2, 4]), np.array([0, 1, 1, 0]), np.array([1, 2, 1, 2], np.int32), counts, np.full(2, MANY)
    )


def slope(log: Clicks, day: Int64 | None = None) -> Slope:
    placed = place(Logged(log, day), np.array([1.0, 0.0]), depth=2)
    predictions = Predictions(placed, known_model(log, [1.0, 0.5]), seed=0)
    return slope_of(placed, predictions, discount=np.ones(2), seed=0)


def test_the_slope_is_one_if_the_model_is_right() -> None:
    """Observation 1 and 0.5, relevance 0.8 and 0.4."""
    assert slope(two_lists(0.8, 0.2, 0.4, 0.4)).value == pytest.approx(1.0, abs=0.02)


def test_the_slope_is_zero_if_a_good_document_ends_the_search() -> None:
    """0.8 clicks in both orders. The model predicts more for (0, 1)."""
    assert slope(two_lists(0.8, 0.0, 0.4, 0.4)).value == pytest.approx(0.0, abs=0.05)


def test_one_list_a_day_leaves_the_slope_unknown() -> None:
    assert slope(two_lists(0.8, 0.0, 0.4, 0.4), np.array([0, 1])) == Slope(1.0, SLOPE_SPREAD)


def test_days_differ_by_the_clicks_of_the_same_documents() -> None:
    """(0, 1) on two days, clicked half as often on the second; compared with sessions of both."""
    lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    clicked = np.array([0.8, 0.2, 0.4, 0.1, 0.4, 0.4])
    log = Clicks(
        lists,
        np.array([0, 2, 4, 6]),
        np.array([0, 1, 0, 1, 1, 0]),
        np.array([1, 2, 1, 2, 1, 2], np.int32),
        np.round(clicked * MANY).astype(np.int64),
        np.full(3, MANY),
    )
    day = np.array([0, 1, 1])
    placed = place(Logged(log, day), np.array([1.0, 0.0]), depth=2)
    days = Days.of(placed, Predictions(placed, known_model(log, [1.0, 0.5]), seed=0).cell)
    assert days is not None
    assert days.levels.tolist() == pytest.approx([2.0, 0.5], rel=0.01)
    same = placed.matched("list")
    assert days.shift(placed, same, np.ones((1, 2))) == pytest.approx(
        (1 / 2 - 1 / 3) * 2 + (1 / 2 - 2 / 3) * 0.5, rel=0.02
    )
    first = two_lists(0.8, 0.2, 0.4, 0.4)
    model = known_model(first, [1.0, 0.5])
    made = counterfactual(Logged(first, np.array([0, 1])), np.array([1.0, 0]), settings=EASY, model=model)
    # no document is at the same position on both days: there is nothing to correct by
    assert made.estimates["ips"].value.value == pytest.approx(1.0)


def test_days_are_corrected_for_and_widen_the_interval_by_half_of_the_correction() -> None:
    """Searches with (0, 1) were on the day with twice the clicks, those with (1, 0) on both days."""
    lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    clicked = np.array([0.8, 0.2, 0.4, 0.4, 0.2, 0.2])
    log = Clicks(
        lists,
        np.array([0, 2, 4, 6]),
        np.array([0, 1, 1, 0, 1, 0]),
        np.array([1, 2, 1, 2, 1, 2], np.int32),
        np.round(clicked * MANY).astype(np.int64),
        np.full(3, MANY),
    )
    day = np.array([0, 0, 1])
    settings, model = replace(EASY, estimator=("ips",)), known_model(log, [1.0, 0.5])
    plain, corrected = (
        counterfactual(Logged(log, days), np.array([1.0, 0]), settings=settings, model=model).estimates["ips"].value
        for days in (None, day)
    )
    shift = (1 - 2 / 3) * 2 + (0 - 1 / 3) * 0.5
    assert plain.value == pytest.approx(1.0)
    assert corrected.value == pytest.approx(1.0 / (1 + shift), rel=0.01)
    assert corrected.upper - corrected.lower == pytest.approx(plain.upper - plain.lower + shift, rel=0.05)
