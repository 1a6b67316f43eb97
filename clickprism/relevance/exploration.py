"""What randomised first results cost in clicks, and how much more certain they make the estimates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np

from clickprism._util.tables import Table
from clickprism.errors import SettingError, UnsupportedError
from clickprism.relevance.estimates import Estimates
from clickprism.relevance.estimators import normal_quantile
from clickprism.relevance.pairs import PAIR, FirstSlot, read_first_slot
from clickprism.types import Float64, Int64, check

if TYPE_CHECKING:
    import pyarrow as pa

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
@dataclass(frozen=True)
class Gain:
    """Certainty of the estimates with a multiple of the randomised first results of the log.

    Attributes:
        times: The multiple: 0 for none, 2 for twice as many.
        width: Mean width of the intervals of pairs with randomised first results.
        distinguished: Share of these pairs that are significantly worse than the best of their query.
    """

    times: float
    width: float
    distinguished: float


@final
@dataclass(frozen=True, kw_only=True)
class Exploration:
    """What randomised first results cost in clicks, and how much more certain they make the estimates.

    Attributes:
        cost: Clicks on randomised first results against the others of the same queries.
        share: Share of the searches that the following cost is for.
        lost_per_1000_searches: Clicks lost per 1,000 searches at this share, and the ends of the interval.
        gain: Certainty without, with, and with twice the randomised first results; empty without estimates.
    """

    cost: Cost
    share: float
    lost_per_1000_searches: tuple[float, float, float]
    gain: tuple[Gain, ...]

    def tables(self) -> list[Table]:
        """Return the cost, and the gain if there are estimates."""
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
        tables = [Table("", ["cost", ""], rows)]
        if self.gain:
            names = {0.0: "none", 1.0: "as in the log", 2.0: "twice as many"}
            rows = [[names[each.times], f"{each.width:.4f}", f"{each.distinguished:.1%}"] for each in self.gain]
            header = ["randomised first results", "mean width of intervals", "documents proven worse than the best"]
            tables.append(Table("", header, rows))
        return tables


def measure_exploration(
    store: LogStore, settings: ExplorationSettings | None = None, *, estimates: Path | None = None
) -> Exploration:
    """Measure what the randomised first results of a log cost, and with estimates of the same log what they gain.

    Args:
        store: The log, with sessions that are up to date.
        settings: Which share, and the confidence of the intervals.
        estimates: Parquet file that `clickprism relevance estimate` has written.
    """
    from clickprism.relevance.estimate_files import read_estimates

    settings = settings or ExplorationSettings()
    known = None if estimates is None else read_estimates(estimates)
    every, randomised = read_first_slot(store, randomised=False), read_first_slot(store)
    cost = exploration_cost(*by_query(every, randomised), confidence=settings.confidence)
    gain: tuple[Gain, ...] = ()
    if known is not None:
        pairs, queries, values = known
        gain = exploration_gain(values, queries, _explored(pairs, randomised), confidence=settings.confidence)
    share = cost.share if settings.share is None else settings.share
    return Exploration(cost=cost, share=share, lost_per_1000_searches=cost.per_thousand(share), gain=gain)


def exploration_gain(
    estimates: Estimates, queries: Int64, explored: Int64, *, confidence: float = 0.95
) -> tuple[Gain, ...]:
    """Return the certainty without, with, and with twice the randomised first results.

    An estimate m with the variance v is equivalent to m (1 - m) / v - 1 impressions at position 1, and each randomised
    first result is one of them. The estimates themselves stay the same.

    Args:
        estimates: Estimates of the pairs, of the same days.
        queries: Query of each pair as a number from 0, [pairs].
        explored: Randomised first results of each pair, [pairs].
        confidence: Confidence level of the intervals.

    >>> values, none = np.array([0.58, 0.42]), np.zeros(2)
    >>> known = Estimates(values, none, none + 1, np.full(2, 0.2436 / 101), none, np.zeros(2, np.bool_))
    >>> found = exploration_gain(known, np.zeros(2, np.int64), np.array([50, 50]))
    >>> [round(each.width, 3) for each in found], [each.distinguished for each in found]
    ([0.271, 0.193, 0.157], [0.0, 1.0, 1.0])
    """
    check(len(queries) == len(estimates) == len(explored), "estimates, queries, explored must have one value per pair")
    known = np.isfinite(estimates.values) & np.isfinite(estimates.variance)
    m = np.clip(np.where(known, estimates.values, 0.5), 1e-6, 1 - 1e-6)
    size = np.where(known, m * (1 - m) / np.maximum(np.where(known, estimates.variance, 1.0), 1e-12) - 1, 0.0)
    best, z = _best(m, queries), normal_quantile(confidence)
    counted, others = known & (explored > 0), best != np.arange(len(m))
    if not counted.any():
        raise UnsupportedError(
            "no pair of the estimates was a randomised first result", remedy="Use estimates of the same log"
        )
    gains = []
    for times in (0, 1, 2):
        variance = m * (1 - m) / (np.maximum(size + (times - 1) * explored, 0.0) + 1)
        worse = (m[best] - m > z * np.sqrt(variance + variance[best]))[counted & others]
        width = float(2 * z * np.sqrt(variance[counted]).mean())
        gains.append(Gain(float(times), width, float(worse.mean()) if len(worse) else float("nan")))
    return tuple(gains)


def by_query(every: FirstSlot, randomised: FirstSlot) -> tuple[Int64, Int64, Int64, Int64]:
    """Return the arguments of `exploration_cost` from all and from the randomised first results, each [queries]."""
    queries = np.unique(every.query_ids)

    def total(slot: FirstSlot, counts: Int64) -> Int64:
        query = np.searchsorted(queries, slot.query_ids)
        return np.bincount(query, weights=counts, minlength=len(queries)).astype(np.int64)

    explored, clicked = total(randomised, randomised.impressions), total(randomised, randomised.clicks)
    return total(every, every.impressions) - explored, total(every, every.clicks) - clicked, explored, clicked


def _explored(pairs: pa.Table, randomised: FirstSlot) -> Int64:
    """Return how often each of these pairs was a randomised first result, [pairs]."""
    import pyarrow as pa

    names, shown = list(PAIR), (randomised.query_ids, randomised.document_ids, randomised.impressions)
    numbered = pairs.select(names).append_column("row", [np.arange(pairs.num_rows)])
    found = numbered.join(pa.table(list(map(pa.array, shown)), names=[*names, "shown"]), names, join_type="inner")
    explored = np.zeros(pairs.num_rows, np.int64)
    explored[found["row"].to_numpy()] = found["shown"].to_numpy()
    return explored


def _best(values: Float64, queries: Int64) -> Int64:
    """Return, for each pair, the pair with the highest value of its query, [pairs]."""
    order = np.lexsort((-values, queries))
    first = np.flatnonzero(np.append(True, queries[order][1:] != queries[order][:-1]))
    size = np.diff(np.append(first, len(order)))
    best = np.empty(len(order), np.int64)
    best[order] = np.repeat(order[first], size)
    return best
