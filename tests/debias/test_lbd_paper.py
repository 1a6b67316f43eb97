"""LBD as published: the equations of the print and of the authors' code on numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from clickprism.debias.click import Click
from clickprism.debias.lbd_paper import LBDCode, LBDPaper, PublishedLearner
from clickprism.debias.loop import pad
from clickprism.debias.losses import softmax_loss
from clickprism.errors import SettingError
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP, MLPNetwork
from clickprism.types import Batch, Clicks, Lists

SMALL = MLP(hidden=(6, 4))
presets = pytest.mark.parametrize("preset", [LBDPaper, LBDCode], ids=["print", "code"])
rankers = pytest.mark.parametrize("ranker", [Linear(), SMALL], ids=["linear", "mlp"])


def one_list() -> Clicks:
    """Three documents with the features (log 2, 0), (0, 0), (log 4, 0), clicked 3, 0 and 1 times in three sessions."""
    features = np.log(np.array([[2.0, 1.0], [1.0, 1.0], [4.0, 1.0]], dtype=np.float32))
    lists = Lists(features, np.array([0, 3]), np.array(["q"]))
    places = np.arange(1, 4, dtype=np.int32)
    return Clicks(lists, np.array([0, 3]), np.arange(3), places, np.array([3, 0, 1]), np.array([3]))


def by_hand(preset: Any = LBDPaper, **settings: Any) -> PublishedLearner:
    """r = exp(x_1) and log o_k = log(1, 1/2, 1/4)_k + (0, 3, -1)_k x_1 + (0, 4, 0)_k x_2."""
    learner: PublishedLearner = preset(**settings).learner(Linear().build(2), one_list())
    with torch.no_grad():
        learner.ranker.get_parameter("output.weight").copy_(torch.tensor([[1.0, 0.0]]))
        learner.rest.weight[:3] = torch.tensor([[0.0, 0.0], [3.0, 4.0], [-1.0, 0.0]])
        learner.rest.bias[:3] = torch.log(torch.tensor([1.0, 0.5, 0.25]))
    return learner


def losses(learner: PublishedLearner, batch: Batch, *, seed: int = 1) -> dict[str, float]:
    torch.manual_seed(seed)
    return {name: part.item() for name, part in learner.loss(batch).items()}


@presets
def test_the_cross_entropy_by_hand(preset: Any) -> None:
    """r o at its position is 2 x 1 = 2, 1 x 1/2 = .5 and 4 x 1/4 / 4 = .25; the sum is 2.75 (Eq. 2, with its log)."""
    found = losses(by_hand(preset, drop=0.0, penalty=0.0), pad(one_list(), np.arange(1)))
    assert found == {"click": pytest.approx(-3 * math.log(2 / 2.75) - math.log(0.25 / 2.75), rel=1e-5)}


def test_the_printed_penalty_by_hand() -> None:
    """Sum over documents and all positions of o_k(x) times the norm of its weights: 0, |(3, 4)| = 5 and |(-1, 0)| = 1.

    o_2 is (2^3, 1, 4^3) / 2 = 4, .5, 32 and o_3 is (1/2, 1, 1/4) / 4 = .125, .25, .0625. One list is one query of three
    sessions, so its penalty counts three times, as its clicks do.
    """
    expected = 5 * (4 + 0.5 + 32) + 1 * (0.125 + 0.25 + 0.0625)
    assert expected == 182.9375
    found = losses(by_hand(penalty=0.01), pad(one_list(), np.arange(1)))["penalty"]
    assert found == pytest.approx(0.01 * 3 * expected, rel=1e-5)
    assert losses(by_hand(penalty=0.01), pad(one_list(), np.arange(1), scale=3.0))["penalty"] == pytest.approx(
        0.01 * expected, rel=1e-5
    )


def test_the_penalty_of_the_code_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all outputs kept, the gradient of sum_k log o_k is (3 - 1, 4) = (2, 4), with the square 20, everywhere.

    A batch of 256 lists of 3 documents: the mean of log o is over 256 x 3 x 3 values, so each of the 256 x 3 documents
    has a gradient of (2, 4) / 2304, and the squares add up to 768 x 20 / 2304^2.
    """
    monkeypatch.setattr("clickprism.debias.lbd_paper.CODE_KEPT", 1.0)
    found = losses(by_hand(LBDCode, penalty=100.0), pad(one_list(), np.zeros(256, np.int64), scale=3.0))["penalty"]
    assert found == pytest.approx(100 * 768 * 20 / 2304**2, rel=1e-5)
    few = losses(by_hand(LBDCode, penalty=100.0), pad(one_list(), np.zeros(2, np.int64), scale=3.0))["penalty"]
    assert few == pytest.approx(found, rel=1e-5)


