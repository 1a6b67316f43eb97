"""What randomised first slots cost in clicks, and what they buy in certainty, by a log and its estimates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from scipy.stats import norm

from clickprism._util.tables import Table
from clickprism.errors import DataError, SettingError, UnsupportedError
from clickprism.relevance.estimates import Estimates
from clickprism.types import Float64, Int64, check

if TYPE_CHECKING:
    import pyarrow as pa

    from clickprism.log.store import LogStore

PAIR: Final = ["query_id", "document_id"]


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
    """Clicks in first slots that were filled at random, against the others of the same queries.

    Attributes:
        searches: with a first slot that counts.
        share: of them, that were explored.
        rate: the click rate that explored first slots would have had as the ranker fills them.
        explored_rate: the one that they had.
        lost: clicks lost for 1,000 explored searches.
        low: lower end of its interval; below 0 exploration may have gained clicks.
        high: upper end.
    """

    searches: int
    share: float
    rate: float
    explored_rate: float
    lost: float
    low: float
    high: float

    def per_thousand(self, share: float) -> tuple[float, float, float]:
        """Clicks lost in 1,000 searches of which this share is explored, with the ends of the interval.

        >>> Cost(1000, 0.05, 0.5, 0.4, 100.0, 80.0, 120.0).per_thousand(0.02)
        (2.0, 1.6, 2.4)
        """
        return self.lost * share, self.low * share, self.high * share


def exploration_cost(
    shown: Int64, clicked: Int64, explored: Int64, explored_clicked: Int64, *, confidence: float = 0.95
) -> Cost:
    """The cost, query by query: explored slots against what the ranker's own slots of the same query would have had.

    lost = sum of n_e (c / n - c_e / n_e) / sum of n_e over queries that have both, with the variance of the binomial
    numbers c and c_e, whose rates are taken as (c + .5) / (n + 1).

    Args:
        shown: first slots of each query as the ranker filled them, [queries].
        clicked: of them.
        explored: first slots of each query that were filled at random, [queries].
        explored_clicked: of them.
        confidence: of the interval.

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
    lost, z = float((instead - c_e).sum() / total), float(norm.ppf((1 + confidence) / 2))
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
class Bought:
    """What is known with so many times the explored first slots that there were: 0 for none, 2 for twice as many.

    Attributes:
        times: so many.
        width: of the intervals of pairs that were explored, on average.
        distinguished: the share of explored pairs that are significantly worse than the best of their query.
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
    gain: tuple[Bought, ...]

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
    from clickprism.relevance.table import read_estimates

    settings = settings or ExplorationSettings()
    known, slots = None if estimates is None else read_estimates(estimates), read_first_slots(store)
    gain: tuple[Bought, ...] = ()
    cost = exploration_cost(*by_query(slots), confidence=settings.confidence)
    if known is not None:
        pairs, queries, made = known
        found = exploration_gain(made, queries, explored_of(slots, pairs), confidence=settings.confidence)
        gain = tuple(found)
    share = cost.share if settings.share is None else settings.share
    return Exploration(cost=cost, share=share, lost_per_1000_searches=cost.per_thousand(share), gain=gain)


def exploration_gain(
    estimates: Estimates,
    queries: Int64,
    explored: Int64,
    *,
    times: Iterable[float] = (0, 1, 2),
    confidence: float = 0.95,
) -> list[Bought]:
    """What explored first slots have bought, and what more of them would: each is an impression more of its pair.

    An estimate with the variance v is worth m (1 - m) / v - 1 impressions in the first slot; without the explored ones
    it is worth so many less. The estimates stay where they are: it is their certainty that is compared.

    Args:
        estimates: of the pairs, of the same days.
        queries: the query of each, as a number from 0, [pairs].
        explored: explored first slots of each, [pairs].
        times: which to compare.
        confidence: of the intervals.

    >>> values, none = np.array([0.58, 0.42]), np.zeros(2)
    >>> made = Estimates(values, none, none + 1, np.full(2, 0.2436 / 101), none, np.zeros(2, np.bool_))
    >>> found = exploration_gain(made, np.zeros(2, np.int64), np.array([50, 50]))
    >>> [round(each.width, 3) for each in found], [each.distinguished for each in found]
    ([0.271, 0.193, 0.157], [0.0, 1.0, 1.0])
    """
    check(len(queries) == len(estimates) == len(explored), "estimates, queries and explored must be one a pair")
    known = np.isfinite(estimates.values) & np.isfinite(estimates.variance)
    m = np.clip(np.where(known, estimates.values, 0.5), 1e-6, 1 - 1e-6)
    worth = np.where(known, m * (1 - m) / np.maximum(np.where(known, estimates.variance, 1.0), 1e-12) - 1, 0.0)
    best, z = _best(m, queries), float(norm.ppf((1 + confidence) / 2))
    counted, others = known & (explored > 0), best != np.arange(len(m))
    if not counted.any():
        raise UnsupportedError(
            "no pair of the estimates was a randomised first result", remedy="Use estimates of the same log"
        )
    found = []
    for each in times:
        variance = m * (1 - m) / (np.maximum(worth + (each - 1) * explored, 0.0) + 1)
        apart = m[best] - m > z * np.sqrt(variance + variance[best])
        width = float(2 * z * np.sqrt(variance[counted]).mean())
        among = counted & others
        found.append(Bought(float(each), width, float(apart[among].mean()) if among.any() else float("nan")))
    return found


def read_first_slots(store: LogStore, days: Iterable[date] | None = None) -> pa.Table:
    """First slots of a log by pair: query_id, document_id, randomised, clicked, shown."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    keys, parts = [*PAIR, "randomised"], []
    for file in store.table("sessions").files(days):
        rows = pq.ParquetFile(file).read(columns=[*keys, "position", "clicked", "filter"])
        rows = rows.filter(pc.and_(pc.is_null(rows["filter"]), pc.equal(rows["position"], 1)))
        rows = rows.set_column(rows.column_names.index("clicked"), "clicked", rows["clicked"].cast(pa.int64()))
        parts.append(rows.group_by(keys).aggregate([("clicked", "sum"), ("clicked", "count")]))
    if not sum(part.num_rows for part in parts):
        raise DataError(
            "has no sessions", file=store.folder, remedy="Add events with: clickprism log ingest FILE --into LOG"
        )
    whole = pa.concat_tables(parts).group_by(keys).aggregate([("clicked_sum", "sum"), ("clicked_count", "sum")])
    return whole.rename_columns([*keys, "clicked", "shown"])


