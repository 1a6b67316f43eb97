"""What exploration costs and buys, on simulated truth."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.errors import DataError
from clickprism.relevance.estimates import Estimates
from clickprism.relevance.exploration import exploration_cost, exploration_gain


def test_the_interval_holds_the_true_cost() -> None:
    rng, held = np.random.default_rng(1), 0
    rate, other = rng.uniform(0.3, 0.8, 200), rng.uniform(0.2, 0.6, 200)
    shown, explored = rng.poisson(60, 200) + 1, rng.poisson(5, 200)
    true = 1000 * (explored * (rate - other)).sum() / explored.sum()
    for _ in range(400):
        found = exploration_cost(shown, rng.binomial(shown, rate), explored, rng.binomial(explored, other))
        held += found.low <= true <= found.high
    assert held / 400 == pytest.approx(0.95, abs=0.035)


def test_queries_without_both_do_not_count() -> None:
    zero = np.zeros(2, np.int64)
    with pytest.raises(DataError, match="no query has both randomised first results and others"):
        exploration_cost(np.array([5, 0]), zero, np.array([0, 5]), zero)


def test_more_impressions_tell_more_apart() -> None:
    """Against the intervals of binomials with so many impressions, by hand."""
    m, n = np.array([0.7, 0.5, 0.2, 0.4]), np.array([30, 30, 30, 0])
    made = Estimates(m, np.zeros(4), np.ones(4), m * (1 - m) / 61, np.zeros(4), np.zeros(4, np.bool_))
    found = exploration_gain(made, np.array([0, 0, 0, 1]), n)
    for times, each in enumerate(found):
        variance = m[:3] * (1 - m[:3]) / (31 + 30 * times)
        assert each.width == pytest.approx(2 * 1.959964 * np.sqrt(variance).mean())
        apart = 0.7 - m[1:3] > 1.959964 * np.sqrt(variance[0] + variance[1:3])
        assert each.distinguished == apart.mean()
    with pytest.raises(DataError, match="no pair of the estimates was a randomised first result"):
        exploration_gain(made, np.zeros(4, np.int64), np.zeros(4, np.int64))
