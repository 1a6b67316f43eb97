from __future__ import annotations

import numpy as np
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.observation.parameters import ClickParameters
from clickprism.relevance.counts import PairCounts
from clickprism.relevance.doubly_robust import DoublyRobust
from clickprism.relevance.estimates import Estimator
from clickprism.relevance.estimators import DEFAULT, ESTIMATORS, Affine, Imputed, InversePropensity
from clickprism.relevance.shrinkage import Shrunk
from clickprism.relevance.sums import Sums
from clickprism.settings import build, choose, plain
from tests.relevance.pair_worlds import Users

PARAMETERS = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.1]), np.array([0.8, 0.6]))
COUNTS = PairCounts(np.array([[10, 20], [0, 0]]), np.array([[4, 5], [0, 0]]), np.array([[7.0, 15.0], [0.0, 0.0]]))
IMPUTED = np.array([0.2, 0.7])


def test_the_affine_estimate_agrees_with_a_calculation_by_hand() -> None:
    rates = (0.4, 0.3)  # weights are 1 and .5 * .24 / .21
    weight = 0.5 * 0.24 / 0.21
    by_hand = {
        "mean": (4 + 3 / 0.5) / 30,
        "ratio": (4 + 3) / (10 + 10),
        "precision": (4 + weight * 3) / (10 + weight * 10),
    }
    for weighting, value in by_hand.items():
        made = Affine(build(Sums, {"weighting": weighting, "rates": rates})).estimate(COUNTS, PARAMETERS)
        assert made.values[0] == pytest.approx(value)
        assert np.isnan(made.values[1])
        assert (made.lower[1], made.upper[1], made.weight[1]) == (0, 1, 0)


def test_the_click_rates_of_the_log_are_learned() -> None:
    assert Sums().learn(COUNTS).rates == pytest.approx((4.5 / 11, 5.5 / 21))
    assert Sums("mean").learn(COUNTS).rates is None


def test_inverse_propensity_by_hand() -> None:
    mean = InversePropensity(Sums("mean")).estimate(COUNTS, PARAMETERS)
    assert mean.values[0] == pytest.approx((4 + 5 / 0.75) / 30)
    ratio = InversePropensity(Sums("ratio"), least=0.9).estimate(COUNTS, PARAMETERS)
    assert ratio.values[0] == pytest.approx(9 / (10 + 0.9 * 20))
    without = ClickParameters(PARAMETERS.alpha, PARAMETERS.beta)
    assert InversePropensity(Sums("ratio")).estimate(COUNTS, without).values[0] == pytest.approx(9 / 20)


def test_doubly_robust_by_hand() -> None:
    theta, imp = (0.7, 0.75), 0.2  # the means of e in the log
    paper = DoublyRobust(Sums("mean"), correction="relevance").estimate(COUNTS, PARAMETERS, IMPUTED)
    affine = (4 + 3 / 0.5) / 30
    assert paper.values[0] == pytest.approx(affine + imp * (1 - (7 / theta[0] + 15 / theta[1]) / 30))
    assert paper.values[1] == IMPUTED[1]
    assert paper.imputed_only.tolist() == [False, True]

    given = DoublyRobust(Sums("mean"), theta=(0.8, 0.6))
    taken = 7 / 0.8 * (1.0 * imp), 15 / 0.6 * (0.5 * imp + 0.1)
    by_hand = imp + ((4 - taken[0]) / 1.0 + (5 - taken[1]) / 0.5) / 30
    assert given.estimate(COUNTS, PARAMETERS, IMPUTED).values[0] == pytest.approx(by_hand)


def test_an_examination_that_says_nothing_leaves_the_affine_estimate() -> None:
    theta = np.array([0.8, 0.6])
    counts = PairCounts(COUNTS.impressions, COUNTS.clicked, COUNTS.impressions * theta)
    for weighting in (Sums("mean"), Sums()):
        affine = Affine(weighting).estimate(counts, PARAMETERS).values[0]
        for estimator in (DoublyRobust(weighting), DoublyRobust(weighting, correction="relevance", beta_1=0.1)):
            assert estimator.estimate(counts, PARAMETERS, IMPUTED).values[0] == pytest.approx(affine)


