"""Rankers: shapes, settings, and that LambdaMART's labels are exactly the gains it was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from clickprism.errors import DataError, SettingError
from clickprism.rankers import RANKERS
from clickprism.rankers.lambdamart import MAX_LEVELS, Boosting, LambdaMART, Trees, _levels
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.settings import resolve
from clickprism.types import Float32, Float64, Int64


def boosting(features: Float32, targets: Float64, lengths: Int64) -> Boosting:
    return Boosting(features, np.arange(len(features)), lengths, targets)


@pytest.mark.parametrize("name", RANKERS)
def test_names_agree_with_the_registry(name: str) -> None:
    assert resolve(RANKERS, name, path="ranker")().name == name


def test_linear_is_a_weighted_sum() -> None:
    network = Linear().build(3)
    with torch.no_grad():
        for parameter, value in zip(network.parameters(), ([[1.0, 2.0, 3.0]], [0.5]), strict=True):
            parameter.copy_(torch.tensor(value))
    assert network(torch.tensor([[[1.0, 0.0, -1.0], [0.0, 1.0, 0.0]]])).tolist() == [[-1.5, 2.5]]


def kinds(network: nn.Module) -> list[str]:
    return [type(module).__name__ for module in network.modules()][2:]


def test_the_default_mlp_has_three_hidden_layers() -> None:
    network = MLP().build(46)
    assert kinds(network) == ["Linear", "ELU", *["LayerNorm", "Linear", "ELU"] * 2, "LayerNorm", "Linear"]
    shapes = [tuple(p.shape) for p in network.parameters() if p.ndim == 2]
    assert shapes == [(512, 46), (256, 512), (128, 256), (1, 128)]
    assert network(torch.zeros(4, 10, 46)).shape == (4, 10)


def test_layer_norm_on_all_or_none() -> None:
    everywhere = kinds(MLP(hidden=(8,), layer_norm="all").build(3))
    assert everywhere == ["LayerNorm", "Linear", "ELU", "LayerNorm", "Linear"]
    assert kinds(MLP(hidden=(8,), layer_norm="none", dropout=0.1).build(3)) == ["Linear", "ELU", "Dropout", "Linear"]


@pytest.mark.parametrize(
    ("ranker", "field", "value"),
    [
        (MLP, "hidden", ()),
        (MLP, "hidden", (4, 0)),
        (MLP, "activation", "sine"),
        (MLP, "layer_norm", "some"),
        (MLP, "dropout", 1.0),
        (LambdaMART, "trees", 0),
        (LambdaMART, "leaves", 1),
        (LambdaMART, "learning_rate", 0.0),
        (LambdaMART, "feature_share", 1.5),
        (LambdaMART, "l2", -1.0),
        (LambdaMART, "shrinkage", -1.0),
        (LambdaMART, "floor", 1.5),
    ],
)
def test_settings_are_checked(ranker: type, field: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"{field} must"):
        ranker(**{field: value})


def test_levels_are_the_distinct_targets() -> None:
    labels, gains = _levels(np.array([3.0, 0.0, 1.0, 3.0, 15.0]))
    assert labels.tolist() == [2, 0, 1, 2, 3]
    assert gains.tolist() == pytest.approx([0, 1 / 15, 3 / 15, 1])
    assert _levels(np.zeros(3))[0].tolist() == [0, 0, 0]


def test_many_levels_are_rounded() -> None:
    targets = np.random.default_rng(0).random(20_000)
    labels, gains = _levels(targets)
    assert len(gains) <= MAX_LEVELS
    assert np.abs(gains[labels] - targets / targets.max()).max() <= 0.5 / (MAX_LEVELS - 1) + 1e-12


def test_gains_of_grades_are_lambdarank_of_grades() -> None:
    """Gains 2^y - 1 through our table give the very trees that LightGBM grows on the grades y."""
    import lightgbm

    rng = np.random.default_rng(1)
    features = rng.normal(size=(400, 3)).astype(np.float32)
    grades = np.clip(np.rint(features[:, 0] + rng.normal(size=400)), 0, 4)
    grades[0] = 4
    ranker = LambdaMART(trees=5, leaves=4)
    lengths = np.full(40, 10)
    ours = ranker.train(boosting(features, 2.0**grades - 1, lengths), seed=0, threads=1)
    parameters = {
        "objective": "lambdarank",
        "label_gain": [0, 1, 3, 7, 15],
        "learning_rate": 0.05,
        "num_leaves": 4,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "seed": 0,
        "verbosity": -1,
    }
    theirs = lightgbm.train(parameters, lightgbm.Dataset(features, grades, group=lengths), num_boost_round=5)
    assert ours(features).tolist() == pytest.approx(np.asarray(theirs.predict(features)).tolist(), rel=1e-6)


def test_trees_can_be_cut_and_read_again() -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=(200, 2)).astype(np.float32)
    ranker = LambdaMART(trees=6, leaves=4, min_data_in_leaf=5)
    gains = np.maximum(features[:, 0], 0).astype(np.float64)
    trees = ranker.train(boosting(features, gains, np.full(20, 10)), seed=0, threads=1)
    np.testing.assert_array_equal(trees.first(2)(features), trees(features, trees=2))
    np.testing.assert_array_equal(Trees.from_text(trees.text)(features), trees(features))
    with pytest.raises(DataError, match="is not a LightGBM model"):
        Trees.from_text("import os")


def test_what_trees_grow_on_is_checked() -> None:
    features = np.zeros((4, 1), np.float32)
    good: dict[str, Any] = {"rows": np.arange(4), "lengths": np.array([2, 2]), "targets": np.ones(4)}
    for bad, message in (
        ({"targets": np.array([1.0, -1, 0, 0])}, "targets of LambdaMART must be finite and not negative"),
        ({"targets": np.ones(3)}, r"needs 4 targets, got an array of shape \(3,\)"),
        ({"lengths": np.array([2, 1])}, "add up to its 4 rows"),
        ({"weights": np.ones(4)}, r"needs 2 weights, got an array of shape \(4,\)"),
        ({"weights": np.array([1.0, np.nan])}, "weights of groups must be finite"),
        ({"weights": np.zeros(2)}, "no group has a weight above 0"),
    ):
        with pytest.raises(DataError, match=message):
            Boosting(features, **{**good, **bad})


def test_rows_of_a_group_have_equal_weights_that_average_one_per_document() -> None:
    twice = Boosting(
        np.zeros((3, 1), np.float32),
        np.array([0, 1, 2, 0, 1, 2]),
        np.array([3, 3]),
        np.zeros(6),
        weights=np.array([3.0, 1.0]),
    )
    assert twice.repetition == 2
    weights = twice.row_weights()
    assert weights is not None
    assert weights.tolist() == pytest.approx([0.75] * 3 + [0.25] * 3)
