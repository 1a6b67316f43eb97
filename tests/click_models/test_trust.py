"""Trust from counts: the curves come back, the gauge is what it says, EM climbs, logs that cannot tell are refused."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.click_models.factors import Groups
from clickprism.click_models.trust import _iterate, fit_trust
from clickprism.errors import DataError

ALPHA, BETA = np.array([0.3, 0.4, 0.3, 0.1]), np.array([0.4, 0.15, 0.05, 0.002])


def counts_of(relevance: np.ndarray, impressions: float, *, draw: int | None = None) -> Groups:
    """Every document at every position."""
    chance = (relevance[:, None] * ALPHA + BETA).ravel()
    clicks = impressions * chance
    if draw is not None:
        clicks = np.random.default_rng(draw).binomial(int(impressions), chance).astype(np.float64)
    rows, cells = np.arange(len(relevance)), np.tile(np.arange(4), len(relevance))
    return Groups(rows, 4 * np.arange(len(rows) + 1), cells, clicks, np.full(len(cells), impressions), 4)


def in_gauge(alpha: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return alpha / alpha[0], beta - alpha * (beta / alpha).min()


def test_exact_rates_give_exact_curves() -> None:
    fitted = fit_trust(counts_of(np.linspace(0, 1, 9), 1e4))
    alpha, beta = in_gauge(ALPHA, BETA)
    assert fitted.converged
    assert fitted.alpha == pytest.approx(alpha, rel=0.01)
    assert fitted.beta == pytest.approx(beta, abs=0.003)


def test_simulated_clicks_give_the_curves_to_five_percent() -> None:
    relevance = np.random.default_rng(1).beta(0.5, 1.5, 2000)
    fitted = fit_trust(counts_of(relevance, 200, draw=2))
    alpha, beta = in_gauge(ALPHA, BETA)
    assert fitted.alpha == pytest.approx(alpha, rel=0.05)
    assert fitted.beta == pytest.approx(beta, abs=0.01)


def test_the_curves_do_not_depend_on_the_scale_and_zero_of_relevance() -> None:
    relevance = np.linspace(0, 1, 9)
    one, other = fit_trust(counts_of(relevance, 1e4)), fit_trust(counts_of(0.2 + 0.5 * relevance, 1e4))
    assert one.alpha == pytest.approx(other.alpha, rel=0.02)
    assert other.beta.min() == 0


def test_every_step_climbs_the_likelihood() -> None:
    counts = counts_of(np.random.default_rng(1).uniform(size=30), 50, draw=3)
    table = (counts.offsets, counts.cells, counts.clicks, counts.impressions - counts.clicks)
    relevance, plus, minus = np.full(30, 0.3), np.full(4, 0.6), np.full(4, 0.2)
    before = -np.inf
    for _ in range(30):
        chance = (relevance[:, None] * plus + (1 - relevance)[:, None] * minus).ravel()
        now = float((table[2] * np.log(chance) + table[3] * np.log(1 - chance)).sum())
        assert now >= before - 1e-9
        before = now
        _iterate(table, relevance, plus, minus, 1)


def test_logs_that_cannot_tell_are_refused() -> None:
    apart = Groups(np.arange(2), np.array([0, 2, 4]), np.arange(4), np.ones(4), np.full(4, 9.0), 4)
    with pytest.raises(DataError, match="no document links position 3 to position 1"):
        fit_trust(apart)
    once = Groups(np.arange(2), np.arange(3), np.arange(2), np.ones(2), np.full(2, 9.0), 2)
    with pytest.raises(DataError, match="no document links position 2 to position 1"):
        fit_trust(once)
