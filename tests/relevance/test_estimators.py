"""Estimators and their intervals: values by hand, the contract of every estimator, and how often intervals hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from clickprism.errors import DataError, SettingError
from clickprism.log_model.results import ClickParameters
from clickprism.relevance.estimators import (
    Affine,
    DoublyRobust,
    Estimator,
    InversePropensity,
    click_score,
    normal_quantile,
)
from clickprism.relevance.pairs import PairCounts
from clickprism.types import Float64, Int64
from tests.relevance.pair_worlds import Users

PARAMETERS = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.1]), np.array([0.8, 0.6]))
COUNTS = PairCounts(np.array([[10, 20], [0, 0]]), np.array([[4, 5], [0, 0]]), np.array([[7.0, 15.0], [0.0, 0.0]]))
TWO_POSITIONS = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.1]))
IMPUTED = np.array([0.2, 0.7])


def test_the_affine_estimate_agrees_with_a_calculation_by_hand() -> None:
    made = Affine().estimate(COUNTS, PARAMETERS)
    assert made.values[0] == pytest.approx((4 + 3 / 0.5) / 30)
    assert np.isnan(made.values[1])
    assert (made.lower[1], made.upper[1], made.weight[1]) == (0, 1, 0)


def test_inverse_propensity_by_hand() -> None:
    assert InversePropensity().estimate(COUNTS, PARAMETERS).values[0] == pytest.approx((4 + 5 / 0.75) / 30)
    without = ClickParameters(PARAMETERS.alpha, PARAMETERS.beta)
    assert InversePropensity().estimate(COUNTS, without).values[0] == pytest.approx((4 + 5 / 0.5) / 30)


def test_doubly_robust_by_hand() -> None:
    theta, imp = (0.7, 0.75), 0.2  # the means of e in the log
    found = DoublyRobust().estimate(COUNTS, PARAMETERS, IMPUTED)
    affine = (4 + 3 / 0.5) / 30
    assert found.values[0] == pytest.approx(affine + imp * (1 - (7 / theta[0] + 15 / theta[1]) / 30))
    assert found.values[1] == IMPUTED[1]
    assert found.imputed_only.tolist() == [False, True]
    assert found.source_names.tolist() == ["clicks", "imputation"]
    given = DoublyRobust(theta=(0.8, 0.6)).estimate(COUNTS, PARAMETERS, IMPUTED)
    assert given.values[0] == pytest.approx(affine + imp * (1 - (7 / 0.8 + 15 / 0.6) / 30))


def test_an_examination_that_says_nothing_leaves_the_affine_estimate() -> None:
    theta = np.array([0.8, 0.6])
    counts = PairCounts(COUNTS.impressions, COUNTS.clicked, COUNTS.impressions * theta)
    affine = Affine().estimate(counts, PARAMETERS).values[0]
    for estimator in (DoublyRobust(), DoublyRobust(beta_1=0.1)):
        assert estimator.estimate(counts, PARAMETERS, IMPUTED).values[0] == pytest.approx(affine)


def test_doubly_robust_is_equation_4_of_the_paper() -> None:
    """On gamma, the relevance of the paper: gamma + mean of (c - beta_k - e / theta_k alpha_k gamma) / alpha_k."""
    users = Users.of(positions=3)
    slope, start = users.level
    counts = users.show(np.array([0.3]), np.array([[20, 30, 40]]), seed=0)
    assert counts.examination is not None
    gamma = 0.4
    alpha, beta = users.parameters.alpha * slope, users.parameters.beta + users.parameters.alpha * start
    observed = counts.examination[0] / users.theta
    paper = gamma + ((counts.clicked[0] - counts.impressions[0] * beta) / alpha - observed * gamma).sum() / 90
    estimator = DoublyRobust(beta_1=start, theta=tuple(users.theta))
    found = estimator.estimate(counts, users.parameters, np.array([slope * gamma + start]))
    assert (found.values[0] - start) / slope == pytest.approx(paper)


@pytest.mark.parametrize("estimator", [Affine(), InversePropensity(), DoublyRobust()], ids=lambda each: each.name)
def test_contract_of_every_estimator(estimator: Estimator) -> None:
    users = Users.of(positions=4)
    rng = np.random.default_rng(1)
    gamma, shown = rng.uniform(0, 1, 60), rng.poisson(3, (60, 4))
    shown[:5] = 0
    counts, imputed = users.show(gamma, shown, seed=2), rng.uniform(0.1, 0.9, 60)
    whole = estimator.estimate(counts, users.parameters, imputed)
    known = estimator
    if isinstance(estimator, DoublyRobust):
        known = replace(estimator, theta=tuple(estimator.means(counts)[0]))
    all_of_them = known.estimate(counts, users.parameters, imputed)
    parts = [known.estimate(counts.select(part), users.parameters, imputed[part]) for part in (slice(9), slice(9, 60))]
    np.testing.assert_allclose(np.concatenate([part.values for part in parts]), whole.values)
    np.testing.assert_allclose(np.concatenate([part.upper for part in parts]), all_of_them.upper)
    assert ((whole.lower >= 0) & (whole.lower <= whole.upper) & (whole.upper <= 1)).all()
    assert (whole.weight[:5] == 0).all()
    assert np.isfinite(whole.weight).all()
    assert np.isnan(whole.values[5:]).sum() == 0
    if isinstance(estimator, DoublyRobust):
        assert whole.imputed_only[:5].all()
        assert np.isfinite(whole.values).all()
    empty = estimator.estimate(counts.select(slice(0)), users.parameters, imputed[:0])
    assert len(empty) == 0


def test_an_impression_in_the_first_slot_is_worth_one() -> None:
    parameters = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.0]))
    counts = PairCounts(np.array([[200, 0], [0, 200]]), np.array([[20, 0], [0, 10]]))
    weight = Affine().estimate(counts, parameters, np.array([0.1, 0.1])).weight
    assert weight[0] == pytest.approx(200)
    assert 90 < weight[1] < 100  # y = .1: .25 * .09 / (.05 * .95) = .474 for each


def test_values_are_not_limited_to_probabilities() -> None:
    counts = PairCounts(np.array([[0, 10]]), np.array([[0, 0]]))
    assert Affine().estimate(counts, PARAMETERS).values[0] == pytest.approx(-0.2)


def test_errors_say_what_is_missing() -> None:
    with pytest.raises(DataError, match="needs an imputation"):
        DoublyRobust().estimate(COUNTS, PARAMETERS)
    with pytest.raises(DataError, match="imputations must be between 0 and 1"):
        DoublyRobust().estimate(COUNTS, PARAMETERS, np.array([0.2, np.nan]))
    with pytest.raises(DataError, match="needs the examination of each impression"):
        DoublyRobust().estimate(PairCounts(COUNTS.impressions, COUNTS.clicked), PARAMETERS, IMPUTED)
    with pytest.raises(DataError, match="the counts have 2 positions, but the click parameters only 1"):
        Affine().estimate(COUNTS, ClickParameters(np.ones(1), np.zeros(1)))
    with pytest.raises(SettingError, match="theta must have a value for each of the 2 positions"):
        DoublyRobust(theta=(0.5,)).estimate(COUNTS, PARAMETERS, IMPUTED)


def test_ends_are_where_the_score_test_rejects() -> None:
    counts, weights = PairCounts(np.array([[12, 25]]), np.array([[3, 9]])), 1 / TWO_POSITIONS.alpha
    lower, upper = (float(end[0]) for end in click_score(counts, TWO_POSITIONS).interval(0.9))

    def excess(y: float) -> float:
        p = TWO_POSITIONS.alpha * y + TWO_POSITIONS.beta
        off = (weights * (counts.clicked[0] - counts.impressions[0] * p)).sum()
        return float(off**2 - normal_quantile(0.9) ** 2 * (weights**2 * counts.impressions[0] * p * (1 - p)).sum())

    value = float(Affine().estimate(counts, TWO_POSITIONS).values[0])
    assert lower == pytest.approx(brentq(excess, 0.0, value))
    assert upper == pytest.approx(brentq(excess, value, 1.0))


def test_a_pair_never_clicked_has_an_interval() -> None:
    counts = PairCounts(np.array([[50, 0]]), np.array([[0, 0]]))
    made = Affine().estimate(counts, TWO_POSITIONS)
    assert (made.values[0], made.lower[0]) == (0, 0)
    z2 = normal_quantile(0.95) ** 2
    assert made.upper[0] == pytest.approx(z2 / (50 + z2))
    assert made.variance[0] > 0


def test_unsure_parameters_widen_the_interval() -> None:
    sure = ClickParameters(TWO_POSITIONS.alpha, TWO_POSITIONS.beta)
    unsure = ClickParameters(
        sure.alpha,
        sure.beta,
        alpha_lower=np.array([1, 0.45]),
        alpha_upper=np.array([1, 0.55]),
        beta_lower=np.array([0, 0.09]),
        beta_upper=np.array([0, 0.11]),
    )
    counts = PairCounts(np.array([[0, 1_000_000], [1_000_000, 0]]), np.array([[0, 300_000], [400_000, 0]]))
    narrow, wide = (Affine().estimate(counts, parameters) for parameters in (sure, unsure))
    width = wide.upper - wide.lower
    by_hand = 2 * np.hypot(0.05 * 0.4, 0.01) / 0.5  # y = .4
    assert width[0] == pytest.approx(by_hand, rel=0.01)
    less = Affine().estimate(counts, replace(unsure, confidence=0.5))  # the same width holds half as often
    assert less.upper[0] - less.lower[0] == pytest.approx(
        by_hand * normal_quantile(0.95) / normal_quantile(0.5), rel=0.01
    )
    assert width[1] == pytest.approx(narrow.upper[1] - narrow.lower[1])


def coverage(estimator: Estimator, users: Users, gamma: Float64, shown: Int64, imputed: Float64) -> float:
    counts = users.show(gamma, shown, seed=7)
    truth = users.first_slot(gamma)
    made = estimator.estimate(counts, users.parameters, imputed)
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
@pytest.mark.parametrize("rates", [(0.005, 0.05), (0.05, 0.5), (0.5, 1.0)], ids=["rare", "middling", "frequent"])
@pytest.mark.parametrize("places", [slice(0, 1), slice(0, 10), slice(6, 10)], ids=["first", "all", "last"])
def test_intervals_of_95_cover_93_to_97(trust: bool, rates: tuple[float, float], places: slice) -> None:
    """Pairs of 30 to 3000 impressions; the share of 6000 has a standard error of .003."""
    users = Users.of(trust=trust)
    gamma, shown, imputed = drawn(users, rates, places, seed=11)
    for estimator in (Affine(), DoublyRobust()):
        share = coverage(estimator, users, gamma, shown, imputed)
        assert 0.93 <= share <= 0.97, (estimator, share)


def test_intervals_cover_with_estimated_parameters() -> None:
    """On average over 400 sets of parameters, 5% off in alpha and .02 in beta; pairs of 30 to 3000 impressions."""
    users, rng = Users.of(), np.random.default_rng(8)
    gamma, shown, _ = drawn(users, (0.05, 1.0), slice(0, 10), seed=13)
    counts, truth, true = users.show(gamma, shown, seed=9), users.first_slot(gamma), users.parameters
    apart = np.ones(10)
    apart[0] = 0
    held = []
    for _ in range(400):
        alpha = true.alpha * (1 + 0.05 * apart * rng.normal(size=10))
        beta = true.beta + 0.02 * apart * rng.normal(size=10)
        slope, start = 1.96 * 0.05 * apart * true.alpha, 1.96 * 0.02 * apart
        used = ClickParameters(alpha, beta, None, alpha - slope, alpha + slope, beta - start, beta + start)
        sure = ClickParameters(alpha, beta)
        found = [Affine().estimate(counts, each) for each in (used, sure)]
        held.append([((made.lower <= truth) & (truth <= made.upper)).mean() for made in found])
    with_them, without = np.mean(held, axis=0)
    assert 0.93 <= with_them <= 0.97
    assert without < 0.9


def test_equations_1_to_4_of_the_paper_by_hand() -> None:
    """Zou et al. 2022 on gamma, term by term: three impressions (k, c, e) of one pair, two positions."""
    theta, plus, minus = np.array([0.8, 0.5]), np.array([0.9, 0.8]), np.array([0.3, 0.1])
    parameters = ClickParameters.of_trust(theta, plus, minus)
    # alpha_1 = .8 (.9 - .3), beta_1 = .8 x .3
    alpha, beta = parameters.alpha * 0.48, parameters.beta + parameters.alpha * 0.24
    assert alpha == pytest.approx([0.48, 0.35])
    assert beta == pytest.approx([0.24, 0.05])
    gamma, imputed = 0.4, 0.6
    clicks = parameters.click_rates(np.array([0.48 * gamma + 0.24]))  # Eq. 1: .8 (.9 x .4 + .3 x .6), .5 (.32 + .06)
    assert clicks[0] == pytest.approx([0.432, 0.19])
    counts = PairCounts(np.array([[2, 1]]), np.array([[1, 0]]), np.array([[0.9 + 0.6, 0.3]]))
    affine = ((1 - 0.24) / 0.48 + (0 - 0.24) / 0.48 + (0 - 0.05) / 0.35) / 3
    found = Affine().estimate(counts, parameters)
    assert (found.values - 0.24) / 0.48 == pytest.approx([affine])
    taken = 0.9 * 0.6 * imputed / 0.48 + 0.6 * 0.6 * imputed / 0.48 + 0.3 * 0.7 * imputed / 0.35
    estimator = DoublyRobust(beta_1=0.24, theta=(0.8, 0.5))
    found = estimator.estimate(counts, parameters, np.array([0.48 * imputed + 0.24]))
    robust = (found.values - 0.24) / 0.48
    assert robust == pytest.approx([imputed + affine - taken / 3])  # Eq. 4
    zeta = ((0.48 - 0.9 * 0.6) / 0.48 + (0.48 - 0.6 * 0.6) / 0.48 + (0.35 - 0.3 * 0.7) / 0.35) / 3
    assert robust == pytest.approx([zeta * imputed + affine])  # section 6.2
    ipw = InversePropensity().estimate(counts, parameters)
    assert ipw.values == pytest.approx([0.8 * (1 / 0.8) / 3])  # section 3, in units of c_1 = theta_1 gamma
