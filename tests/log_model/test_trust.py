"""Trust bias is estimated from documents shown at several positions, whatever their relevance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.log_model.checks import estimate_trust, trust_test
from clickprism.log_model.counts import count
from clickprism.log_model.fit import Fit, fit_form, trust_gamma
from clickprism.log_model.results import Feedback, Linkage
from clickprism.log_model.terms import Covariates, Form
from clickprism.types import Clicks, Lists

CURVE = np.array([1.0, 0.5, 0.3])
LINKED = Linkage(("documents",) * 3, np.full(3, 99.0), np.zeros(3, dtype=np.int64), 90, 90, None, "")
QUIET = Feedback("absent", 0.0, 0.5)


def fitted(kappa: float, *, impressions: int, noise: int | None = None) -> Fit:
    """Fit the model without trust to 30 queries with three documents, each shown at every position equally often."""
    queries = 30
    relevance = np.tile([0.05, 0.15, 0.4], queries) * np.repeat(np.linspace(0.5, 1.5, queries), 3)
    lists = Lists(
        np.zeros((3 * queries, 0), np.float32), np.arange(0, 3 * queries + 1, 3), np.arange(queries).astype(str)
    )
    rows = np.concatenate([3 * query + np.roll(np.arange(3), turn) for query in range(queries) for turn in range(3)])
    positions = np.tile(np.arange(3), 3 * queries)
    rates = CURVE[positions] * (relevance[rows] + kappa * trust_gamma(positions))
    clicks = impressions * rates if noise is None else np.random.default_rng(noise).binomial(impressions, rates)
    log = Clicks(
        lists,
        np.arange(0, len(rows) + 1, 3),
        rows,
        (positions + 1).astype(np.int32),
        np.round(clicks).astype(np.int64),
        np.full(3 * queries, impressions),
    )
    return fit_form(count(log), Form(), Covariates())


@pytest.mark.parametrize("kappa", [0.0, 0.1, 0.3])
def test_kappa_of_counts_without_noise(kappa: float) -> None:
    estimate, error, _ = estimate_trust(fitted(kappa, impressions=1_000_000))
    assert estimate == pytest.approx(kappa, abs=0.002)
    assert error < 0.002


def test_verdicts() -> None:
    trusting, plain = fitted(0.2, impressions=2000, noise=1), fitted(0.0, impressions=2000, noise=1)
    found = trust_test(trusting, LINKED, QUIET, confidence=0.95)
    assert found.verdict == "present"
    assert found.lower < 0.2 < found.upper
    assert trust_test(plain, LINKED, QUIET, confidence=0.95).verdict == "absent"
    hidden = trust_test(trusting, LINKED, replace(QUIET, verdict="present"), confidence=0.95)
    assert (hidden.verdict, hidden.note) == ("inconclusive", "the engine reacts to clicks, which hides trust bias")
    apart = trust_test(trusting, replace(LINKED, groups=np.array([0, 0, 1])), QUIET, confidence=0.95)
    assert apart.verdict == "inconclusive"
    few = trust_test(fitted(0.0, impressions=3, noise=0), LINKED, QUIET, confidence=0.95)
    assert few.verdict == "inconclusive"
    assert few.note == "documents that were shown at several positions got too few clicks"


def test_intervals_hold_kappa_and_the_test_holds_its_level() -> None:
    wald, score = [], []
    for seed in range(40):
        estimate, error, _ = estimate_trust(fitted(0.1, impressions=500, noise=seed))
        wald.append((estimate - 0.1) / error)
        score.append(estimate_trust(fitted(0.0, impressions=100, noise=seed))[2])
    for z in (wald, score):  # standard normal, but for small bias of halves
        assert abs(np.mean(z)) < 0.6
        assert 0.6 < np.std(z) < 1.4
