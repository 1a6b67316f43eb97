"""Competitors of §7.3: each learns to rank, mixtures use text and clicks, and only displayed documents are kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.measures import evaluate
from clickprism.training.settings import FitSettings
from clickprism.types import Clicks, Float64, Lists
from reproduce.adr.competitors import (
    COMPETITORS,
    Backbone,
    CompetitorSettings,
    competitor,
    cross_encoder,
    displayed,
    vanilla_mix,
)
from tests.relevance.search_world import SearchWorld, WorldSettings, search_world

BRIEF = CompetitorSettings(fit=FitSettings(epochs=4, batch_size=256, threads=1))


@pytest.fixture(scope="module")
def world() -> SearchWorld:
    return search_world(WorldSettings(queries=200, top=3000.0, randomised=1.0, engine=0.2, width=4))


@pytest.fixture(scope="module")
def backbone(world: SearchWorld) -> Backbone:
    return cross_encoder(world.judged.lists, world.judged.lists.features)


def worth(world: SearchWorld, scores: Float64) -> float:
    return evaluate(world.judged, scores, ["DCG(exp)@4"]).mean("DCG(exp)@4")


@pytest.mark.parametrize("name", COMPETITORS)
def test_each_competitor_learns(name: str, world: SearchWorld, backbone: Backbone) -> None:
    given = {"log": world.clicks, "slot": world.slot, "propensities": world.slope.tolist() if name == "ipw" else ()}
    scores = competitor(name, backbone, settings=BRIEF, **given)  # type: ignore[arg-type]
    assert scores.shape == world.first.shape
    assert np.isfinite(scores).all()
    by_chance = worth(world, np.random.default_rng(0).random(len(scores)))
    assert worth(world, scores) > 1.3 * by_chance


def test_the_mixture_uses_both_text_and_clicks(world: SearchWorld, backbone: Backbone) -> None:
    features = world.judged.lists.features
    mixed = vanilla_mix(world.judged.lists, features, before=world.vectors, now=world.vectors)
    assert mixed.learned.features.shape[1] > features.shape[1] + len(world.vectors.fields)
    scores = competitor("rand", mixed, slot=world.slot)
    assert worth(world, scores) > worth(world, competitor("rand", backbone, slot=world.slot))


def test_it_scores_what_is_now_by_what_was_learned_before(world: SearchWorld) -> None:
    nothing = replace(world.vectors, x=np.zeros_like(world.vectors.x))
    features = world.judged.lists.features
    mixed = vanilla_mix(world.judged.lists, features, before=world.vectors, now=nothing)
    width = features.shape[1]
    assert (mixed.learned.features[:, :width] == mixed.ranked.features[:, :width]).all()
    assert (mixed.ranked.features[:, width:] == mixed.ranked.features[0, width:]).all()
    assert not (mixed.learned.features[:, width:] == mixed.learned.features[0, width:]).all()


def test_what_was_not_displayed_is_left_out() -> None:
    lists = Lists(np.zeros((3, 0), np.float32), np.array([0, 3]), np.array(["q"]))
    log = Clicks(
        lists,
        np.array([0, 2, 2, 4, 5]),
        np.array([0, 1, 2, 1, 0]),
        np.array([1, 2, 1, 2, 1], np.int32),
        np.array([1, 0, 2, 1, 0]),
        np.array([2, 1, 3, 4]),
        seen=np.array([2, 0, 3, 3, 0]),
    )
    kept = displayed(log)
    assert kept.offsets.tolist() == [0, 1, 3]
    assert kept.rows.tolist() == [0, 2, 1]
    assert kept.clicks.tolist() == [1, 2, 1]
    assert kept.impressions.tolist() == [2, 3]
    with pytest.raises(DataError, match="sessions that displayed a position with sessions that did not"):
        displayed(replace(log, seen=np.array([1, 0, 3, 3, 0])))
    with pytest.raises(DataError, match="does not say which documents were displayed"):
        displayed(replace(log, seen=None))


def test_mistakes_are_named(world: SearchWorld, backbone: Backbone) -> None:
    with pytest.raises(SettingError, match="did you mean 'no_correction'"):
        competitor("no_corection", backbone, log=world.clicks)
    with pytest.raises(DataError, match="trained on a log"):
        competitor("pal", backbone, slot=world.slot)
    with pytest.raises(DataError, match="randomised first slot"):
        competitor("rand", backbone, log=world.clicks)
    with pytest.raises(DataError, match="documents but representations"):
        cross_encoder(world.judged.lists, world.judged.lists.features[1:])
