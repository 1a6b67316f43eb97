"""The approximation: losses, no leak, unseen pairs, low click rates, files, and that it beats both of its parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.measures import evaluate
from clickprism.relevance.approximation import (
    Approximation,
    Certainty,
    blended_odds,
    fit_approximation,
    new_network,
    published_blend,
    published_loss,
    split,
)
from clickprism.relevance.approximation_settings import ApproximateSettings, Preset
from clickprism.relevance.click_vectors import VectorScale, most_shown
from clickprism.relevance.pairs import FirstSlot, PairCounts, find_pairs
from clickprism.training.text import cross_entropy
from clickprism.types import Float64
from tests.relevance.search_world import SearchWorld, WorldSettings, search_world, vectors_of_counts

PRESETS = get_args(Preset)


def default_loss(
    zeta: torch.Tensor, imputed: torch.Tensor, affine: torch.Tensor, clicks: torch.Tensor, skips: torch.Tensor
) -> torch.Tensor:
    return cross_entropy(blended_odds(zeta, imputed, affine, mean=0.3), clicks, skips)


LOSSES: dict[str, Callable[..., torch.Tensor]] = {"default": default_loss, "published": published_loss}
BRIEF = ApproximateSettings(members=1, epochs=3)


def imputed_of(world: SearchWorld) -> Float64:
    lists = world.judged.lists
    assert lists.document_ids is not None
    known = lists.query_ids[lists.list_of], lists.document_ids
    return world.imputed[find_pairs(known, (world.slot.query_ids, world.slot.document_ids))]


@pytest.fixture(scope="module")
def world() -> SearchWorld:
    return search_world(WorldSettings(queries=300, top=3000.0, randomised=0.5))


@pytest.mark.parametrize("preset", PRESETS)
def test_gradients_are_those_of_finite_differences(preset: Preset) -> None:
    generator = torch.Generator().manual_seed(1)
    zeta, imputed, affine = (torch.rand(7, generator=generator, dtype=torch.float64) * 0.6 + 0.2 for _ in range(3))
    zeta = (zeta - 0.5).requires_grad_()
    counts = torch.arange(7.0, dtype=torch.float64), torch.arange(7.0, dtype=torch.float64).flip(0)

    def loss(zeta: torch.Tensor) -> torch.Tensor:
        return LOSSES[preset](zeta, imputed, affine, *counts)

    assert torch.autograd.gradcheck(loss, (zeta,))


def test_the_gradient_of_cross_entropy_is_that_of_finite_differences() -> None:
    odds = torch.linspace(-3, 3, 5, dtype=torch.float64, requires_grad=True)
    counts = torch.arange(5.0, dtype=torch.float64), torch.ones(5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda each: cross_entropy(each, *counts), (odds,))


def test_blends_agree_with_a_calculation_by_hand() -> None:
    zeta, imputed, affine = (torch.tensor([value], dtype=torch.float64) for value in (-0.5, 0.2, 0.4))
    odds = np.log(0.4 / 0.6) - 0.5 * (np.log(0.2 / 0.8) - 0.1)
    assert blended_odds(zeta, imputed, affine, mean=0.1).item() == pytest.approx(odds)
    assert published_blend(zeta, imputed, affine).item() == pytest.approx(0.4 - 0.5 * 0.2)


def test_equation_5_by_hand() -> None:
    """- (2c - 1) log(zeta i + a): of one click and two skips, log .3 remains once."""
    zeta, imputed, affine = (torch.tensor([value], dtype=torch.float64) for value in (-0.5, 0.2, 0.4))
    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    assert published_loss(zeta, imputed, affine, one, two).item() == pytest.approx(np.log(0.3))
    assert published_loss(zeta, imputed, affine, one, 0 * one).item() == pytest.approx(-np.log(0.3))


def test_the_published_networks_by_hand() -> None:
    """Section 6.2 with one hidden unit: a = sigmoid(relu(x) - 1), zeta = tanh(.5 relu(x)), a + zeta i, for any x."""
    settings = ApproximateSettings(preset="published", hidden=(1,), members=1)
    fields = ("month.impressions", "month.clicked")
    x = np.array([[0, 0], [8, 4]], np.float32)
    scale = VectorScale.fit_raw(x, fields, np.zeros(2, np.float32))
    assert scale(x).tolist() == [[-1, -1], [1, 1]]
    member = torch.nn.ModuleDict({name: new_network(settings, scale.width) for name in ("affine", "trade_off")})
    for name, slope, start in (("affine", 1.0, -1.0), ("trade_off", 0.5, 0.0)):
        first, last = (module for module in member[name].modules() if isinstance(module, torch.nn.Linear))
        with torch.no_grad():
            for parameter, value in ((first.weight, 0.5), (first.bias, 0.0), (last.weight, slope), (last.bias, start)):
                parameter.fill_(value)
    rest = {"means": (0.3, -1.0), "k": 0.0, "certainty": Certainty(1.0, 1.0, 0.1)}
    made = Approximation(settings, scale, [member], **rest)  # type: ignore[arg-type]
    imputed = np.array([0.3, 0.9])
    affine = 1 / (1 + np.exp([1.0, 0.0]))
    assert made.affine(x) == pytest.approx(affine)
    assert made.parts(x, imputed).trade_off == pytest.approx([0.0, np.tanh(0.5)])
    assert made.estimate(x, imputed) == pytest.approx(affine + np.array([0.0, np.tanh(0.5)]) * imputed)


def test_the_published_preset_has_the_settings_of_the_paper() -> None:
    settings = ApproximateSettings(preset="published")
    assert settings.hidden == (64, 32, 16)
    assert settings.training == (1, 128, 0.0, 0)  # members, batch size, weight decay, no limit of impressions
    assert replace(settings, members=3).training == (3, 128, 0.0, 0)


@pytest.mark.parametrize("preset", PRESETS)
def test_losses_are_finite_where_the_sum_leaves_the_unit_interval(preset: Preset) -> None:
    zeta = torch.tensor([-1.0, 1.0, -1.0, 1.0], requires_grad=True)
    ends = torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.tensor([0.0, 1.0, 0.0, 1.0])
    counts = torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([0.0, 1.0, 0.0, 1.0])
    loss = LOSSES[preset](zeta, *ends, *counts)
    assert torch.isfinite(loss).all()
    torch.autograd.backward(loss.sum())
    assert zeta.grad is not None
    assert torch.isfinite(zeta.grad).all()


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("rate", [0.1, 0.33, 0.5])
def test_never_nan_at_low_click_rates(rate: float, preset: Preset) -> None:
    drawn = search_world(WorldSettings(queries=120, top=500.0, randomised=1.0, level=rate / 0.74))
    assert drawn.slot.rate == pytest.approx(rate, abs=0.05)
    fitted = fit_approximation(drawn.slot, drawn.vectors, imputed_of(drawn), settings=replace(BRIEF, preset=preset))
    values = fitted.estimate(drawn.vectors.x, drawn.imputed)
    assert np.isfinite(values).all()
    assert preset == "published" or ((values > 0) & (values < 1)).all()


def test_pairs_that_were_never_shown_rank_as_imputed(world: SearchWorld) -> None:
    fitted = fit_approximation(world.slot, world.vectors, imputed_of(world), settings=BRIEF)
    unseen = np.repeat(world.vectors.empty[None], 50, axis=0)
    assert (most_shown(unseen, world.vectors.fields) == 0).all()
    imputed = np.linspace(0.001, 0.999, 50)
    assert (np.diff(fitted.estimate(unseen, imputed)) > 0).all()
    parts = fitted.parts(unseen, imputed)
    assert parts.trade_off == pytest.approx(1, abs=0.01)
    assert np.ptp(parts.affine) == 0
    assert (parts.estimate == fitted.estimate(unseen, imputed)).all()


def test_all_rows_of_a_query_are_held_out_together() -> None:
    queries = np.array(["a", "b", "a", "c", "d", "c"])
    rows, aside = (set(queries[part.numpy()]) for part in split(queries, 0.5, seed=0))
    assert not rows & aside
    assert len(aside) == 2


def test_a_click_inside_its_own_vector_leaks_and_one_before_does_not() -> None:
    """All pairs are alike: whatever a network says of them beyond the mean it read off the clicks themselves."""
    rng = np.random.default_rng(3)
    size = 1500
    ids = np.array([f"q{i // 5}" for i in range(size)]), np.array([f"d{i}" for i in range(size)])
    shown, clicked = np.full((size, 1), 3), rng.binomial(3, 0.4, (size, 1))
    clicks = rng.binomial(1, 0.4, size)
    slot = FirstSlot.of(*ids, clicks, impressions=np.ones(size, np.int64))
    spread = {}
    for name, more in (("before", 0), ("inside", 1)):
        month = PairCounts(shown + more, clicked + more * clicks[:, None])
        vectors = vectors_of_counts(*ids, {"month": month})
        fitted = fit_approximation(slot, vectors, np.full(size, 0.4), settings=ApproximateSettings(members=1))
        spread[name] = fitted.affine(vectors.x).std()
    assert spread["before"] < 0.03
    assert spread["inside"] > 0.1


def test_it_goes_to_disk_and_back(world: SearchWorld, tmp_path: Path) -> None:
    settings = replace(BRIEF, members=2)
    fitted = fit_approximation(world.slot, world.vectors, imputed_of(world), settings=settings)
    fitted.save(tmp_path / "a")
    back = Approximation.load(tmp_path / "a")
    assert back.settings == settings
    x, imputed = world.vectors.x[:200], world.imputed[:200]
    assert (back.estimate(x, imputed) == fitted.estimate(x, imputed)).all()
    assert (back.parts(x, imputed).spread == fitted.parts(x, imputed).spread).all()
    assert back.parts(x, imputed).spread.max() > 0
    manifest = tmp_path / "a" / "approximation.json"
    told = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(told | {"fields": told["fields"][1:]}))
    with pytest.raises(DataError, match="does not fit"):
        Approximation.load(tmp_path / "a")
    manifest.write_text("{}")
    with pytest.raises(DataError, match="is not the manifest of an approximation"):
        Approximation.load(tmp_path / "a")


def test_the_same_seed_gives_the_same_networks(world: SearchWorld) -> None:
    once, again = (
        fit_approximation(world.slot, world.vectors, imputed_of(world), settings=BRIEF).affine(world.vectors.x)
        for _ in range(2)
    )
    assert (once == again).all()


def test_mistakes_are_named(world: SearchWorld) -> None:
    with pytest.raises(SettingError, match="preset"):
        ApproximateSettings(preset="additive")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="between 0 and 1"):
        fit_approximation(world.slot, world.vectors, np.full(len(world.slot), 1.5))
    with pytest.raises(DataError, match="as many imputed values"):
        fit_approximation(world.slot, world.vectors, np.full(3, 0.5))
    fitted = fit_approximation(world.slot, world.vectors, imputed_of(world), settings=BRIEF)
    with pytest.raises(DataError, match="the 66 fields of training"):
        fitted.affine(world.vectors.x[:, :5])


def test_it_is_above_both_of_its_parts() -> None:
    """One small world, by the whole; five seeds of a larger one stand in docs/guides/relevance.md."""
    drawn = search_world(WorldSettings(queries=1200, top=50_000.0, head=500.0, randomised=1.0))
    fitted = fit_approximation(drawn.slot, drawn.vectors, imputed_of(drawn), settings=ApproximateSettings(members=1))
    scores = {
        "both": fitted.estimate(drawn.vectors.x, drawn.imputed),
        "affine": fitted.affine(drawn.vectors.x),
        "imputed": drawn.imputed,
    }
    values = {name: evaluate(drawn.judged, each, ["DCG(exp)@4"])["DCG(exp)@4"] for name, each in scores.items()}

    def mean(name: str, bucket: int) -> float:
        return float(np.nanmean(values[name][drawn.evaluated & (drawn.bucket == bucket)]))

    assert mean("both", 2) > 1.1 * mean("affine", 2)
    assert mean("both", 2) > 1.02 * mean("imputed", 2)
    assert mean("both", 0) > 0.97 * mean("affine", 0)
    assert mean("both", 0) > 1.1 * mean("imputed", 0)
