"""Where documents stood: counts by document, position and the last click above."""

from __future__ import annotations

import numpy as np

from clickprism.choice.places import last_click, places_by_day, places_of
from clickprism.types import Clicks, Lists


def log(clicks: list[int], impressions: list[int], *, rows: list[int], length: int) -> Clicks:
    """Ranked lists of one length over one query."""
    lists = Lists(np.zeros((max(rows) + 1, 0), np.float32), np.array([0, max(rows) + 1]), np.array(["q"]))
    positions = np.tile(np.arange(1, length + 1, dtype=np.int32), len(impressions))
    offsets = np.arange(len(impressions) + 1) * length
    return Clicks(lists, offsets, np.array(rows), positions, np.array(clicks), np.array(impressions))


def test_the_last_click_above_is_that_of_the_own_list() -> None:
    told = log([0, 1, 1, 0, 0, 1, 0, 0], [1, 1], rows=[0, 1, 2, 3, 3, 2, 1, 0], length=4)
    assert last_click(told).tolist() == [0, 0, 2, 3, 0, 0, 2, 2]


def test_places_know_the_last_click_where_the_log_tells_what_was_clicked_together() -> None:
    told = places_of(log([2, 2, 0, 0], [2, 3], rows=[0, 1, 1, 0], length=2))
    assert told.knows_clicks
    assert told.position_of.tolist() == [0, 1, 1]  # first; second below no click, second below one
    assert told.rows.tolist() == [0, 0, 1, 1]
    assert told.places.tolist() == [0, 1, 0, 2]
    assert told.clicks.tolist() == [2, 0, 0, 2]
    assert told.impressions.tolist() == [2, 3, 3, 2]


def test_without_patterns_a_place_is_a_position() -> None:
    told = places_of(log([1, 1, 0, 0], [2, 3], rows=[0, 1, 1, 0], length=2))
    assert not told.knows_clicks
    assert told.position_of.tolist() == [0, 1]
    assert (told.clicks.sum(), told.impressions.sum()) == (2, 10)


def test_popularity_is_that_of_the_days_before() -> None:
    days = np.array([0, 1, 1])
    told = places_by_day(log([2, 0, 0, 1, 1, 0], [2, 1, 1], rows=[0, 1, 0, 1, 1, 0], length=2), days)
    assert told.popularity is not None
    shown = [float(told.impressions[(told.rows == row) & (told.popularity == 1)].sum()) for row in (0, 1)]
    assert shown == [2, 0]  # document 0 was clicked on the first day, the other on none before
    assert (told.clicks.sum(), told.impressions.sum()) == (4, 8)
    alone = places_by_day(log([2, 0], [2], rows=[0, 1], length=2), np.array([3]))
    assert alone.popularity is None


def test_a_log_of_nothing_has_no_places() -> None:
    lists = Lists(np.zeros((1, 0), np.float32), np.array([0, 1]), np.array(["q"]))
    empty = np.zeros(0, np.int64)
    told = places_of(Clicks(lists, np.zeros(1, np.int64), empty, empty.astype(np.int32), empty, empty))
    assert len(told.rows) == 0
