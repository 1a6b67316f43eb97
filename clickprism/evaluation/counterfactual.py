"""What a new ranker would earn, from the log of others alone: value, interval, and a refusal where the log is silent.

The estimators for lists are those of McInerney et al. (2020) and Kiyohara et al. (2022), as in the Open Bandit Pipeline
too, for a ranker that gives one ranking a query, with propensities from the log itself (`counterfactual_support`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.errors import DataError
from clickprism.evaluation.counterfactual_checks import days_of, slope_of
from clickprism.evaluation.counterfactual_estimators import Checks, Fill, Parts, checks_of, position_based, weighted
from clickprism.evaluation.counterfactual_model import RewardModel, reward_model
from clickprism.evaluation.counterfactual_refusal import refusal
from clickprism.evaluation.counterfactual_result import ASSUMPTIONS, CounterfactualResult, Estimate, Range
from clickprism.evaluation.counterfactual_settings import NAMES, CounterfactualSettings, Name, worth_of
from clickprism.evaluation.counterfactual_support import Match, Placed, place
from clickprism.observation.counts import BY_PATTERN
from clickprism.types import Float64, Int64

FORMS: Final[dict[Name, tuple[Match, Fill]]] = {
    "ips": ("list", "nothing"),
    "snips": ("list", "mean"),
    "reward-interaction": ("top", "mean"),
    "cascade-dr": ("top", "model"),
    "item-position": ("item", "mean"),
    "item-position-dr": ("item", "model"),
}


def counterfactual(
    logged: Logged,
    scores: Float64,
    *,
    settings: CounterfactualSettings | None = None,
) -> CounterfactualResult:
    """What a ranker would have earned a search, had it made the lists of this log.

    Unbiased, given the assumption of each estimator, where users did not change over the log, lists were dealt to
    searches of a query without regard to the user, and the scores were not learned from the same clicks; a ranker that
    was, with few parameters for many clicks, is flattered little, one with a parameter for each document much.

    Args:
        logged: the log.
        scores: of its documents by the new ranker; higher ranks first, [documents].
        settings: what is counted, by which estimators, and when they are refused.

    >>> import clickprism as cp
    >>> data = cp.synthetic(cp.SyntheticSettings(train_queries=40, validation_queries=1, test_queries=1))
    >>> swapped = cp.SimulationSettings(merge="pattern", rankers=3)
    >>> log = cp.simulate(data.train, cp.PositionUser(), sessions=20_000, seed=0, settings=swapped)
    >>> settings = CounterfactualSettings(depth=3)
    >>> backwards = counterfactual(Logged(log.clicks), -data.train.grades.astype(float), settings=settings)
    >>> backwards.best is None, backwards.estimates["item-position"].refusal.split(". ")[1]
    (True, 'Show the new ranking itself in a share of searches, or shuffle the top of some')
    """
    settings = settings or CounterfactualSettings()
    depth = settings.depth
    if settings.unit == "search" and not logged.clicks.are_patterns:
        raise DataError("it is not known which clicks of the log fell together", remedy=BY_PATTERN)
    placed = place(logged.clicks, scores, depth=depth)
    if placed.clicks.clicks.sum() == 0:
        raise DataError(f"the log has no click at positions 1 to {depth}", remedy="Nothing can be valued by it")
    worth = worth_of(settings.measure, placed.depth)
    model = reward_model(placed.clicks, resamples=settings.resamples, seed=settings.seed)
    day = _days(logged, depth)
    slope = slope_of(placed, model, worth=worth, day=day, seed=settings.seed)
    checks = checks_of(placed, model, slope, None if day is None else days_of(placed, day))
    ranges = _Ranges(placed, worth, settings)
    chosen = [name for name in NAMES if name in settings.estimator]
    estimates: dict[str, Estimate] = {}
    for name in chosen:
        estimates[name] = _estimate(name, _parts(name, ranges, model, checks), ranges, model)
    return CounterfactualResult(
        ranges.logged(), estimates, settings.measure, placed.depth, placed.clicks.sessions, len(placed.queries)
    )


def _days(logged: Logged, depth: int) -> Int64 | None:
    """The day of each ranked list that shows something at these positions, from 0; None where days are not known."""
    if logged.days is None:
        return None
    log = logged.clicks
    owner = np.repeat(np.arange(len(log)), np.diff(log.offsets))
    shown = np.bincount(owner[log.positions <= depth], minlength=len(log)) > 0
    return np.unique(logged.days[shown], return_inverse=True)[1].astype(np.int64)


def _parts(name: Name, ranges: _Ranges, model: RewardModel, checks: Checks) -> Parts:
    if name == "position-based":
        return position_based(ranges.placed, model, checks, worth=ranges.worth)
    match, fill = FORMS[name]
    clip = ranges.settings.clip
    return weighted(ranges.placed, model, checks, match=match, fill=fill, worth=ranges.worth, clip=clip)


def _estimate(name: Name, parts: Parts, ranges: _Ranges, model: RewardModel) -> Estimate:
    value, difference = ranges.of(parts)
    reason = refusal(
        name, parts, value=value.value, model=model, settings=ranges.settings, queries=ranges.effective_queries
    )
    return Estimate(
        name,
        Range() if reason else value,
        Range() if reason else difference,
        reason,
        parts.missing,
        parts.clipped,
        parts.effective,
        ASSUMPTIONS[name],
    )


class _Ranges:
    """Intervals of means over sessions: queries are drawn whole, or searches within them."""

    def __init__(self, placed: Placed, worth: Float64, settings: CounterfactualSettings) -> None:
        from scipy.special import stdtrit

        self.placed, self.worth, self.settings = placed, worth, settings
        self.earned = placed.logged(worth)
        self.effective_queries = float(1 / (placed.shares**2).sum())
        free = self.effective_queries if settings.unit == "query" else placed.sessions.sum()
        self.reach = float(stdtrit(max(free - 1, 1), (1 + settings.confidence) / 2))
        clicked = placed.clicks.clicks * worth[placed.clicks.positions - 1] / placed.clicks.list_impressions
        total = np.bincount(placed.owner, weights=clicked, minlength=len(placed.clicks))
        self.per_list = total - self.earned[placed.query]

    def logged(self) -> Range:
        """What was earned as logged."""
        value = float(self.placed.shares @ self.earned)
        step = self.reach * self._error(self.earned, self.per_list)
        return Range(value, max(value - step, 0.0), value + step)

    def of(self, parts: Parts) -> tuple[Range, Range]:
        """The value, and its difference to the log, wider by what the log does not show."""
        more = parts.curve_variance + (parts.model_variance if self.settings.unit == "search" else 0.0)
        value = float(self.placed.shares @ parts.per_query)
        step = self.reach * np.hypot(self._error(parts.per_query, parts.per_list), np.sqrt(more))
        apart = parts.per_query - self.earned
        gain = float(self.placed.shares @ apart)
        reach = self.reach * np.hypot(self._error(apart, parts.per_list - self.per_list), np.sqrt(more))
        return (
            Range(value, max(float(value - parts.below - step), 0.0), float(value + parts.above + step)),
            Range(gain, float(gain - parts.below - reach), float(gain + parts.above + reach)),
        )

    def _error(self, per_query: Float64, per_list: Float64) -> float:
        """The standard error of the mean over sessions."""
        shares, sessions = self.placed.shares, self.placed.sessions
        around = per_query - shares @ per_query
        if self.settings.unit == "query":
            return float(np.sqrt(((shares * around) ** 2).sum() * len(shares) / max(len(shares) - 1, 1)))
        total = sessions.sum()
        within = (self.placed.clicks.impressions * per_list**2).sum()
        return float(np.sqrt((sessions * around**2).sum() + within) / total)
