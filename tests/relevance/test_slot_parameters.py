"""Click parameters by randomised first results: by hand, against simulated users, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.errors import UnsupportedError
from clickprism.relevance.pairs import PairCounts
from clickprism.relevance.randomised import slot_parameters
from tests.relevance.pair_worlds import Users


def test_lines_and_propensities_of_simulated_users_are_recovered() -> None:
    """4,000 pairs, 30 first slots each, position 2 better documents than position 4: within 10% or .06 of the truth."""
    users, random = Users.of(positions=4), np.random.default_rng(5)
    gamma = random.beta(1.0, 2.0, 4000)
    shown = random.poisson(np.stack([0 * gamma, 40 * gamma, 20 + 0 * gamma, 40 * (1 - gamma)], axis=1))
    counts = users.show(gamma, shown, seed=6)
    slot = random.binomial(30, users.first_slot(gamma))
    found, truth = slot_parameters(counts, slot, np.full(4000, 30)), users.parameters
    assert found.alpha == pytest.approx(truth.alpha, rel=0.1, abs=0.06)
    assert found.beta == pytest.approx(truth.beta, rel=0.1, abs=0.06)
    assert (found.alpha_lower <= found.alpha).all()
    assert (found.alpha <= found.alpha_upper).all()
    assert found.theta is not None
    assert found.theta[0] == 1
    assert (np.diff(found.theta) < 0).all()


def test_without_trust_the_propensity_is_the_slope() -> None:
    users, random = Users.of(positions=3, trust=False), np.random.default_rng(1)
    gamma = random.beta(1.0, 3.0, 3000)
    counts = users.show(gamma, np.full((3000, 3), 30), seed=2)
    slot = random.binomial(20, users.first_slot(gamma))
    found = slot_parameters(counts, slot, np.full(3000, 20))
    assert found.theta == pytest.approx(users.theta / users.theta[0], abs=0.03)
    assert found.alpha == pytest.approx(users.theta / users.theta[0], abs=0.06)


def test_a_position_that_shares_no_pair_with_first_slots_is_refused() -> None:
    counts = PairCounts(np.array([[5, 5], [5, 0], [5, 0]]), np.array([[1, 1], [1, 0], [1, 0]]))
    with pytest.raises(UnsupportedError, match="only 1 pairs were shown both at position 2"):
        slot_parameters(counts, np.ones(3, np.int64), np.full(3, 4))
