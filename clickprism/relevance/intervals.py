"""Intervals for estimates that are weighted sums of clicks.

With p_k(y) = alpha_k y + beta_k, every such estimate is the y at which

    T(y) = sum of w (c - p_k(y)) = total - scale y

is 0. At the true y, T has mean 0 and variance V(y) = sum of w^2 p_k (1 - p_k), a polynomial in y. The interval is all y
that a score test does not reject, T(y)^2 <= z^2 V(y), whose ends are the roots of a quadratic. With one position it is
Wilson's (1927). Wald's, estimate ± z sd, is empty for a pair that was never clicked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from scipy.special import ndtri

from clickprism.errors import SettingError
from clickprism.observation.parameters import ClickParameters
from clickprism.relevance.counts import PairCounts
from clickprism.types import Float64, Int64

LEAST: Final = 1e-12
FLOOR: Final = 1e-3  # of the variance of a click, where parameters that do not fit leave none
SHARE: Final = 0.05  # of the variance of clicks that an examination leaves at least


def normal_quantile(confidence: float) -> float:
    """How many standard deviations on both sides hold this share of a normal distribution.

    >>> round(normal_quantile(0.95), 4)
    1.96
    """
    if not 0 < confidence < 1:
        raise SettingError("confidence", confidence, "be between 0 and 1")
    return float(ndtri((1 + confidence) / 2))


@final
@dataclass(frozen=True, eq=False)
class Score:
    """T(y) = total - scale y of each pair, with its variance under y.

    Attributes:
        total: [pairs].
        scale: above 0 where there are impressions, [pairs].
        spread: coefficients of V from y^0 to y^2, [pairs, 3].
        added: coefficients of what an examination adds to V, y^0 and y^1, [pairs, 2]; None without one.

    >>> parameters = ClickParameters(np.array([1.0]), np.array([0.0]))
    >>> score = click_score(PairCounts(np.array([[30]]), np.array([[3]])), parameters, np.ones(1))
    >>> [end.round(4).tolist() for end in score.interval(0.95)]  # Wilson's for 3 of 30
    [[0.0346], [0.2562]]
    """

    total: Float64
    scale: Float64
    spread: Float64
    added: Float64 | None = None

    def variance(self, y: Float64) -> Float64:
        """V(y), [pairs]."""
        clicks = np.maximum(self.spread[:, 0] + y * (self.spread[:, 1] + y * self.spread[:, 2]), 0.0)
        if self.added is None:
            return clicks
        return np.maximum(clicks + self.added[:, 0] + y * self.added[:, 1], SHARE * clicks)

    def interval(self, confidence: float) -> tuple[Float64, Float64]:
        """Lower and upper ends within 0 and 1, [pairs]; 0 and 1 for a pair without impressions.

        That alpha_k y + beta_k is a probability too would narrow them further, but only with the right parameters: with
        estimated ones, the narrowest of ten such limits is as often as not beyond the truth.
        """
        z = normal_quantile(confidence)
        constant, linear = z * z * self.spread[:, 0], z * z * self.spread[:, 1]
        if self.added is not None:
            constant, linear = constant + z * z * self.added[:, 0], linear + z * z * self.added[:, 1]
        square = np.maximum(self.scale**2 - z * z * self.spread[:, 2], LEAST)
        half = self.total * self.scale + linear / 2
        inside = half**2 - square * (self.total**2 - constant)
        scarce = square * z * z * FLOOR * np.maximum(-self.spread[:, 2], LEAST)
        root = np.sqrt(np.where(inside > 0, inside, scarce))
        seen = self.scale > 0
        lower, upper = (np.clip((half + side * root) / square, 0.0, 1.0) for side in (-1, 1))
        return np.where(seen, lower, 0.0), np.where(seen, upper, 1.0)


def click_score(counts: PairCounts, parameters: ClickParameters, weights: Float64) -> Score:
    """T of the corrected clicks: total = sum of w (c - beta_k), scale = sum of w alpha_k; weights are [positions]."""
    shown, deep = counts.impressions.astype(np.float64), counts.positions
    alpha, beta = parameters.alpha[:deep], parameters.beta[:deep]
    squared = weights**2
    columns = [squared * beta * (1 - beta), squared * alpha * (1 - 2 * beta), -squared * alpha**2]
    sums = over_positions(shown, np.stack([weights * beta, weights * alpha, *columns], axis=1))
    clicks = over_positions(counts.clicked, weights[:, None])[:, 0]
    return Score(clicks - sums[:, 0], sums[:, 1], sums[:, 2:])


def over_positions(values: Float64 | Int64, columns: Float64) -> Float64:
    """[pairs, positions] times [positions, columns], added up position by position.

    A product of matrices may round the same row otherwise in another batch, and estimates must be the same on every
    engine.
    """
    made = np.zeros((columns.shape[1], len(values)))
    for place, row in enumerate(columns):
        here = np.asarray(values[:, place], np.float64)
        for column, factor in enumerate(row):
            made[column] += here * factor
    return made.T


def parameter_variance(counts: PairCounts, parameters: ClickParameters, weights: Float64, y: Float64) -> Float64:
    """What not knowing alpha and beta exactly adds to V, [pairs]: sum over k of (w n)^2 (y^2 var alpha_k + var beta_k).

    Errors of alpha and of beta are taken for independent; unknown ones add nothing.
    """
    deep, wide = counts.positions, 2 * normal_quantile(parameters.confidence)
    slope = np.nan_to_num((parameters.alpha_upper - parameters.alpha_lower)[:deep] / wide)
    start = np.nan_to_num((parameters.beta_upper - parameters.beta_lower)[:deep] / wide)
    squared = counts.impressions.astype(np.float64) ** 2
    sums = over_positions(squared, np.stack([(weights * slope) ** 2, (weights * start) ** 2], axis=1))
    return np.asarray(y**2 * sums[:, 0] + sums[:, 1], dtype=np.float64)
