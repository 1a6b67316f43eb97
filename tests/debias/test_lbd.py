"""The form of LBD that wins: its observation, weights and exposure by hand, how the penalty is chosen, and trees."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from clickprism.debias import lbd
from clickprism.debias.anchor import Anchor
from clickprism.debias.click import Click
from clickprism.debias.lbd import DecoupledLearner, Decoupling, DocumentObservation, ObservationSettings
from clickprism.debias.loop import pad
from clickprism.debias.losses import softmax_loss
from clickprism.errors import DataError, SettingError
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.training import trees
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Float64, Lists

QUICK = ObservationSettings(companion=(4,), epochs=3)
STEEPNESS = np.array([1.0, 1.5, 0.0])  # of the three documents of `one_list`: 1 + x / 2, never below 0
BELOW = np.array([0.0, math.log(0.5), math.log(0.25)])


def one_list() -> Clicks:
    """Documents with features 0, 1 and -4, at places 1 to 3; clicked 3, 1 and 2 times in four sessions."""
    lists = Lists(np.array([[0.0], [1.0], [-4.0]], dtype=np.float32), np.array([0, 3]), np.array(["q"]))
    places = np.arange(1, 4, dtype=np.int32)
    return Clicks(lists, np.array([0, 3]), np.arange(3), places, np.array([3, 1, 2]), np.array([4]))


def by_hand(**settings: Any) -> DecoupledLearner:
    """s(x) = 1 + x / 2, b = log(1, 1/2, 1/4), and a ranker whose score is x."""
    observed = DocumentObservation(features=1, positions=3, hidden=0, flat=False)
    ranker = Linear().build(1)
    with torch.no_grad():
        observed.below.copy_(torch.from_numpy(BELOW[1:]))
        observed.chain.get_parameter("0.weight").fill_(0.5)
        ranker.get_parameter("output.weight").fill_(1.0)
    return DecoupledLearner(Decoupling(**settings), ranker, one_list(), observed, ())


def log_observation(first: float) -> Float64:
    """s(x) (log o_1 + b_k), [documents, positions], where the average s, 5 / 6, has log o_1 = log first."""
    logs: Float64 = STEEPNESS[:, None] * (math.log(first) / STEEPNESS.mean() + BELOW)
    return logs


def scattered(observed: DocumentObservation) -> DocumentObservation:
    with torch.no_grad():
        for parameter in observed.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return observed


def features_of(clicks: Clicks) -> torch.Tensor:
    return torch.from_numpy(clicks.lists.features)


@pytest.mark.parametrize("first", [1.0, 0.8, 0.5])
def test_the_observation_by_hand(first: float) -> None:
    learner, features = by_hand(first=first), features_of(one_list())
    logs = learner.log_observation(features).double().detach().numpy()
    assert logs == pytest.approx(log_observation(first), abs=1e-6)
    assert np.exp(logs[:, 0].mean()) == pytest.approx(first)
    relative = logs - logs[:, :1]
    assert learner.observation() == pytest.approx(np.exp(relative.mean(0)), rel=1e-6)
    assert learner.observation() == pytest.approx(np.array([1, 0.5, 0.25]) ** (5 / 6), rel=1e-6)
    assert torch.equal(learner.log_observation(features[None, :, None])[0, :, 0], learner.log_observation(features))


def test_the_loss_by_hand() -> None:
    """Each click weighs first / o; the third document is always seen, and so weighs `first`."""
    first, scores = 0.8, np.array([0.0, 1.0, -4.0])
    weights = first / np.exp(np.diag(log_observation(first)))
    assert weights[2] == pytest.approx(0.8)
    shares = scores - np.log(np.exp(scores).sum())
    batch = pad(one_list(), np.arange(1))
    expected = -(np.array([3, 1, 2]) * weights * shares).sum()
    assert by_hand(first=first).loss(batch)["ranking"].item() == pytest.approx(expected, rel=1e-5)
    cut = -(np.array([3, 1, 2]) * np.minimum(weights, 1.2) * shares).sum()
    assert weights[1] > 1.2
    assert by_hand(first=first, max_weight=1.2).loss(batch)["ranking"].item() == pytest.approx(cut, rel=1e-5)
    logits = by_hand(first=first).click_logits(batch)[0].detach().double().numpy()
    assert logits == pytest.approx(scores + np.diag(log_observation(first)), abs=1e-6)


def test_the_loss_with_what_the_engine_knows_by_hand() -> None:
    """Relevance in the loss is f(x) + rho v, v = - log k - .5 x - .1: 0, log 2 and log 3 less for positions 1 to 3."""
    learner, first = by_hand(), 0.8
    values = {"curve": [1.0, 0.5, 0.25], "engine": [0.5], "centre": 0.1, "rho": 2.0}
    learner.anchor = Anchor(**{name: torch.tensor(value) for name, value in values.items()})
    known = np.array([0.0, 1.0, -4.0]) + 2 * (-np.log([1, 2, 3]) - [0.1, 0.6, -1.9])
    weights = first / np.exp(np.diag(log_observation(first)))
    expected = -(np.array([3, 1, 2]) * weights * (known - np.log(np.exp(known).sum()))).sum()
    batch = pad(one_list(), np.arange(1))
    assert learner.loss(batch)["ranking"].item() == pytest.approx(expected, rel=1e-5)
    logits = learner.click_logits(batch)[0].detach().double().numpy()
    assert logits == pytest.approx(known + np.diag(log_observation(first)), abs=1e-5)


@pytest.mark.parametrize("first", [1.0, 0.8])
def test_exposure_is_in_units_of_the_first_position(first: float) -> None:
    exposure = by_hand(first=first).exposure(one_list())
    assert exposure == pytest.approx(4 * np.exp(np.diag(log_observation(first))) / first, rel=1e-6)


def test_clicks_at_position_one_are_unchanged_if_it_is_always_observed(clicks: Clicks) -> None:
    torch.manual_seed(0)
    observed = scattered(DocumentObservation(features=5, positions=12, hidden=0, flat=False))
    learner = DecoupledLearner(Decoupling(first=1.0), MLP(hidden=(4,)).build(5), clicks, observed, ())
    batch = pad(clicks, np.arange(20))
    batch = replace(batch, clicks=batch.clicks * (batch.positions == 1))
    assert (
        learner.loss(batch)["ranking"].item() == Click().learner(learner.ranker, clicks).loss(batch)["ranking"].item()
    )
    top = clicks.positions == 1
    assert np.array_equal(learner.exposure(clicks)[top], clicks.list_impressions[top])


def test_dropping_leaves_a_mixture_and_all_of_it_is_click() -> None:
    batch, seen = pad(one_list(), np.arange(1)), np.exp(log_observation(0.8))
    some = by_hand(drop=0.25)
    found = some.log_observation(features_of(one_list())).exp().detach().double().numpy()
    assert found == pytest.approx(0.25 + 0.75 * seen, rel=1e-5)
    assert some.exposure(one_list()) == pytest.approx(4 * np.diag(0.25 + 0.75 * seen) / 0.85, rel=1e-5)
    dropped = by_hand(drop=1.0)
    plain = Click().learner(dropped.ranker, one_list())
    assert dropped.loss(batch)["ranking"].item() == plain.loss(batch)["ranking"].item()
    assert torch.equal(dropped.click_logits(batch), plain.click_logits(batch))
    assert dropped.exposure(one_list()).tolist() == [4, 4, 4]


@pytest.mark.parametrize(("below", "first"), [((-1.0, -2.0), 0.8), ((-0.1, -0.2), math.exp(-0.15)), ((0.1, 0.3), 1.0)])
def test_the_first_position_is_not_overlooked_more_than_the_others(below: tuple[float, float], first: float) -> None:
    """The mean of log o_k / o_1 below it bounds log o_1: -.15 is above log .8 = -.22, and no observation exceeds 1."""
    observed = DocumentObservation(features=1, positions=3, hidden=0, flat=True)
    observed.below.data = torch.tensor(below)
    learner = DecoupledLearner(Decoupling(), MLP(hidden=(4,)).build(1), one_list(), observed, ())
    assert learner.unit == pytest.approx(first)


def test_only_the_ranker_of_a_learner_is_trained(clicks: Clicks) -> None:
    torch.manual_seed(0)
    learner = Decoupling(replace(QUICK, held_out=0.5)).learner(MLP(hidden=(4,)).build(5), clicks)
    assert [id(each) for each in learner.parameters()] == [id(each) for each in learner.ranker.parameters()]
    assert len(learner.choices) == 5
    before = learner.log_observation(features_of(clicks))
    optimiser = torch.optim.SGD(learner.parameters(), lr=1.0)
    torch.autograd.backward(learner.loss(pad(clicks, np.arange(20)))["ranking"])
    optimiser.step()
    assert torch.equal(learner.log_observation(features_of(clicks)), before)


def test_a_log_with_one_position_leaves_clicks_as_they_are() -> None:
    """Eighty lists of one document each: there is nothing to learn of positions, and clicks are what they are."""
    lists = Lists(
        np.random.default_rng(0).normal(size=(80, 2)).astype(np.float32), np.arange(81), np.arange(80).astype(np.str_)
    )
    counts = np.arange(80) % 3
    log = Clicks(lists, lists.offsets, np.arange(80), np.ones(80, np.int32), counts, np.full(80, 2))
    settings = FitSettings(epochs=2, threads=1)
    fitted = fit(log, method=Decoupling(QUICK), ranker=Linear(), settings=settings)
    assert fitted.observation is not None
    assert fitted.observation.tolist() == [1.0]
    assert fitted.learner is not None
    assert fitted.learner.exposure(log) == pytest.approx(np.full(80, 2.0))


def test_a_deeper_list_than_all_others_and_places_left_out(clicks: Clicks) -> None:
    """The first list goes down to position 30; between 13 and 29 nothing was shown."""
    places = clicks.positions.copy()
    places[11] = 30
    deep = replace(clicks, positions=places)
    method = Decoupling(replace(QUICK, held_out=0.5))
    fitted = fit(deep, method=method, ranker=Linear(), settings=FitSettings(epochs=2, threads=1))
    assert fitted.observation is not None
    assert fitted.observation.shape == (30,)
    assert np.isfinite(fitted.observation).all()


def test_trees_learn_from_clicks_over_the_exposure_of_documents(clicks: Clicks) -> None:
    ranker, settings = LambdaMART(trees=5, leaves=4, min_data_in_leaf=5), FitSettings(threads=1, seed=3)
    method = Decoupling(replace(QUICK, held_out=0.5, penalties=(0.0,)))
    fitted = [fit(clicks, method=method, ranker=ranker, settings=settings) for _ in range(2)]
    scores = [one.model.score(clicks.lists) for one in fitted]
    assert np.array_equal(scores[0], scores[1])
    learner = fitted[0].learner
    assert isinstance(learner, DecoupledLearner)
    boosting = trees.per_exposure(clicks, learner, ranker)
    grown, _, _ = trees.train(
        boosting, title="", ranker=ranker, settings=settings, validation=None, out=None, show=False
    )
    assert np.array_equal(grown(clicks.lists.features), scores[0])
    exposure = np.exp(learner.log_observation(features_of(clicks)[clicks.rows]).double().numpy()) / learner.unit
    expected = 20 * exposure[np.arange(len(clicks.rows)), clicks.positions - 1]
    assert learner.exposure(clicks) == pytest.approx(expected, rel=1e-6)


def test_a_curve_alone_on_huge_features_is_doubted(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once, with a remedy; not where features are small, nor where nothing else than the curve was asked for."""
    flat = DocumentObservation(features=5, positions=12, hidden=0, flat=True)
    tried = (lbd.Choice(0, math.inf, -1.0, 3),)
    monkeypatch.setattr(lbd, "learn_observation", lambda *_: (flat, tried))
    for factor, penalties, doubted in ((1e6, (0.0,), True), (1.0, (0.0,), False), (1e6, (), False)):
        log = replace(clicks, lists=clicks.lists.with_features(clicks.lists.features * np.float32(factor)))
        caplog.clear()
        learner = Decoupling(replace(QUICK, penalties=penalties)).learner(Linear().build(5), log)
        assert ("Normalise the features" in learner.doubt) is doubted
        assert len(caplog.records) == doubted
        assert ("lbd: the observation is a curve over positions only, and features go up to" in caplog.text) is doubted


