"""What a log says before a method learns: the position curve of its model, and what the engine's order carries.

A method that learns relevance and observation together over-corrects on the log of a good engine. Two things are
missing there, and both can be had from a log in which documents were shown at several positions:

- the curve: the model of the log (`LogModel`) estimates it, from the same documents at other positions;
- selection: a document with poor features is shown only if the engine knew something in its favour. The residual of
  the engine's order on the features, v = s - e(x) / theta, is that knowledge. A model of clicks that contains rho v
  (a control function) has a relevance f(x) that selection does not bias, and that carries what the engine knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from scipy.stats import norm

from clickprism.types import Clicks, Float64, Int64

LEAST_MOVED: Final = 0.2  # share of the shown pairs with several positions from which the curve is identified
MOST_PAIRS: Final = 200_000  # for the regressions
RIDGE: Final = 10.0
SURE: Final = 3.0  # standard errors of the gain from which coupling is present
MOST_STEPS: Final = 30  # of Newton's method
SHOWN_SHARE: Final = 0.02  # of the candidates, if the log does not name those that were not shown
LEAST_UNSHOWN: Final = 0.1  # candidates not shown, as a share of those shown, from which the log names candidates


@final
@dataclass(frozen=True, eq=False)
class Anchor:
    """The curve of a log, and how the order of its engine depends on features and relevance.

    Attributes:
        curve: Observation relative to the first position, [positions].
        engine: e / theta: weights of the features in the engine's score, minus the log of the position, [features].
        centre: Mean of the residual v over the log.
        rho: How much the log of the click rate grows with the engine's score at the same features.
    """

    curve: Float64
    engine: Float64
    centre: float
    rho: float

    @classmethod
    def of(cls, clicks: Clicks) -> Anchor | None:
        """Return the anchor of a log; None if too few documents were shown at several positions, or without a curve."""
        if moved_share(clicks) < LEAST_MOVED:
            return None
        logs = position_curve(clicks)
        if logs is None:
            return None
        curve = np.exp(logs)
        rows, pair = np.unique(clicks.rows, return_inverse=True)
        engine = engine_weights(clicks)
        residual = -np.log(clicks.positions) - (clicks.lists.features[rows] @ engine)[pair]
        centre = float(np.average(residual, weights=clicks.list_impressions.astype(np.float64)))
        return cls(curve, engine, centre, _engine_relevance(clicks, curve))


def position_curve(clicks: Clicks) -> Float64 | None:
    """Return the curve that documents shown at several positions identify, if observation does not depend on documents.

    It is the curve of the log model with a prior by features and first-shown position. Joint learning, which compares
    documents with similar features, takes what the engine knows and the features do not for observation: with good
    engines its curve is too steep.

    Returns:
        Log observation relative to the first position, [positions]. None if some position is not linked to the first by
        enough clicks, if clicks carry weights, or if the log model finds coupling: if features in the observation
        improve the likelihood of held-out clicks by three standard errors.
    """
    from clickprism.log_model.counts import count
    from clickprism.log_model.fit import fit_form, gain, multiplied
    from clickprism.log_model.model import DEEPEST
    from clickprism.log_model.references import LEAST_CLICKS, Links
    from clickprism.log_model.terms import Covariates, Form, Scaler, with_query_means

    if clicks.weights is not None or not 1 < clicks.max_position <= DEEPEST:
        return None
    counts = count(clicks)
    links = Links.of(counts)
    tree = links.tree()
    linked = links.groups(tree[links.strength[tree] >= LEAST_CLICKS]) == 0
    if counts.positions < clicks.max_position or not linked.all():
        return None
    own = Scaler.of(counts.features)(counts.features)
    fit = fit_form(counts, Form(features="linear"), Covariates(own=own, features=with_query_means(own, counts.query)))
    coupled = fit_form(counts, fit.form.with_part("coupling"), multiplied(fit), start=fit)
    better, error = gain(coupled, fit)
    if better > max(SURE * error, 0.0):
        return None
    curve = np.asarray(multiplied(fit).curve)
    return np.asarray(curve - curve[0])


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The shown pairs of a log, of at most so many whole queries."""

    rows: Int64  # [pairs]
    query: Int64  # [pairs]
    score: Float64  # of the engine: minus the mean log position, [pairs]
    of_entry: Int64  # the pair of each entry of the log, -1 for none

    @classmethod
    def of(cls, clicks: Clicks) -> _Pairs:
        rows, pair = np.unique(clicks.rows, return_inverse=True)
        shown = clicks.list_impressions.astype(np.float64)
        score = -np.bincount(pair, weights=shown * np.log(clicks.positions)) / np.bincount(pair, weights=shown)
        queries = clicks.lists.list_of[rows]
        used = queries <= queries[min(MOST_PAIRS, len(rows)) - 1]
        query = np.unique(queries[used], return_inverse=True)[1].astype(np.int64)
        return cls(rows[used], query, score[used], np.where(used[pair], pair, -1))


def _engine_relevance(clicks: Clicks, curve: Float64) -> float:
    """Return rho, by Poisson regression of clicks on features and the engine's score within queries; at least 0."""
    pairs = _Pairs.of(clicks)
    entries = pairs.of_entry >= 0
    exposure = clicks.list_impressions * curve[clicks.positions - 1]
    clicked, exposed = (
        np.bincount(pairs.of_entry[entries], weights=each[entries], minlength=len(pairs.rows)).astype(np.float64)
        for each in (clicks.clicks, exposure)
    )
    columns = centred(np.column_stack([pairs.score, clicks.lists.features[pairs.rows]]), pairs.query)
    spread = columns.std(axis=0)
    columns /= np.where(spread > 0, spread, 1.0)
    ridge = np.append(1e-6, np.full(columns.shape[1] - 1, RIDGE))
    weights = linear_clicks(columns, clicked, np.log(np.maximum(exposed, 1e-9)), pairs.query, ridge=ridge)
    return max(0.0, float(weights[0] / spread[0])) if spread[0] > 0 else 0.0


