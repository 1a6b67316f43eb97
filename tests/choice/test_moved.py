"""The observation from documents that moved: relevance cancels, documents may bend it, clicks above may matter."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.choice.moved import MovedSettings, fit_moved
from clickprism.click_models.pbm import EYE_TRACKING
from clickprism.errors import DataError, SettingError
from clickprism.simulation.worlds import WorldSettings, make_world
from clickprism.types import Clicks, Lists


def pairs(chances: list[float], observed: list[float], *, shown: int) -> Clicks:
    """Each document alone in lists of one, at either position, clicked as often as expected."""
    documents = len(chances)
    lists = Lists(np.zeros((documents, 1), np.float32), np.arange(documents + 1), np.array([f"q{n}" for n in chances]))
    rows = np.repeat(np.arange(documents), 2)
    positions = np.tile([1, 2], documents).astype(np.int32)
    clicks = np.round([shown * chance * seen for chance in chances for seen in observed]).astype(np.int64)
    offsets, impressions = np.arange(2 * documents + 1), np.full(2 * documents, shown)
    return Clicks(lists, offsets, rows, positions, clicks, impressions)


def test_the_curve_is_the_ratio_of_clicks_whatever_the_relevance() -> None:
    found = fit_moved(pairs([0.9, 0.1, 0.5], [1.0, 0.4], shown=10_000), MovedSettings(scales=(), browsing=False))
    assert np.exp(found.below) == pytest.approx([1.0, 0.4], rel=0.01)
    assert found.scale == 0
    assert not found.browsing


def test_who_moves_and_is_shown_more_above_does_not_change_it() -> None:
    told = pairs([0.8, 0.8], [1.0, 0.5], shown=1000)
    impressions, clicks = told.impressions.copy(), told.clicks.copy()
    impressions[0], clicks[0] = 100, 80
    told = Clicks(told.lists, told.offsets, told.rows, told.positions, clicks, impressions)
    found = fit_moved(told, MovedSettings(scales=(), browsing=False))
    assert np.exp(found.below[1]) == pytest.approx(0.5, rel=0.01)


def test_a_log_in_which_nothing_moved_is_refused() -> None:
    told = pairs([0.5] * 4, [1.0, 0.5], shown=100).take(np.arange(8) % 2 == 0)
    with pytest.raises(DataError, match="stood at several positions"):
        fit_moved(told)


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="scales"):
        MovedSettings(scales=(0.0,))
    with pytest.raises(SettingError, match="held_out"):
        MovedSettings(held_out=1.0)
    with pytest.raises(SettingError, match="seed"):
        MovedSettings(seed=-1)


def test_features_that_bend_the_curve_are_found_and_only_where_they_do() -> None:
    bent = make_world(WorldSettings(coupling=0.5, sessions=40_000, queries=150, features=12, days=1, seed=5))
    found = fit_moved(bent.logged.clicks)
    assert found.scale > 0
    assert not found.browsing
    lists = bent.logged.clicks.lists
    steep, truth = found.steepness(lists), bent.user.coupled.exponent(lists)
    assert np.corrcoef(steep, truth)[0, 1] > 0.9
    plain = make_world(WorldSettings(sessions=40_000, queries=150, features=12, days=1, seed=5))
    flat = fit_moved(plain.logged.clicks)
    assert np.std(flat.steepness(plain.logged.clicks.lists)) < np.std(steep) / 3
    curve = np.exp(flat.below[np.unique(np.repeat(np.arange(10), np.arange(1, 11)), return_index=True)[1]])
    assert curve == pytest.approx(np.array(EYE_TRACKING) / EYE_TRACKING[0], abs=0.05)


def test_clicks_above_matter_to_those_who_browse() -> None:
    world = make_world(WorldSettings(browsing="ubm", sessions=40_000, queries=150, features=8, days=1, seed=5))
    assert fit_moved(world.logged.clicks).browsing
