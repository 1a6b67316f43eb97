"""LBD as published: loss and dropping by hand, the penalty by autograd, its limits, gauges and settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from clickprism.debias.batches import pad
from clickprism.debias.click import Click
from clickprism.debias.lbd_paper import LipschitzBernoulli, LipschitzBernoulliLearner
from clickprism.debias.listwise import softmax_loss
from clickprism.errors import SettingError
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings, Fitted
from clickprism.types import Batch, Clicks, Lists

SMALL = MLP(hidden=(6, 4))
EXACT: dict[str, Any] = {"form": "chain", "share": 1.0}
rankers = pytest.mark.parametrize("ranker", [Linear(), SMALL], ids=["linear", "mlp"])


def one_list() -> Clicks:
    """Three documents whose only feature is log 2, log 1, log 4; clicked 3, 0 and 1 times in three sessions."""
    features = np.log(np.array([[2.0], [1.0], [4.0]], dtype=np.float32))
    lists = Lists(features, np.array([0, 3]), np.array(["q"]))
    places = np.arange(1, 4, dtype=np.int32)
    return Clicks(lists, np.array([0, 3]), np.arange(3), places, np.array([3, 0, 1]), np.array([3]))


def by_hand(**settings: Any) -> LipschitzBernoulliLearner:
    """r = exp(x) and log o_k = log(1, 1/2, 1/4) + (0, 1, -1) x."""
    learner = LipschitzBernoulli(**settings).learner(Linear().build(1), one_list())
    with torch.no_grad():
        learner.ranker.get_parameter("output.weight").fill_(1.0)
        learner.curve.copy_(torch.log(torch.tensor([1.0, 0.5, 0.25])))
        learner.own.get_parameter("0.weight").copy_(torch.tensor([[0.0], [1.0], [-1.0]]))
    return learner


def scattered(ranker: Linear | MLP, clicks: Clicks, *, seed: int = 0, **settings: Any) -> LipschitzBernoulliLearner:
    """A learner with every parameter away from where it starts."""
    torch.manual_seed(seed)
    learner = LipschitzBernoulli(**settings).learner(ranker.build(clicks.lists.features.shape[1]), clicks)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return learner


def losses(learner: LipschitzBernoulliLearner, batch: Batch, *, seed: int = 1) -> dict[str, float]:
    torch.manual_seed(seed)
    return {name: part.item() for name, part in learner.loss(batch).items()}


def test_the_loss_by_hand() -> None:
    """r o is 2 x 1, 1 x 1/2 x 1 and 4 x 1/4 / 4; of 2.75 in all."""
    found = losses(by_hand(drop=0.0, penalty=0.0), pad(one_list(), np.arange(1)))
    assert found == {"click": pytest.approx(-3 * math.log(2 / 2.75) - math.log(0.25 / 2.75), rel=1e-5)}


def test_the_penalty_by_hand() -> None:
    """The slopes of log o are 0, 1 and -1, the same for all documents: their mean square is 2/3, as is their mean."""
    batch = pad(one_list(), np.arange(1))
    assert losses(by_hand(penalty=0.3), batch)["penalty"] == pytest.approx(0.3 * 2 / 3)
    assert losses(by_hand(penalty=0.3, power=1), batch)["penalty"] == pytest.approx(0.3 * 2 / 3, rel=1e-5)
    seen = np.array([[1.0, 2 / 2, 1 / 8], [1.0, 1 / 2, 1 / 4], [1.0, 4 / 2, 1 / 16]]) * [0, 1, -1]
    found = losses(by_hand(penalty=0.3, penalised="observation"), batch)["penalty"]
    assert found == pytest.approx(0.3 * np.square(seen).mean(), rel=1e-5)
    assert losses(by_hand(penalty=0.3).eval(), batch)["penalty"] == 0


@rankers
def test_dropping_everything_is_the_loss_on_clicks(ranker: Linear | MLP, clicks: Clicks) -> None:
    learner = scattered(ranker, clicks, drop=1.0, penalty=0.0)
    batch = pad(clicks, np.arange(len(clicks)))
    plain = Click().learner(learner.ranker, clicks)
    assert losses(learner, batch)["click"] == plain.loss(batch)["ranking"].item()
    assert torch.equal(learner.click_logits(batch), plain.click_logits(batch))


def test_each_document_is_dropped_for_itself_and_anew_at_each_step() -> None:
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


def test_click_logits_are_the_mean_over_dropping() -> None:
    """exp(logit) = r (t + (1 - t) o): the mean over 20000 draws of r o^g, within five standard errors."""
    batch, drop = pad(one_list(), np.arange(1)), 0.4
    found = by_hand(drop=drop).click_logits(batch).exp()[0].tolist()
    assert found == pytest.approx([2.0, 0.4 + 0.6 * 0.5, 4 * (0.4 + 0.6 / 16)], rel=1e-5)
    kept = np.random.default_rng(0).random((20_000, 3)) >= drop
    drawn = np.array([2, 1, 4]) * np.array([1, 0.5, 1 / 16]) ** kept
    assert np.all(np.abs(drawn.mean(0) - found) <= 5 * drawn.std(0) / math.sqrt(len(drawn)) + 1e-5)


@pytest.mark.parametrize("score", ["relevance", "first"])
def test_trees_divide_by_the_observation_that_dropping_leaves(score: str) -> None:
    """With it clicks over exposure are what the network says of clicks in the first place; at t = 1, clicks."""
    log, seen = one_list(), np.array([1.0, 0.5, 1 / 16])
    for drop in (0.0, 0.4, 1.0):
        learner = by_hand(drop=drop, score=score)
        exposure = learner.exposure(log)
        assert exposure == pytest.approx(log.impressions[0] * (drop + (1 - drop) * seen), rel=1e-5)  # o_1 is 1 for all
        batch = pad(log, np.arange(1))
        there, first = (
            learner.click_logits(replace(batch, positions=each)).exp()[0].detach().double().numpy()
            for each in (batch.positions, torch.ones_like(batch.positions))
        )
        assert there / exposure == pytest.approx(first / log.impressions[0], rel=1e-5)


@pytest.mark.parametrize("bounded", [False, True], ids=["free", "bounded"])
@pytest.mark.parametrize("penalised", ["log", "observation"])
@pytest.mark.parametrize("trunk", ["towers", "shared"])
@rankers
def test_the_penalty_is_the_mean_slope_that_autograd_finds(
    ranker: Linear | MLP, trunk: str, penalised: str, bounded: bool, clicks: Clicks
) -> None:
    """Of log o or of o, as the learner itself says them, document by document and position by position."""
    learner = scattered(ranker, clicks, penalty=0.7, trunk=trunk, penalised=penalised, bounded=bounded, **EXACT)
    batch = pad(clicks, np.arange(6))
    x = batch.features[batch.mask].requires_grad_()
    logs = learner.log_observation(x)
    outputs = logs if penalised == "log" else logs.exp()
    slopes = [torch.autograd.grad(each.sum(), x, retain_graph=True)[0].square().sum(-1) for each in outputs.unbind(-1)]
    assert losses(learner, batch)["penalty"] == pytest.approx(0.7 * torch.stack(slopes).mean().item(), rel=1e-4)


def test_the_penalty_does_not_depend_on_batch_list_or_padding(clicks: Clicks) -> None:
    """The same list once, eight times, or behind padding; documents in one list or in lists of one."""
    learner = scattered(SMALL, clicks, penalty=1.0, **EXACT)
    long, one = np.flatnonzero(np.diff(clicks.offsets) == 12)[:1], np.flatnonzero(np.diff(clicks.offsets) == 5)[:1]
    alone = losses(learner, pad(clicks, one))["penalty"]
    assert losses(learner, pad(clicks, np.repeat(one, 8)))["penalty"] == pytest.approx(alone, rel=1e-5)
    both = pad(clicks, np.concatenate([one, long]))
    padded = Batch(*(getattr(both, name)[:1] for name in ("features", "mask", "positions", "clicks", "impressions")))
    assert losses(learner, padded)["penalty"] == pytest.approx(alone, rel=1e-5)
    rows = clicks.rows[clicks.offsets[one[0]] : clicks.offsets[one[0] + 1]]
    ones = np.ones(5, dtype=np.int64)
    singles = Clicks(clicks.lists, np.arange(6), rows, ones.astype(np.int32), ones, ones)
    assert losses(learner, pad(singles, np.arange(5)))["penalty"] == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("form", ["output", "projection"])
def test_drawn_penalties_are_right_in_the_mean(form: str, clicks: Clicks) -> None:
    """Over 144 draws of a quarter of the documents, within four standard errors."""
    learner, batch = scattered(SMALL, clicks, penalty=1.0, **EXACT), pad(clicks, np.arange(20))
    exact = losses(learner, batch)["penalty"]
    learner.settings = replace(learner.settings, form=form, share=0.25)  # type: ignore[arg-type]
    drawn = np.array([losses(learner, batch, seed=seed)["penalty"] for seed in range(144)])
    assert drawn.std() > 0
    assert abs(drawn.mean() - exact) < 4 * drawn.std() / 12


@rankers
def test_an_unbounded_penalty_is_one_curve_for_all_documents(ranker: Linear | MLP, clicks: Clicks) -> None:
    learner = scattered(ranker, clicks, penalty=math.inf, drop=0.0)
    batch = pad(clicks, np.arange(len(clicks)))
    assert not list(learner.own.parameters())
    assert torch.equal(learner.log_observation(batch.features), learner.curve.expand(*batch.mask.shape, -1))
    logits = learner.ranker(batch.features) + learner.curve[batch.positions - 1]
    expected = softmax_loss(logits, batch.clicks, mask=batch.mask).item()
    assert losses(learner, batch) == {"click": pytest.approx(expected, rel=1e-6)}
    relative = (learner.curve - learner.curve[0]).exp().detach().double().numpy()
    assert learner.observation() == pytest.approx(relative, rel=1e-5)
    assert learner.exposure(clicks) == pytest.approx(clicks.list_impressions * relative[clicks.positions - 1], rel=1e-5)


def test_a_huge_penalty_comes_to_the_same_curve_and_ranking(clicks: Clicks) -> None:
    """The curve within .5 %, the scores within .5 % of their range; without penalty both are elsewhere."""

    def trained(penalty: float) -> Fitted:
        settings = FitSettings(epochs=100, batch_size=60, learning_rate=0.2, threads=1, patience=0)
        method = LipschitzBernoulli(penalty=penalty, drop=0.0)
        return fit(clicks, method=method, ranker=Linear(), settings=settings)

    none, huge, free = (trained(penalty) for penalty in (math.inf, 100.0, 0.0))
    curves = [np.asarray(one.observation) for one in (none, huge, free)]
    scores = [one.model.score(clicks.lists) for one in (none, huge, free)]
    scores = [one - one.mean() for one in scores]
    assert curves[1] == pytest.approx(curves[0], rel=0.005)
    assert np.abs(curves[2] / curves[0] - 1).max() > 0.1
    assert np.abs(scores[1] - scores[0]).max() < 0.005 * np.ptp(scores[0])
    assert np.abs(scores[2] - scores[0]).max() > 0.1 * np.ptp(scores[0])


@pytest.mark.parametrize("bounded", [False, True], ids=["free", "bounded"])
@rankers
def test_anchored_has_no_observation_to_learn_at_the_first_position(
    ranker: Linear | MLP, bounded: bool, clicks: Clicks
) -> None:
    learner = scattered(ranker, clicks, anchored=True, bounded=bounded)
    logs = learner.log_observation(1e3 * torch.randn(50, 5))
    assert logs.shape == (50, clicks.max_position)
    assert torch.equal(logs[:, 0], torch.zeros(50))
    assert logs[:, 1:].std(0).min() > 0


@rankers
def test_bounded_observations_are_probabilities(ranker: Linear | MLP, clicks: Clicks) -> None:
    learner, wide = scattered(ranker, clicks, bounded=True), 1e3 * torch.randn(200, 5)
    assert (learner.log_observation(wide) <= 0).all()
    learner.settings = replace(learner.settings, bounded=False)
    assert (learner.log_observation(wide) > 0).any()


@pytest.mark.parametrize("drop", [0.0, 0.3, 1.0])
def test_ranking_by_the_first_place_is_another_name_for_the_same_clicks(drop: float, clicks: Clicks) -> None:
    """With f = log r + log o_1, all linear: the same logits and loss, also where documents are dropped."""
    relevance = scattered(Linear(), clicks, drop=drop, penalty=0.0)
    first = scattered(Linear(), clicks, drop=drop, penalty=0.0, score="first")
    first.load_state_dict(relevance.state_dict())
    with torch.no_grad():
        first.ranker.get_parameter("output.weight").add_(relevance.own.get_parameter("0.weight")[:1])
        first.ranker.get_parameter("output.bias").add_(relevance.own.get_parameter("0.bias")[:1] + relevance.curve[0])
    batch = pad(clicks, np.arange(20))
    one, other = (learner.click_logits(batch)[batch.mask] for learner in (relevance, first))
    assert torch.allclose(one, other, atol=1e-5)
    assert losses(relevance, batch)["click"] == pytest.approx(losses(first, batch)["click"], rel=1e-5)
    shift = first.ranker(batch.features) - relevance.ranker(batch.features)
    assert torch.allclose(shift, relevance.log_observation(batch.features)[..., 0], atol=1e-5)


def test_a_shared_trunk_is_one_network_with_a_head_of_its_own(clicks: Clicks) -> None:
    """Relevance and observation move the same hidden layers; towers share nothing."""
    batch, inner = pad(clicks, np.arange(6)), "layers.0.weight"
    for trunk, is_shared in (("shared", True), ("towers", False)):
        learner = scattered(SMALL, clicks, trunk=trunk)
        learner.zero_grad()
        torch.autograd.backward(learner.log_observation(batch.features).sum())
        assert (learner.ranker.get_parameter(inner).grad is not None) is is_shared
        assert learner.ranker.get_parameter("layers.6.weight").grad is None
        shapes = {tuple(parameter.shape) for parameter in learner.own.parameters()}
        assert {(12, 4), (12,)} <= shapes
        assert (shapes == {(12, 4), (12,)}) is is_shared
        hidden = learner.ranker.get_submodule("layers")[:-1](batch.features)  # type: ignore[index]
        alike = torch.allclose(learner.curve + learner.own[-1](hidden), learner.log_observation(batch.features))
        assert alike is is_shared


def test_the_penalty_of_o_itself_is_escaped_by_a_constant(clicks: Clicks) -> None:
    """Every o divided by e^3: the clicks are as probable as before, the penalty is e^-6 of it; that of log o stays."""
    batch = pad(clicks, np.arange(10))
    for penalised, factor in (("observation", math.exp(-6)), ("log", 1.0)):
        learner = scattered(SMALL, clicks, penalty=1.0, drop=0.0, penalised=penalised, **EXACT)
        before = losses(learner, batch)
        with torch.no_grad():
            learner.curve.sub_(3.0)
        after = losses(learner, batch)
        assert after["click"] == pytest.approx(before["click"], rel=1e-5)
        assert after["penalty"] == pytest.approx(before["penalty"] * factor, rel=1e-4)


@pytest.mark.parametrize("trunk", ["towers", "shared"])
@pytest.mark.parametrize("anchored", [False, True], ids=["free", "anchored"])
@rankers
def test_one_place_and_a_deeper_list_than_all_others(ranker: Linear | MLP, anchored: bool, trunk: str) -> None:
    """Lists of length one, and one document at place 30 that nothing else reaches."""
    rng = np.random.default_rng(0)
    lists = Lists(rng.normal(size=(8, 3)).astype(np.float32), np.array([0, 1, 2, 8]), np.array(["a", "b", "c"]))
    places = np.array([1, 1, 1, 2, 3, 4, 5, 30], dtype=np.int32)
    log = Clicks(lists, lists.offsets, np.arange(8), places, np.array([1, 0, 2, 1, 0, 0, 0, 1]), np.full(3, 2))
    method = LipschitzBernoulli(anchored=anchored, trunk=trunk)  # type: ignore[arg-type]
    settings = FitSettings(epochs=3, batch_size=2, threads=1)
    for each, depth in ((log, 30), (log.take([0, 1]), 1)):
        fitted = fit(each, method=method, ranker=ranker, settings=settings)
        assert fitted.observation is not None
        assert fitted.observation.shape == (depth,)
        assert fitted.observation[0] == 1
        assert np.isfinite(fitted.observation).all()
        assert np.isfinite(fitted.model.score(lists)).all()


@pytest.mark.parametrize("trunk", ["towers", "shared"])
def test_the_curve_has_a_rate_of_its_own(trunk: str, clicks: Clicks) -> None:
    learner = scattered(SMALL, clicks, observation_rate=3.0, trunk=trunk)
    (one, ranker), (two, own), (three, curve) = learner.rates()
    assert (one, two, three, [id(each) for each in curve]) == (1.0, 1.0, 3.0, [id(learner.curve)])
    assert {id(each) for each in ranker} == {id(each) for each in learner.ranker.parameters()}
    assert {id(each) for each in own} == {id(each) for each in learner.own.parameters()}


@pytest.mark.parametrize(
    ("field", "value", "must"),
    [
        ("penalty", -1.0, "not be negative"),
        ("penalty", math.nan, "not be negative"),
        ("drop", 1.1, "be in"),
        ("drop", math.nan, "be in"),
        ("trunk", "one", "be one of towers, shared"),
        ("score", "second", "be one of relevance, first"),
        ("penalised", "slope", "be one of log, observation"),
        ("form", "double", "be one of autograd, chain, output, projection"),
        ("power", 3, "be 1 or 2"),
        ("share", 0.0, "be above 0 and at most 1"),
        ("observation_rate", 0.0, "be above 0"),
        ("observation_rate", math.inf, "be above 0"),
    ],
)
def test_wrong_settings_are_refused(field: str, value: Any, must: str) -> None:
    with pytest.raises(SettingError, match=f"{field} must {must}"):
        LipschitzBernoulli(**{field: value})


def test_a_ranker_without_layers_is_refused(clicks: Clicks) -> None:
    with pytest.raises(SettingError, match=r"must be a network with a linear layer at the end, .* for lbd_paper"):
        LipschitzBernoulli().learner(nn.Linear(5, 1), clicks)
    LipschitzBernoulli(penalty=math.inf).learner(nn.Linear(5, 1), clicks)
