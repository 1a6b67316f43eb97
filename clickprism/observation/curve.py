"""A position curve: how much of what stands at each position is seen, relative to the first."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from clickprism.errors import DataError
from clickprism.types import Clicks, Float64, Int64


@dataclass(frozen=True, eq=False)
class Support:
    """What an estimate rests on.

    Attributes:
        documents: how many speak; a document belongs to one query.
        impressions: of those documents at each position, [positions].
        clicks: on them, [positions].
        note: what else the check of the log found, such as its weakest link.
    """

    documents: int
    impressions: Float64
    clicks: Float64
    note: str = ""


@dataclass(frozen=True, eq=False)
class Curve:
    """An estimate of the observation at each position, relative to position 1.

    Attributes:
        name: of the estimator.
        values: position 1 first, where it is 1, [positions].
        lower: of the intervals, [positions]; nan without a bootstrap.
        upper: of the intervals, [positions].
        support: what the estimate rests on.
        unit: what the bootstrap drew: queries, ranked lists or sessions; "" if it drew nothing.
        error: mean relative error against the truth, if a simulation recorded it.
    """

    name: str
    values: Float64
    lower: Float64
    upper: Float64
    support: Support = field(repr=False)
    unit: str = ""
    error: float | None = None

    def __len__(self) -> int:
        return len(self.values)


def sums(group: Int64, values: Float64, size: int) -> Float64:
    """Values added up by group, [size]."""
    return np.bincount(group, weights=values, minlength=size).astype(np.float64, copy=False)


def relative_error(curve: Float64, truth: Float64) -> float:
    """The mean of |estimate / truth - 1| over the positions after the first, both relative to their first.

    Positions that were never seen, or that the estimate does not know, are left out; nan if none is left.

    >>> relative_error(np.array([1, 0.55, 0.2]), np.array([0.8, 0.4, 0.2]))
    0.15
    """
    depth = min(len(curve), len(truth))
    kept = np.flatnonzero((truth[:depth] > 0) & np.isfinite(curve[:depth]))[1:]
    if len(kept) == 0 or truth[0] == 0:
        return float("nan")
    ratio = (curve[kept] / curve[0]) / (truth[kept] / truth[0])
    return round(float(np.abs(ratio - 1).mean()), 12)


def cut(clicks: Clicks, depth: int) -> Clicks:
    """The top of every ranked list: positions 1 to `depth`."""
    kept = clicks.positions <= depth
    owner = np.repeat(np.arange(len(clicks)), np.diff(clicks.offsets))[kept]
    lengths = np.bincount(owner, minlength=len(clicks))
    shown = lengths > 0
    if not shown.any():
        raise DataError(f"nothing was shown at positions 1 to {depth}")
    return Clicks(
        clicks.lists,
        np.concatenate([[0], np.cumsum(lengths[shown])]).astype(np.int64),
        clicks.rows[kept],
        clicks.positions[kept],
        clicks.clicks[kept],
        clicks.impressions[shown],
    )
