"""Bundles of the format version score as they did when they were made; older ones are refused with the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from clickprism.serve.bundle.bundle import SCHEMA, Bundle
from clickprism.serve.scoring.scorer import Candidates, open_scorer
from clickprism.types import Float32

GOLDEN = Path(__file__).parent / "golden"
BUNDLES = sorted(file.parent for file in GOLDEN.glob(f"v{SCHEMA}/*/manifest.json"))
TOLERANCE = 1e-5
"""Of the largest score: processors add up in different orders."""


def numbers(held: dict[str, list[list[float]]], name: str) -> Float32 | None:
    return np.array(held[name], np.float32) if name in held else None


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_old_bundles_score_the_same_for_ever(folder: Path) -> None:
    bundle = Bundle.load(folder)
    scorer = open_scorer(bundle)
    scorer.warm()
    held = json.loads((folder.parent / f"{folder.name}.json").read_text())
    features, clicks = numbers(held, "features"), numbers(held, "clicks")
    found = scorer.score(Candidates(held.get("query"), held.get("texts"), features, clicks)).scores
    wanted = np.array(held["scores"])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE * np.abs(wanted).max())
    assert len(np.unique(wanted)) > 1


def test_every_kind_and_version_is_there() -> None:
    kinds = {"linear", "mlp", "attention", "lambdamart", "approximation", "cross-encoder"}
    assert kinds <= {Bundle.load(folder).manifest.kind for folder in BUNDLES}


def test_golden_files_are_small() -> None:
    assert sum(file.stat().st_size for file in GOLDEN.rglob("*")) < 400_000
