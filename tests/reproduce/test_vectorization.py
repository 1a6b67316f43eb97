"""Vectorization: its losses by hand, what one and two dimensions are, the fold into the ranker, and recovery."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from clickprism.debias.dla import DualLearning
from clickprism.debias.loop import pad
from clickprism.errors import SettingError
from clickprism.model import Model, network_scores
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Lists
from reproduce.lbd.vectorization import Vectorization, VectorLearner


def set_to(learner: VectorLearner, *, weight: list[list[float]], bias: list[float], vectors: list[list[float]]) -> None:
    learner.output.load_state_dict({"weight": torch.tensor(weight), "bias": torch.tensor(bias)})
    with torch.no_grad():
        learner.vectors.copy_(torch.tensor(vectors))


def pair() -> Clicks:
    """Two documents with features 1 and 3, in both orders, the first of them three times as often."""
    lists = Lists(np.array([[1.0], [3.0]], np.float32), np.array([0, 2]), np.array(["q"]))
    rows, places = np.array([0, 1, 1, 0]), np.array([1, 2, 1, 2], np.int32)
    return Clicks(lists, np.array([0, 2, 4]), rows, places, np.array([1, 0, 1, 1]), np.array([3, 1]))


def test_one_dimension_is_a_product() -> None:
    clicks = pair()
    learner = Vectorization(dimensions=1).learner(Linear().build(1), clicks)
    set_to(learner, weight=[[2.0]], bias=[1.0], vectors=[[1.0], [0.5]])
    logits = learner.click_logits(pad(clicks, np.array([0])))
    assert logits.tolist() == [[3.0, 3.5]]  # (2 x 1 + 1) 1 and (2 x 3 + 1) .5
    loss = learner.loss(pad(clicks, np.array([0])))["click"].item()
    assert loss == pytest.approx(np.log1p(np.exp(0.5)), rel=1e-6)
    assert learner.exposure(clicks).tolist() == pytest.approx([3, 3 * np.exp(-3.5), 1, np.exp(-1.5)])
    assert learner.observation().tolist() == pytest.approx([1, np.exp(-2.5)])  # the mean of -1.5 and -3.5


def test_two_dimensions_hold_relevance_times_observation() -> None:
    """With r = (f, 1) and o = (1, g) the logits are those of f and g added, as dual learning has them."""
    clicks = pair()
    learner = Vectorization(dimensions=2).learner(Linear().build(1), clicks)
    set_to(learner, weight=[[2.0], [0.0]], bias=[0.5, 1.0], vectors=[[1.0, 0.0], [1.0, -0.7]])
    dual = DualLearning().learner(Linear().build(1), clicks)
    dual.ranker.load_state_dict({"output.weight": torch.tensor([[2.0]]), "output.bias": torch.tensor([0.5])})
    batch = pad(clicks, np.arange(2))
    seen = torch.tensor([0.0, -0.7])[batch.positions - 1]
    assert torch.allclose(learner.click_logits(batch), dual.ranker(batch.features) + seen)
    assert learner.observation().tolist() == pytest.approx([1.0, np.exp(-0.7)])


def test_the_density_and_the_base_by_hand() -> None:
    """A density that is the same for all documents: mean (2, 1), log variance (log 2, 0)."""
    clicks = pair()
    learner = Vectorization(dimensions=2, freeze=0, density_penalty=0.0).learner(Linear().build(1), clicks)
    set_to(learner, weight=[[1.0], [0.0]], bias=[0.0, 2.0], vectors=[[2.0, 1.0], [2.0, 0.0]])
    with torch.no_grad():
        for parameter in learner.density.parameters():
            parameter.zero_()
        last = learner.density[-1]
        assert isinstance(last, nn.Linear)
        last.bias.copy_(torch.tensor([2.0, 1.0, 5 * np.arctanh(np.log(2) / 5), 0.0]))
    learner.eval()
    # base = the mean (2, 1): the scores are 2 x + 2
    assert network_scores(learner.ranker, clicks.lists.features).tolist() == [4.0, 8.0]
    # o_1 = (2, 1) has squares (0, 0), o_2 = (2, 0) has (0, 1); every document adds log 2 / 2 for its variance
    expected = (np.log(2) / 2 + (np.log(2) + 1) / 2) / 2
    assert learner.loss(pad(clicks, np.array([0])))["density"].item() == pytest.approx(expected, rel=1e-6)


def test_only_relevance_learns_in_the_first_steps(clicks: Clicks) -> None:
    torch.manual_seed(0)
    learner = Vectorization(freeze=1).learner(MLP(hidden=(4,)).build(5), clicks)
    batch = pad(clicks, np.arange(10))
    for moves in (False, True):
        learner.zero_grad()
        torch.autograd.backward(torch.stack(list(learner.loss(batch).values())).sum())
        assert (learner.vectors.grad is not None) == moves
        assert all((parameter.grad is not None) == moves for parameter in learner.density.parameters())
        learner.update(learner.statistics(batch))


def test_position_bias_is_recovered(tmp_path: Path) -> None:
    """A million sessions, clicks as exp(x) / k: curve within a fifth, slope of the score within .1."""
    rng = np.random.default_rng(4)
    queries, length, sessions = 200, 5, 5000
    features = rng.uniform(-1, 1, (queries * length, 1)).astype(np.float32)
    lists = Lists(features, np.arange(queries + 1) * length, np.arange(queries).astype(np.str_))
    places = np.tile(np.arange(1, length + 1), queries)
    counts = rng.binomial(sessions, 0.3 * np.exp(features[:, 0]) / places)
    rows, shown = np.arange(len(features)), np.full(queries, sessions)
    clicks = Clicks(lists, lists.offsets, rows, places.astype(np.int32), counts, shown)
    settings = FitSettings(epochs=200, threads=1)
    fitted = fit(clicks, method=Vectorization(freeze=20), ranker=Linear(), settings=settings)
    assert fitted.observation == pytest.approx(1 / np.arange(1, length + 1), rel=0.2)
    slope = float(np.polyfit(features[:, 0], fitted.model.score(lists), 1)[0])
    assert slope == pytest.approx(1.0, abs=0.1)
    fitted.model.save(tmp_path)
    assert np.array_equal(Model.load(tmp_path).score(lists), fitted.model.score(lists))


def test_wrong_settings_are_refused(clicks: Clicks) -> None:
    with pytest.raises(SettingError, match="dimensions must be at least 1"):
        Vectorization(dimensions=0)
    with pytest.raises(SettingError, match="freeze must not be negative"):
        Vectorization(freeze=-1)
    with pytest.raises(SettingError, match="density_penalty must not be negative"):
        Vectorization(density_penalty=-1.0)
    with pytest.raises(SettingError, match="ranker must be a network with a linear layer"):
        Vectorization().learner(nn.Linear(5, 1), clicks)
