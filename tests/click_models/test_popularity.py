"""The popularity user: past clicks on an item make it more likely to be observed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from clickprism.click_models.pbm import PositionUser
from clickprism.click_models.popularity import PopularityUser, item_ids, percentiles
from clickprism.click_models.users import Shown
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.errors import SettingError
from clickprism.settings import build, plain
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.types import JudgedLists, Lists

LISTS = Lists(
    np.zeros((5, 1), np.float32),
    np.array([0, 3, 5]),
    np.array(["q", "r"]),
    np.array(["a", "b", "c", "c", "new"]),
)
PAST = np.array([8.0, 0.0, 2.0])


def known(strength: float = 0.5) -> PopularityUser:
    return PopularityUser(strength=strength).after(np.array(["a", "b", "c"]), PAST)


def test_popularity_is_the_share_of_items_with_fewer_clicks() -> None:
    assert known().popularity(LISTS).tolist() == [1.0, 0.0, 0.5, 0.5, 0.0]
    assert PopularityUser().popularity(LISTS).tolist() == [0.0] * 5


def test_popularity_lowers_the_exponent_of_observation() -> None:
    rows, positions = np.array([0, 1, 2, 3, 4]), np.array([4, 4, 4, 10, 10])
    expected = [0.34**0.5, 0.34, 0.34**0.75, 0.06**0.75, 0.06]
    assert known().observation(LISTS, rows, positions) == pytest.approx(expected)
    assert known(1.0).observation(LISTS, np.array([0]), np.array([10])).tolist() == [1.0]


def test_observation_rates_equal_the_model() -> None:
    sessions = 40_000
    offsets = np.arange(sessions + 1, dtype=np.int64) * 3
    shown = Shown(LISTS, offsets, np.tile([1, 2, 0], sessions), np.full(3 * sessions, 0.5, np.float32))
    observed = known().click(shown, seed=1).observed.reshape(-1, 3).mean(axis=0)
    assert observed == pytest.approx([0.68, 0.61**0.75, math.sqrt(0.48)], abs=4 * math.sqrt(0.25 / sessions))


@pytest.mark.parametrize("user", [known(0.0), PopularityUser(strength=0.0), PopularityUser(items=("z",), past=(3.0,))])
def test_without_strength_or_known_items_it_equals_the_position_user(user: PopularityUser) -> None:
    judged = JudgedLists(LISTS, np.array([0, 1, 2, 1, 0], np.int32))
    by_position = simulate(judged, PositionUser(), sessions=300, seed=4)
    assert np.array_equal(simulate(judged, user, sessions=300, seed=4).clicks.clicks, by_position.clicks.clicks)


def test_past_clicks_are_drawn_once_for_the_items_of_the_lists() -> None:
    data = synthetic(SyntheticSettings(train_queries=30, validation_queries=0, test_queries=10, features=4, items=40))
    user = PopularityUser().adapt(data.train, seed=3)
    assert set(user.items) == set(data.train.lists.document_ids.tolist())  # type: ignore[union-attr]
    assert user.adapt(data.test, seed=4) is user
    assert user == PopularityUser().adapt(data.train, seed=3) != PopularityUser().adapt(data.train, seed=4)
    assert user.popularity(data.train.lists).std() > 0.2
    grades = data.train.grades
    assert abs(np.corrcoef(user.popularity(data.train.lists), grades)[0, 1]) < 0.2
    simulate(data.train, PopularityUser(), sessions=50, seed=0, settings=SimulationSettings(length=5))


def test_documents_without_ids_are_separate_items() -> None:
    lists = Lists(LISTS.features, LISTS.offsets, LISTS.query_ids)
    assert item_ids(lists).tolist() == ["q/1", "q/2", "q/3", "r/1", "r/2"]


def test_percentiles_of_few_items() -> None:
    assert percentiles(np.zeros(0)).tolist() == []
    assert percentiles(np.array([3.0])).tolist() == [1.0]
    assert percentiles(np.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    assert percentiles(np.array([2.0, 2.0])).tolist() == [0.5, 0.5]


def test_settings_round_trip() -> None:
    assert build(PopularityUser, plain(known())) == known()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"strength": 1.5}, "strength must be a probability"),
        ({"items": ("a",)}, "past must have one number for each of the 1 items, got 0"),
        ({"items": ("a", "a"), "past": (1.0, 2.0)}, "items must be all different"),
        ({"items": ("a",), "past": (-1.0,)}, "past must be finite and not negative"),
    ],
)
def test_wrong_settings_are_rejected(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        PopularityUser(**settings)
