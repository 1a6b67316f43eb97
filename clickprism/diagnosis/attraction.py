"""How often documents are clicked once they are seen, each by its own clicks and by what documents like it have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from clickprism.types import Float64, Int64

RIDGE: Final = 0.1  # of the coefficients, in clicks
STEPS: Final = 20
WIDEST: Final = 0.02  # 1 / strength is at least this: no group of documents is all alike
FLOOR, CEILING = -8.0, 0.5  # of the logarithm of a rate


@final
@dataclass(frozen=True, eq=False)
class Expected:
    """What is expected of a document before its clicks are counted: a gamma distribution.

    Attributes:
        mean: of its rate of clicks a sight, [documents].
        strength: mean^2 / variance, the same for all: the clicks that the expectation is worth.
    """

    mean: Float64
    strength: float

    def rate(self, clicks: Float64, seen: Float64) -> Float64:
        """The rate after clicks in so many sights, (k + clicks) / (k / mean + seen), [documents]."""
        rate: Float64 = (self.strength + clicks) / (self.strength / self.mean + seen)
        return rate


def expected(clicks: Float64, seen: Float64, query: Int64, columns: Float64) -> Expected:
    """Rates by the rate of the other documents of the query and by columns, log-linear, by quasi-likelihood.

    Args:
        clicks: of each document, [documents].
        seen: how often it was seen, [documents].
        query: of each document, [documents].
        columns: what may tell of its rate, [documents, columns].

    >>> made = expected(np.array([2.0, 1.0, 4.0]), np.array([10.0, 10.0, 20.0]), np.arange(3), np.zeros((3, 0)))
    >>> made.rate(np.array([0.0]), np.array([0.0])).shape
    (3,)
    """
    mean = max(float(clicks.sum()), 1e-9) / max(float(seen.sum()), 1e-9)
    size = int(query.max(initial=-1)) + 1
    of_query = [np.bincount(query, weights=each, minlength=size)[query] - each for each in (clicks, seen)]
    around = np.log((of_query[0] + 5 * mean) / (of_query[1] + 5) / mean)
    table = np.column_stack([np.ones(len(clicks)), around, columns])
    known = seen > 0
    inside, weight, taken = table[known], seen[known], clicks[known]
    bend, fixed = np.zeros(table.shape[1]), RIDGE * np.append(0.0, np.ones(table.shape[1] - 1))
    bend[0] = np.log(mean)
    for _ in range(STEPS if known.any() else 0):
        fitted = weight * np.exp(np.clip(inside @ bend, FLOOR, CEILING))
        trust = fitted / (1 + fitted)
        hessian = (inside * trust[:, None]).T @ inside + np.diag(fixed + 1e-9)
        step = np.linalg.solve(hessian, inside.T @ (trust * (taken / fitted - 1)) - fixed * bend)
        bend += step * min(1.0, 1 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-3:
            break
    made = np.exp(np.clip(table @ bend, FLOOR, CEILING))
    fitted = weight * made[known]
    spread = float(((taken - fitted) ** 2 - fitted).sum() / max(float((fitted**2).sum()), 1e-9))
    return Expected(made, 1 / max(spread, WIDEST))
