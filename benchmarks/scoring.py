"""Batch scoring by a bundle against the bare runtimes: a million documents, 64 features, one thread.

The peers have the same numbers of threads and parts of the same size, which is their fastest: ONNX Runtime on the same
graph; ONNX Runtime on the network alone, its features normalised beforehand, which is less work than ours; LightGBM.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.base import Result, seconds
from clickprism.data.normalise import fit
from clickprism.model import Model
from clickprism.rankers.lambdamart import Boosting, LambdaMART
from clickprism.rankers.mlp import MLP
from clickprism.serve.bundle.build import write_bundle
from clickprism.serve.onnx.networks import network_onnx
from clickprism.serve.scoring.features import CHUNK
from clickprism.serve.scoring.scorer import Candidates, Scorer, open_scorer
from clickprism.types import Float32, Float64, Lists

DOCUMENTS, FEATURES, FEW = 1_000_000, 64, 100_000
BAR = 1 / 1.3
TURNS = 5


def run() -> list[Result]:
    """Seconds a million documents, ours and theirs, in one process."""
    draw = np.random.default_rng(0)
    features = (draw.standard_normal((DOCUMENTS, FEATURES), dtype=np.float32) * 30 + 100).astype(np.float32)
    features[draw.random(DOCUMENTS) < 0.01, 3] = np.nan
    with tempfile.TemporaryDirectory() as folder:
        few = features[:FEW]
        networks = [*_network(Path(folder), features, (64, 32)), *_network(Path(folder), few, MLP().hidden)]
        return [*networks, _trees(Path(folder), few)]


def _network(folder: Path, features: Float32, hidden: tuple[int, ...]) -> list[Result]:
    import torch

    torch.manual_seed(0)
    ranker = MLP(hidden=hidden)
    normaliser = fit("standard", _one_list(features[:10_000]))
    network = ranker.build(FEATURES).eval()
    model = Model(ranker, network, features=FEATURES, method={"name": "none"}).with_normaliser(normaliser)
    place = folder / f"mlp{len(hidden)}"
    scorer = open_scorer(write_bundle(place, model))
    ready = normaliser.features(features, np.array([0, len(features)]))
    same = _bare((place / "network.onnx").read_bytes())
    alone = _bare(network_onnx(ranker, network, features=FEATURES, normaliser=None))
    _check(scorer, features, same(features), alone(ready))
    ours, whole, rest = _in_turns(
        lambda: scorer.score(Candidates(features=features)), lambda: same(features), lambda: alone(ready)
    )
    name = f"scoring {len(features):,} documents, MLP {hidden}"
    return [
        Result(name, ours, whole, BAR, "s, ONNX Runtime on the same graph", higher_is_better=False),
        Result(f"{name}, raw", ours, rest, BAR, "s, ONNX Runtime, normalised before", higher_is_better=False),
    ]


def _trees(folder: Path, features: Float32) -> Result:
    draw, lists, few = np.random.default_rng(1), 500, 10
    rows = np.arange(lists * few)
    ranker = LambdaMART(trees=100)
    targets = draw.integers(0, 4, lists * few).astype(np.float64)
    boosting = Boosting(features[rows], rows, np.full(lists, few), targets)
    grown = ranker.train(boosting, seed=0, threads=1)
    model = Model(ranker, grown, features=FEATURES, method={"name": "none"})
    scorer = open_scorer(write_bundle(folder / "trees", model))
    import lightgbm

    bare = lightgbm.Booster(model_str=(folder / "trees" / "trees.txt").read_text())
    _check(scorer, features, np.asarray(bare.predict(features, num_threads=1)))
    ours, theirs = _in_turns(
        lambda: scorer.score(Candidates(features=features)), lambda: bare.predict(features, num_threads=1)
    )
    return Result("scoring 100 k documents, 100 trees", ours, theirs, BAR, "s, LightGBM", higher_is_better=False)


def _in_turns(*works: Callable[[], object]) -> list[float]:
    """The least seconds of each, one after the other several times, so that what else runs slows all alike."""
    rounds = [[seconds(work, repeats=1) for work in works] for _ in range(TURNS)]
    return [min(each) for each in zip(*rounds, strict=True)]


def _bare(content: bytes) -> Callable[[Float32], Float64]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session: Any = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def score(features: Float32) -> Float64:
        parts = [features[start : start + CHUNK] for start in range(0, len(features), CHUNK)]
        return np.concatenate([session.run(None, {"features": part})[0] for part in parts])

    return score


def _one_list(features: Float32) -> Lists:
    return Lists(features, np.array([0, len(features)]), np.array(["q"]))


def _check(scorer: Scorer, features: Float32, *others: Float64) -> None:
    """The same work gives the same scores."""
    found = scorer.score(Candidates(features=features)).scores
    for other in others:
        if np.abs(found - other).max() > 1e-4 * np.abs(found).max():
            raise RuntimeError("the peer scores otherwise: it does not do the same work")
