"""The fields of the click vector x: what they are called, in which order, and how they are made of sums.

Counts stand as counts, so that a network can take logarithms and make any ratio of them: `day.clicked` divided by
`day.impressions` is the click-through rate, `day.dwell` by `day.dwells` the mean dwell time, `day.clicked@3` by
`day.examination@3` the clicks for each examination at position 3, which an affine estimate needs. For each of the
windows day, week and month:

| field | what |
|---|---|
| `impressions` | times shown |
| `clicks` | clicks, a second one on the same impression too |
| `clicked` | impressions with a click |
| `examination` | the sum of the examination estimates (with a model only) |
| `dwell`, `dwells` | seconds in the document, and of how many impressions they are known |
| `display`, `displays` | seconds on the screen, and of how many impressions they are known |
| `skips` | impressions on a page that was skipped |
| `users` | distinct users |
| `last_click_age` | hours from the last click to the window's end; without a click: the length of the window |
| `dwell_hist_0` to `_7` | impressions by dwell time, by the edges in the settings |
| `display_hist_0` to `_7` | impressions by display time |
| `impressions@1` to `@10`, `@rest` | times shown at each position, and at all that are further down |
| `clicked@1` to `@10`, `@rest` | impressions with a click at each position |
| `examination@1` to `@10`, `@rest` | examination at each position (with a model only) |
"""

from __future__ import annotations

from typing import Final

from clickprism.log.schema import HISTOGRAMS
from clickprism.log.settings import EDGES

WINDOWS: Final = ("day", "week", "month")
POSITIONS: Final = 10
BINS: Final = tuple(f"{name}_{index}" for name in HISTOGRAMS for index in range(EDGES + 1))
PLACES: Final = (*(str(position) for position in range(1, POSITIONS + 1)), "rest")
SCALARS: Final = (
    "impressions",
    "clicks",
    "clicked",
    "examination",
    "dwell",
    "dwells",
    "display",
    "displays",
    "skips",
    "users",
    "last_click_age",
)
PLACED: Final = ("impressions", "clicked", "examination")


def window_fields(*, examination: bool) -> tuple[str, ...]:
    """The fields of one window, in order.

    >>> len(window_fields(examination=True)), len(window_fields(examination=False))
    (60, 48)
    """
    names = (*SCALARS, *BINS, *(f"{name}@{place}" for name in PLACED for place in PLACES))
    return tuple(name for name in names if examination or not name.startswith("examination"))


def click_fields(*, examination: bool) -> tuple[str, ...]:
    """The L fields of x, in order.

    >>> fields = click_fields(examination=True)
    >>> len(fields), fields[0], fields[61], fields[-1]
    (180, 'day.impressions', 'week.clicks', 'month.examination@rest')
    """
    return tuple(f"{window}.{name}" for window in WINDOWS for name in window_fields(examination=examination))


def no_clicks(hours: int, *, examination: bool) -> list[float]:
    """What a window of this length holds of a pair that was not shown in it.

    >>> no_clicks(24, examination=False)[:10]
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 24.0]
    """
    return [float(hours) if name == "last_click_age" else 0.0 for name in window_fields(examination=examination)]
