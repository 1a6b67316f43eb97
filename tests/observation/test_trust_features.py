"""Trust bias with relevance by features: the gradient, the line it finds, and what it does without them."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.errors import DataError
from clickprism.observation.counts import Counts
from clickprism.observation.estimate_parameters import TrustMap, estimate_parameters, rate_error
from clickprism.observation.parameters import ClickParameters
from clickprism.observation.placed import PlacedCounts
from clickprism.observation.trust_features import _gauge_slopes, _Model, fit_trust_by_features

ALPHA, BETA = np.array([0.4, 0.5, 0.35, 0.2]), np.array([0.4, 0.15, 0.05, 0.01])
TRUE = ClickParameters.of_affine(ALPHA, BETA)


def log(documents: int, seed: int) -> tuple[Counts, np.ndarray, np.ndarray]:
    """Each document at one position only, better ones higher; its features, and its relevance."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(documents, 3))
    relevance = 1 / (1 + np.exp(-(features @ [1.0, -0.7, 0.0] - 0.5)))
    place = np.clip(np.round(2 - 3 * (relevance - 0.4) + random.normal(0, 1, documents)), 0, 3).astype(np.int64)
    clicks = random.binomial(8, relevance * ALPHA[place] + BETA[place]).astype(np.float64)
    return Counts(np.arange(documents), place + 1, clicks, np.full(documents, 8.0)), features, relevance


def test_documents_at_one_position_suffice() -> None:
    counts, features, relevance = log(20_000, 0)
    placed = PlacedCounts(counts, np.arange(20_000) // 10, features=features)
    found = estimate_parameters(placed, TrustMap(by_features=True))
    assert rate_error(found, TRUE, relevance * ALPHA[0] + BETA[0]).max() < 0.05
    assert (found.alpha_lower <= TRUE.alpha).all()
    assert (TRUE.alpha <= found.alpha_upper).all()
    assert "relevance by 3 features" in found.notes[1]
    made = fit_trust_by_features(counts, features)
    assert np.corrcoef(made.relevance, relevance)[0, 1] > 0.98
    with pytest.raises(DataError, match="linked by documents seen at both"):
        estimate_parameters(placed, TrustMap())


def test_slopes_by_finite_differences() -> None:
    counts, features, _ = log(60, 1)
    model = _Model(counts, counts.rows, np.concatenate([features, np.ones((60, 1))], axis=1))
    point = np.random.default_rng(2).normal(size=8 + 4) * 0.5
    _, slope = model.loss(point)
    for place in range(len(point)):
        step = 1e-6 * (np.arange(len(point)) == place)
        change = (model.loss(point + step)[0] - model.loss(point - step)[0]) / 2e-6
        assert slope[place] == pytest.approx(change, rel=1e-5, abs=1e-8)
    pulls, _ = model.scores(point)
    ridge = np.concatenate([np.zeros(8), 1e-3 * point[8:-1], [0.0]])
    assert -pulls.sum(axis=0) + ridge == pytest.approx(slope * counts.impressions.sum())
    plus, minus = 1 / (1 + np.exp(-point[:4])), 1 / (1 + np.exp(-point[4:8]))
    turns = _gauge_slopes(plus, minus, 4)
    for place in range(8):
        step = 1e-6 * (np.arange(8) == place)
        ends = [np.concatenate(gauge(point[:8] + sign * step)) for sign in (1, -1)]
        assert turns[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-6)


def gauge(point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    plus, minus = 1 / (1 + np.exp(-point[:4])), 1 / (1 + np.exp(-point[4:]))
    slope = (plus - minus) / (plus[0] - minus[0])
    return slope[1:], (minus - minus[0] * slope)[1:]


def test_features_that_cannot_be_used() -> None:
    counts, features, _ = log(100, 0)
    with pytest.raises(DataError, match="features must be finite"):
        fit_trust_by_features(counts, np.where(features > 2, np.nan, features))
    with pytest.raises(DataError, match="the documents have no features"):
        estimate_parameters(PlacedCounts(counts, np.arange(100)), TrustMap(by_features=True))
