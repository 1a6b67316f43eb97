"""Tests on sums over queries: whatever goes together within a query, queries are taken to be independent."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np

from clickprism.data.logged import Logged
from clickprism.types import Clicks, Float64, Int64

FEWEST: int = 10  # queries with something to say, below which nothing is tested
NORMAL_95: float = 1.959963984540054


class Evidence(NamedTuple):
    """Of a vector of sums, whether all are 0 in the mean.

    Attributes:
        statistic: chi-square, by the spread over queries.
        freedom: its degrees of freedom.
        p_value: 1 where there is nothing to test.
        queries: with something to say.
    """

    statistic: float
    freedom: int
    p_value: float
    queries: int


class Ratio(NamedTuple):
    """One sum over another, with its interval (95%, by the spread over queries); nan where the sums are 0."""

    value: float
    lower: float
    upper: float


def by_query(query: Int64, values: Float64) -> Float64:
    """Sums over the entries of each query that has any: [entries] or [entries, k] in, [queries, k] out.

    >>> by_query(np.array([7, 3, 7]), np.array([1.0, 2.0, 4.0])).tolist()
    [[2.0], [5.0]]
    """
    _, place = np.unique(query, return_inverse=True)
    columns = values.reshape(len(query), -1)
    size = int(place.max(initial=-1)) + 1
    return np.stack([np.bincount(place, weights=column, minlength=size) for column in columns.T], axis=1)


def evidence(scores: Float64) -> Evidence:
    """Whether the sums of scores [queries, k] are 0, by the spread of the scores themselves.

    Under the null hypothesis every query's score is 0 in the mean, so its square estimates its variance.

    >>> found = evidence(np.array([[1.0], [-1.0]] * 50))
    >>> found.statistic, found.p_value, found.queries
    (0.0, 1.0, 100)
    """
    from scipy.stats import chi2

    speaks = (scores != 0).any(axis=1)
    queries = int(speaks.sum())
    spread = scores.T @ scores
    kept = np.diagonal(spread) > 0
    freedom = int(kept.sum())
    if queries < FEWEST or freedom == 0:
        return Evidence(0.0, freedom, 1.0, queries)
    total, inner = scores.sum(axis=0)[kept], spread[np.ix_(kept, kept)]
    scale = np.sqrt(np.diagonal(inner))
    unit = total / scale
    statistic = float(unit @ np.linalg.pinv(inner / np.outer(scale, scale), rcond=1e-9) @ unit)
    return Evidence(statistic, freedom, float(chi2.sf(statistic, freedom)), queries)


def ratio(above: Float64, below: Float64) -> Ratio:
    """The ratio of two sums over queries, each [queries], with an interval by the delta method on its logarithm.

    >>> ratio(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    Ratio(value=0.5, lower=0.5, upper=0.5)
    """
    one, other = float(above.sum()), float(below.sum())
    if one <= 0 or other <= 0:
        return Ratio(math.nan, math.nan, math.nan)
    error = float(np.sqrt(((above / one - below / other) ** 2).sum()))
    value = one / other
    return Ratio(value, value * math.exp(-NORMAL_95 * error), value * math.exp(NORMAL_95 * error))


def units(query: Int64, finer: Int64, weight: Float64, *, enough: float) -> Int64:
    """What is taken to be independent: queries, or where few of them hold nearly all, what is finer, [entries].

    A few queries can never show much spread, so that nothing could be told by them. They are few if there are fewer
    than `enough` in effect, (sum of weights)^2 / sum of squares.

    >>> units(np.array([0, 0, 1]), np.array([5, 6, 7]), np.ones(3), enough=10).tolist()
    [5, 6, 7]
    """
    total = by_query(query, weight)[:, 0]
    return query if total.sum() ** 2 >= enough * (total**2).sum() else finer


def numbered(*keys: Int64) -> Int64:
    """A number from 0 for each combination of keys [entries] that occurs, [entries].

    >>> numbered(np.array([5, 5, 2]), np.array([1, 1, 1])).tolist()
    [1, 1, 0]
    """
    number = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        values, place = np.unique(key, return_inverse=True)
        number = np.unique(number * len(values) + place, return_inverse=True)[1].astype(np.int64)
    return number


def of_entries(clicks: Clicks, of_lists: Int64) -> Int64:
    """What is told of ranked lists, told of their entries."""
    return np.repeat(of_lists, np.diff(clicks.offsets))


def queries_of(clicks: Clicks) -> Int64:
    """The query of each entry, [entries]."""
    queries: Int64 = clicks.lists.list_of[clicks.rows]
    return queries


def shown(logged: Logged) -> Logged:
    """The ranked lists that show anything at all."""
    filled = np.diff(logged.clicks.offsets) > 0
    return logged if filled.all() else logged.take(filled)


def one_thread() -> AbstractContextManager[object]:
    """Products of narrow matrices in one thread: several would wait for each other longer than they work."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits


def p_words(value: float) -> str:
    """A p value in words.

    >>> p_words(0.0312), p_words(1e-30)
    ('p = 0.031', 'p < 0.0001')
    """
    return f"p = {value:.2g}" if value >= 1e-4 else "p < 0.0001"
