"""Criteria that need no labels: which observation model the log believes, and which ranker serves its clicks best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from clickprism.types import Float64, Int64, Lists

DEPTH: Final = 10
SURE: Final = 2.0  # standard errors of likelihood above no bias at all before clicks are corrected
CLOSE: Final = 1.0  # standard errors within which the simpler one is taken


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


def simplest(values: Mapping[str, Float64], *, close: float = CLOSE) -> tuple[str, str]:
    """The simplest that is not beaten by more than a standard error, and the best; `values` by query, simplest first.

    >>> noisy = np.array([0.0, 1.0, 0.0, 1.0])
    >>> simplest({"plain": noisy, "rich": noisy + [0.3, -0.1, 0.2, -0.2], "richer": noisy + 1})
    ('richer', 'richer')
    >>> simplest({"plain": noisy, "rich": noisy + [0.3, -0.1, 0.2, -0.2]})
    ('plain', 'rich')
    """
    best = max(values, key=lambda name: float(values[name].sum()))
    for name, each in values.items():
        lead = Gain.total(values[best] - each)
        if lead.value <= close * lead.error:
            return name, best
    return best, best


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
