"""Randomised first results: what they cost in clicks, and the click parameters that they measure.

They measure c_1, so other positions can be compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final, final

import numpy as np

from clickprism._util.tables import Table
from clickprism.errors import UnsupportedError
from clickprism.log_model.results import NOT_LEVEL, ClickParameters
from clickprism.relevance.estimators import normal_quantile
from clickprism.relevance.pairs import RANDOMISE, PairCounts, count_pairs, find_pairs, ids_of, read_first_slot
from clickprism.settings import check_fields
from clickprism.types import Float64, Int64, check

if TYPE_CHECKING:
    from clickprism.log.engines.base import Engine
    from clickprism.log.store import LogStore

FEWEST: Final = 3  # pairs that a line through the clicks at a position needs
LEAST: Final = 0.01  # least slope and propensity
BY_QUERY: Final = """
select count(*) filter (not randomised), count(*) filter (not randomised and clicked),
    count(*) filter (randomised), count(*) filter (randomised and clicked)
from read_parquet($files, hive_partitioning = false) where filter is null and position = 1 group by query_id
"""


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
        check_fields(self, share=(0, 1), confidence=(0.5, 0.999))


@final
@dataclass(frozen=True)
class Exploration:
    """What randomised first results cost in clicks, compared with other first results of the same queries."""

    searches: int  # Number of searches
    randomised: float  # Share of them with a randomised first result
    click_rate: float  # Click rate of the other first results, weighted as the randomised ones
    randomised_click_rate: float  # Click rate of randomised first results
    # Clicks lost per 1,000 searches with a randomised first result, and the ends of the interval; below 0,
    # randomisation may have gained clicks
    lost_per_1000_randomised: tuple[float, float, float]
    share: float  # Share of the searches that the following cost is for
    # Clicks lost per 1,000 searches at this share, and the ends of the interval
    lost_per_1000_searches: tuple[float, float, float]

    def tables(self) -> list[Table]:
        """Return the cost."""
        lost, low, high = self.lost_per_1000_searches
        rows = [
            ["searches", f"{self.searches:,}"],
            ["with a randomised first result", f"{self.randomised:.1%}"],
            ["click rate of randomised first results", f"{self.randomised_click_rate:.3f}"],
            ["click rate of first results in other searches of the same queries", f"{self.click_rate:.3f}"],
            [
                f"clicks lost per 1,000 searches if {self.share:.1%} are randomised",
                f"{lost:.2f} ({low:.2f} to {high:.2f})",
            ],
        ]
        return [Table("", ["cost", ""], rows)]


def exploration_cost(
    shown: Int64,
    clicked: Int64,
    explored: Int64,
    explored_clicked: Int64,
    *,
    settings: ExplorationSettings | None = None,
) -> Exploration:
    """Return the cost of randomised first results, compared query by query.

    lost = sum of n_e (c / n - c_e / n_e) / sum of n_e over queries that have both. Its variance is that of the binomial
    numbers c and c_e, with the rates (c + .5) / (n + 1).

    Args:
        shown: First results of each query that were not randomised, [queries].
        clicked: Clicks on them.
        explored: Randomised first results of each query, [queries].
        explored_clicked: Clicks on them.
        settings: Share of the searches, and confidence.

    >>> found = exploration_cost(np.array([90]), np.array([45]), np.array([10]), np.array([3]))
    >>> round(found.lost_per_1000_randomised[0], 6), found.randomised, found.randomised_click_rate
    (200.0, 0.1, 0.3)
    """
    settings = settings or ExplorationSettings()
    both = (shown > 0) & (explored > 0)
    if not both.any():
        raise UnsupportedError("no query has both randomised first results and others", remedy=RANDOMISE)
    n, c, n_e, c_e = (each[both].astype(np.float64) for each in (shown, clicked, explored, explored_clicked))
    total, instead = n_e.sum(), n_e * c / n
    rate, rate_e = (c + 0.5) / (n + 1), (c_e + 0.5) / (n_e + 1)
    deviation = np.sqrt((n_e**2 * rate * (1 - rate) / n + n_e * rate_e * (1 - rate_e)).sum()) / total
    mean, reach = (instead - c_e).sum() / total, normal_quantile(settings.confidence) * deviation
    lost, low, high = (1000 * float(each) for each in (mean, mean - reach, mean + reach))
    searches, click_rates = int(shown.sum() + explored.sum()), (float(instead.sum() / total), float(c_e.sum() / total))
    randomised = float(explored.sum() / searches)
    share = randomised if settings.share is None else settings.share
    at_share = lost * share, low * share, high * share
    return Exploration(searches, randomised, *click_rates, (lost, low, high), share, at_share)


def measure_exploration(store: LogStore, settings: ExplorationSettings | None = None) -> Exploration:
    """Measure what the randomised first results of a log cost; its sessions must be up to date."""
    import duckdb

    with duckdb.connect() as connection:
        found = connection.sql(BY_QUERY, params={"files": store.table("sessions").files()}).fetchall()
    counts = np.array(found, dtype=np.int64).reshape(-1, 4).T
    if not counts[2].any():
        raise UnsupportedError("has no randomised first result", file=store.folder, remedy=RANDOMISE)
    return exploration_cost(*counts, settings=settings)


def slot_parameters(counts: PairCounts, clicks: Int64, impressions: Int64) -> ClickParameters:
    """Estimate alpha_k, beta_k and the propensities by randomised first results (Zou et al. 2022, §3 and §7.3).

        P(click at k) = alpha_k c_1 + beta_k,    theta_k / theta_1 = [sum of clicks at k] / [sum of n_k c_1]

    c_1 of a pair is known from few impressions, and a line through a variable with errors is too flat. So c_1 is
    replaced by its posterior mean m given the first-slot clicks, with a Beta prior of the pairs shown at k: the mean of
    clicks at k given m is the same line. It is consistent if the engine has not chosen positions by those clicks.

    Args:
        counts: Impressions and clicks of each pair as the engine ranked it, [pairs, positions].
        clicks: Clicks on the pair as a randomised first result, [pairs].
        impressions: Impressions of the pair as a randomised first result, [pairs].

    >>> slot, shown = np.array([200, 500, 800]), np.full(3, 10**6)
    >>> counts = PairCounts(np.stack([shown, shown], 1), np.stack([slot * 1000, slot * 500 + 100_000], 1))
    >>> found = slot_parameters(counts, slot * 1000, shown)
    >>> found.alpha.round(3).tolist(), found.beta.round(3).tolist()
    ([1.0, 0.5], [0.0, 0.1])
    """
    check(clicks.shape == impressions.shape == (len(counts),), "each pair must have its first-slot clicks")
    alpha, beta, theta = np.ones(counts.positions), np.zeros(counts.positions), np.ones(counts.positions)
    errors = np.zeros((2, counts.positions))
    for k in range(1, counts.positions):
        rows = np.flatnonzero((counts.impressions[:, k] > 0) & (impressions > 0))
        if len(rows) < FEWEST:
            raise UnsupportedError(
                f"only {len(rows)} pairs were shown both at position {k + 1} and as a randomised first result",
                remedy="Randomise the first result of more searches, or lower --depth",
            )
        shown = counts.impressions[rows, k].astype(np.float64)
        first = _posterior_means(clicks[rows], impressions[rows], shown)
        theta[k] = np.clip(counts.clicked[rows, k].sum() / (shown @ first), LEAST, 1.0)
        alpha[k], beta[k], errors[:, k] = _line(first, counts.clicked[rows, k] / shown, shown)
    alpha, half = np.maximum(alpha, LEAST), normal_quantile(0.95) * errors
    return ClickParameters(
        alpha,
        beta,
        theta,
        alpha_lower=alpha - half[0],
        alpha_upper=alpha + half[0],
        beta_lower=beta - half[1],
        beta_upper=beta + half[1],
        source="randomised first results",
        notes=(NOT_LEVEL,),
    )


def first_intercept(parameters: ClickParameters) -> float:
    """Return beta_1, the click probability of an irrelevant first result, if lower positions are not trusted.

    Clicks alone do not identify it. Without trust in the lower half of the positions, the intercept of gamma is 0
    there: beta_k + alpha_k beta_1 = 0 on average.

    >>> first_intercept(ClickParameters(np.array([1.0, 0.8, 0.4, 0.2]), np.array([0.0, -0.1, -0.12, -0.06])))
    0.3
    """
    lower = slice(len(parameters) // 2, None)
    found = -parameters.beta[lower].sum() / parameters.alpha[lower].sum()
    return round(float(np.clip(found, 0.0, 0.9)), 9)


def log_slot_parameters(
    store: LogStore, engine: Engine, *, days: Sequence[date] | None = None, depth: int | None = None
) -> ClickParameters:
    """Estimate the click parameters of a log, whose sessions must be up to date, by its randomised first results.

    `depth` is the last position; by default the last one to which every position shares enough pairs with first slots.
    """
    from clickprism.log.features.partials import counting
    from clickprism.log.schema import SESSIONS

    rows = counting(engine.read(store.table("sessions").files(days), SESSIONS))
    slot = read_first_slot(store, days=days)
    others = rows.filter(~(rows.randomised & (rows.position == 1)))
    deepest = depth or int(engine.collect(rows.aggregate(deepest=rows.position.max()))["deepest"][0].as_py())
    pairs, counts = count_pairs(others, engine, depth=deepest)
    found = find_pairs((slot.query_ids, slot.document_ids), ids_of(pairs))
    first_slots = np.where(found >= 0, np.stack([slot.clicks, slot.impressions])[:, found], 0)
    linked = ((counts.impressions > 0) & (first_slots[1] > 0)[:, None]).sum(axis=0) >= FEWEST
    linked[0] = True
    last = depth or (len(linked) if linked.all() else int(np.argmin(linked)))
    inside = PairCounts(counts.impressions[:, :last], counts.clicked[:, :last])
    return slot_parameters(inside, *first_slots)


def _posterior_means(clicks: Int64, impressions: Int64, weights: Float64) -> Float64:
    """Return E[c_1 | first-slot clicks] of each pair, with a Beta prior fitted by weighted moments, [pairs]."""
    rate, share = clicks / impressions, weights / weights.sum()
    mean = float(np.clip(share @ rate, 1e-6, 1 - 1e-6))
    noise = float(share @ (mean * (1 - mean) / impressions))
    total = float(share @ (rate - mean) ** 2)
    spread = max(total - noise, 1e-3 * mean * (1 - mean))
    size = max(mean * (1 - mean) / spread - 1, 0.0)
    return np.asarray((clicks + size * mean) / (impressions + size), dtype=np.float64)


def _line(x: Float64, y: Float64, weights: Float64) -> tuple[float, float, Float64]:
    """Return slope, intercept and their robust standard errors by weighted least squares."""
    design = np.stack([x, np.ones_like(x)], axis=1)
    inverse = np.linalg.pinv(design.T @ (design * weights[:, None]))
    slope, start = inverse @ (design.T @ (weights * y))
    scores = design * (weights * (y - slope * x - start))[:, None]
    errors = np.sqrt(np.diag(inverse @ (scores.T @ scores) @ inverse))
    return float(slope), float(start), np.asarray(errors, dtype=np.float64)
