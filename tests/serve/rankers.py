"""Small rankers of every kind, with weights that are drawn, not trained: for tests of bundles and scorers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clickprism.data.normalise import Kind, fit
from clickprism.model import Model
from clickprism.types import Float32, Lists

if TYPE_CHECKING:
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork
    from clickprism.relevance.approximation import Approximation
    from clickprism.relevance.approximation_settings import Preset

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
    from clickprism.rankers.lambdamart import Boosting, LambdaMART

    lists = raw_lists(40)
    normaliser = fit(normalise, lists)
    features = normaliser(lists).features
    high = np.nan_to_num(lists.features[:, [0, 2]]) > 0
    targets = high.sum(axis=1).astype(np.float64)
    ranker = LambdaMART(trees=trees, leaves=5, min_data_in_leaf=5)
    grown = ranker.train(Boosting(features, np.arange(len(features)), lists.lengths, targets), seed=0, threads=1)
    return Model(ranker, grown, features=FEATURES, method={"name": "labels"}).with_normaliser(normaliser)


def click_vectors(pairs: int = 60, *, seed: int = 0) -> Float32:
    """Counts of two windows; the first pair was never shown, the second has gaps."""
    draw = np.random.default_rng(seed)
    shown = draw.poisson(draw.gamma(0.6, 20.0, (pairs, 2)))
    clicked = draw.binomial(shown, 0.3)
    columns = [shown[:, [0]], shown[:, [0]], clicked[:, [0]], clicked[:, [0]], shown[:, [1]], clicked[:, [1]]]
    x: Float32 = np.concatenate(columns, axis=1).astype(np.float32)
    x[0], x[1, 2] = 0, np.nan
    return x


CLICK_FIELDS = (
    "week.impressions",
    "week.impressions@1",
    "week.clicked",
    "week.clicked@1",
    "month.impressions",
    "month.clicked",
)


def approximation(preset: Preset = "default", *, seed: int = 0) -> Approximation:
    """An approximation of two members whose weights are drawn, and a scale fitted to `click_vectors`."""
    import torch

    from clickprism.relevance.approximation import Approximation, Certainty, new_network
    from clickprism.relevance.approximation_settings import ApproximateSettings
    from clickprism.relevance.click_vectors import VectorScale

    certainty, k = Certainty(10.0, 0.1, 0.01), 0.0 if preset == "published" else 5.0
    settings = ApproximateSettings(preset=preset, hidden=(6, 4), members=2)
    fit = VectorScale.fit_raw if settings.published else VectorScale.fit
    scale = fit(np.nan_to_num(click_vectors()), CLICK_FIELDS, np.zeros(6, np.float32))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        members = [
            torch.nn.ModuleDict({name: new_network(settings, scale.width) for name in ("affine", "trade_off")})
            for _ in range(2)
        ]
        for member in members:
            for parameter in member.parameters():
                parameter.data.add_(torch.randn_like(parameter) * 0.3)
    return Approximation(settings, scale, members, means=(0.3, -0.9), k=k, certainty=certainty)


def cross_encoder(folder: Path) -> CrossEncoderNetwork:
    """A language model of a few thousand weights."""
    import torch

    from clickprism.rankers.language_model import CrossEncoder
    from tests.rankers.tiny_language_model import write_tiny_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = CrossEncoder(model=str(write_tiny_model(folder)), tokens=24, query_tokens=8, prior=False).build()
        network.head.weight.data = torch.linspace(-0.5, 0.5, network.width)[None]
        return network