def moved_share(clicks: Clicks) -> float:
    """Return the share of the shown pairs that were shown at several positions.

    >>> from clickprism.types import Lists
    >>> lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array(["q"]))
    >>> positions, rows = np.array([1, 2, 2], np.int32), np.array([0, 1, 0])
    >>> moved_share(Clicks(lists, np.array([0, 2, 3]), rows, positions, np.array([1, 0, 0]), np.array([5, 5])))
    0.5
    """
    depth = clicks.max_position + 1
    rows = np.unique(clicks.rows * depth + clicks.positions) // depth
    positions = np.unique(rows, return_counts=True)[1]
    return float((positions > 1).mean()) if len(positions) else 0.0


def engine_weights(clicks: Clicks) -> Float64:
    """Return the weights of the features in the engine's score, over theta, [features].

    Ridge regression of minus the mean log position of shown pairs, within queries. The positions of shown documents
    differ less than those of all candidates would: with normal scores the regression finds theta times the weights,
    theta = v + (1 - v) R^2 (Goldberger 1981), v the variance among the shown relative to that among all.
    """
    pairs = _Pairs.of(clicks)
    features = centred(clicks.lists.features[pairs.rows].astype(np.float64), pairs.query)
    score = centred(pairs.score, pairs.query)
    spread = features.std(axis=0)
    features /= np.where(spread > 0, spread, 1.0)
    weights = linear_engine(features, score, pairs.query, ridge=RIDGE)
    explained = 1 - float(np.square(score - features @ weights).sum() / max(np.square(score).sum(), 1e-300))
    shown, lists = len(pairs.rows), np.unique(clicks.lists.list_of[pairs.rows])
    unshown = int(clicks.lists.lengths[lists].sum()) - shown
    share = shown / (shown + unshown) if unshown > LEAST_UNSHOWN * shown else SHOWN_SHARE
    return np.asarray(weights / np.where(spread > 0, spread, 1.0) / attenuation(explained, share))


def attenuation(explained: float, share: float) -> float:
    """Return theta: the share of a slope that a regression on the shown documents finds.

    Args:
        explained: R^2 of the regression.
        share: Share of the candidates that was shown.

    >>> attenuation(1.0, 0.1), round(attenuation(0.0, 0.1), 3)
    (1.0, 0.169)
    """
    cut = norm.isf(min(max(share, 1e-3), 0.999))
    ratio = norm.pdf(cut) / norm.sf(cut)
    variance = 1 + cut * ratio - ratio**2
    return float(variance + (1 - variance) * min(max(explained, 0.0), 1.0))


def linear_clicks(
    features: Float64, clicks: Float64, offset: Float64, query: Int64, *, ridge: Float64, start: Float64 | None = None
) -> Float64:
    """Return the coefficients of the most likely linear function of the features, by Newton's method.

    It maximises sum of c_d log softmax_d(x b + offset) over each query, minus ridge b^2 / 2.

    Args:
        features: [pairs, columns].
        clicks: [pairs].
        offset: Fixed part of the log click rate, such as the log of the exposure, [pairs].
        query: Query of each pair, not decreasing, [pairs].
        ridge: Penalty of each coefficient, [columns].
        start: Coefficients to start from.
    """
    query = np.unique(query, return_inverse=True)[1]
    size = int(query.max(initial=-1)) + 1
    starts = np.searchsorted(query, np.arange(size))
    total = np.bincount(query, weights=clicks, minlength=size)
    found = np.zeros(features.shape[1]) if start is None else start.copy()

    def shares(coefficients: Float64) -> tuple[Float64, float]:
        logits = features @ coefficients + offset
        top = np.maximum.reduceat(logits, starts)[query]
        each = np.exp(logits - top)
        norm = np.add.reduceat(each, starts)[query]
        likely = float(clicks @ (logits - top - np.log(norm))) - 0.5 * float(ridge @ coefficients**2)
        return each / norm, likely

    share, value = shares(found)
    for _ in range(MOST_STEPS):
        weight = total[query] * share
        mean = np.add.reduceat(features * share[:, None], starts, axis=0)
        hessian = (features * weight[:, None]).T @ features - (mean * total[:, None]).T @ mean + np.diag(ridge)
        step = np.linalg.solve(hessian, features.T @ (clicks - weight) - ridge * found)
        length = 1.0
        while length > 1e-4:
            ahead, likely = shares(found + length * step)
            if likely >= value - 1e-9 * abs(value):
                break
            length /= 2
        else:
            break
        found, share, value = found + length * step, ahead, likely
        if np.abs(length * step).max(initial=0.0) < 1e-6:
            break
    return found


def linear_engine(features: Float64, values: Float64, query: Int64, *, ridge: float) -> Float64:
    """Return the coefficients of a ridge regression of values on features, both centred within queries."""
    own = centred(features, query)
    return np.asarray(np.linalg.solve(own.T @ own + ridge * np.eye(own.shape[1]), own.T @ centred(values, query)))


def centred(values: Float64, query: Int64) -> Float64:
    """Return values minus their mean over the query; vectors or matrices, [pairs, ...]."""
    total = np.zeros((int(query.max(initial=-1)) + 1, *values.shape[1:]))
    np.add.at(total, query, values)
    count = np.maximum(np.bincount(query, minlength=len(total)), 1)
    return np.asarray(values - (total.T / count).T[query])