def by_query(slots: pa.Table) -> tuple[Int64, Int64, Int64, Int64]:
    """The arguments of `exploration_cost`: shown, clicked, explored, explored_clicked, each [queries]."""
    query = slots["query_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    chance, size = slots["randomised"].to_numpy().astype(np.bool_), int(query.max(initial=-1)) + 1

    def added(name: str, of: Any) -> Int64:
        return np.bincount(query[of], weights=slots[name].to_numpy()[of], minlength=size).astype(np.int64)

    return added("shown", ~chance), added("clicked", ~chance), added("shown", chance), added("clicked", chance)


def explored_of(slots: pa.Table, pairs: pa.Table) -> Int64:
    """How often each of these pairs was in an explored first slot, [pairs]."""
    chance = slots.filter(slots["randomised"]).select([*PAIR, "shown"])
    numbered = pairs.select(PAIR).append_column("row", [np.arange(pairs.num_rows)])
    found = numbered.join(chance, PAIR, join_type="inner")
    explored = np.zeros(pairs.num_rows, np.int64)
    explored[found["row"].to_numpy()] = found["shown"].to_numpy()
    return explored


def _best(values: Float64, queries: Int64) -> Int64:
    """The pair with the highest value of the query of each pair, [pairs]."""
    order = np.lexsort((-values, queries))
    first = np.flatnonzero(np.append(True, queries[order][1:] != queries[order][:-1]))
    size = np.diff(np.append(first, len(order)))
    best = np.empty(len(order), np.int64)
    best[order] = np.repeat(order[first], size)
    return best
