"""Where documents stood and what was clicked above them: counts by document and place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from clickprism.click_models.popularity import percentiles
from clickprism.types import Clicks, Float64, Int64

DEEPEST: Final = 20  # below it places would be too many to know the last click
DENSE: Final = 50_000_000
LEVELS: Final = 8  # of popularity


@final
@dataclass(frozen=True, eq=False)
class Places:
    """How often each document was shown at each place, and clicked there; sorted by row, then place.

    Attributes:
        rows: the document of each line, [lines].
        places: of each line, [lines].
        clicks: [lines].
        impressions: [lines].
        position_of: the position of each place, from 0, [places].
        knows_clicks: whether a place is a position and that of the last click above, or the position alone.
        popularity: of the document when it stood there, from 0 to 1, [lines]; None where the past is not known.
    """

    rows: Int64
    places: Int64
    clicks: Float64
    impressions: Float64
    position_of: Int64
    knows_clicks: bool
    popularity: Float64 | None = None


def places_of(clicks: Clicks, *, knows: bool | None = None) -> Places:
    """The counts of a log; places know the last click above where the log tells what was clicked together.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> log = Clicks(lists, np.array([0, 2, 4]), np.array([0, 1, 0, 1]), np.array([1, 2, 1, 2], np.int32),
    ...     np.array([3, 0, 0, 4]), np.array([3, 4]))
    >>> found = places_of(log)  # position 2 below a click, in three sessions, and below none, in four
    >>> found.position_of[found.places].tolist(), found.clicks.tolist(), found.impressions.tolist()
    ([0, 1, 1], [3.0, 4.0, 0.0], [7.0, 4.0, 3.0])
    """
    positions, depth = clicks.positions.astype(np.int64), clicks.max_position
    knows = depth <= DEEPEST and clicks.are_patterns if knows is None else knows
    if knows:
        places, position_of = positions * (positions - 1) // 2 + last_click(clicks), _triangle(depth)
    else:
        places, position_of = positions - 1, np.arange(max(depth, 1))
    width = len(position_of)
    keys, shown = clicks.rows * width + places, clicks.list_impressions.astype(np.float64)
    if clicks.lists.documents * width <= DENSE:
        impressions = np.bincount(keys, weights=shown).astype(np.float64)
        found = np.flatnonzero(impressions)
        clicked, impressions = np.bincount(keys, weights=clicks.clicks)[found], impressions[found]
    else:
        found, line = np.unique(keys, return_inverse=True)
        clicked = np.bincount(line, weights=clicks.clicks)
        impressions = np.bincount(line, weights=shown).astype(np.float64)
    return Places(found // width, found % width, clicked.astype(np.float64), impressions, position_of, knows)


def places_by_day(clicks: Clicks, days: Int64) -> Places:
    """The same of a log of several days, with how popular documents were: by the clicks of the days before.

    Args:
        clicks: the log.
        days: of its ranked lists, in order, [lists].
    """
    knows = clicks.max_position <= DEEPEST and clicks.are_patterns
    parts, levels, before = [], [], np.zeros(clicks.lists.documents)
    for day in np.unique(days):
        found = places_of(clicks.take(days == day), knows=knows)
        parts.append(found)
        levels.append(np.round(LEVELS * percentiles(before)).astype(np.int64)[found.rows])
        before = before + np.bincount(found.rows, weights=found.clicks, minlength=len(before))
    if len(parts) < 2:
        return places_of(clicks, knows=knows)
    position_of = max((part.position_of for part in parts), key=len)
    rows, places, level = (
        np.concatenate(each) for each in ([p.rows for p in parts], [p.places for p in parts], levels)
    )
    width = len(position_of)
    keys, line = np.unique((rows * width + places) * (LEVELS + 1) + level, return_inverse=True)
    clicked, shown = (
        np.bincount(line, weights=np.concatenate(each)).astype(np.float64)
        for each in ([p.clicks for p in parts], [p.impressions for p in parts])
    )
    keys, level = np.divmod(keys, LEVELS + 1)
    return Places(keys // width, keys % width, clicked, shown, position_of, knows, level / LEVELS)


def last_click(clicks: Clicks) -> Int64:
    """The position of the last click above each entry of its ranked list, 0 where there is none, [entries]."""
    if not len(clicks.rows):
        return np.zeros(0, dtype=np.int64)
    owner = np.repeat(np.arange(len(clicks), dtype=np.int64), np.diff(clicks.offsets))
    span = clicks.max_position + 1
    marks = owner * span + np.where(clicks.clicks > 0, clicks.positions, 0)
    highest = np.concatenate([[0], np.maximum.accumulate(marks)[:-1]])
    return np.where(highest // span == owner, highest % span, 0).astype(np.int64)


def _triangle(depth: int) -> Int64:
    """The position of each place, from 0: one place for the first position, two for the second, ..."""
    return np.repeat(np.arange(depth), np.arange(1, depth + 1)).astype(np.int64)
