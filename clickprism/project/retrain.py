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

from clickprism.auto.learners import Evidence
from clickprism.debias.query_regression import centred, log_shares
from clickprism.types import Float64

if TYPE_CHECKING:
    from clickprism.data.logged import Logged
    from clickprism.log_model.model import LogModel
    from clickprism.project.settings import Promotion, Training

LEVEL: Final = 0.001  # level of each test of drift: strict, since intervals of curves contain sampling error only
DEPTH: Final = 10  # positions whose observation is compared
SHIFT: Final = 0.25  # smallest shift of the mean of a feature, in standard deviations
WEAK: Final = 1e-3  # penalty of the weight b of a ranker's scores, so that it is finite


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


def _agreement(model: LogModel, logged: Logged, scores: Float64) -> tuple[float, float]:
    """Return how strongly clicks follow a ranker's standardised scores, with its standard error."""
    return _weight(Evidence.of(logged, model, logged.clicks.lists), scores)


def _weight(evidence: Evidence, scores: Float64) -> tuple[float, float]:
    weight, error = evidence.last_coefficient(_standardised(evidence, scores)[:, None], np.array([WEAK]))
    return max(weight, 0.0), error


def _standardised(evidence: Evidence, scores: Float64) -> Float64:
    own = centred(scores[evidence.rows], evidence.query)
    return own / max(float(own.std()), 1e-9)


def compare(logged: Logged, model: LogModel, new: Float64, current: Float64, confidence: float) -> tuple[Gain, Gain]:
    """Return the gain of a new ranker over the current one: likelihood per click, and clicks per search.

    Args:
        logged: The searches to compare on.
        model: Model of these searches.
        new: Scores of the new ranker, each query by a copy that did not learn from it, [documents].
        current: Scores of the current ranker, [documents].
        confidence: Confidence level of the intervals.
    """
    lists, reach = logged.clicks.lists, float(norm.isf((1 - confidence) / 2))
    evidence = Evidence.of(logged, model, lists)
    curve = model.curve.values[:DEPTH]
    searches = np.zeros(len(lists))
    np.add.at(searches, lists.list_of[logged.clicks.rows[logged.clicks.offsets[:-1]]], logged.clicks.impressions)
    searches = searches[np.unique(lists.list_of[evidence.rows])]
    likelihoods, values = [], []
    for scores in (new, current):
        weighted = _weight(evidence, scores)[0] * _standardised(evidence, scores)
        shares = log_shares(weighted + np.log(evidence.exposure), evidence.query)
        likelihoods.append(evidence.by_query(evidence.clicks * shares))
        values.append(_clicks_per_search(evidence, scores, curve))
    clicks, expected = float(evidence.clicks.sum()), float(values[1] @ searches)
    likelihood = _mean(likelihoods[0] - likelihoods[1], np.ones(len(searches)), max(clicks, 1e-9), reach)
    return likelihood, _mean(values[0] - values[1], searches, max(expected, 1e-9), reach)


def _clicks_per_search(evidence: Evidence, scores: Float64, curve: Float64) -> Float64:
    """Return the expected clicks of one search of each query if the shown documents are ranked by scores."""
    order = np.lexsort((evidence.rows, -scores[evidence.rows], evidence.query))
    first = np.searchsorted(evidence.query, np.arange(evidence.queries))
    place = np.arange(len(order)) - first[evidence.query]  # queries are in order before and after
    seen = np.where(place < len(curve), curve[np.minimum(place, len(curve) - 1)], 0.0)
    return evidence.by_query(seen * evidence.posterior[order])


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
