"""When a ranker is trained again, and when a new one replaces the current one.

Drift is tested on the searches since the last training only, against the intervals of the model of the log that the
ranker was trained with. A new ranker is compared with the current one on the newest searches by two numbers, each a
mean over queries with its interval:

    likelihood   held-out log-likelihood of clicks, given observation: sum of c_d log(E_d exp(b f_d) / sum E exp(b f))
    value        expected clicks per search: sum over positions of o_k g_(k), g the relevance by the model of the log
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from scipy.stats import norm

from clickprism.types import Float64, Int64

if TYPE_CHECKING:
    from clickprism.data.logged import Logged
    from clickprism.log_model.model import LogModel
    from clickprism.project.settings import Promotion, Training

LEVEL: Final = 0.001  # level of each test of drift: strict, since intervals of curves contain sampling error only
DEPTH: Final = 10  # positions whose observation is compared
SHIFT: Final = 0.25  # smallest shift of the mean of a feature, in standard deviations
BOUNDS: Final = (0.0, 30.0)  # bounds of the weight b of a ranker's scores
STEPS: Final = 60


@final
@dataclass(frozen=True)
class Change:
    """One quantity before and after: what it is, its values, whether it drifted, and a sentence."""

    name: str
    before: float
    after: float
    drifted: bool
    sentence: str


@final
@dataclass(frozen=True)
class Gain:
    """A difference between two rankers, relative and with its interval."""

    value: float
    lower: float
    upper: float

    def __str__(self) -> str:
        return f"{self.value:+.1%} ({self.lower:+.1%} to {self.upper:+.1%})"


def baseline(logged: Logged, model: LogModel, scores: Float64 | None) -> dict[str, Any]:
    """Return the values that later searches are compared with: rates, curve, features, agreement with the ranker."""
    rate, error = _click_rate(logged)
    mean, deviation = _feature_moments(logged)
    weight, weight_error = (0.0, 0.0) if scores is None else _agreement(model, logged, scores)
    return {
        "searches": logged.clicks.sessions,
        "clicks": int(logged.clicks.clicks.sum()),
        "last_day": None if logged.days is None else int(logged.days.max()),
        "click_rate": [rate, error],
        "curve": np.log(model.curve.values[:DEPTH]).tolist(),
        "curve_variance": np.diag(model.covariance)[:DEPTH].tolist(),
        "features": dict(zip(logged.feature_names, np.stack([mean, deviation], axis=1).tolist(), strict=False)),
        "agreement": [weight, weight_error],
    }


def changes(
    before: Mapping[str, Any], recent: Logged, model: LogModel, scores: Float64 | None, own: Training
) -> list[Change]:
    """Return how the new searches differ from those that the ranker was trained on.

    Args:
        before: `baseline` of the last training.
        recent: The searches since then.
        model: Model of the new searches.
        scores: Scores of the documents by the current ranker; None without one, [documents].
        own: Which change counts as drift.
    """
    after = baseline(recent, model, scores)
    found = [_rate_change(before, after, own.drift), _curve_change(before, after, own.drift)]
    found += _feature_changes(before["features"], after["features"])
    if scores is not None and before["agreement"][0] > 0:
        found.append(_agreement_change(before, after, own.drift))
    return found


def _rate_change(before: Mapping[str, Any], after: Mapping[str, Any], material: float) -> Change:
    (old, old_error), (new, new_error) = before["click_rate"], after["click_rate"]
    drifted = _differs(old, new, float(np.hypot(old_error, new_error))) and abs(new / max(old, 1e-9) - 1) >= material
    words = "changed" if drifted else "did not change materially"
    text = f"Clicks per search {words}: {old:.3f} before, {new:.3f} now."
    return Change("outcome rate", old, new, drifted, text)


def _curve_change(before: Mapping[str, Any], after: Mapping[str, Any], material: float) -> Change:
    depth = min(len(before["curve"]), len(after["curve"]))
    old, new = np.array(before["curve"][1:depth]), np.array(after["curve"][1:depth])
    if not len(old):
        return Change("curve", 1.0, 1.0, False, "The log has one position, so there is no curve to compare.")
    variance = np.array(before["curve_variance"][1:depth]) + np.array(after["curve_variance"][1:depth])
    far = np.abs(new - old) / np.sqrt(np.maximum(variance, 1e-12)) > norm.isf(LEVEL / 2 / len(old))
    means = float(np.exp(old).mean()), float(np.exp(new).mean())
    large = float(np.abs(np.expm1(new - old)).mean()) >= material
    drifted = bool(far.any()) and large
    words = "changed" if drifted else "did not change materially"
    text = f"Observation of lower positions {words}: {means[0]:.0%} of position 1 before, {means[1]:.0%} now."
    return Change("curve", *means, drifted, text)


def _feature_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    found = []
    for name, (mean, deviation) in before.items():
        if name not in after:
            found.append(Change(f"feature {name}", mean, float("nan"), True, f"Feature {name} is missing now."))
            continue
        shift = (after[name][0] - mean) / max(deviation, 1e-9) if deviation > 0 else 0.0
        if abs(shift) >= SHIFT:
            text = f"Feature {name} shifted by {shift:+.2f} standard deviations."
            found.append(Change(f"feature {name}", mean, after[name][0], True, text))
    return found


def _agreement_change(before: Mapping[str, Any], after: Mapping[str, Any], material: float) -> Change:
    (old, old_error), (new, new_error) = before["agreement"], after["agreement"]
    lower = new < old * (1 - 2 * material) and _differs(old, new, float(np.hypot(old_error, new_error)))
    words = "less by the ranker's scores than before" if lower else "by the ranker's scores as before"
    text = f"Users click {words}: weight {old:.2f} before, {new:.2f} now."
    return Change("preferences", old, new, lower, text)


def _differs(old: float, new: float, error: float) -> bool:
    return bool(abs(new - old) > norm.isf(LEVEL / 2) * max(error, 1e-12))


def _click_rate(logged: Logged) -> tuple[float, float]:
    """Return clicks per search, and its standard error if queries are drawn as a whole."""
    clicks = logged.clicks
    query = clicks.lists.list_of[clicks.rows[clicks.offsets[:-1]]]
    owner = np.repeat(np.arange(len(clicks)), np.diff(clicks.offsets))
    clicked = np.bincount(owner, weights=clicks.clicks, minlength=len(clicks))
    rate = float(clicked.sum() / clicks.sessions)
    residual = np.bincount(query, weights=clicked - rate * clicks.impressions)
    return rate, float(np.sqrt((residual**2).sum()) / clicks.sessions)


def _feature_moments(logged: Logged) -> tuple[Float64, Float64]:
    """Return mean and standard deviation of each feature over what was shown; missing values are ignored."""
    clicks = logged.clicks
    weights = np.bincount(clicks.rows, weights=clicks.list_impressions, minlength=clicks.lists.documents)
    features = clicks.lists.features
    known = np.isfinite(features)
    count = np.maximum(weights @ known, 1e-9)
    values = np.where(known, features, 0.0)
    mean = weights @ values / count
    return mean, np.sqrt(np.maximum(weights @ values**2 / count - mean**2, 0.0))


@final
@dataclass(frozen=True, eq=False)
class _Pairs:
    """Shown pairs with clicks and exposure, scaled so that no pair says more than its prior strength; by query."""

    rows: Int64
    query: Int64
    clicks: Float64
    exposure: Float64
    relevance: Float64
    searches: Float64

    @classmethod
    def of(cls, model: LogModel, logged: Logged) -> _Pairs:
        found, lists = model.relevance, logged.clicks.lists
        queries, query = np.unique(lists.list_of[found.rows], return_inverse=True)
        scale = 1 - found.share
        clicks, exposure = found.clicks * scale, np.maximum(found.weight * scale, 1e-9)
        first = lists.list_of[logged.clicks.rows[logged.clicks.offsets[:-1]]]
        asked = _sums(first, logged.clicks.impressions.astype(np.float64), len(lists))
        return cls(found.rows, query, clicks, exposure, found.value, asked[queries])

    def sums(self, values: Float64) -> Float64:
        return _sums(self.query, values, len(self.searches))

    def _shares(self, scores: Float64, weight: float) -> Float64:
        """Return the logarithm of the share of each pair in the clicks of its query, [pairs]."""
        logits = weight * scores + np.log(self.exposure)
        top = np.full(len(self.searches), -np.inf)
        np.maximum.at(top, self.query, logits)
        logits -= top[self.query]
        return np.asarray(logits - np.log(self.sums(np.exp(logits)))[self.query])

    def likelihood(self, scores: Float64, weight: float) -> Float64:
        """Return the log-likelihood of the clicks of each query, [queries]."""
        return self.sums(self.clicks * self._shares(scores, weight))

    def slope(self, scores: Float64, weight: float) -> tuple[float, float]:
        """Return the derivative of the log-likelihood by the weight, and minus the second one."""
        share = np.exp(self._shares(scores, weight))
        mean, clicked = self.sums(share * scores), self.sums(self.clicks)
        first = self.sums(self.clicks * scores) - clicked * mean
        second = clicked * (self.sums(share * scores**2) - mean**2)
        return float(first.sum()), float(second.sum())

    def fitted(self, scores: Float64) -> float:
        """Return the weight of standardised scores with the highest likelihood, by bisection of its derivative."""
        low, high = BOUNDS
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.slope(scores, middle)[0] > 0 else (low, middle)
        return (low + high) / 2

    def standardised(self, scores: Float64) -> Float64:
        own = scores[self.rows]
        mean = self.sums(own) / np.maximum(self.sums(np.ones(len(own))), 1)
        centred = own - mean[self.query]
        return centred / max(float(centred.std()), 1e-9)

    def clicks_per_search(self, scores: Float64, curve: Float64) -> Float64:
        """Return the expected clicks of one search of each query if the shown documents are ranked by scores."""
        order = np.lexsort((self.rows, -scores[self.rows], self.query))
        first = np.searchsorted(self.query[order], np.arange(len(self.searches)))
        place = np.arange(len(order)) - first[self.query[order]]
        seen = np.where(place < len(curve), curve[np.minimum(place, len(curve) - 1)], 0.0)
        return _sums(self.query[order], seen * self.relevance[order], len(self.searches))


def _sums(of: Int64, values: Float64, size: int) -> Float64:
    return np.bincount(of, weights=values, minlength=size).astype(np.float64)


def _agreement(model: LogModel, logged: Logged, scores: Float64) -> tuple[float, float]:
    """Return how strongly clicks follow a ranker's standardised scores, with its standard error."""
    pairs = _Pairs.of(model, logged)
    own = pairs.standardised(scores)
    weight = pairs.fitted(own)
    return weight, float(1 / np.sqrt(max(pairs.slope(own, weight)[1], 1e-9)))


