"""Sessions that are alike in all that a log tells of them, joined into one ranked list with counts."""

from __future__ import annotations

import numpy as np

from clickprism._util.grouping import same_lists
from clickprism.data.logged import Logged
from clickprism.types import Bool, Clicks, Int64, slices


def merge_logged(logged: Logged) -> Logged:
    """The same log with ranked lists joined that show and were clicked alike on one day, by one policy, in all columns.

    Entries that chance has filled are joined with such only. Sessions merged by list before cannot be parted, so such
    clicks come back as they are. The order is that of first appearance.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> shown, ones = np.array([0, 1, 0, 1, 0, 1]), np.ones(3, np.int64)
    >>> places, hits = np.array([1, 2, 1, 2, 1, 2], np.int32), np.array([0, 1, 0, 1, 0, 1])
    >>> made = Logged(Clicks(lists, np.array([0, 2, 4, 6]), shown, places, hits, ones), np.array([0, 0, 1]))
    >>> merge_logged(made).clicks.impressions.tolist(), merge_logged(made).clicks.clicks.tolist()
    ([2, 1], [0, 2, 0, 1])
    """
    clicks = logged.clicks
    if not len(clicks.rows) or not clicks.are_patterns or clicks.weights is not None or clicks.seen is not None:
        return logged
    group, first = same_lists(clicks.offsets, clicks.rows, clicks.positions, _pattern(logged))
    entries, offsets = slices(clicks.offsets, first)
    impressions = np.bincount(group, weights=clicks.impressions, minlength=len(first)).astype(np.int64)
    hits = np.where(clicks.clicks[entries] > 0, np.repeat(impressions, np.diff(offsets)), 0)
    return Logged(
        Clicks(clicks.lists, offsets, clicks.rows[entries], clicks.positions[entries], hits, impressions),
        None if logged.days is None else logged.days[first],
        None if logged.policy is None else logged.policy[first],
        logged.policies,
        None if logged.randomised is None else logged.randomised[entries],
        logged.feature_names,
        logged.account,
        {name: values[first] for name, values in logged.columns.items()},
    )


def _pattern(logged: Logged) -> Int64:
    """What else must agree in two entries: clicked or not, by chance or not; day, policy and columns of the list."""
    clicks = logged.clicks
    within = np.zeros(len(clicks), dtype=np.int64)
    columns = [np.unique(values, return_inverse=True)[1] for values in logged.columns.values()]
    for kinds in (logged.days, logged.policy, *columns):
        if kinds is not None:
            within = within * (int(kinds.max(initial=0)) + 1) + kinds
    chance: Bool | int = 0 if logged.randomised is None else logged.randomised
    made: Int64 = 4 * np.repeat(within, np.diff(clicks.offsets)) + 2 * chance + (clicks.clicks > 0)
    return made
