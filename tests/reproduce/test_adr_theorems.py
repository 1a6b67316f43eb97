"""Bias and variance of simulated estimates against Theorems 1 and 2, within three standard errors.

The variances as printed are exact in expectation where they are taken at the limit of the estimate, truth plus bias,
but for what `_apart` says, which is 0 with the right parameters. Taken at the estimate itself, as a log must, they are
too low by the one degree of freedom that it costs, for the weights of the paper by exactly 1 / D of the variance.
"""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.log_model.results import ClickParameters
from clickprism.relevance.estimators import Affine, DoublyRobust
from clickprism.relevance.pairs import PairCounts
from clickprism.types import Float64
from reproduce.adr.theorems import (
    affine_bias,
    affine_variance,
    doubly_robust_bias,
    doubly_robust_variance,
    expected_variance,
)
from tests.relevance.pair_worlds import Users, within

TIMES = 4000
GAMMA = 0.35
SHOWN = np.array([40, 30, 20, 30])
USERS = Users.of(positions=4)
TRUE = USERS.parameters
WRONG = ClickParameters(TRUE.alpha * np.array([1, 1.2, 0.9, 1.1]), TRUE.beta + np.array([0, 0.05, 0.03, 0.02]))
RELEVANCE = USERS.first_slot(np.full(TIMES, GAMMA))


def shown(seed: int) -> PairCounts:
    return USERS.show(np.full(TIMES, GAMMA), np.tile(SHOWN, (TIMES, 1)), seed=seed)


def test_the_bias_of_the_affine_estimate_by_hand() -> None:
    true = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.1]))
    used = ClickParameters(np.array([1.0, 0.4]), np.array([0.0, 0.1]))
    counts = PairCounts(np.array([[1, 3]]), np.array([[0, 0]]))
    assert affine_bias(counts, used, true, np.array([0.2])) == pytest.approx(3 * (0.1 * 0.2) / 0.4 / 4)


@pytest.mark.parametrize("used", [TRUE, WRONG], ids=["true", "wrong"])
def test_theorem_1_gives_bias_and_variance_of_the_affine_estimate(used: ClickParameters) -> None:
    counts = shown(1)
    values = Affine().estimate(counts, used).values
    bias = affine_bias(counts, used, TRUE, RELEVANCE)[0]
    assert abs(bias) < 1e-12 if used is TRUE else abs(bias) > 0.02
    assert within(values - RELEVANCE, bias)
    limit, squares = RELEVANCE + bias, (values - RELEVANCE - bias) ** 2
    assert within(squares, expected_variance(counts, used, TRUE, RELEVANCE)[0])
    told = affine_variance(counts, used, limit)
    weights, left = 1 / used.alpha, (TRUE.alpha * RELEVANCE[0] + TRUE.beta) - (used.alpha * limit[0] + used.beta)
    assert within(told - squares, _apart(weights, left, used))
    at_estimate = affine_variance(counts, used, values)
    assert at_estimate.mean() < told.mean()
    if used is TRUE:
        assert within(at_estimate * SHOWN.sum() / (SHOWN.sum() - 1) - squares, 0.0)


@pytest.mark.parametrize("used", [TRUE, WRONG], ids=["true", "wrong"])
def test_theorem_2_gives_bias_and_variance_of_the_doubly_robust_estimate(used: ClickParameters) -> None:
    counts, imputed = shown(2), np.full(TIMES, 0.5)
    estimator = DoublyRobust(theta=tuple(USERS.theta))
    made = estimator.estimate(counts, used, imputed)
    bias = doubly_robust_bias(counts, used, TRUE, RELEVANCE, imputed, estimator=estimator, seen=USERS.theta)[0]
    assert abs(bias) < 1e-12 if used is TRUE else abs(bias) > 0.02
    assert within(made.values - RELEVANCE, bias)
    limit, squares = RELEVANCE + bias, (made.values - RELEVANCE - bias) ** 2
    told = doubly_robust_variance(counts, used, limit, imputed, estimator=estimator)
    each, always = estimator.subtracted(used, imputed[:1], USERS.theta)
    taken = USERS.theta * each[0] + always[0] + (limit[0] - imputed[0]) * used.alpha
    left = TRUE.alpha * RELEVANCE[0] + TRUE.beta - taken
    assert within(told - squares, _apart(1 / used.alpha, left, used))
    at_estimate = doubly_robust_variance(counts, used, made.values, imputed, estimator=estimator)
    assert at_estimate.mean() < told.mean()
    if used is TRUE:
        assert within(at_estimate * SHOWN.sum() / (SHOWN.sum() - 1) - squares, 0.0)
    bound = PairCounts(counts.impressions, counts.clicked, counts.examination)
    above = doubly_robust_variance(bound, used, made.values, imputed, estimator=estimator) > at_estimate
    assert above.mean() > 0.999 or used is WRONG
    learned = DoublyRobust().estimate(counts, used, imputed)
    assert used is WRONG or learned.variance.mean() == pytest.approx(squares.mean(), rel=0.07)


def _apart(weights: Float64, left: Float64, used: ClickParameters) -> float:
    """What the printed variance has beyond the variance: how the bias of each position differs from the mean one."""
    return float((SHOWN * weights**2 * left**2).sum() / (SHOWN * weights * used.alpha).sum() ** 2)


def test_an_examination_lowers_the_variance_of_a_good_imputation() -> None:
    counts = shown(3)
    affine = Affine().estimate(counts, TRUE).values
    robust = DoublyRobust(beta_1=USERS.level[1]).estimate(counts, TRUE, RELEVANCE).values
    assert robust.var() < 0.95 * affine.var()


def test_a_right_imputation_makes_up_for_a_wrong_theta() -> None:
    """Alpha is wrong by its theta alone, and e is right: the affine estimate is biased, the doubly robust one is not.

    Beta is 0, as wrong thetas leave it right only there.
    """
    users = Users.of(positions=4, trust=False)
    counts = users.show(np.full(TIMES, GAMMA), np.tile(SHOWN, (TIMES, 1)), seed=4)
    theta = users.theta * np.array([1, 1.3, 0.7, 1.2])
    used, truth = ClickParameters(theta / theta[0], np.zeros(4)), users.first_slot(np.full(TIMES, GAMMA))
    robust = DoublyRobust(theta=tuple(theta)).estimate(counts, used, truth).values
    assert within(robust - truth, 0.0)
    assert not within(Affine().estimate(counts, used).values - truth, 0.0)


def test_delta_is_right_as_printed() -> None:
    """The variance of Theorem 2 as printed is the mean square of the terms' distances, for one impression each."""
    rng = np.random.default_rng(5)
    size = 50
    alpha, beta, tilde = rng.uniform(0.2, 1, size), rng.uniform(0, 0.2, size), rng.uniform(0, 1, size)
    c, imp = rng.integers(0, 2, size), 0.3
    terms = imp + (c - beta - tilde * imp) / alpha
    dr = terms.mean()
    delta = (dr - imp) * (alpha * dr + (2 * tilde - alpha) * imp + 2 * beta - 2 * c) / alpha
    printed = ((tilde * imp + beta - c) ** 2 / alpha**2 + delta).mean()
    assert printed == pytest.approx(terms.var())
