"""Calibration: turn scores of any kind into click probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from clickprism.errors import DataError
from clickprism.types import Float64, Int64

STEPS: Final = 100
PRIOR: Final = 1.0  # ridge penalty of the slopes


@final
@dataclass(frozen=True)
class Calibration:
    """P(click) = sigmoid(slope score + intercept) (Platt 1999), the slope never negative."""

    slope: float
    intercept: float

    def __call__(self, scores: Float64) -> Float64:
        """Return the log odds of a click, [scores]."""
        return self.slope * scores + self.intercept

    @classmethod
    def fit(cls, scores: Float64, clicks: Int64 | Float64, impressions: Int64 | Float64) -> Calibration:
        """Return the slope and intercept under which the clicks are most probable.

        >>> scores = np.array([-2.0, 0.0, 2.0])
        >>> fitted = Calibration.fit(scores, np.array([100, 500, 900]), np.array([1000, 1000, 1000]))
        >>> [round(float(odds), 1) + 0.0 for odds in fitted(scores)]  # log(1/9), 0, log(9)
        [-2.2, 0.0, 2.2]
        """
        spread = float(scores.std()) if len(scores) else 0.0
        if spread == 0.0:
            return cls(0.0, log_odds(clicks, impressions))
        centre = float(scores.mean())
        weights = logistic(((scores - centre) / spread)[:, None], clicks, impressions, ridge=PRIOR)
        slope = max(float(weights[0]) / spread, 0.0)
        if slope == 0.0:
            return cls(0.0, log_odds(clicks, impressions))
        return cls(slope, float(weights[1]) - slope * centre)


def log_odds(clicks: Int64 | Float64, impressions: Int64 | Float64) -> float:
    """Return the log odds of a click over all impressions, with half a click and half a skip added."""
    clicked, shown = float(np.sum(clicks)), float(np.sum(impressions))
    if shown <= 0:
        raise DataError("there is no impression to learn from")
    return float(np.log((clicked + 0.5) / (shown - clicked + 0.5)))


def logistic(
    inputs: Float64,
    clicks: Int64 | Float64,
    impressions: Int64 | Float64,
    *,
    ridge: float | Float64,
    offset: Float64 | None = None,
) -> Float64:
    """Return the weights and, last, the intercept of a logistic regression on counts, by Newton's method, [inputs + 1].

    Args:
        inputs: [pairs, inputs].
        clicks: Of each pair.
        impressions: Of each pair.
        ridge: Penalty ridge / 2 w^2 on each weight, one for all or one each; one more is that of the intercept.
        offset: Log odds to which the weights add, [pairs].
    """
    matrix = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1).astype(np.float64)
    width, given = inputs.shape[1], np.asarray(ridge, dtype=np.float64)
    penalty = given if given.shape == (width + 1,) else np.append(np.broadcast_to(given, (width,)), 1e-9)
    start = np.zeros(len(inputs)) if offset is None else offset
    weights = np.zeros(width + 1)
    weights[-1] = log_odds(clicks, impressions) if offset is None else 0.0
    shown, clicked = np.asarray(impressions, dtype=np.float64), np.asarray(clicks, dtype=np.float64)

    def loss_at(weights: Float64) -> float:
        odds = matrix @ weights + start
        return float(np.sum(shown * np.logaddexp(0, odds) - clicked * odds) + 0.5 * np.sum(penalty * weights**2))

    best = loss_at(weights)
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-np.clip(matrix @ weights + start, -500, 500)))
        gradient = matrix.T @ (shown * chance - clicked) + penalty * weights
        curvature = (matrix * (shown * chance * (1 - chance))[:, None]).T @ matrix + np.diag(penalty)
        step = np.linalg.lstsq(curvature, gradient, rcond=None)[0]
        size = 1.0
        while size > 1e-8:
            moved = weights - size * step
            loss = loss_at(moved)
            if loss <= best:
                break
            size /= 2
        else:
            break
        done = best - loss <= 1e-10 * (1 + abs(best))
        weights, best = moved, loss
        if done:
            break
    return weights


def log_loss(odds: Float64, clicks: Int64 | Float64, impressions: Int64 | Float64) -> float:
    """Return the mean cross entropy of an impression: -(c log p + (n - c) log(1 - p)) summed over pairs, by all n.

    >>> round(log_loss(np.array([0.0]), np.array([2]), np.array([3])), 6) == round(float(np.log(2)), 6)
    True
    """
    total = np.sum(impressions * np.logaddexp(0, odds) - clicks * odds)
    return float(total / np.sum(impressions))
