"""What the log tells of the imputation, and the bars of the default estimator on head, middle and tail."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import expit, logit

from clickprism.observation.parameters import ClickParameters
from clickprism.relevance.counts import PairCounts
from clickprism.relevance.estimators import DEFAULT, ESTIMATORS, Affine
from clickprism.relevance.intervals import click_score
from clickprism.relevance.shrinkage import Shrunk, misfit
from clickprism.relevance.sums import Sums
from clickprism.settings import choose
from clickprism.types import Float64, Int64
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


@dataclass(frozen=True, eq=False)
class World:
    """Queries of Zipf frequencies, each with documents that a noisy ranker showed, and an imputation."""

    users: Users
    counts: PairCounts
    truth: Float64
    imputed: Float64
    grades: Int64
    searches: Int64

    @classmethod
    def of(cls, *, trust: bool, calibrated: bool, seed: int) -> World:
        queries, documents, places, total = 500, 12, 10, 24_000
        users, rng = Users.of(trust=trust), np.random.default_rng(seed)
        grades = rng.choice(5, (queries, documents), p=[0.45, 0.25, 0.15, 0.1, 0.05])
        gamma = np.clip(0.1 + 0.9 * (2.0**grades - 1) / 15 + rng.normal(0, 0.03, grades.shape), 0.01, 1)
        share = 1 / np.arange(1, queries + 1) ** 1.1
        searches = rng.multinomial(total, share / share.sum())
        of = np.repeat(np.arange(queries), searches)
        ranker = np.log(gamma) + rng.normal(0, 1, gamma.shape)
        order = np.argsort(-ranker[of] - rng.gumbel(size=(total, documents)), axis=1)[:, :places]
        cells = (of[:, None] * documents + order) * places + np.arange(places)
        shown = np.bincount(cells.ravel(), minlength=grades.size * places).reshape(-1, places)
        truth = users.first_slot(gamma.ravel())
        z = logit(truth)
        noisy = 0.56 * (z - z.mean()) / z.std() + np.sqrt(1 - 0.56**2) * rng.normal(size=z.size)
        imputed = expit(z.mean() + 0.56 * z.std() * noisy) if calibrated else expit(2 * noisy + 1)
        return cls(users, users.show(gamma.ravel(), shown, seed=seed), truth, imputed, grades, searches)

    def dcg(self, name: str) -> Float64:
        """DCG(exp)@4 on head (100 searches and more), middle (10 and more) and tail."""
        estimator = choose(ESTIMATORS, name, path="estimator")
        values = np.nan_to_num(estimator.estimate(self.counts, self.users.parameters, self.imputed).values)
        top = np.argsort(-values.reshape(self.grades.shape), axis=1, kind="stable")[:, :4]
        gains = 2.0 ** np.take_along_axis(self.grades, top, axis=1) - 1
        each = (gains / np.log2(np.arange(2, 6))).sum(axis=1)
        head, tail = self.searches >= 100, self.searches < 10
        return np.array([each[bucket].mean() for bucket in (head, ~head & ~tail, tail)])


@pytest.mark.parametrize("calibrated", [True, False], ids=["calibrated", "not"])
@pytest.mark.parametrize("trust", [True, False], ids=["trust", "position"])
def test_the_default_keeps_the_head_and_wins_the_middle_and_the_tail(trust: bool, calibrated: bool) -> None:
    worlds = [World.of(trust=trust, calibrated=calibrated, seed=seed) for seed in range(5)]
    default, affine, imputation = (
        np.mean([world.dcg(name) for world in worlds], axis=0) for name in (DEFAULT, "affine", "imputation")
    )
    assert default[0] > 0.99 * affine[0]
    assert (default[1:] > affine[1:]).all()
    assert (default[1:] > imputation[1:]).all()


def test_no_weighting_has_less_spread_than_precision() -> None:
    users = Users.of()
    gamma = np.full(3000, 0.3)
    counts = users.show(gamma, np.full((3000, 10), 5), seed=4)
    spread = [
        Affine(Sums(weighting)).estimate(counts, users.parameters).values.var()
        for weighting in ("precision", "ratio", "mean")
    ]
    assert spread[0] < 0.97 * min(spread[1:])
