"""A log by day: how often each document was shown at each place, and clicked there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.diagnosis.clusters import numbered, of_entries
from clickprism.errors import DataError
from clickprism.types import Clicks, Float64, Int64


@final
@dataclass(frozen=True, eq=False)
class Daily:
    """Documents at their places, by day.

    Attributes:
        row: the document of each cell, [cells].
        position: from 1, [cells].
        query: of the document, [cells].
        shown: impressions, [cells, days].
        clicks: on it, [cells, days].
    """

    row: Int64
    position: Int64
    query: Int64
    shown: Float64
    clicks: Float64


def days_of(logged: Logged) -> Int64:
    """The day of each ranked list, numbered from 0 without gaps."""
    if logged.days is None:
        raise DataError("the log does not tell the days", remedy="Log the time of each search")
    return np.unique(logged.days, return_inverse=True)[1].astype(np.int64)


def daily(logged: Logged, *, prefix: bool) -> Daily:
    """Count a log by day; with `prefix`, a place is a position below the same documents in the same order."""
    clicks, day = logged.clicks, of_entries(logged.clicks, days_of(logged))
    keys = [clicks.rows * (clicks.max_position + 1) + clicks.positions, *([above(clicks)] if prefix else [])]
    cell, days = numbered(*keys), int(day.max(initial=-1)) + 1
    size = int(cell.max(initial=-1)) + 1
    found = [np.empty(size, dtype=np.int64) for _ in range(2)]
    found[0][cell], found[1][cell] = clicks.rows, clicks.positions
    counted = [
        np.bincount(cell * days + day, weights=weights, minlength=size * days).astype(np.float64).reshape(size, days)
        for weights in (clicks.list_impressions, clicks.clicks)
    ]
    return Daily(found[0], found[1], clicks.lists.list_of[found[0]], counted[0], counted[1])


def above(clicks: Clicks) -> Int64:
    """A number for what stands above each entry, in this order: the same documents, the same number, [entries].

    A hash of 64 bits, so that two different tops of a page hardly ever share it.
    """
    rng = np.random.default_rng(20_090_206)
    code = rng.integers(0, 2**63, size=clicks.lists.documents, dtype=np.uint64)
    value = code[clicks.rows] * (2 * clicks.positions.astype(np.uint64) + np.uint64(1))
    total = np.concatenate([[np.uint64(0)], np.cumsum(value, dtype=np.uint64)])
    start = np.repeat(total[clicks.offsets[:-1]], np.diff(clicks.offsets))
    result: Int64 = (total[:-1] - start).view(np.int64)
    return result


def heights(logged: Logged) -> tuple[Float64, Float64]:
    """How high each document stood on each day, and how often each query was asked.

    Height is log2((depth + 1) / position), 0 where it was not shown, in the mean over the searches of its query.

    Returns:
        heights [documents, days] and searches [queries, days].
    """
    clicks, of_list = logged.clicks, days_of(logged)
    days, lists = int(of_list.max(initial=-1)) + 1, clicks.lists
    query = lists.list_of[clicks.rows[clicks.offsets[:-1]]]
    asked = np.bincount(query * days + of_list, weights=clicks.impressions, minlength=len(lists) * days)
    searches = asked.astype(np.float64).reshape(len(lists), days)
    height = clicks.list_impressions * np.log2((clicks.max_position + 1) / clicks.positions)
    key = clicks.rows * days + of_entries(clicks, of_list)
    total = np.bincount(key, weights=height, minlength=lists.documents * days).reshape(lists.documents, days)
    return total / np.maximum(searches[lists.list_of], 1.0), searches


def demeaned(group: Int64, weight: Float64, values: Float64) -> Float64:
    """Values less the weighted mean of their group, [cells].

    >>> demeaned(np.array([0, 0, 1]), np.array([1.0, 3.0, 1.0]), np.array([4.0, 0.0, 7.0])).tolist()
    [3.0, -1.0, 0.0]
    """
    total, mass = np.bincount(group, weights=weight * values), np.bincount(group, weights=weight)
    mean = np.divide(total, mass, out=np.zeros_like(total), where=mass > 0)
    return np.asarray(values - mean[group], dtype=np.float64)
