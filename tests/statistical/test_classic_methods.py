"""The classic methods on simulated truth: what is unbiased recovers it, a heuristic at least gains on raw clicks."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.debias.base import Method
from clickprism.debias.click import Click
from clickprism.debias.ipw import AffineCorrection, InversePropensity
from clickprism.debias.position_based import PositionAware, RegressionEM
from clickprism.rankers.linear import Linear
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings, Fitted
from clickprism.types import Clicks, Float64, Int64, Lists

CURVE = np.array([0.9, 0.65, 0.45, 0.3, 0.2, 0.15])
FALSE = np.array([0.5, 0.25, 0.15, 0.1, 0.05, 0.02])  # clicks without relevance, once seen
WEIGHTS = np.array([0.8, -0.6, 0.3, 0.0])
RANKED_BY = np.array([0.4, 0.0, 0.4, 0.8])
LISTS, PLACES = 500, len(CURVE)
SETTINGS = FitSettings(epochs=60, batch_size=64, learning_rate=0.1, threads=1, patience=0, clip_norm=0)


def world(seed: int) -> tuple[Lists, Int64, Float64]:
    """Lists ranked by features of which some say nothing, the rows as shown, their relevance (linear log odds)."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(LISTS, PLACES, 4)).astype(np.float32)
    relevance = 1 / (1 + np.exp(1.5 - features @ WEIGHTS))
    order = np.argsort(-(features @ RANKED_BY + rng.normal(size=(LISTS, PLACES))), axis=1)
    lists = Lists(
        features.reshape(-1, 4), np.arange(0, LISTS * PLACES + 1, PLACES), np.array([str(q) for q in range(LISTS)])
    )
    return lists, order + np.arange(LISTS)[:, None] * PLACES, np.take_along_axis(relevance, order, axis=1)


def log_of(chance: Float64, lists: Lists, rows: Int64, sessions: int) -> Clicks:
    return Clicks(
        lists,
        lists.offsets,
        rows.ravel(),
        np.tile(np.arange(1, PLACES + 1, dtype=np.int32), LISTS),
        np.random.default_rng(5).binomial(sessions, chance).ravel(),
        np.full(LISTS, sessions, dtype=np.int64),
    )


@pytest.fixture(scope="module")
def plain() -> Clicks:
    lists, rows, relevance = world(11)
    return log_of(relevance * CURVE, lists, rows, 1000)


@pytest.fixture(scope="module")
def trusting() -> Clicks:
    lists, rows, relevance = world(11)
    return log_of(CURVE * (relevance + FALSE * (1 - relevance)), lists, rows, 1000)


def trained(log: Clicks, method: Method) -> Fitted:
    return fit(log, method=method, ranker=Linear(), settings=SETTINGS)


def weights(fitted: Fitted) -> Float64:
    probe = Lists(np.eye(5, 4, dtype=np.float32), np.array([0, 5]), np.array(["probe"]))
    scores = fitted.model.score(probe)
    return np.asarray(scores[:4] - scores[4], dtype=np.float64)


def direction(fitted: Fitted) -> float:
    """The cosine between the weights that were learned and the true ones: 1 for the right order everywhere."""
    found = weights(fitted)
    return float(found @ WEIGHTS / np.linalg.norm(found) / np.linalg.norm(WEIGHTS))


@pytest.mark.parametrize("method", [RegressionEM(), PositionAware()])
def test_pointwise_methods_recover_both_factors(plain: Clicks, method: Method) -> None:
    fitted = trained(plain, method)
    assert weights(fitted) == pytest.approx(WEIGHTS, abs=0.05)
    assert fitted.observation is not None
    assert fitted.observation / (CURVE / CURVE[0]) == pytest.approx(np.ones(PLACES), abs=0.03)


def test_raw_clicks_do_not_recover_relevance(plain: Clicks) -> None:
    assert np.abs(weights(trained(plain, Click())) - WEIGHTS).max() > 0.15


def test_the_affine_correction_takes_trust_away_and_plain_weights_do_not(trusting: Clicks) -> None:
    affine = AffineCorrection(tuple(CURVE * (1 - FALSE)), tuple(CURVE * FALSE))
    assert direction(trained(trusting, affine)) > 0.999
    assert direction(trained(trusting, InversePropensity(tuple(CURVE)))) < 0.98


def test_pal_with_trust_learns_it_from_the_log(trusting: Clicks) -> None:
    with_trust, without = (trained(trusting, PositionAware(trust=trust)) for trust in (True, False))
    assert 1 - direction(with_trust) < 0.2 * (1 - direction(without))
    alpha = CURVE * (1 - FALSE)
    assert with_trust.observation is not None
    assert with_trust.observation / (alpha / alpha[0]) == pytest.approx(np.ones(PLACES), abs=0.2)
