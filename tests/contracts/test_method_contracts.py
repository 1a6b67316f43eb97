"""What every debiasing method must do, whatever it is: these run over all that the registry names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clickprism.debias import METHODS
from clickprism.debias.base import BIASES, Learner, Method
from clickprism.debias.loop import batches, pad
from clickprism.errors import DataError, SettingError
from clickprism.model import Model
from clickprism.rankers import RANKERS
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.settings import build, plain, resolve
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.types import Batch, Clicks, Lists

CURVE = {"propensities": [1 / place for place in range(1, 13)]}
TRUST = {"alpha": [1 / place for place in range(1, 13)], "beta": [0.02 / place for place in range(1, 13)]}
QUICK = {"observation": {"epochs": 2, "companion": [4]}}
NEEDED: dict[str, dict[str, Any]] = {"ipw": CURVE, "affine": TRUST, "lbd": QUICK}
RANKER_SETTINGS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": [8, 4]},
    "attention": {"heads": 2, "width": 4, "units": 2, "pooled": 4, "hidden": [4]},
    "lambdamart": {"trees": 5, "leaves": 4, "min_data_in_leaf": 5},
}
FIT = FitSettings(epochs=2, batch_size=16, threads=1, seed=3)


def method_of(name: str) -> Any:
    return build(resolve(METHODS, name, path="method"), NEEDED.get(name, {}))


@pytest.fixture
def clicks(clicks: Clicks, request: pytest.FixtureRequest) -> Clicks:
    """The common log; for a method that needs patterns, each list with what was clicked in most sessions."""
    if not method_of(request.getfixturevalue("name")).needs_patterns:
        return clicks
    share = clicks.clicks / clicks.list_impressions
    return replace(clicks, clicks=np.where(share > 0.3, clicks.list_impressions, 0))


def ranker_of(name: str) -> Any:
    return build(resolve(RANKERS, name, path="ranker"), RANKER_SETTINGS.get(name, {}))


def learner_of(name: str, clicks: Clicks) -> Learner:
    torch.manual_seed(0)
    learner: Learner = method_of(name).learner(MLP(hidden=(8, 4)).build(clicks.lists.features.shape[1]), clicks)
    return learner


def total(learner: Learner, batch: Batch) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.stack(list(learner.loss(batch).values())).sum()


def part_of(learner: Learner, batch: Batch, part: str) -> torch.Tensor:
    torch.manual_seed(1)
    return learner.loss(batch)[part]


def first_batch(clicks: Clicks) -> Batch:
    return next(batches(clicks, 16))


def gradients(learner: Learner, batch: Batch) -> list[torch.Tensor]:
    learner.zero_grad()
    torch.autograd.backward(total(learner, batch))
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in learner.parameters()]


NETWORK_METHODS = [name for name in METHODS if not method_of(name).trees_only]
TREES_ONLY = [name for name in METHODS if name not in NETWORK_METHODS]
WITHOUT_OBSERVER = [name for name in METHODS if name in TREES_ONLY or not method_of(name).learns_observation]
every_method = pytest.mark.parametrize("name", METHODS)
every_network_method = pytest.mark.parametrize("name", NETWORK_METHODS)
every_method_and_ranker = pytest.mark.parametrize(
    ("name", "ranker"),
    [(name, ranker) for name in METHODS for ranker in RANKERS if name in NETWORK_METHODS or ranker == "lambdamart"],
)


@every_method
def test_settings_survive_a_round_trip(name: str) -> None:
    method = method_of(name)
    assert method.name == name
    assert build(type(method), plain(method)) == method


@every_method
def test_a_method_declares_what_it_does(name: str) -> None:
    method, needs_patterns = method_of(name), method_of(name).needs_patterns
    assert isinstance(method, Method)
    assert re.fullmatch(r"[A-Z][^|\n]{20,100}\.", method.summary)
    assert set(method.corrects) <= set(BIASES)
    assert ("single sessions" in method.needs) == needs_patterns


@every_method
def test_weighted_clicks_are_taken_or_refused_as_declared(name: str, clicks: Clicks) -> None:
    ranker = Linear() if name in NETWORK_METHODS else ranker_of("lambdamart")
    weighted = clicks.weighted(np.ones(len(clicks.rows)))
    if method_of(name).takes_weights:
        fit(weighted, method=method_of(name), ranker=ranker, settings=FIT)
        return
    with pytest.raises(DataError, match=f"the clicks of the log have weights, and {name} takes none. Take .*lbd"):
        fit(weighted, method=method_of(name), ranker=ranker, settings=FIT)


@every_network_method
def test_masked_places_change_nothing(name: str, clicks: Clicks) -> None:
    learner, batch = learner_of(name, clicks), first_batch(clicks)
    assert not batch.mask.all()
    noisy = replace(
        batch,
        features=torch.where(batch.mask[..., None], batch.features, torch.full_like(batch.features, 1e6)),
        positions=torch.where(batch.mask, batch.positions, torch.full_like(batch.positions, clicks.max_position)),
    )
    assert total(learner, noisy).item() == total(learner, batch).item()
    for one, other in zip(gradients(learner, noisy), gradients(learner, batch), strict=True):
        assert torch.equal(one, other)


@every_network_method
def test_longer_padding_changes_nothing(name: str, clicks: Clicks) -> None:
    learner = learner_of(name, clicks)
    short = np.flatnonzero(np.diff(clicks.offsets) <= 6)[:8]
    long = np.flatnonzero(np.diff(clicks.offsets) == 12)[:1]
    alone, together = pad(clicks, short), pad(clicks, np.concatenate([short, long]))
    cut = Batch(
        together.features[:-1],
        together.mask[:-1],
        together.positions[:-1],
        together.clicks[:-1],
        together.impressions[:-1],
    )
    assert total(learner, cut).item() == pytest.approx(total(learner, alone).item(), rel=1e-5)


@every_network_method
def test_gradients_are_finite_without_clicks_and_with_huge_scores(name: str, clicks: Clicks) -> None:
    learner, batch = learner_of(name, clicks), first_batch(clicks)
    empty = replace(batch, clicks=torch.zeros_like(batch.clicks))
    for gradient in gradients(learner, empty):
        assert torch.isfinite(gradient).all()
    wide = replace(batch, features=batch.features * 1e4)
    for gradient in gradients(learner, wide):
        assert torch.isfinite(gradient).all()


@every_network_method
def test_lists_of_one_document_are_finite(name: str, clicks: Clicks) -> None:
    learner = learner_of(name, clicks)
    single = np.flatnonzero(np.diff(clicks.offsets) == 1)
    assert len(single) > 0
    for gradient in gradients(learner, pad(clicks, single)):
        assert torch.isfinite(gradient).all()


@every_network_method
def test_gradient_agrees_with_finite_differences(name: str, clicks: Clicks) -> None:
    """Along random directions, in double precision; weights without a gradient, and what is drawn, are held."""
    learner = learner_of(name, clicks).double()
    batch = first_batch(clicks)
    batch = replace(
        batch, features=batch.features.double(), clicks=batch.clicks.double(), impressions=batch.impressions.double()
    )
    parts = learner.loss(batch)
    generator = torch.Generator().manual_seed(2)
    parameters = list(learner.parameters())
    for part in parts:
        grads: list[torch.Tensor | None] = list(
            torch.autograd.grad(part_of(learner, batch, part), parameters, allow_unused=True)
        )
        used = [(p, g) for p, g in zip(parameters, grads, strict=True) if g is not None]
        assert used
        for _ in range(3):
            directions = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p, _ in used]
            slope = sum(float((g * d).sum()) for (_, g), d in zip(used, directions, strict=True))
            step, values = 1e-6, []
            for sign in (1, -1):
                with torch.no_grad():
                    for (p, _), d in zip(used, directions, strict=True):
                        p.add_(sign * step * d)
                    values.append(float(part_of(learner, batch, part)))
                    for (p, _), d in zip(used, directions, strict=True):
                        p.sub_(sign * step * d)
            assert (values[0] - values[1]) / (2 * step) == pytest.approx(slope, rel=1e-4, abs=1e-7)


@every_network_method
def test_the_loss_does_not_depend_on_how_often_the_log_is_repeated(name: str, clicks: Clicks) -> None:
    tenfold = replace(clicks, clicks=clicks.clicks * 10, impressions=clicks.impressions * 10)
    one, ten = learner_of(name, clicks), learner_of(name, tenfold)
    for a, b in zip(batches(clicks, 16), batches(tenfold, 16), strict=True):
        assert total(one, a).item() == pytest.approx(total(ten, b).item(), rel=1e-6)


@every_network_method
def test_sessions_and_merged_lists_have_the_same_loss(name: str, clicks: Clicks) -> None:
    """Two sessions of a list, apart or merged: the same mean over sessions."""
    half = replace(clicks, clicks=clicks.clicks // 2, impressions=clicks.impressions // 2)
    rest = replace(clicks, clicks=clicks.clicks - half.clicks, impressions=clicks.impressions - half.impressions)
    learner = learner_of(name, clicks)
    apart = [total(learner, pad(part, np.arange(len(part)), scale=10.0)).item() for part in (half, rest)]
    merged = total(learner, pad(clicks, np.arange(len(clicks)), scale=20.0)).item()
    assert sum(apart) / 2 == pytest.approx(merged, rel=1e-5)


@every_method_and_ranker
def test_same_seed_same_model_and_inputs_are_left_alone(name: str, ranker: str, clicks: Clicks, tmp_path: Path) -> None:
    before = [array.copy() for array in (clicks.lists.features, clicks.rows, clicks.clicks, clicks.impressions)]
    fitted = [fit(clicks, method=method_of(name), ranker=ranker_of(ranker), settings=FIT) for _ in range(2)]
    scores = [one.model.score(clicks.lists) for one in fitted]
    assert np.array_equal(scores[0], scores[1])
    assert np.isfinite(scores[0]).all()
    assert np.ptp(scores[0]) > 0
    after = (clicks.lists.features, clicks.rows, clicks.clicks, clicks.impressions)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    fitted[0].model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert np.array_equal(loaded.score(clicks.lists), scores[0])
    assert loaded.method["name"] == name


@pytest.mark.parametrize("name", TREES_ONLY)
def test_methods_without_a_loss_say_which_ranker_to_take(name: str, clicks: Clicks) -> None:
    with pytest.raises(SettingError, match=f"ranker must be lambdamart for the method {name}, .*, got 'linear'"):
        fit(clicks, method=method_of(name), ranker=Linear(), settings=FIT)


@pytest.mark.parametrize("name", WITHOUT_OBSERVER)
def test_trees_do_not_depend_on_how_often_the_log_is_repeated(name: str, clicks: Clicks) -> None:
    scores = [
        fit(
            replace(clicks, clicks=clicks.clicks * times, impressions=clicks.impressions * times),
            method=method_of(name),
            ranker=LambdaMART(trees=5, leaves=4, min_data_in_leaf=5, shrinkage=0.0),
            settings=FIT,
        ).model.score(clicks.lists)
        for times in (1, 8)
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


@every_network_method
def test_other_seeds_give_other_networks(name: str, clicks: Clicks) -> None:
    networks = [
        fit(clicks, method=method_of(name), ranker=MLP(hidden=(8,)), settings=replace(FIT, seed=seed))
        for seed in (1, 2)
    ]
    assert not np.array_equal(networks[0].model.score(clicks.lists), networks[1].model.score(clicks.lists))


@every_network_method
def test_scores_do_not_depend_on_other_documents(name: str, clicks: Clicks) -> None:
    model = fit(clicks, method=method_of(name), ranker=MLP(hidden=(8,)), settings=FIT).model
    whole = model.score(clicks.lists)
    reverse = Lists(clicks.lists.features[::-1].copy(), clicks.lists.offsets, clicks.lists.query_ids)
    assert model.score(reverse)[::-1] == pytest.approx(whole, rel=1e-5, abs=1e-6)


@every_network_method
def test_exposure_and_observation_are_sane(name: str, clicks: Clicks) -> None:
    learner = learner_of(name, clicks)
    exposure = learner.exposure(clicks)
    assert exposure.shape == clicks.rows.shape
    assert (exposure > 0).all()
    curve = learner.observation()
    if curve is not None:
        assert curve.shape == (clicks.max_position,)
        assert curve[0] == pytest.approx(1.0)
    logits = learner.click_logits(first_batch(clicks))
    assert torch.isfinite(logits).all()


@every_network_method
def test_all_parameters_are_trained_once(name: str, clicks: Clicks) -> None:
    learner = learner_of(name, clicks)
    grouped = [id(p) for _, group in learner.rates() for p in group]
    assert sorted(grouped) == sorted(id(p) for p in learner.parameters())


@every_network_method
def test_a_memory_mapped_or_read_only_log_will_do(name: str, clicks: Clicks) -> None:
    features = clicks.lists.features.copy()
    features.setflags(write=False)
    frozen = replace(clicks, lists=clicks.lists.with_features(features))
    assert fit(frozen, method=method_of(name), ranker=Linear(), settings=FIT).model.features == 5
