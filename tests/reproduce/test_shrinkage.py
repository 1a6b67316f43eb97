"""Shrinkage towards an imputation, which the reproduction of the doubly robust paper compares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from clickprism.log_model.parameters import ClickParameters
from clickprism.relevance.estimates import PairCounts
from clickprism.relevance.estimators import Sums, click_score
from reproduce.adr.shrinkage import Shrunk, misfit
from tests.relevance.pair_worlds import Users


def test_the_shrunk_estimate_agrees_with_a_calculation_by_hand() -> None:
    parameters = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.1]))
    counts = PairCounts(np.array([[10, 20]]), np.array([[4, 5]]))
    made = Shrunk(Sums("ratio"), k=8.0, shift=1.0, slope=0.5).estimate(counts, parameters, np.array([0.2]))
    prior = expit(1 + 0.5 * logit(0.2))
    assert made.values[0] == pytest.approx((7 + 8 * prior) / 28)


def test_k_and_the_scale_of_the_imputation_are_learned() -> None:
    """Within 15% of the truth, whatever monotone scale of two numbers the imputation is on."""
    pairs, users, k = 6000, Users.of(trust=False), 12.0
    rng = np.random.default_rng(0)
    gamma_mean = rng.uniform(0.1, 0.7, pairs)
    first = users.first_slot(gamma_mean)
    truth = rng.beta(k * first, k * (1 - first))
    gamma = truth / users.level[0]
    keep = gamma < 1
    counts = users.show(gamma[keep], rng.poisson(4, (int(keep.sum()), 10)), seed=1)
    for shift, slope in ((0.0, 1.0), (1.5, 3.0), (-1.0, 0.4)):
        imputed = expit(shift + slope * logit(first[keep]))
        learned = Shrunk().learn(counts, users.parameters, imputed)
        assert learned.k == pytest.approx(k, rel=0.15)
        assert learned.slope * slope == pytest.approx(1, abs=0.15)
        np.testing.assert_allclose(learned.prior(imputed, len(counts)), first[keep], atol=0.03)
    right = users.parameters
    doubt = replace(
        right,
        alpha_lower=0.5 * right.alpha,
        alpha_upper=1.5 * right.alpha,
        beta_lower=right.beta - 0.1,
        beta_upper=right.beta + 0.1,
    )
    unsure = Shrunk().learn(counts, doubt, first[keep])
    assert unsure.k == pytest.approx(k, rel=0.15)  # doubt about the parameters is no noise of single pairs


def test_the_gradient_is_that_of_finite_differences() -> None:
    users, rng = Users.of(), np.random.default_rng(6)
    counts = users.show(rng.uniform(0, 1, 40), rng.poisson(3, (40, 10)), seed=7)
    score, x = click_score(counts, users.parameters, np.ones(10)), rng.normal(size=40)
    for values in ((1.0, 0.2, 0.5), (4.0, -0.3, 1.5)):
        at = np.array(values)
        steps = 1e-5 * np.eye(3)
        apart = [(misfit(at + step, score, x)[0] - misfit(at - step, score, x)[0]) / 2e-5 for step in steps]
        np.testing.assert_allclose(misfit(at, score, x)[1], apart, rtol=1e-5, atol=1e-5)


def test_a_useless_imputation_is_worth_no_more_than_the_average() -> None:
    pairs, users = 4000, Users.of(trust=False)
    rng = np.random.default_rng(2)
    gamma = rng.uniform(0, 1, pairs)
    counts = users.show(gamma, rng.poisson(3, (pairs, 10)), seed=3)
    noise, none = (
        Shrunk().learn(counts, users.parameters, rng.uniform(0.1, 0.9, pairs)),
        Shrunk().learn(counts, users.parameters),
    )
    assert noise.slope < 0.1
    assert noise.k == pytest.approx(none.k, rel=0.1)
    assert none.prior(None, 1)[0] == pytest.approx(users.first_slot(gamma).mean(), abs=0.02)


def test_a_log_that_says_nothing_leaves_a_usable_estimator() -> None:
    parameters = ClickParameters(np.ones(1), np.zeros(1))
    for shown in (0, 1):
        counts = PairCounts(np.full((4, 1), shown), np.zeros((4, 1), dtype=np.int64))
        made = Shrunk().estimate(counts, parameters, np.array([0.1, 0.2, 0.3, 0.4]))
        assert np.isfinite(made.values).all()
        assert ((made.values >= 0) & (made.values <= 1)).all()
    assert Shrunk().learn(counts.select(slice(0)), parameters, np.zeros(0)).k == pytest.approx(10)
