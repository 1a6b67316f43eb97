"""Bias and variance of the estimators (Zou et al. 2022, Theorems 1 and 2), of each pair as it was shown.

Printed is the variance of one impression's term; the estimate is a mean of D terms, so its variance is that divided by
D, as here. The delta_k of Theorem 2 is right as printed.
"""

from __future__ import annotations

import numpy as np

from clickprism.observation.parameters import ClickParameters
from clickprism.relevance.counts import PairCounts
from clickprism.relevance.doubly_robust import DoublyRobust
from clickprism.relevance.sums import Sums
from clickprism.types import Float64, check

PAPER = Sums("mean")


def affine_bias(
    counts: PairCounts, used: ClickParameters, true: ClickParameters, relevance: Float64, *, sums: Sums = PAPER
) -> Float64:
    """Theorem 1: sum of w [(alpha - alpha^) y + beta - beta^] / sum of w alpha^, with w = 1 / alpha^ as printed.

    Args:
        counts: where each pair was shown; its clicks do not matter.
        used: the parameters that the estimator used, with the hat.
        true: those of the clicks.
        relevance: the true y of each pair, [pairs].
        sums: how clicks are added up; "precision" must have its rates.

    >>> true = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.1]))
    >>> used = ClickParameters(np.array([1.0, 0.4]), np.array([0.0, 0.1]))
    >>> counts = PairCounts(np.array([[1, 3]]), np.array([[0, 0]]))
    >>> affine_bias(counts, used, true, np.array([0.2])).round(4).tolist()  # 3 (.1 * .2) / .4 / 4
    [0.0375]
    """
    deep = counts.positions
    weights = sums.weights(used, deep)
    missed = relevance[:, None] * (true.alpha - used.alpha)[:deep] + (true.beta - used.beta)[:deep]
    return ((counts.impressions * missed) @ weights) / _scale(counts, used, weights)


def affine_variance(counts: PairCounts, used: ClickParameters, values: Float64, *, sums: Sums = PAPER) -> Float64:
    """Theorem 1, over D: sum of w^2 (alpha^ y^ + beta^ - c)^2 / (sum of w alpha^)^2, as the log tells it.

    It is 0 for a pair without a click or always clicked, if it was shown at one position; see `expected_variance`.

    Args:
        counts: of the pairs.
        used: the parameters that the estimator used.
        values: the estimates y^, [pairs].
        sums: how clicks were added up; "precision" must have its rates.
    """
    deep = counts.positions
    weights = sums.weights(used, deep)
    chance = values[:, None] * used.alpha[:deep] + used.beta[:deep]
    squares = counts.clicked * (1 - 2 * chance) + counts.impressions * chance**2
    return (squares @ weights**2) / _scale(counts, used, weights) ** 2


def expected_variance(
    counts: PairCounts, used: ClickParameters, true: ClickParameters, relevance: Float64, *, sums: Sums = PAPER
) -> Float64:
    """The variance of the affine estimate at the true relevance: sum of w^2 p (1 - p) / (sum of w alpha^)^2."""
    deep = counts.positions
    weights = sums.weights(used, deep)
    chance = true.click_rates(relevance)[:, :deep]
    return ((counts.impressions * chance * (1 - chance)) @ weights**2) / _scale(counts, used, weights) ** 2


def doubly_robust_bias(
    counts: PairCounts,
    used: ClickParameters,
    true: ClickParameters,
    relevance: Float64,
    imputed: Float64,
    *,
    estimator: DoublyRobust,
    seen: Float64,
) -> Float64:
    """Theorem 2: sum of w [(alpha - alpha^) y + beta - beta^ - (alpha~ - alpha^) imp] / sum of w alpha^.

    Here with alpha~ imp = E[e] / theta_k alpha^_k (imp - beta_1), or with the whole expected click of the estimator.

    Args:
        counts: where each pair was shown; its clicks do not matter.
        used: the parameters that the estimator used.
        true: those of the clicks.
        relevance: the true y of each pair, [pairs].
        imputed: the imputation of each pair, [pairs].
        estimator: with its theta and rates learned or given.
        seen: the mean of e at each position, E[e], [positions].
    """
    deep = counts.positions
    weights = estimator.sums.weights(used, deep)
    each, always = estimator.taken(used, imputed, deep)
    left = relevance[:, None] * true.alpha[:deep] + true.beta[:deep] - always - seen[:deep] * each
    return imputed - relevance + ((counts.impressions * left) @ weights) / _scale(counts, used, weights)


def doubly_robust_variance(
    counts: PairCounts, used: ClickParameters, values: Float64, imputed: Float64, *, estimator: DoublyRobust
) -> Float64:
    """Theorem 2, over D, as the log tells it: the squares of all terms' distances from the estimate.

    Needs the sums of e c and e^2. Without them it is an upper bound for any e that does not go against clicks: e^2 is
    at most e, and e c is taken for what it would be were e independent of c.

    Args:
        counts: of the pairs, with their examination.
        used: the parameters that the estimator used.
        values: the estimates, [pairs].
        imputed: the imputation of each pair, [pairs].
        estimator: with its theta and rates learned or given.
    """
    check(counts.examination is not None, "the variance of the doubly robust estimator needs examination")
    deep, shown = counts.positions, counts.impressions
    e = np.zeros(shown.shape) if counts.examination is None else counts.examination
    clicked = (
        e * counts.clicked / np.maximum(shown, 1) if counts.examination_clicked is None else counts.examination_clicked
    )
    squared = e if counts.examination_squared is None else counts.examination_squared
    weights = estimator.sums.weights(used, deep)
    each, always = estimator.taken(used, imputed, deep)
    rest = always + (values - imputed)[:, None] * used.alpha[:deep]  # a term's distance is c - each e - rest
    squares = (
        counts.clicked * (1 - 2 * rest) + each**2 * squared + shown * rest**2 - 2 * each * clicked + 2 * each * rest * e
    )
    return (squares @ weights**2) / _scale(counts, used, weights) ** 2


def _scale(counts: PairCounts, used: ClickParameters, weights: Float64) -> Float64:
    scale = counts.impressions @ (weights * used.alpha[: counts.positions])
    return np.where(scale > 0, scale, np.nan)
