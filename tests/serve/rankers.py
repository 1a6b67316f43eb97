"""Small rankers of every kind, with weights that are drawn, not trained: for tests of bundles and scorers."""

from __future__ import annotations

from typing import Any

import numpy as np

from clickprism.data.normalise import Kind, fit
from clickprism.model import Model
from clickprism.types import Float32, Lists

FEATURES = 7


def raw_lists(lists: int = 12, length: int = 9, *, seed: int = 0, missing: bool = True) -> Lists:
    """Features of many scales, some missing, a column that is constant, and one that holds codes."""
    draw = np.random.default_rng(seed)
    scale, centre = 10.0 ** draw.integers(-3, 5, FEATURES), draw.normal(size=FEATURES) * 100
    features: Float32 = (draw.normal(size=(lists * length, FEATURES)) * scale + centre).astype(np.float32)
    features[:, 3], features[:, 5] = 4.0, draw.integers(-1, 4, len(features))
    if missing:
        features[draw.random(features.shape) < 0.1] = np.nan
    offsets = np.arange(0, lists * length + 1, length)
    return Lists(features, offsets, np.array([f"q{place}" for place in range(lists)]))


def network_model(ranker: Any, normalise: Kind = "standard", *, seed: int = 0, keep: tuple[int, ...] = ()) -> Model:
    """A network with weights drawn by the seed, and a normaliser fitted to `raw_lists`."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ranker.build(FEATURES)
        for parameter in network.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.1)
    model = Model(ranker, network.eval(), features=FEATURES, method={"name": "dla"})
    return model.with_normaliser(fit(normalise, raw_lists(), keep=keep))


def tree_model(normalise: Kind = "none", *, trees: int = 4) -> Model:
    """A few trees, grown on what some features say."""
    from clickprism.rankers.boosting import Boosting
    from clickprism.rankers.lambdamart import LambdaMART

    lists = raw_lists(40)
    normaliser = fit(normalise, lists)
    features = normaliser(lists).features
    high = np.nan_to_num(lists.features[:, [0, 2]]) > 0
    targets = high.sum(axis=1).astype(np.float64)
    ranker = LambdaMART(trees=trees, leaves=5, min_data_in_leaf=5)
    grown = ranker.train(Boosting(features, np.arange(len(features)), lists.lengths, targets), seed=0, threads=1)
    return Model(ranker, grown, features=FEATURES, method={"name": "labels"}).with_normaliser(normaliser)
