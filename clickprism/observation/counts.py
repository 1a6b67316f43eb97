"""A log as counts: all that estimators of position bias need of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from clickprism.errors import DataError
from clickprism.types import Clicks, Float64, Int64

BY_PATTERN: Final = 'Simulate with --simulation.merge pattern, or merge with clicks.merge(by="pattern")'


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each document was shown at each position, and clicked there.

    A document here is a row of `Clicks.lists`, so it belongs to one query: the same page for another query is another
    document. Rows and positions are sorted, by row first; each pair stands once.

    Attributes:
        rows: the document of each pair.
        positions: from 1.
        clicks: on the document at that position, [pairs].
        impressions: of the document at that position, [pairs].
    """

    rows: Int64
    positions: Int64
    clicks: Float64
    impressions: Float64

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def max_position(self) -> int:
        """The lowest place on the page that was shown."""
        return int(self.positions.max(initial=0))


def require_clicks(log: object) -> None:
    """Refuse anything but clicks, such as the whole of what `read_sessions` gives."""
    if not isinstance(log, Clicks):
        has = isinstance(getattr(log, "clicks", None), Clicks)
        remedy = ": pass its .clicks" if has else ""
        raise TypeError(f"clicks must be a clickprism.Clicks, not a {type(log).__name__}{remedy}")


def count(clicks: Clicks) -> Counts:
    """The counts of a log; sessions merged by list or not give the same.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((2, 0), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> log = Clicks(lists, np.array([0, 2, 4]), np.array([0, 1, 0, 1]), np.array([1, 2, 1, 2], np.int32),
    ...     np.array([3, 1, 2, 0]), np.array([5, 4]))
    >>> counts = count(log)
    >>> counts.positions.tolist(), counts.clicks.tolist(), counts.impressions.tolist()
    ([1, 2], [5.0, 1.0], [9.0, 9.0])
    """
    if clicks.weights is not None:
        remedy = "Estimate on the log as it was clicked, before it is corrected"
        raise DataError("clicks that carry weights are corrected already: their counts say nothing", remedy=remedy)
    depth = clicks.max_position + 1
    keys, pair = np.unique(clicks.rows * depth + clicks.positions, return_inverse=True)
    return Counts(
        rows=keys // depth,
        positions=keys % depth,
        clicks=np.bincount(pair, weights=clicks.clicks, minlength=len(keys)).astype(np.float64),
        impressions=np.bincount(pair, weights=clicks.list_impressions, minlength=len(keys)).astype(np.float64),
    )