def test_the_code_keeps_a_tenth_of_the_outputs_ten_times_as_strong() -> None:
    """The expected square is (mean)^2 + variance: 20 + (1 / .1 - 1) (3^2 + 4^2 + 1^2) = 20 + 9 x 26 = 254."""
    learner, batch = by_hand(LBDCode, penalty=1.0), pad(one_list(), np.zeros(2000, np.int64), scale=3.0)
    found = losses(learner, batch)["penalty"] * 256 * 81 / 3  # a document
    assert found == pytest.approx(254, rel=0.1)


@presets
def test_one_network_has_the_outputs_of_the_appendix_or_of_the_code(preset: Any, clicks: Clicks) -> None:
    """2 + 2n or 1 + n; the ranker is one of them, and both see the same hidden units."""
    n = clicks.max_position
    learner = preset().learner(SMALL.build(5), clicks)
    assert 1 + learner.rest.out_features == (2 + 2 * n if preset is LBDPaper else 1 + n)
    network = learner.ranker
    assert isinstance(network, MLPNetwork)
    with torch.no_grad():
        for layer in network.trunk():
            if isinstance(layer, nn.Linear):
                layer.weight.zero_()
    assert np.ptp(learner.log_observation(learner.sample).detach().numpy(), axis=0).max() == 0


def test_variances_are_in_no_equation(clicks: Clicks) -> None:
    learner, batch = LBDPaper().learner(SMALL.build(5), clicks), pad(clicks, np.arange(20))
    torch.autograd.backward(torch.stack(list(learner.loss(batch).values())).sum())
    gradient = learner.rest.weight.grad
    assert gradient is not None
    used = gradient.abs().sum(-1) > 0
    assert used.tolist() == [True] * clicks.max_position + [False] * (clicks.max_position + 1)


@pytest.mark.parametrize(
    "ranker", [Linear(), SMALL, MLP(hidden=(5,), layer_norm="all")], ids=["linear", "mlp", "ultra"]
)
def test_gradients_of_the_observation_agree_with_finite_differences(ranker: Linear | MLP, clicks: Clicks) -> None:
    torch.manual_seed(0)
    learner = LBDPaper(penalty=1.0).learner(ranker.build(5), clicks).double()
    lists = np.flatnonzero(np.diff(clicks.offsets) == 3)[:1]
    batch = replace(pad(clicks, lists), impressions=torch.ones(1, dtype=torch.float64))
    batch = replace(batch, features=batch.features.double(), clicks=batch.clicks.double())
    documents, step = batch.features[batch.mask], 1e-6
    with torch.no_grad():
        slopes = [
            (learner.log_observation(documents + move).exp() - learner.log_observation(documents - move).exp()) / (2e-6)
            for move in step * torch.eye(5, dtype=torch.float64)
        ]
    expected = torch.stack(slopes).square().sum(0).sqrt().sum().item()
    assert losses(learner, batch)["penalty"] == pytest.approx(expected, rel=1e-6)


@presets
def test_the_gradient_is_clipped_as_a_whole(preset: Any, clicks: Clicks) -> None:
    assert len(preset().learner(SMALL.build(5), clicks).rates()) == 1


