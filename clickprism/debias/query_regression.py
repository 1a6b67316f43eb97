"""Regressions within queries, on shown documents: of clicks, and of the score of an engine."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.stats import norm

from clickprism.types import Float64, Int64

MOST_STEPS: Final = 30  # maximum steps of Newton's method
SHOWN_SHARE: Final = 0.02  # assumed share of candidates shown, if the log names only shown documents
LEAST_UNSHOWN: Final = 0.1  # candidates not shown, as a share of those shown, from which the log names candidates


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
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    total = np.bincount(query, weights=clicks)
    found = np.zeros(features.shape[1]) if start is None else start.copy()

    def shares(coefficients: Float64) -> tuple[Float64, float]:
        each = log_shares(features @ coefficients + offset, query)
        return np.exp(each), float(clicks @ each) - 0.5 * float(ridge @ coefficients**2)

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


def log_shares(logits: Float64, query: Int64) -> Float64:
    """Return the logarithm of the softmax within each query; pairs of a query are consecutive, [pairs].

    >>> np.exp(log_shares(np.log([1.0, 3.0, 5.0]), np.array([0, 0, 1]))).round(2).tolist()
    [0.25, 0.75, 1.0]
    """
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    lengths = np.diff(np.append(starts, len(query)))
    logits = logits - np.repeat(np.maximum.reduceat(logits, starts), lengths)
    return np.asarray(logits - np.repeat(np.log(np.add.reduceat(np.exp(logits), starts)), lengths))


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
