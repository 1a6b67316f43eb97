"""The attention map of a model and its picture, from Python and from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clickprism.data.normalise import fit
from clickprism.errors import DataError
from clickprism.evaluation.bias_plots import attention_heat_map, model_attention
from clickprism.model import Model
from clickprism.rankers.attention import Attention, attention_map
from clickprism.rankers.mlp import MLP
from clickprism.types import Lists

SMALL = [f"--data.synthetic.{part}-queries={count}" for part, count in (("train", 2), ("validation", 2), ("test", 5))]


def model_of(ranker: Attention | MLP, features: int) -> Model:
    torch.manual_seed(0)
    return Model(ranker, ranker.build(features), features=features, method={"name": "click"})


def lists_of(features: int, documents: int = 40) -> Lists:
    values = np.random.default_rng(0).normal(size=(documents, features)).astype(np.float32)
    return Lists(values, np.array([0, documents]), np.array(["a"]))


def test_a_model_shows_its_attention_on_features_as_it_normalises_them() -> None:
    lists = lists_of(5)
    normaliser = fit("quantile", lists)
    model = model_of(Attention(), 5)
    raw, normal = model_attention(model, lists), model_attention(model.with_normaliser(normaliser), lists)
    expected = attention_map(model.network, torch.from_numpy(np.array(normaliser(lists).features))).numpy()
    assert np.allclose(normal, expected)
    assert np.allclose(normal.sum(1), 1)
    assert not np.allclose(raw, normal, atol=1e-4)
    assert model_attention(model, lists, documents=3).shape == (5, 5)


@pytest.mark.parametrize("features", [1, 46, 700])
def test_the_picture_names_at_most_fifty_features(features: int) -> None:
    figure = attention_heat_map(model_attention(model_of(Attention(), features), lists_of(features, 9)))
    axes = figure.axes[0]
    assert axes.images[0].get_array().shape == (features, features)  # type: ignore[union-attr]
    assert len(axes.get_xticklabels()) <= 50
    assert axes.get_xticklabels()[0].get_text() == "1"


def test_what_cannot_be_drawn() -> None:
    even = np.full((2, 2), 0.5)
    assert attention_heat_map(even, names=["bm25", "length"]).axes[0].get_yticklabels()[1].get_text() == "length"
    with pytest.raises(DataError, match="2 features, 1 have names"):
        attention_heat_map(even, names=["bm25"])
    with pytest.raises(DataError, match="as many rows as columns"):
        attention_heat_map(even[:1])
    with pytest.raises(DataError, match="takes 5 features, the data has 4"):
        model_attention(model_of(Attention(), 5), lists_of(4))


def test_the_command_line_draws_it(tmp_path: Path, cli: Callable[..., Any]) -> None:
    model_of(Attention(width=4, units=2), 64).save(tmp_path / "model")
    model_of(MLP(hidden=(4,)), 64).save(tmp_path / "other")
    model, other, picture = tmp_path / "model", tmp_path / "other", tmp_path / "attention.png"
    cli("evaluate", "judged", model, "--attention", picture, *SMALL)
    assert picture.read_bytes().startswith(b"\x89PNG")
    for models, file, code, told in (
        ([model], tmp_path / "map.txt", 2, "--attention must end in .png, .svg, .pdf"),
        ([model], tmp_path / "no" / "map.png", 1, "there is no such folder"),
        ([model, other], picture, 2, "--attention must be given with one model"),
        ([other], picture, 2, "ranker must be attention to show it, got 'mlp'"),
    ):
        assert told in cli("evaluate", "judged", *models, "--attention", file, *SMALL, code=code).stderr