def test_the_whole_click_does_not_depend_on_the_level() -> None:
    """Eq. 4 with gamma as relevance and with c_1 differ; with the whole expected click taken, they do not."""
    users = Users.of(positions=3)
    slope, start = users.level
    counts = users.show(np.array([0.3]), np.array([[20, 30, 40]]), seed=0)
    assert counts.examination is not None
    gamma, theta = 0.4, tuple(users.theta)
    alpha, beta = users.parameters.at_level(users.level)
    per_click = counts.examination[0] / users.theta / alpha
    whole = gamma + ((counts.clicked[0] / alpha).sum() - (per_click * (alpha * gamma + beta)).sum()) / 90
    made = DoublyRobust(Sums("mean"), theta=theta).estimate(counts, users.parameters, np.array([slope * gamma + start]))
    assert made.at_level(users.level).values[0] == pytest.approx(whole)

    paper = (
        gamma
        + (((counts.clicked - counts.impressions * beta)[0] / alpha).sum() - (per_click * alpha * gamma).sum()) / 90
    )
    equation_4 = DoublyRobust(Sums("mean"), correction="relevance", beta_1=start, theta=theta)
    made = equation_4.estimate(counts, users.parameters, np.array([slope * gamma + start]))
    assert made.at_level(users.level).values[0] == pytest.approx(paper)
    assert paper != pytest.approx(whole, abs=1e-3)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_contract_of_every_estimator(name: str) -> None:
    users = Users.of(positions=4)
    rng = np.random.default_rng(1)
    gamma, shown = rng.uniform(0, 1, 60), rng.poisson(3, (60, 4))
    shown[:5] = 0
    counts, imputed = users.show(gamma, shown, seed=2), rng.uniform(0.1, 0.9, 60)
    estimator = choose(ESTIMATORS, name, path="estimator")
    assert isinstance(estimator, Estimator)
    learned = estimator.learn(counts, users.parameters, imputed)
    assert build(type(learned), plain(learned)) == learned
    whole = learned.estimate(counts, users.parameters, imputed)
    parts = [
        learned.estimate(counts.select(part), users.parameters, imputed[part]) for part in (slice(9), slice(9, 60))
    ]
    np.testing.assert_allclose(np.concatenate([part.values for part in parts]), whole.values)
    np.testing.assert_allclose(np.concatenate([part.upper for part in parts]), whole.upper)
    np.testing.assert_array_equal(estimator.estimate(counts, users.parameters, imputed).values, whole.values)
    assert ((whole.lower >= 0) & (whole.lower <= whole.upper) & (whole.upper <= 1)).all()
    assert (whole.weight[:5] == 0).all()
    assert np.isfinite(whole.weight).all()
    assert np.isnan(whole.values[5:]).sum() == 0
    if name in ("doubly_robust", "shrunk", "imputation"):
        assert whole.imputed_only[:5].all()
        assert np.isfinite(whole.values).all()
    empty = learned.estimate(counts.select(slice(0)), users.parameters, imputed[:0])
    assert len(empty) == 0


def test_an_impression_in_the_first_slot_is_worth_one() -> None:
    parameters = ClickParameters(np.array([1.0, 0.5]), np.array([0.0, 0.0]))
    counts = PairCounts(np.array([[200, 0], [0, 200]]), np.array([[20, 0], [0, 10]]))
    for estimator in (Affine(), Shrunk(k=4.0)):
        weight = estimator.estimate(counts, parameters, np.array([0.1, 0.1])).weight
        assert weight[0] == pytest.approx(200)
        assert 90 < weight[1] < 100  # y = .1: .25 * .09 / (.05 * .95) = .474 for each


def test_clipped_values_stay_within_probabilities() -> None:
    counts = PairCounts(np.array([[0, 10]]), np.array([[0, 0]]))
    assert Affine().estimate(counts, PARAMETERS).values[0] == pytest.approx(-0.2)
    assert Affine(Sums(clip=True)).estimate(counts, PARAMETERS).values[0] == 0


def test_errors_say_what_is_missing() -> None:
    with pytest.raises(DataError, match="needs an imputation"):
        Imputed().estimate(COUNTS, PARAMETERS)
    with pytest.raises(DataError, match="imputations must be between 0 and 1"):
        Shrunk().estimate(COUNTS, PARAMETERS, np.array([0.2, np.nan]))
    with pytest.raises(DataError, match="needs the examination of each impression"):
        DoublyRobust().estimate(PairCounts(COUNTS.impressions, COUNTS.clicked), PARAMETERS, IMPUTED)
    with pytest.raises(DataError, match="counts go down to position 2, but parameters are known of 1"):
        Affine().estimate(COUNTS, ClickParameters(np.ones(1), np.zeros(1)))
    with pytest.raises(SettingError, match="weighting must be one of mean, ratio, precision"):
        choose(ESTIMATORS, {"name": "affine", "sums": {"weighting": "means"}}, path="estimator")
    with pytest.raises(SettingError, match="k must be 0 or more"):
        Shrunk(k=-1.0)
    with pytest.raises(SettingError, match="theta_clicked must have as many positions as theta"):
        DoublyRobust(theta=(0.5,), theta_clicked=(0.5, 0.4))
    assert DEFAULT in ESTIMATORS
