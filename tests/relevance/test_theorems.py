"""Bias and variance of simulated estimates against Theorems 1 and 2, within three standard errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.observation.parameters import ClickParameters
from clickprism.relevance.counts import PairCounts
from clickprism.relevance.doubly_robust import Correction, DoublyRobust
from clickprism.relevance.estimators import Affine
from clickprism.relevance.sums import Sums, Weighting
from clickprism.relevance.theorems import (
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


@pytest.mark.parametrize("used", [TRUE, WRONG], ids=["true", "wrong"])
@pytest.mark.parametrize("weighting", ["mean", "ratio", "precision"])
def test_theorem_1(weighting: Weighting, used: ClickParameters) -> None:
    counts, sums = shown(1), Sums(weighting, rates=(0.5, 0.3, 0.2, 0.1))
    values = Affine(sums).estimate(counts, used).values
    bias = affine_bias(counts, used, TRUE, RELEVANCE, sums=sums)[0]
    assert abs(bias) < 1e-12 if used is TRUE else abs(bias) > 0.02
    assert within(values - RELEVANCE, bias)
    variance = (values - values.mean()) ** 2
    assert within(variance, expected_variance(counts, used, TRUE, RELEVANCE, sums=sums)[0])
    if used is TRUE:  # else positions differ among themselves by their bias, which the theorem counts as variance
        told = affine_variance(counts, used, values, sums=sums)
        assert told.mean() == pytest.approx(variance.mean(), rel=0.07)


@pytest.mark.parametrize("used", [TRUE, WRONG], ids=["true", "wrong"])
@pytest.mark.parametrize("correction", ["click", "relevance"])
@pytest.mark.parametrize("weighting", ["mean", "precision"])
def test_theorem_2(weighting: Weighting, correction: Correction, used: ClickParameters) -> None:
    counts, imputed = shown(2), np.full(TIMES, 0.5)
    estimator = DoublyRobust(Sums(weighting, rates=(0.5, 0.3, 0.2, 0.1)), correction=correction).learn(counts, used)
    made = estimator.estimate(counts, used, imputed)
    bias = doubly_robust_bias(
        counts, used, TRUE, RELEVANCE, imputed, estimator=replace(estimator, theta=tuple(USERS.theta)), seen=USERS.theta
    )[0]
    assert abs(bias) < 1e-12 if used is TRUE else abs(bias) > 0.02
    assert within(made.values - RELEVANCE, bias)
    if used is TRUE:
        variance = (made.values - made.values.mean()) ** 2
        told = doubly_robust_variance(counts, used, made.values, imputed, estimator=estimator)
        assert told.mean() == pytest.approx(variance.mean(), rel=0.07)
        assert made.variance.mean() == pytest.approx(variance.mean(), rel=0.07)
        bound = PairCounts(counts.impressions, counts.clicked, counts.examination)
        assert (doubly_robust_variance(bound, used, made.values, imputed, estimator=estimator) > told).mean() > 0.999


def test_an_examination_lowers_the_variance_of_a_good_imputation() -> None:
    counts = shown(3)
    affine = Affine(Sums("mean")).estimate(counts, TRUE).values
    robust = DoublyRobust(Sums("mean")).estimate(counts, TRUE, RELEVANCE).values
    assert robust.var() < 0.9 * affine.var()


def test_a_right_imputation_makes_up_for_a_wrong_theta() -> None:
    """Alpha is wrong by its theta alone, and e is right: the affine estimate is biased, the doubly robust one is not.

    Beta is 0, as wrong thetas leave it right only there.
    """
    users = Users.of(positions=4, trust=False)
    counts = users.show(np.full(TIMES, GAMMA), np.tile(SHOWN, (TIMES, 1)), seed=4)
    theta = users.theta * np.array([1, 1.3, 0.7, 1.2])
    used, truth = ClickParameters(theta / theta[0], np.zeros(4)), users.first_slot(np.full(TIMES, GAMMA))
    robust = DoublyRobust(Sums("mean"), theta=tuple(theta)).estimate(counts, used, truth).values
    assert within(robust - truth, 0.0)
    assert not within(Affine(Sums("mean")).estimate(counts, used).values - truth, 0.0)


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