@presets
@rankers
def test_dropping_everything_is_the_loss_on_clicks(preset: Any, ranker: Linear | MLP, clicks: Clicks) -> None:
    torch.manual_seed(0)
    learner = preset(drop=1.0, penalty=0.0).learner(ranker.build(5), clicks)
    batch = pad(clicks, np.arange(len(clicks)))
    plain = Click().learner(learner.ranker, clicks)
    assert losses(learner, batch)["click"] == plain.loss(batch)["ranking"].item()
    assert torch.equal(learner.click_logits(batch), plain.click_logits(batch))


def test_each_document_is_dropped_for_itself_and_again_at_each_step() -> None:
    """A loss for each choice of documents that are dropped, and each comes as often as it should."""
    drop, steps = 0.3, 1500
    batch = replace(pad(one_list(), np.arange(1)), clicks=torch.tensor([[3.0, 0.0, 2.0]]))
    learner = by_hand(drop=drop, penalty=0.0)
    relevance, seen = torch.log(torch.tensor([[2.0, 1.0, 4.0]])), torch.log(torch.tensor([[1.0, 0.5, 1 / 16]]))
    expected: dict[float, float] = {}  # the first document has log o = 0: dropping it changes nothing
    for kept in np.ndindex(2, 2, 2):
        logits = relevance + seen * torch.tensor(kept)
        value = round(softmax_loss(logits, batch.clicks, mask=batch.mask).item(), 4)
        expected[value] = expected.get(value, 0.0) + (1 - drop) ** sum(kept) * drop ** (3 - sum(kept))
    assert len(expected) == 4
    torch.manual_seed(0)
    values = [round(learner.loss(batch)["click"].item(), 4) for _ in range(steps)]
    assert set(values) == set(expected)
    for value, chance in expected.items():
        assert values.count(value) / steps == pytest.approx(chance, abs=4 * math.sqrt(chance / steps))
    assert losses(learner, batch, seed=3) == losses(learner, batch, seed=3)


def test_click_logits_and_exposure_are_the_mean_over_dropping() -> None:
    """exp(logit) = r (t + (1 - t) o); trees divide by (t + (1 - t) o_k) / (t + (1 - t) o_1), where o_1 = 1."""
    learner = by_hand(drop=0.4)
    found = learner.click_logits(pad(one_list(), np.arange(1))).exp()[0].tolist()
    left = [1.0, 0.4 + 0.6 * 0.5, 0.4 + 0.6 / 16]
    assert found == pytest.approx([2 * left[0], left[1], 4 * left[2]], rel=1e-5)
    assert learner.exposure(one_list()).tolist() == pytest.approx([3 * each for each in left], rel=1e-5)


def test_the_printed_penalty_can_be_escaped_by_a_small_observation() -> None:
    """The softmax does not change when all o are halved; the printed penalty halves, that of the code does not."""
    batch = pad(one_list(), np.arange(1))
    for preset, factor in ((LBDPaper, 0.5), (LBDCode, 1.0)):
        learner = by_hand(preset, drop=0.0, penalty=1.0)
        before = losses(learner, batch)
        with torch.no_grad():
            learner.rest.bias.sub_(math.log(2))
        after = losses(learner, batch)
        assert after["click"] == pytest.approx(before["click"], rel=1e-5)
        assert after["penalty"] == pytest.approx(factor * before["penalty"], rel=1e-5)


@presets
def test_settings_are_checked(preset: Any, clicks: Clicks) -> None:
    with pytest.raises(SettingError, match="penalty must be at least 0, got -1"):
        preset(penalty=-1.0)
    with pytest.raises(SettingError, match="drop must be from 0 to 1"):
        preset(drop=1.5)
    with pytest.raises(SettingError, match="ranker must be a network with a linear layer at the end"):
        preset().learner(nn.Linear(5, 1), clicks)
