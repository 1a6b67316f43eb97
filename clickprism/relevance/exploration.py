"""What randomised first results cost in clicks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from clickprism._util.tables import Table
from clickprism.errors import SettingError, UnsupportedError
from clickprism.relevance.estimators import normal_quantile
from clickprism.relevance.pairs import FirstSlot, read_first_slot
from clickprism.types import Int64

if TYPE_CHECKING:
    from clickprism.log.store import LogStore


@final
@dataclass(frozen=True, kw_only=True)
class ExplorationSettings:
    """What to compute about randomised first results.

    Attributes:
        share: Share of the searches with a randomised first result to compute the cost for; by default that of the log.
        confidence: Confidence level of the intervals.
    """

    share: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.share is not None and not 0 <= self.share <= 1:
            raise SettingError("share", self.share, "be from 0 to 1")
        if not 0.5 <= self.confidence <= 0.999:
            raise SettingError("confidence", self.confidence, "be from 0.5 to 0.999")


@final
@dataclass(frozen=True)
class Cost:
    """Clicks on randomised first results, compared with other first results of the same queries.

    Attributes:
        searches: Number of searches.
        share: Share of them with a randomised first result.
        rate: Click rate of the other first results, weighted as the randomised ones.
        explored_rate: Click rate of randomised first results.
        lost: Clicks lost per 1,000 searches with a randomised first result.
        low: Lower end of its interval; below 0, randomisation may have gained clicks.
        high: Upper end of its interval.
    """

    searches: int
    share: float
    rate: float
    explored_rate: float
    lost: float
    low: float
    high: float

    def per_thousand(self, share: float) -> tuple[float, float, float]:
        """Return the clicks lost per 1,000 searches if this share is randomised, and the ends of the interval.

        >>> Cost(1000, 0.05, 0.5, 0.4, 100.0, 80.0, 120.0).per_thousand(0.02)
        (2.0, 1.6, 2.4)
        """
        return self.lost * share, self.low * share, self.high * share


def exploration_cost(
    shown: Int64, clicked: Int64, explored: Int64, explored_clicked: Int64, *, confidence: float = 0.95
) -> Cost:
    """Return the cost of randomised first results, compared query by query.

    lost = sum of n_e (c / n - c_e / n_e) / sum of n_e over queries that have both. Its variance is that of the binomial
    numbers c and c_e, with the rates (c + .5) / (n + 1).

    Args:
        shown: First results of each query that were not randomised, [queries].
        clicked: Clicks on them.
        explored: Randomised first results of each query, [queries].
        explored_clicked: Clicks on them.
        confidence: Confidence level of the interval.

    >>> found = exploration_cost(np.array([90]), np.array([45]), np.array([10]), np.array([3]))
    >>> round(found.lost, 6), found.share, found.explored_rate
    (200.0, 0.1, 0.3)
    """
    both = (shown > 0) & (explored > 0)
    if not both.any():
        raise UnsupportedError(
            "no query has both randomised first results and others",
            remedy="Randomise the first result of a share of the searches, and mark those rows as randomised",
        )
    n, c, n_e, c_e = (each[both].astype(np.float64) for each in (shown, clicked, explored, explored_clicked))
    total, instead = n_e.sum(), n_e * c / n
    rate, rate_e = (c + 0.5) / (n + 1), (c_e + 0.5) / (n_e + 1)
    deviation = np.sqrt((n_e**2 * rate * (1 - rate) / n + n_e * rate_e * (1 - rate_e)).sum()) / total
    lost, z = float((instead - c_e).sum() / total), normal_quantile(confidence)
    searches = int(shown.sum() + explored.sum())
    return Cost(
        searches,
        float(explored.sum() / searches),
        float(instead.sum() / total),
        float(c_e.sum() / total),
        *(1000 * value for value in (lost, lost - z * deviation, lost + z * deviation)),
    )


@final
@dataclass(frozen=True, kw_only=True)
class Exploration:
    """What randomised first results cost in clicks.

    Attributes:
        cost: Clicks on randomised first results against the others of the same queries.
        share: Share of the searches that the following cost is for.
        lost_per_1000_searches: Clicks lost per 1,000 searches at this share, and the ends of the interval.
    """

    cost: Cost
    share: float
    lost_per_1000_searches: tuple[float, float, float]

    def tables(self) -> list[Table]:
        """Return the cost."""
        cost, (lost, low, high) = self.cost, self.lost_per_1000_searches
        rows = [
            ["searches", f"{cost.searches:,}"],
            ["with a randomised first result", f"{cost.share:.1%}"],
            ["click rate of randomised first results", f"{cost.explored_rate:.3f}"],
            ["click rate of first results in other searches of the same queries", f"{cost.rate:.3f}"],
            [
                f"clicks lost per 1,000 searches if {self.share:.1%} are randomised",
                f"{lost:.2f} ({low:.2f} to {high:.2f})",
            ],
        ]
        return [Table("", ["cost", ""], rows)]


def measure_exploration(store: LogStore, settings: ExplorationSettings | None = None) -> Exploration:
    """Measure what the randomised first results of a log cost; its sessions must be up to date."""
    settings = settings or ExplorationSettings()
    every, randomised = read_first_slot(store, randomised=False), read_first_slot(store)
    cost = exploration_cost(*by_query(every, randomised), confidence=settings.confidence)
    share = cost.share if settings.share is None else settings.share
    return Exploration(cost=cost, share=share, lost_per_1000_searches=cost.per_thousand(share))


def by_query(every: FirstSlot, randomised: FirstSlot) -> tuple[Int64, Int64, Int64, Int64]:
    """Return the arguments of `exploration_cost` from all and from the randomised first results, each [queries]."""
    queries = np.unique(every.query_ids)

    def total(slot: FirstSlot, counts: Int64) -> Int64:
        query = np.searchsorted(queries, slot.query_ids)
        return np.bincount(query, weights=counts, minlength=len(queries)).astype(np.int64)

    explored, clicked = total(randomised, randomised.impressions), total(randomised, randomised.clicks)
    return total(every, every.impressions) - explored, total(every, every.clicks) - clicked, explored, clicked
