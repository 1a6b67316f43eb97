"""Ends by hand and by root finding, and how often intervals hold the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from clickprism.observation.parameters import ClickParameters
from clickprism.relevance.counts import PairCounts
from clickprism.relevance.doubly_robust import DoublyRobust
from clickprism.relevance.estimates import Estimator
from clickprism.relevance.estimators import Affine
from clickprism.relevance.intervals import click_score, normal_quantile
from clickprism.relevance.shrinkage import Shrunk
from clickprism.relevance.sums import Sums
from clickprism.types import Float64, Int64
from tests.relevance.pair_worlds import Users

PARAMETERS = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.1]))


def test_ends_are_where_the_score_test_rejects() -> None:
    counts, weights = PairCounts(np.array([[12, 25]]), np.array([[3, 9]])), np.array([1.0, 0.7])
    lower, upper = (float(end[0]) for end in click_score(counts, PARAMETERS, weights).interval(0.9))

    def excess(y: float) -> float:
        p = PARAMETERS.alpha * y + PARAMETERS.beta
        off = (weights * (counts.clicked[0] - counts.impressions[0] * p)).sum()
        return float(off**2 - normal_quantile(0.9) ** 2 * (weights**2 * counts.impressions[0] * p * (1 - p)).sum())

    value = float(Affine(Sums("precision")).estimate(counts, PARAMETERS).values[0])
    assert lower == pytest.approx(brentq(excess, 0.0, value))
    assert upper == pytest.approx(brentq(excess, value, 1.0))


def test_a_pair_never_clicked_has_an_interval() -> None:
    counts = PairCounts(np.array([[50, 0]]), np.array([[0, 0]]))
    made = Affine().estimate(counts, PARAMETERS)
    assert (made.values[0], made.lower[0]) == (0, 0)
    z2 = normal_quantile(0.95) ** 2
    assert made.upper[0] == pytest.approx(z2 / (50 + z2))
    assert made.variance[0] > 0


def test_unsure_parameters_widen_the_interval() -> None:
    sure = ClickParameters(PARAMETERS.alpha, PARAMETERS.beta)
    unsure = ClickParameters(
        sure.alpha,
        sure.beta,
        alpha_lower=np.array([1, 0.45]),
        alpha_upper=np.array([1, 0.55]),
        beta_lower=np.array([0, 0.09]),
        beta_upper=np.array([0, 0.11]),
    )
    counts = PairCounts(np.array([[0, 1_000_000], [1_000_000, 0]]), np.array([[0, 300_000], [400_000, 0]]))
    narrow, wide = (Affine(Sums("ratio")).estimate(counts, parameters) for parameters in (sure, unsure))
    width = wide.upper - wide.lower
    by_hand = 2 * np.hypot(0.05 * 0.4, 0.01) / 0.5  # y = .4
    assert width[0] == pytest.approx(by_hand, rel=0.01)
    less = Affine(Sums("ratio")).estimate(counts, replace(unsure, confidence=0.5))  # the same width holds half as often
    assert less.upper[0] - less.lower[0] == pytest.approx(
        by_hand * normal_quantile(0.95) / normal_quantile(0.5), rel=0.01
    )
    assert width[1] == pytest.approx(narrow.upper[1] - narrow.lower[1])


def coverage(estimator: Estimator, users: Users, gamma: Float64, shown: Int64, imputed: Float64) -> float:
    counts = users.show(gamma, shown, seed=7)
    truth = users.first_slot(gamma)
    made = estimator.learn(counts, users.parameters, imputed).estimate(counts, users.parameters, imputed)
    enough = counts.shown >= 30
    return float(((made.lower <= truth) & (truth <= made.upper))[enough].mean())


def drawn(users: Users, rates: tuple[float, float], places: slice, *, seed: int) -> tuple[Float64, Int64, Float64]:
    """Relevance between these rates, impressions at these places, and imputations that are 30% off."""
    pairs, size = 6000, places.stop - places.start
    rng = np.random.default_rng([seed, int(1000 * rates[0]), size])
    gamma = np.exp(rng.uniform(np.log(rates[0]), np.log(rates[1]), pairs))
    shown = np.zeros((pairs, 10), dtype=np.int64)
    frequency = np.exp(rng.uniform(np.log(30), np.log(3000), pairs))
    shown[:, places] = rng.multinomial(np.ceil(frequency).astype(np.int64), rng.dirichlet(np.ones(size), pairs))
    return gamma, shown, np.clip(users.first_slot(gamma) * np.exp(rng.normal(0, 0.3, pairs)), 0.001, 0.99)


@pytest.mark.parametrize("trust", [True, False], ids=["trust", "position"])
@pytest.mark.parametrize("places", [slice(0, 1), slice(0, 10), slice(6, 10)], ids=["first", "all", "last"])
def test_shrunk_intervals_cover_pairs_of_all_rates(trust: bool, places: slice) -> None:
    """Though relevance is spread over them otherwise than a Beta distribution is."""
    users = Users.of(trust=trust)
    gamma, shown, imputed = drawn(users, (0.005, 1.0), places, seed=12)
    assert 0.93 <= coverage(Shrunk(), users, gamma, shown, imputed) <= 0.97


@pytest.mark.parametrize("trust", [True, False], ids=["trust", "position"])
@pytest.mark.parametrize("rates", [(0.005, 0.05), (0.05, 0.5), (0.5, 1.0)], ids=["rare", "middling", "frequent"])
@pytest.mark.parametrize("places", [slice(0, 1), slice(0, 10), slice(6, 10)], ids=["first", "all", "last"])
def test_intervals_of_95_cover_93_to_97(trust: bool, rates: tuple[float, float], places: slice) -> None:
    """Pairs of 30 to 3000 impressions; the share of 6000 has a standard error of .003."""
    users = Users.of(trust=trust)
    gamma, shown, imputed = drawn(users, rates, places, seed=11)
    for estimator in (Affine(), Affine(Sums("mean")), DoublyRobust(), DoublyRobust(correction="relevance")):
        share = coverage(estimator, users, gamma, shown, imputed)
        assert 0.93 <= share <= 0.97, (estimator, share)


@pytest.mark.parametrize("trust", [True, False], ids=["trust", "position"])
def test_posterior_intervals_cover_pairs_of_any_frequency(trust: bool) -> None:
    """Of `shrunk`, whose k is learned from the same clicks, over pairs from the spread that k describes."""
    pairs, users, k = 8000, Users.of(trust=trust), 20.0
    rng = np.random.default_rng(3)
    mean = rng.uniform(0.1, 0.5, pairs)
    gamma = rng.beta(k * mean, k * (1 - mean))
    imputed = users.first_slot(mean)
    frequency = np.exp(rng.uniform(0, np.log(1000), pairs)).astype(np.int64)
    shown = rng.multinomial(frequency, np.full(10, 0.1))
    counts, truth = users.show(gamma, shown, seed=5), users.first_slot(gamma)
    made = Shrunk().estimate(counts, users.parameters, imputed)
    held = (made.lower <= truth) & (truth <= made.upper)
    assert 0.93 <= held[frequency >= 30].mean() <= 0.97
    assert 0.93 <= held[frequency < 30].mean() <= 0.97


def test_intervals_cover_with_estimated_parameters() -> None:
    """On average over 40 sets of parameters, 5% off in alpha and .02 in beta; pairs of 30 to 3000 impressions."""
    users, rng = Users.of(), np.random.default_rng(8)
    gamma, shown, _ = drawn(users, (0.05, 1.0), slice(0, 10), seed=13)
    counts, truth, true = users.show(gamma, shown, seed=9), users.first_slot(gamma), users.parameters
    apart = np.ones(10)
    apart[0] = 0
    held = []
    for _ in range(40):
        alpha = true.alpha * (1 + 0.05 * apart * rng.normal(size=10))
        beta = true.beta + 0.02 * apart * rng.normal(size=10)
        slope, start = 1.96 * 0.05 * apart * true.alpha, 1.96 * 0.02 * apart
        used = ClickParameters(alpha, beta, None, alpha - slope, alpha + slope, beta - start, beta + start)
        found = [Affine(Sums(parameter_uncertainty=sure)).estimate(counts, used) for sure in (True, False)]
        held.append([((made.lower <= truth) & (truth <= made.upper)).mean() for made in found])
    with_them, without = np.mean(held, axis=0)
    assert 0.93 <= with_them <= 0.97
    assert without < 0.9
