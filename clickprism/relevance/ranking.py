"""Rank the documents of each query by estimate, by lower end of the interval, or by random draws that explore."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, final

import numpy as np

from clickprism._util.tables import Table
from clickprism.relevance.estimates import Estimates, read_estimates
from clickprism.relevance.pair_files import check_suffix, write_rows
from clickprism.settings import check_fields
from clickprism.types import Float64, Int64, Text, check

Rule = Literal["value", "lower", "thompson"]
LEAST: Final = 0.5  # least parameter of a Beta distribution: Jeffreys' prior, if nothing is known


@final
@dataclass(frozen=True, kw_only=True)
class RankSettings:
    """What documents are ranked by.

    Attributes:
        by: The estimate (value); the lower end of its interval (lower), so that documents without much evidence come
            later; or a random draw from its distribution (thompson), to try documents at one position of the page
            (Thompson 1933).
        top: Number of documents to keep for each query, best first; by default all.
        seed: Random seed of the draws.
    """

    by: Rule = "value"
    top: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, by=Rule, top=(1, None), seed=(0, None))


@final
@dataclass(frozen=True)
class Ranking:
    """Number of queries and of ranked documents in a file, and what they are ranked by."""

    queries: int
    documents: int
    by: Rule
    file: Path

    def tables(self) -> list[Table]:
        """Return the counts."""
        rows = [["queries", f"{self.queries:,}"], ["documents", f"{self.documents:,}"]]
        return [Table("", [f"ranked by {self.by}", ""], rows)]


def rank_file(estimates: Path, out: Path, settings: RankSettings | None = None) -> Ranking:
    """Rank the documents of each query of a file of estimates; the suffix of the file to write decides its format."""
    settings = settings or RankSettings()
    check_suffix(out)
    ids, queries, known = read_estimates(estimates)
    order, ranks = rank(known, queries, settings=settings)
    kept = np.arange(len(order)) if settings.top is None else np.flatnonzero(ranks <= settings.top)
    order = order[kept]
    columns = {
        "query_id": ids["query_id"].take(order),
        "rank": ranks[kept],
        "document_id": ids["document_id"].take(order),
        "score": scores(known, settings=settings)[order],
        "estimate": known.values[order],
        "lower": known.lower[order],
        "upper": known.upper[order],
    }
    write_rows(out, columns)
    return Ranking(int(queries[-1]) + 1 if len(queries) else 0, len(order), settings.by, out)


def scores(estimates: Estimates, *, settings: RankSettings | None = None) -> Float64:
    """Return the score that ranks each pair, highest first, [pairs].

    A pair without an estimate has -inf. A draw is from a Beta distribution with the middle of the interval as its mean
    and the variance of the estimate; without an estimate it is from Jeffreys' prior.

    >>> found = Estimates(np.array([0.5, 0.4]), np.array([0.1, 0.3]), np.array([0.9, 0.5]), np.array([0.04, 0.01]),
    ...     np.array([6.0, 24.0]), np.zeros(2, np.bool_))
    >>> scores(found).tolist(), scores(found, settings=RankSettings(by="lower")).tolist()
    ([0.5, 0.4], [0.1, 0.3])
    """
    settings = RankSettings() if settings is None else settings
    known = ~np.isnan(estimates.values)
    if settings.by != "thompson":
        ranked_by = estimates.values if settings.by == "value" else estimates.lower
        return np.where(known, ranked_by, -np.inf)
    middle = np.clip((estimates.lower + estimates.upper) / 2, 1e-6, 1 - 1e-6)
    variance = np.where(np.isfinite(estimates.variance), estimates.variance, 1.0)
    size = middle * (1 - middle) / np.maximum(variance, 1e-12) - 1
    first, second = np.maximum(size * middle, LEAST), np.maximum(size * (1 - middle), LEAST)
    return np.random.default_rng(settings.seed).beta(first, second)


def rank(estimates: Estimates, queries: Text | Int64, *, settings: RankSettings | None = None) -> tuple[Int64, Int64]:
    """Return the pairs query by query, best first, and the rank of each from 1; ties keep the order of the pairs.

    >>> found = Estimates(np.array([0.1, 0.7, 0.3]), *(np.zeros(3) for _ in range(4)), np.zeros(3, np.bool_))
    >>> order, ranks = rank(found, np.array(["b", "a", "b"]))
    >>> order.tolist(), ranks.tolist()
    ([1, 2, 0], [1, 1, 2])
    """
    check(len(queries) == len(estimates), f"{len(estimates)} estimates but {len(queries)} queries")
    _, query = np.unique(queries, return_inverse=True)
    order = np.lexsort((-scores(estimates, settings=settings), query))
    size = np.bincount(query, minlength=1)
    ranks = 1 + np.arange(len(order)) - np.repeat(np.cumsum(size) - size, size)
    return order.astype(np.int64), ranks.astype(np.int64)