def compare(logged: Logged, model: LogModel, new: Float64, current: Float64, confidence: float) -> tuple[Gain, Gain]:
    """Return the gain of a new ranker over the current one: likelihood per click, and clicks per search.

    Args:
        logged: The searches to compare on.
        model: Model of these searches.
        new: Scores of the new ranker, each query by a copy that did not learn from it, [documents].
        current: Scores of the current ranker, [documents].
        confidence: Confidence level of the intervals.
    """
    pairs, reach = _Pairs.of(model, logged), float(norm.isf((1 - confidence) / 2))
    likelihoods = []
    for scores in (new, current):
        own = pairs.standardised(scores)
        likelihoods.append(pairs.likelihood(own, pairs.fitted(own)))
    better = likelihoods[0] - likelihoods[1]
    clicks = max(float(pairs.clicks.sum()), 1e-9)
    likelihood = _mean(better, np.full(len(better), 1.0), clicks, reach)
    depth = min(DEPTH, len(model.curve))
    values = [pairs.clicks_per_search(scores, model.curve.values[:depth]) for scores in (new, current)]
    expected = float(values[1] @ pairs.searches)
    return likelihood, _mean(values[0] - values[1], pairs.searches, max(expected, 1e-9), reach)


def _mean(differences: Float64, weights: Float64, total: float, reach: float) -> Gain:
    """Return a weighted sum over queries divided by `total`, with the error of the sum if queries are drawn."""
    parts = differences * weights
    step = reach * float(np.sqrt(len(parts)) * parts.std()) / total
    value = float(parts.sum()) / total
    return Gain(value, value - step, value + step)


def verdict(likelihood: Gain, value: Gain, own: Promotion) -> tuple[bool, str]:
    """Return whether a new ranker replaces the current one, and why."""
    numbers = (
        f"clicks per search {value}, held-out log-likelihood per click {likelihood.value:+.4f} "
        f"({likelihood.lower:+.4f} to {likelihood.upper:+.4f}), {own.confidence:.0%} intervals"
    )
    lost = f"it can lose at most {max(-value.lower, 0):.1%} of the clicks"
    if not (likelihood.lower > 0 or value.lower > 0):
        return False, f"The new ranker is not better than the current one: {numbers}."
    if likelihood.upper < 0:
        return False, f"Held-out clicks say that the new ranker is worse than the current one: {numbers}."
    if -value.lower > own.max_loss:
        return False, f"The new ranker may lose more than {own.max_loss:.1%} of the clicks ({lost}): {numbers}."
    return True, f"The new ranker is better than the current one, and {lost}: {numbers}."
