"""What a log says against its click model, and against users who stay the same: by hand, on large counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.data.logged import Logged
from clickprism.evaluation.counterfactual import counterfactual
from clickprism.evaluation.counterfactual_checks import BEFORE, Slope, days_of, shift_of, slope_of
from clickprism.evaluation.counterfactual_model import reward_model
from clickprism.evaluation.counterfactual_settings import CounterfactualSettings
from clickprism.evaluation.counterfactual_support import place
from clickprism.types import Clicks, Int64, Lists

MANY = 100_000
EASY = CounterfactualSettings(least_effective=1, least_queries=1, most_missing=1)


def two_lists(*clicked: float) -> Clicks:
    """One query: (0, 1) and (1, 0) as often, and the click rates of each, from the top of the first."""
    lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    counts = np.round(np.array(clicked) * MANY).astype(np.int64)
    return Clicks(
        lists, np.array([0, 2, 4]), np.array([0, 1, 1, 0]), np.array([1, 2, 1, 2], np.int32), counts, np.full(2, MANY)
    )


def slope(log: Clicks, day: Int64 | None = None) -> Slope:
    placed = place(log, np.array([1.0, 0.0]), depth=2)
    model = reward_model(placed.clicks, resamples=2, seed=0)
    return slope_of(placed, model, worth=np.ones(2), day=day, seed=0)


def test_lists_earn_what_the_model_says_where_it_is_right() -> None:
    """Observation 1 and 0.5, relevance 0.8 and 0.4."""
    assert slope(two_lists(0.8, 0.2, 0.4, 0.4)).value == pytest.approx(1.0, abs=0.02)


def test_who_stops_at_what_is_good_earns_no_more_by_a_better_order() -> None:
    """Whichever stands first, 0.8 clicks: the model foretells more of (0, 1), and the slope is 0."""
    assert slope(two_lists(0.8, 0.0, 0.4, 0.4)).value == pytest.approx(0.0, abs=0.05)


def test_one_list_a_day_says_nothing() -> None:
    assert slope(two_lists(0.8, 0.0, 0.4, 0.4), np.array([0, 1])) == Slope(1.0, BEFORE)


def test_days_differ_by_what_the_same_documents_get() -> None:
    """(0, 1) on two days, clicked half as often on the second; matched sessions of the first day only."""
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
    placed = place(log, np.array([1.0, 0.0]), depth=2)
    days = days_of(placed, day)
    assert days.levels.tolist() == pytest.approx([2.0, 0.5], rel=0.01)
    same = placed.cells("list")
    assert shift_of(placed, same, np.ones((1, 2)), days) == pytest.approx(
        (1 / 2 - 1 / 3) * 2 + (1 / 2 - 2 / 3) * 0.5, rel=0.02
    )
    first = two_lists(0.8, 0.2, 0.4, 0.4)
    made = counterfactual(Logged(first, np.array([0, 1])), np.array([1.0, 0]), settings=EASY).estimates["ips"]
    assert made.value.value == pytest.approx(
        1.0
    )  # no document at the same position on both days: nothing to correct by


def test_the_correction_takes_the_days_out_and_widens_by_half_of_it() -> None:
    """Searches of (0, 1) fell on the day with twice the clicks, those of (1, 0) on both."""
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
    plain, told = (
        counterfactual(Logged(log, days), np.array([1.0, 0]), settings=replace(EASY, estimator=("ips",)))
        .estimates["ips"]
        .value
        for days in (None, day)
    )
    shift = (1 - 2 / 3) * 2 + (0 - 1 / 3) * 0.5
    assert plain.value == pytest.approx(1.0)
    assert told.value == pytest.approx(1.0 / (1 + shift), rel=0.01)
    assert told.upper - told.lower == pytest.approx(plain.upper - plain.lower + shift, rel=0.05)
