"""Criteria that need no labels: which observation model the log believes, and which ranker serves its clicks best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from clickprism.choice.targets import Exposure, targets
from clickprism.types import Float64, Int64, Lists

DEPTH: Final = 10
LEAST: Final = 1e-4  # relevance of a document, where clicks without relevance are told from others
SURE: Final = 2.0  # standard errors of likelihood above no bias at all before clicks are corrected


@final
@dataclass(frozen=True)
class Gain:
    """A sum over queries, or a mean, and its standard error."""

    value: float
    error: float

    @classmethod
    def total(cls, values: Float64) -> Gain:
        """The sum of independent values.

        >>> Gain.total(np.array([1.0, 3.0]))
        Gain(value=4.0, error=1.4142135623730951)
        """
        return cls(float(values.sum()), float(values.std() * np.sqrt(max(len(values), 1))))

    @classmethod
    def mean(cls, values: Float64) -> Gain:
        """Their mean."""
        count = max(len(values), 1)
        return cls(float(values.sum() / count), float(values.std() / np.sqrt(count)) if len(values) else 0.0)

    @property
    def sure(self) -> bool:
        """Whether it is above 0 by more than chance."""
        return self.value > SURE * self.error


def moved_likelihood(exposure: Exposure, lists: Lists) -> Float64:
    """The log-likelihood of where the clicks of documents that moved fell, by query, [lists]: relevance cancels.

    Of the clicks on a document the share that falls to position k is n_k o_k / sum over i of n_i o_i, or, with clicks
    that come without relevance, that of n_k o_k r + background_k at the estimated r.

    >>> lists = Lists(np.zeros((1, 1), np.float32), np.array([0, 1]), np.array(["q"]))
    >>> counts = np.array([0, 0]), np.array([0, 1]), np.array([2.0, 1.0]), np.array([9.0, 9.0])
    >>> even, right = (Exposure(*counts, seen=np.array(seen), background=np.zeros(2)) for seen in ([9, 9.0], [9, 4.5]))
    >>> (moved_likelihood(right, lists) - moved_likelihood(even, lists)).round(3).tolist()
    [0.17]
    """
    depth = int(exposure.positions.max(initial=0)) + 1
    keys, line = np.unique(exposure.rows * depth + exposure.positions, return_inverse=True)
    rows, columns = keys // depth, (exposure.clicks, exposure.seen, exposure.background)
    clicks, seen, background = (np.bincount(line, weights=each, minlength=len(keys)) for each in columns)
    relevance = np.maximum(np.nan_to_num(targets(exposure, lists.documents, shrinkage=0)), LEAST)
    expected = np.maximum(seen * relevance[rows] + background, 1e-12)
    total = np.bincount(rows, weights=expected, minlength=lists.documents)[rows]
    several = np.bincount(rows, minlength=lists.documents)[rows] > 1
    values = np.where(several, clicks * np.log(expected / total), 0.0)
    return np.bincount(lists.list_of[rows], weights=values, minlength=len(lists)).astype(np.float64)


def estimated_ndcg(lists: Lists, scores: Float64, target: Float64, *, depth: int = DEPTH) -> Float64:
    """NDCG of each query by estimated clicks in the first place, [lists]; NaN where there is nothing to rank.

    Args:
        lists: the documents.
        scores: NaN where a query takes no part, [documents].
        target: what a document gains, NaN where it was never shown, [documents].
        depth: how many count.

    >>> lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> estimated_ndcg(lists, np.array([1.0, 2.0]), np.array([1.0, 0.0])).round(3).tolist()
    [0.631]
    """
    kept = np.flatnonzero(~np.isnan(target) & ~np.isnan(scores))
    queries, gains = lists.list_of[kept], target[kept]
    reached, ideal = (_dcg(queries, gains, order, len(lists), depth) for order in (scores[kept], gains))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(ideal > 0, reached / ideal, np.nan)


def _dcg(queries: Int64, gains: Float64, by: Float64, lists: int, depth: int) -> Float64:
    order = np.lexsort((-by, queries))
    sizes = np.bincount(queries, minlength=lists)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    ranks = np.arange(len(order)) - np.repeat(starts, sizes) + 1
    discount = np.where(ranks <= depth, 1 / np.log2(ranks + 1), 0.0)
    return np.bincount(queries[order], weights=gains[order] * discount, minlength=lists).astype(np.float64)
