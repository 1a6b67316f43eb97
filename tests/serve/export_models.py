"""Small rankers with awkward numbers, to export."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from clickprism.data.normalise import Kind, fit
from clickprism.model import Model
from clickprism.rankers.lambdamart import Boosting, LambdaMART, Trees
from clickprism.serve.export.export import Source
from clickprism.types import Float32, Lists

FEATURES = 7
NAMES = tuple(f"feature_{place}" for place in range(1, FEATURES + 1))


@cache
def features() -> Float32:
    """Features of every size: small, large, around 0, a few whole numbers, mostly 0, constant."""
    draw = np.random.default_rng(3)
    rows = draw.normal(size=(1200, FEATURES)) * [1, 1e-7, 1e6, 1, 1, 1, 0]
    rows[:, 3] = draw.integers(0, 3, len(rows))
    rows[:, 4] = np.where(draw.random(len(rows)) < 0.5, 0, rows[:, 4])
    rows[:, 5] = 1e4 + rows[:, 5]
    return rows.astype(np.float32)


def lists(rows: Float32) -> Lists:
    return Lists(rows, np.arange(0, len(rows) + 1, 20), np.arange(len(rows) // 20).astype(np.str_))


def model_of(ranker: Any, *, kind: Kind | None = None, missing: bool = False, seed: int = 0) -> Model:
    """A ranker with random weights, or trees that were grown, on features that are normalised so."""
    normaliser = None if kind is None else fit(kind, lists(features()))
    if isinstance(ranker, LambdaMART):
        parts: Any = _trees(ranker, kind, missing)
    else:
        torch.manual_seed(seed)
        parts = ranker.build(FEATURES)
        with torch.no_grad():
            for values in parts.parameters():
                values.copy_(torch.randn(values.shape) * 0.3)
        parts = parts.requires_grad_(False).eval()
    return Model(ranker, parts, features=FEATURES, method={"name": "none"}, normaliser=normaliser)


@cache
def _trees(ranker: LambdaMART, kind: Kind | None, missing: bool) -> Trees:
    rows = features() if kind is None else fit(kind, lists(features()))(lists(features())).features
    rows, draw = rows.copy(), np.random.default_rng(4)
    gains = np.clip(features()[:, 0] + features()[:, 3] - 2 * features()[:, 4] + features()[:, 2] / 1e6, 0, None)
    if missing:
        rows[draw.random(rows.shape) < 0.15] = np.nan
    boosting = Boosting(rows, np.arange(len(rows)), np.full(len(rows) // 20, 20), gains.astype(np.float64))
    return ranker.train(boosting, seed=0, threads=1)


def source_of(model: Model, **more: Any) -> Source:
    return Source(model, NAMES, **more)
