"""Debiasing on simulated truth: what is unbiased recovers it, what is not does not."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.debias.base import Method
from clickprism.debias.click import Click
from clickprism.debias.dla import DualLearning
from clickprism.debias.ipw import InversePropensity
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.rankers.linear import Linear
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings, Fitted
from clickprism.training.trees import clicks_per_exposure
from clickprism.types import Clicks, Float64, Lists

CURVE = np.array([1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.13, 0.1])
WEIGHTS = np.array([0.8, -0.6, 0.3, 0.0])
SETTINGS = FitSettings(epochs=60, batch_size=128, learning_rate=0.1, threads=1, patience=0, clip_norm=0)


@pytest.fixture(scope="module")
def log() -> Clicks:
    """Lists whose log relevance is linear in the features, ranked by a noisy view of it; 2000 sessions each."""
    rng = np.random.default_rng(11)
    lists, places = 600, len(CURVE)
    features = rng.normal(size=(lists, places, 4)).astype(np.float32)
    relevance = np.exp(features @ WEIGHTS - 4)
    order = np.argsort(-(features @ WEIGHTS + rng.normal(size=(lists, places))), axis=1)
    shown = np.take_along_axis(relevance, order, axis=1)
    clicks = rng.binomial(2000, np.clip(shown * CURVE, 0, 1))
    rows = order + np.arange(lists)[:, None] * places
    documents = Lists(
        features.reshape(-1, 4),
        np.arange(0, lists * places + 1, places),
        np.array([str(query) for query in range(lists)]),
    )
    positions = np.tile(np.arange(1, places + 1, dtype=np.int32), lists)
    return Clicks(
        documents, documents.offsets, rows.ravel(), positions, clicks.ravel(), np.full(lists, 2000, dtype=np.int64)
    )


def trained(log: Clicks, method: Method) -> Fitted:
    return fit(log, method=method, ranker=Linear(), settings=SETTINGS)


def weights(fitted: Fitted) -> Float64:
    probe = Lists(np.eye(5, 4, dtype=np.float32), np.array([0, 5]), np.array(["probe"]))
    scores = fitted.model.score(probe)
    return np.asarray(scores[:4] - scores[4], dtype=np.float64)


def test_true_propensities_recover_the_relevance(log: Clicks) -> None:
    assert weights(trained(log, InversePropensity(tuple(CURVE)))) == pytest.approx(WEIGHTS, abs=0.03)


def test_raw_clicks_do_not_recover_relevance(log: Clicks) -> None:
    assert np.abs(weights(trained(log, Click())) - WEIGHTS).max() > 0.15


def test_dual_learning_recovers_both_factors(log: Clicks) -> None:
    fitted = trained(log, DualLearning(max_weight=0))
    assert weights(fitted) == pytest.approx(WEIGHTS, abs=0.05)
    assert fitted.observation is not None
    assert fitted.observation / CURVE == pytest.approx(np.ones(8), abs=0.08)


def test_dual_learning_finds_nothing_where_there_is_no_bias(log: Clicks) -> None:
    rng = np.random.default_rng(12)
    relevance = np.exp(log.lists.features[log.rows] @ WEIGHTS - 4)
    fair = Clicks(
        log.lists,
        log.offsets,
        log.rows,
        log.positions,
        rng.binomial(2000, np.clip(relevance, 0, 1)).astype(np.int64),
        log.impressions,
    )
    fitted = trained(fair, DualLearning(max_weight=0))
    assert fitted.observation == pytest.approx(np.ones(8), abs=0.08)


def test_clicks_per_exposure_estimate_relevance_whatever_the_position(log: Clicks) -> None:
    exposure = log.list_impressions * CURVE[log.positions - 1]
    rows, targets, _ = clicks_per_exposure(log, exposure, shrinkage=0.0)
    truth = np.exp(log.lists.features[rows] @ WEIGHTS - 4)
    assert np.corrcoef(targets, truth)[0, 1] > 0.95
    raw = clicks_per_exposure(log, log.list_impressions.astype(np.float64), shrinkage=0.0)[1]
    assert np.corrcoef(raw, truth)[0, 1] < np.corrcoef(targets, truth)[0, 1] - 0.02


def test_trees_gain_from_debiasing(log: Clicks) -> None:
    truth = log.lists.features @ WEIGHTS
    ranker = LambdaMART(trees=60, leaves=8)
    scores = {
        method.name: fit(log, method=method, ranker=ranker, settings=SETTINGS, observer=Linear()).model.score(log.lists)
        for method in (Click(), InversePropensity(tuple(CURVE)), DualLearning())
    }
    match = {name: float(np.corrcoef(score, truth)[0, 1]) for name, score in scores.items()}
    assert match["ipw"] > match["click"] + 0.005
    assert match["dla"] > match["click"] + 0.005
