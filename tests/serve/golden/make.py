"""Make the golden bundles of a format version: `python -m tests.serve.golden.make`.

Once made they stay as they are: a later version of clickprism must load them and give the same scores. Run this again
only for a new schema version, into a folder of its own; it never touches one that is there.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from clickprism.rankers.attention import Attention
from clickprism.rankers.linear import Linear
from clickprism.rankers.mlp import MLP
from clickprism.serve.bundle.build import to_json, write_bundle
from clickprism.serve.bundle.bundle import SCHEMA
from clickprism.serve.scoring.scorer import Candidates, open_scorer
from tests.serve.rankers import approximation, click_vectors, cross_encoder, network_model, raw_lists, tree_model

HERE = Path(__file__).parent
WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def main() -> None:
    """Make a bundle of each kind, and beside it what it scores: inputs and scores, as in a bundle's own sample."""
    out = HERE / f"v{SCHEMA}"
    out.mkdir()
    features, clicks = raw_lists(1, 8, seed=9).features, click_vectors(8, seed=9)
    codes = Attention(width=4, units=2, pooled=6, hidden=(4,), categorical=(5,), categories=(3,))
    texts = Candidates("ripe apple", ["green apple", "old pear", "", "plum", "sweet ripe plum", "red", "blue", "sour"])
    stored = np.array([[0.1], [0.5], [0.9], [np.nan], [0.3], [0.2], [0.6], [0.7]], np.float32)
    with tempfile.TemporaryDirectory() as folder:
        network: Any = cross_encoder(Path(folder) / "language")
        made: dict[str, tuple[Any, dict[str, Any], Candidates]] = {
            "linear": (network_model(Linear(), "minmax"), {}, Candidates(features=features)),
            "mlp": (network_model(MLP(hidden=(6, 4)), "log1p"), {}, Candidates(features=features)),
            "mlp-by-list": (network_model(MLP(hidden=(3,)), "query-standard"), {}, Candidates(features=features)),
            "attention": (network_model(codes, keep=(5,)), {}, Candidates(features=features)),
            "lambdamart": (tree_model(trees=2), {}, Candidates(features=features)),
            "approximation": (approximation(), {"imputed": True}, Candidates(features=stored, clicks=clicks)),
            "approximation-mean": (approximation("published"), {}, Candidates(clicks=clicks)),
            "cross-encoder": (network, {}, texts),
        }
        for name, (model, more, candidates) in made.items():
            bundle = write_bundle(out / name, model, created=WHEN, metrics={"nDCG@10": 0.5}, **more)
            scores = open_scorer(bundle).score(candidates).scores
            (out / f"{name}.json").write_bytes(to_json(candidates, scores))


if __name__ == "__main__":
    main()
