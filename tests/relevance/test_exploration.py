"""What exploration costs and buys, on simulated truth."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.errors import DataError
from clickprism.relevance.randomised import exploration_cost


def test_the_interval_holds_the_true_cost() -> None:
    rng, held = np.random.default_rng(1), 0
    rate, other = rng.uniform(0.3, 0.8, 200), rng.uniform(0.2, 0.6, 200)
    shown, explored = rng.poisson(60, 200) + 1, rng.poisson(5, 200)
    true = 1000 * (explored * (rate - other)).sum() / explored.sum()
    for _ in range(400):
        found = exploration_cost(shown, rng.binomial(shown, rate), explored, rng.binomial(explored, other))
        _, low, high = found.lost_per_1000_randomised
        held += low <= true <= high
    assert held / 400 == pytest.approx(0.95, abs=0.035)


def test_queries_without_both_do_not_count() -> None:
    zero = np.zeros(2, np.int64)
    with pytest.raises(DataError, match="no query has both randomised first results and others"):
        exploration_cost(np.array([5, 0]), zero, np.array([0, 5]), zero)
