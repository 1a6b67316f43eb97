"""Estimate how many clicks a new ranker would get, with intervals, and refuse where the log does not support it.

The estimators for lists are those of McInerney et al. (KDD 2020) and Kiyohara et al. (WSDM 2022), also in the Open
Bandit Pipeline, for a ranker that gives one ranking per query, with propensities from the log itself (`support`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.special import stdtrit

from clickprism.click_models.fitted import BY_PATTERN
from clickprism.data.logged import Logged
from clickprism.errors import DataError
from clickprism.evaluation.counterfactual.estimators import Fill, Parts, position_based, weighted
from clickprism.evaluation.counterfactual.result import (
    ASSUMPTIONS,
    NAMES,
    CounterfactualResult,
    CounterfactualSettings,
    Estimate,
    Name,
    Range,
    discounts,
)
from clickprism.evaluation.counterfactual.support import LEAST, Checks, Match, Placed, Predictions, place, sums
from clickprism.log_model.model import LogModel
from clickprism.types import Float64

FORMS: Final[dict[Name, tuple[Match, Fill]]] = {
    "ips": ("list", "nothing"),
    "snips": ("list", "mean"),
    "reward-interaction": ("top", "mean"),
    "cascade-dr": ("top", "model"),
    "item-position": ("item", "mean"),
    "item-position-dr": ("item", "model"),
}
WHAT: Final[dict[Match, str]] = {
    "list": "lists that were never shown",
    "top": "tops of lists that were never shown",
    "item": "documents that were never shown at the position where the ranker puts them",
}
SHUFFLE: Final = "Show the new ranking in a share of the searches, or shuffle the top of some"
ADD: Final = "Show such documents in some searches, at any position"
LINK: Final = "Swap documents between positions in some searches, or log several rankers"


def counterfactual(
    logged: Logged,
    scores: Float64,
    *,
    settings: CounterfactualSettings | None = None,
    model: LogModel | None = None,
) -> CounterfactualResult:
    """Estimate how many clicks per search a ranker would have got on the searches of a log.

    Each estimate is unbiased under its assumption, if users did not change during the log, lists were assigned to the
    searches of a query independently of the user, and the scores were not learned from the same clicks. A ranker that
    was trained on them is overrated: a little if it has few parameters for many clicks, much if it has a parameter for
    each document.

    Args:
        logged: The log.
        scores: Scores of its documents by the new ranker; higher ranks first, [documents].
        settings: What is counted, by which estimators, and when they are refused.
        model: Model of this log; fitted if None. Pass it if you evaluate several rankers on one log.

    >>> import clickprism as cp
    >>> data = cp.synthetic(cp.SyntheticSettings(train_queries=40, validation_queries=1, test_queries=1))
    >>> swapped = cp.SimulationSettings(merge="pattern", rankers=3)
    >>> log = cp.simulate(data.train, cp.PositionUser(), sessions=20_000, seed=0, settings=swapped)
    >>> settings = CounterfactualSettings(depth=3)
    >>> backwards = counterfactual(Logged(log.clicks), -data.train.grades.astype(float), settings=settings)
    >>> backwards.best is None, backwards.estimates["item-position"].refusal.split(". ")[1]
    (True, 'Show the new ranking in a share of the searches, or shuffle the top of some')
    """
    settings = settings or CounterfactualSettings()
    if settings.unit == "search" and not logged.clicks.are_patterns:
        raise DataError("the log does not record which clicks belong to one session", remedy=BY_PATTERN)
    placed = place(logged, scores, depth=settings.depth)
    if placed.clicks.clicks.sum() == 0:
        raise DataError(f"the log has no clicks at positions 1 to {settings.depth}", remedy="Log more searches")
    model = model or LogModel.fit(logged)
    discount = discounts(settings.measure, placed.depth)
    predictions = Predictions(placed, model, seed=settings.seed)
    checks = Checks.of(placed, predictions, discount=discount, seed=settings.seed)
    intervals = _Intervals(placed, discount, settings)
    estimates: dict[str, Estimate] = {}
    for name in (each for each in NAMES if each in settings.estimator):
        if name == "position-based":
            parts = position_based(placed, predictions, checks, discount=discount)
        else:
            match, fill = FORMS[name]
            parts = weighted(placed, predictions, checks, match=match, fill=fill, discount=discount, clip=settings.clip)
        value, difference = intervals.of(parts)
        reason = _refusal(name, parts, value.value, model, intervals)
        estimates[name] = Estimate(
            name,
            Range() if reason else value,
            Range() if reason else difference,
            reason,
            parts.missing,
            parts.clipped,
            parts.effective,
            ASSUMPTIONS[name],
        )
    sessions, queries = placed.clicks.sessions, len(placed.queries)
    return CounterfactualResult(
        intervals.logged(), estimates, settings.measure, placed.depth, sessions, queries, model.curve
    )


class _Intervals:
    """Intervals of means over sessions, if queries are drawn as a whole, or searches within them."""

    def __init__(self, placed: Placed, discount: Float64, settings: CounterfactualSettings) -> None:
        self.placed, self.settings = placed, settings
        self.earned = placed.rates @ discount
        self.effective_queries = float(1 / (placed.shares**2).sum())
        free = self.effective_queries if settings.unit == "query" else placed.sessions.sum()
        self.reach = float(stdtrit(max(free - 1, 1), (1 + settings.confidence) / 2))
        clicked = placed.clicks.clicks * discount[placed.clicks.positions - 1] / placed.clicks.list_impressions
        self.per_list = sums(placed.owner, clicked, len(placed.clicks)) - self.earned[placed.query]

    def logged(self) -> Range:
        """Return the clicks per search as logged."""
        value = float(self.placed.shares @ self.earned)
        step = self.reach * self._error(self.earned, self.per_list)
        return Range(value, max(value - step, 0.0), value + step)

    def of(self, parts: Parts) -> tuple[Range, Range]:
        """Return the value and its difference to the log, with intervals widened for what the log does not show."""
        more = np.sqrt(parts.curve_variance + (parts.model_variance if self.settings.unit == "search" else 0.0))
        value = float(self.placed.shares @ parts.per_query)
        step = self.reach * np.hypot(self._error(parts.per_query, parts.per_list), more)
        apart = parts.per_query - self.earned
        gain = float(self.placed.shares @ apart)
        reach = self.reach * np.hypot(self._error(apart, parts.per_list - self.per_list), more)
        return (
            Range(value, max(float(value - parts.below - step), 0.0), float(value + parts.above + step)),
            Range(gain, float(gain - parts.below - reach), float(gain + parts.above + reach)),
        )

    def _error(self, per_query: Float64, per_list: Float64) -> float:
        """Return the standard error of the mean over sessions."""
        shares, sessions = self.placed.shares, self.placed.sessions
        around = per_query - shares @ per_query
        if self.settings.unit == "query":
            return float(np.sqrt(((shares * around) ** 2).sum() * len(shares) / max(len(shares) - 1, 1)))
        within = (self.placed.clicks.impressions * per_list**2).sum()
        return float(np.sqrt((sessions * around**2).sum() + within) / sessions.sum())


def _refusal(name: Name, parts: Parts, value: float, model: LogModel, intervals: _Intervals) -> str:
    """Return why the log does not support this estimate, and what to do; empty if it does."""
    settings, queries = intervals.settings, intervals.effective_queries
    if settings.unit == "query" and queries < settings.least_queries:
        return (
            f"the effective number of queries is {queries:.1f}, fewer than {settings.least_queries:g}. Log more "
            "queries, or ask about other searches of the same queries: unit search"
        )
    if not name.endswith("-dr") and parts.missing > settings.most_missing:
        what, remedy = (WHAT[FORMS[name][0]], SHUFFLE) if name in FORMS else ("documents that were never shown", ADD)
        most = settings.most_missing
        return f"{parts.missing:.1%} of the affected clicks are on {what}, more than {most:.1%}. {remedy}"
    if name == "position-based" or name.endswith("-dr"):
        reason = _model_refusal(name, parts, value, model, settings)
        if reason:
            return reason
    if not parts.effective >= settings.least_effective:
        limit = f"{settings.least_effective:,.0f}"
        return f"the effective number of sessions is {parts.effective:,.0f}, fewer than {limit}. {SHUFFLE}"
    return ""


def _model_refusal(name: Name, parts: Parts, value: float, model: LogModel, settings: CounterfactualSettings) -> str:
    """Return why the model of the log cannot predict what was not shown; empty if it can."""
    if parts.unlinked > LEAST:
        return (
            f"{parts.unlinked:.1%} of the affected clicks are on documents that the ranker moves between positions "
            f"that cannot be compared: {_unlinked(model, settings.depth)}. {(model.linkage.repair or LINK).rstrip('.')}"
        )
    if name == "position-based" and not model.fit_quality.fits:
        return (
            "the model does not fit the log: observation times relevance does not explain the clicks by position and "
            f"first-shown position (p = {model.fit_quality.p_value:.1g}). Use an estimator that does not need the model"
        )
    if parts.modelled > settings.most_modelled:
        most = settings.most_modelled
        what = WHAT[FORMS[name][0] if name in FORMS else "item"]
        return (
            f"{parts.modelled:.1%} of the affected clicks are on {what}, more than {most:.1%}, too many for the log to "
            f"check the model. {SHUFFLE}"
        )
    off, error = parts.misfit
    if name == "position-based" and abs(off) - 2 * error > settings.most_misfit:
        return (
            "documents that the log moved as the ranker does got other clicks than the model predicts: the value would "
            f"be {abs(off):.1%} too {'high' if off < 0 else 'low'}, more than {settings.most_misfit:.1%}. Use an "
            "estimator that does not need the model"
        )
    slack = (parts.below + parts.above) / 2
    if slack <= settings.most_slack * value:
        return ""
    share = "all" if name == "position-based" else f"{parts.missing:.1%}"
    return (
        f"the model predicts {share} of the affected clicks, and may be off by {slack / max(value, LEAST):.1%} of the "
        f"value, more than {settings.most_slack:.1%}. {SHUFFLE}"
    )


def _unlinked(model: LogModel, depth: int) -> str:
    """Return how the positions that no document links to position 1 are identified."""
    positions = [number for number, group in enumerate(model.linkage.groups[:depth]) if group != 0]
    names = ", ".join(f"{number + 1}" for number in positions[:-1]) + " and " * (len(positions) > 1)
    by_features = all(model.linkage.identified[number] == "features" for number in positions)
    how = "only by the features of different documents" if by_features else "by nothing in the log"
    plural = "s" * (len(positions) > 1)
    return f"observation at position{plural} {names}{positions[-1] + 1} is linked to position 1 {how}"
