"""Delta-CI for reports: by hand, its standard error against many samples, and what a learner says."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from clickprism._util.tables import to_plain
from clickprism.debias.inforank import InfoRank
from clickprism.errors import DataError, SettingError
from clickprism.evaluation.independence import independence, learner_independence
from clickprism.rankers.mlp import MLP
from clickprism.types import Clicks


def test_the_measures_agree_with_a_calculation_by_hand() -> None:
    found = independence(
        [0.9, 0.5, 0.2], [0.5, 0.5, 0.4], [0.5, 0.5, 0.5], positions=np.array([1, 3, 1]), weights=np.array([1, 2, 1])
    )
    assert found.mean == pytest.approx((0.4 + 0.2) / 4)
    assert found.largest == pytest.approx(0.4)
    assert found.by_position is not None
    np.testing.assert_allclose(found.by_position, [0.3, np.nan, 0])
    assert to_plain(found)["by_position"] == [pytest.approx(0.3), None, 0]


def test_the_standard_error_is_that_of_the_mean_and_grows_with_lists_that_are_alike() -> None:
    rng = np.random.default_rng(0)
    means, errors, naive = [], [], []
    for _ in range(300):
        gap = np.repeat(rng.random(40), 5) * 0.5
        found = independence(gap, np.zeros(200), np.full(200, 0.5), lists=np.repeat(np.arange(40), 5))
        means.append(found.mean)
        errors.append(found.error)
        naive.append(independence(gap, np.zeros(200), np.full(200, 0.5)).error)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.1)
    assert np.mean(errors) > 2 * np.mean(naive)
    once = independence([0.5, 0.2, 0.8], [0.1, 0.1, 0.1], [0.5, 0.5, 0.5])
    assert once.error == pytest.approx(np.std([0.4, 0.1, 0.7], ddof=1) / np.sqrt(3))
    assert np.isnan(independence([0.5], [0.1], [0.5]).error)


def test_nothing_gives_nan_and_wrong_shapes_are_errors() -> None:
    assert np.isnan(independence([], [], []).mean)
    assert to_plain(independence([], [], [], positions=np.empty(0, np.int64)))["by_position"] == []
    with pytest.raises(DataError, match="2 documents need as many positions"):
        independence([0.5, 0.5], [0.5, 0.5], [0.5, 0.5], positions=np.array([1]))
    with pytest.raises(DataError, match="one value a document"):
        independence([[0.5]], [[0.5]], [[0.5]])


class Said(NamedTuple):
    seen: torch.Tensor
    unseen: torch.Tensor
    observed: torch.Tensor


class Leaning:
    """Relevance is 1/2 unseen and 3/4 seen, at position 1 only."""

    def conditional(self, documents: torch.Tensor, positions: torch.Tensor) -> Said:
        unseen = 0 * documents[:, 0]
        return Said(unseen + np.log(3) * (positions == 1), unseen, unseen)


def test_a_learner_is_asked_at_the_positions_of_the_log(clicks: Clicks) -> None:
    found = learner_independence(Leaning(), clicks)
    assert found.by_position is not None
    np.testing.assert_allclose(found.by_position, [0.25, *[0] * 11], atol=1e-7)
    shown = clicks.list_impressions
    assert found.mean == pytest.approx(0.25 * shown[clicks.positions == 1].sum() / shown.sum(), rel=1e-5)
    with pytest.raises(SettingError, match="conditional"):
        learner_independence(torch.nn.Linear(1, 1), clicks)


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
