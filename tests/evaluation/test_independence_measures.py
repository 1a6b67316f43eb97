"""Delta-CI: by hand, its standard error against many samples, and of learners."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from clickprism._util.tables import to_plain
from clickprism.debias.inforank import InfoRank
from clickprism.errors import DataError
from clickprism.evaluation.independence import Independence, learner_independence, summarise
from clickprism.rankers.mlp import MLP
from clickprism.types import Clicks, Float64, Int64


def test_the_measures_agree_with_a_calculation_by_hand() -> None:
    found = summarise(
        np.array([0.4, 0.0, 0.2]),
        np.array([0.1, 0.0, 0.3]),
        positions=np.array([1, 3, 1]),
        lists=np.array([0, 0, 1]),
        weights=np.array([1, 2, 1]),
    )
    assert found.mean == pytest.approx((0.4 + 0.2) / 4)
    assert found.information == pytest.approx((0.1 + 0.3) / 4)
    assert found.largest == pytest.approx(0.4)
    np.testing.assert_allclose(found.by_position, [0.3, np.nan, 0])
    assert to_plain(found)["by_position"] == [pytest.approx(0.3), None, 0]


def of_lists(gap: Float64, lists: Int64) -> Independence:
    ones = np.ones(len(gap), dtype=np.int64)
    return summarise(gap, np.zeros(len(gap)), positions=ones, lists=lists, weights=ones)


def test_the_standard_error_of_the_mean_grows_with_correlated_lists() -> None:
    rng = np.random.default_rng(0)
    means, errors, naive = [], [], []
    for _ in range(300):
        gap = np.repeat(rng.random(40), 5) * 0.5
        found = of_lists(gap, np.repeat(np.arange(40), 5))
        means.append(found.mean)
        errors.append(found.error)
        naive.append(of_lists(gap, np.arange(200)).error)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.1)
    assert np.mean(errors) > 2 * np.mean(naive)
    once = of_lists(np.array([0.4, 0.1, 0.7]), np.arange(3))
    assert once.error == pytest.approx(np.std([0.4, 0.1, 0.7], ddof=1) / np.sqrt(3))
    assert np.isnan(of_lists(np.array([0.4]), np.arange(1)).error)


def test_an_empty_log_gives_nan() -> None:
    found = of_lists(np.empty(0), np.empty(0, dtype=np.int64))
    assert np.isnan(found.mean)
    assert to_plain(found)["by_position"] == []


class Said(NamedTuple):
    seen: torch.Tensor
    unseen: torch.Tensor
    observed: torch.Tensor


class Leaning:
    """Relevance is 1/2 unseen and 3/4 seen, at position 1 only; not a number if training diverged."""

    def __init__(self, *, diverged: bool = False) -> None:
        self.diverged = diverged

    def conditional(self, documents: torch.Tensor, positions: torch.Tensor) -> Said:
        unseen = 0 * documents[:, 0] * (float("nan") if self.diverged else 1.0)
        return Said(unseen + np.log(3) * (positions == 1), unseen, unseen)


def test_a_learner_is_asked_at_the_positions_of_the_log(clicks: Clicks) -> None:
    found = learner_independence(Leaning(), clicks)
    np.testing.assert_allclose(found.by_position, [0.25, *[0] * 11], atol=1e-7)
    shown = clicks.list_impressions
    assert found.mean == pytest.approx(0.25 * shown[clicks.positions == 1].sum() / shown.sum(), rel=1e-5)
    # P(O) = 1/2, P(R | 1) = 3/4, P(R | 0) = 1/2
    nats = 0.375 * np.log(1.2) + 0.125 * np.log(2 / 3) + 0.25 * np.log(0.8) + 0.25 * np.log(4 / 3)
    assert found.information == pytest.approx(nats * shown[clicks.positions == 1].sum() / shown.sum(), rel=1e-5)
    with pytest.raises(DataError, match=r"not a number\. Training diverged: lower the learning rate"):
        learner_independence(Leaning(diverged=True), clicks)


def test_the_learner_of_inforank_can_be_asked(clicks: Clicks) -> None:
    learner = InfoRank().learner(MLP(hidden=(6, 4)).build(clicks.lists.features.shape[1]), clicks)
    found = learner_independence(learner, clicks)
    assert found.mean == found.largest == found.information == 0  # as it starts: relevance does not know observation
    with torch.no_grad():
        for weights in learner.parameters():
            weights.add_(0.3 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(weights.numel())))
    moved = learner_independence(learner, clicks)
    assert 0 < moved.mean < moved.largest < 1
    assert moved.information > 0
    assert moved.documents == len(clicks.rows)