def test_weights_of_clicks_multiply_the_weights_of_the_method() -> None:
    learner, batch = by_hand(), pad(one_list().weighted(np.array([0.5, 2.0, 0.0])), np.arange(1))
    weights = 0.8 / np.exp(np.diag(log_observation(0.8)))
    expected = torch.from_numpy(np.array([[3, 1, 2]]) * weights * [0.5, 2.0, 0.0]).float()
    scores = learner.ranker(batch.features)
    assert learner.loss(batch)["ranking"].item() == pytest.approx(
        softmax_loss(scores, expected, mask=batch.mask).item(), rel=1e-5
    )


@pytest.mark.parametrize(
    ("field", "value", "must"),
    [
        ("first", 0.0, "be above 0 and at most 1"),
        ("first", 1.1, "be above 0 and at most 1"),
        ("drop", -0.1, "be from 0 to 1"),
        ("drop", math.nan, "be from 0 to 1"),
        ("max_weight", 0.5, "be at least 1"),
        ("max_weight", math.inf, "be at least 1"),
    ],
)
def test_wrong_settings_are_refused(field: str, value: Any, must: str) -> None:
    with pytest.raises(SettingError, match=f"{field} must {must}"):
        Decoupling(**{field: value})


@pytest.mark.parametrize("few", [False, True], ids=["chosen", "too small to choose"])
def test_a_resumed_run_continues_bit_for_bit_as_without_a_break(few: bool, clicks: Clicks, tmp_path: Path) -> None:
    log = clicks.with_clicks().take(np.arange(15)) if few else clicks
    method = Decoupling(replace(QUICK, held_out=0.5))

    def run(epochs: int, out: Path | None, *, resume: bool = False) -> tuple[Float64, DecoupledLearner]:
        settings = FitSettings(epochs=epochs, threads=1)
        fitted = fit(log, method=method, ranker=MLP(hidden=(4,)), settings=settings, out=out, resume=resume)
        assert isinstance(fitted.learner, DecoupledLearner)
        return fitted.model.score(log.lists), fitted.learner

    scores, whole = run(4, None)
    run(2, tmp_path)
    again, resumed = run(4, tmp_path, resume=True)
    assert np.array_equal(again, scores)
    assert repr(resumed.choices) == repr(whole.choices)
    assert np.array_equal(resumed.exposure(log), whole.exposure(log))
    assert np.array_equal(resumed.observation(), whole.observation())


def test_a_checkpoint_of_lbd_that_is_broken_is_refused(clicks: Clicks, tmp_path: Path) -> None:
    settings = FitSettings(epochs=1, threads=1)
    method = Decoupling(QUICK)
    fit(clicks, method=method, ranker=Linear(), settings=settings, out=tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    with safe_open(path, "pt") as file:
        tensors, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    del tensors["learner.scale"]
    save_file(tensors, path, metadata)
    with pytest.raises(DataError, match=r"checkpoint\.safetensors: is not a usable checkpoint [\s\S]*scale"):
        fit(clicks, method=method, ranker=Linear(), settings=settings, out=tmp_path, resume=True)
