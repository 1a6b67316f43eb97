"""Bias and variance of the estimators (Zou et al. 2022, Theorems 1 and 2), for each pair at given positions.

The paper prints the variance of one impression's term. The estimate is a mean of D terms, so the functions here divide
by D. The delta_k of Theorem 2 is right as printed.
"""

from __future__ import annotations

import numpy as np

from clickprism.log_model.results import ClickParameters
from clickprism.relevance.estimators import DoublyRobust
from clickprism.relevance.pairs import PairCounts
from clickprism.types import Float64, check


def affine_bias(counts: PairCounts, used: ClickParameters, true: ClickParameters, relevance: Float64) -> Float64:
    """Return the bias of the affine estimate (Theorem 1).

    It is sum of w [(alpha - alpha^) y + beta - beta^] / sum of w alpha^ with w = 1 / alpha^.

    Args:
        counts: impressions of each pair by position; clicks are not used.
        used: parameters that the estimator used (with the hat).
        true: parameters that the clicks follow.
        relevance: true y of each pair, [pairs].
    """
    deep = counts.positions
    weights = 1 / used.alpha[:deep]
    missed = relevance[:, None] * (true.alpha - used.alpha)[:deep] + (true.beta - used.beta)[:deep]
    return ((counts.impressions * missed) @ weights) / _scale(counts, used, weights)


def affine_variance(counts: PairCounts, used: ClickParameters, values: Float64) -> Float64:
    """Return the variance of the affine estimate (Theorem 1, over D), computed from the log.

    It is sum of w^2 (alpha^ y^ + beta^ - c)^2 / (sum of w alpha^)^2, and 0 for a pair
    that was shown at one position and clicked never or always; see `expected_variance`.

    Args:
        counts: impressions and clicks of each pair by position.
        used: parameters that the estimator used.
        values: estimates y^, [pairs].
    """
    deep = counts.positions
    weights = 1 / used.alpha[:deep]
    chance = values[:, None] * used.alpha[:deep] + used.beta[:deep]
    squares = counts.clicked * (1 - 2 * chance) + counts.impressions * chance**2
    return (squares @ weights**2) / _scale(counts, used, weights) ** 2


def expected_variance(counts: PairCounts, used: ClickParameters, true: ClickParameters, relevance: Float64) -> Float64:
    """Return the variance of the affine estimate at the true relevance: sum of w^2 p (1 - p) / (sum of w alpha^)^2."""
    deep = counts.positions
    weights = 1 / used.alpha[:deep]
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
    """Return the bias of the doubly robust estimate (Theorem 2).

    It is sum of w [(alpha - alpha^) y + beta - beta^ - (alpha~ - alpha^) imp] / sum of w alpha^, where alpha~ imp is
    E[e] / theta_k alpha^_k (imp - beta_1).

    Args:
        counts: impressions of each pair by position; clicks are not used.
        used: parameters that the estimator used.
        true: parameters that the clicks follow.
        relevance: true y of each pair, [pairs].
        imputed: imputation of each pair, [pairs].
        estimator: the estimator.
        seen: mean of e at each position, E[e], [positions].
    """
    deep = counts.positions
    weights = 1 / used.alpha[:deep]
    each, always = estimator.subtracted(used, imputed, estimator.means(counts)[0])
    left = relevance[:, None] * true.alpha[:deep] + true.beta[:deep] - always - seen[:deep] * each
    return imputed - relevance + ((counts.impressions * left) @ weights) / _scale(counts, used, weights)


def doubly_robust_variance(
    counts: PairCounts, used: ClickParameters, values: Float64, imputed: Float64, *, estimator: DoublyRobust
) -> Float64:
    """Return the variance by Theorem 2, over D, from the log: squared distances of all terms from the estimate.

    It uses the sums of e c and e^2. Without them it is an upper bound if e and c are not negatively correlated: e^2 is
    at most e, and e c is computed as if e were independent of c.

    Args:
        counts: impressions, clicks and examination of each pair by position.
        used: parameters that the estimator used.
        values: estimates, [pairs].
        imputed: imputation of each pair, [pairs].
        estimator: the estimator.
    """
    check(counts.examination is not None, "the variance of the doubly robust estimate needs examination estimates")
    deep, shown = counts.positions, counts.impressions
    e = np.zeros(shown.shape) if counts.examination is None else counts.examination
    clicked = (
        e * counts.clicked / np.maximum(shown, 1) if counts.examination_clicked is None else counts.examination_clicked
    )
    squared = e if counts.examination_squared is None else counts.examination_squared
    weights = 1 / used.alpha[:deep]
    each, always = estimator.subtracted(used, imputed, estimator.means(counts)[0])
    rest = always + (values - imputed)[:, None] * used.alpha[:deep]  # a term's distance is c - each e - rest
    squares = (
        counts.clicked * (1 - 2 * rest) + each**2 * squared + shown * rest**2 - 2 * each * clicked + 2 * each * rest * e
    )
    return (squares @ weights**2) / _scale(counts, used, weights) ** 2


def _scale(counts: PairCounts, used: ClickParameters, weights: Float64) -> Float64:
    scale = counts.impressions @ (weights * used.alpha[: counts.positions])
    return np.where(scale > 0, scale, np.nan)
