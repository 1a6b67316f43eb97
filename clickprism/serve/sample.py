"""The sample of a bundle: a few made-up candidates and what the ranker gave them when the bundle was made.

A scorer that is warm has scored them and got the same. They are drawn from the statistics of training, not from its
documents, so that a bundle carries nothing of anyone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from clickprism.data.normalise import Normaliser
from clickprism.errors import DataError
from clickprism.serve.bundle import Bundle, Role
from clickprism.serve.scorer import Candidates, Scorer
from clickprism.types import Bool, Float32, Float64

NAME: Final = "sample.json"
KEPT: Final = 8
TOLERANCE: Final = 1e-4
"""A warm scorer may differ by so much of the largest score: other processors add up in another order."""
WORDS: Final = ("red running shoes", "how to tie a bow", "city map", "opening hours", "rain", "used bicycle", "a", "")


def raw_features(normaliser: Normaliser | None, *, rows: int, missing: Bool) -> Float32:
    """Features as training may have had them; of those that may be `missing`, one in ten is NaN, [rows, features]."""
    draw = np.random.default_rng(20260101)
    values = draw.normal(size=(rows, len(missing)))
    if normaliser is not None and normaliser.kind != "none":
        values = _like(normaliser, values, draw)
    gone = draw.random(values.shape) < 0.1
    gone[rows - 1] = True
    values[gone & missing] = np.nan
    return values.astype(np.float32)


def _like(normaliser: Normaliser, values: Float64, draw: np.random.Generator) -> Float64:
    scale = np.divide(1.0, normaliser.factor, out=np.zeros(values.shape[1]), where=normaliser.factor > 0)
    if normaliser.kind == "minmax":
        made = normaliser.centre + draw.uniform(-0.1, 1.1, values.shape) * scale
    elif normaliser.kind == "log1p":
        bent = normaliser.centre + values * scale
        made = np.copysign(np.expm1(np.minimum(np.abs(bent), 80.0)), bent)
    elif normaliser.kind == "quantile":
        places = draw.integers(0, len(normaliser.grid), values.shape)
        made = np.take_along_axis(normaliser.grid, places, axis=0)
    elif normaliser.kind == "standard":
        made = normaliser.centre + values * scale
    else:
        made = normaliser.mean + values * (1 + np.abs(normaliser.mean))
    for column in normaliser.keep:
        made[:, column] = draw.integers(0, 4, len(made))
    return made


def click_vectors(empty: Float64, *, rows: int) -> Float32:
    """Counts as a log may have them; the first pair was never shown, [rows, L]."""
    draw = np.random.default_rng(20260102)
    sums = draw.poisson(draw.gamma(0.5, 20.0, (rows, 1)), (rows, len(empty))).astype(np.float32)
    sums[0] = empty
    return sums


def stored_values(*, rows: int) -> Float32:
    """Imputed values as a store may hold them, the last of them missing, [rows, 1]."""
    values = np.linspace(0.02, 0.98, rows, dtype=np.float32)[:, None]
    values[-1] = np.nan
    return values


def to_json(candidates: Candidates, scores: Mapping[str, Float64]) -> bytes:
    """The first few candidates, with the scores of each ranker; null for a missing value."""
    kept: dict[str, Any] = {"scores": {role: values[:KEPT].tolist() for role, values in scores.items()}}
    for name, values in (("features", candidates.features), ("clicks", candidates.clicks)):
        if values is not None:
            rows: list[list[float]] = values[:KEPT].tolist()
            kept[name] = [[None if math.isnan(value) else value for value in row] for row in rows]
    if candidates.texts is not None:
        kept |= {"query": candidates.query, "texts": list(candidates.texts[:KEPT])}
    return json.dumps(kept, allow_nan=False).encode()


def read_sample(bundle: Bundle, role: Role) -> tuple[Candidates, Float64]:
    """The sample of a bundle, and the scores that its ranker gave."""
    try:
        held = json.loads(bundle.read(NAME))
        features, clicks = (
            None if held.get(name) is None else np.array(held[name], dtype=np.float32)
            for name in ("features", "clicks")
        )
        candidates = Candidates(held.get("query"), held.get("texts"), features, clicks)
        scores = np.array(held["scores"][role], dtype=np.float64)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"is no sample ({error})", file=bundle.path(NAME), remedy="Create the bundle again") from None
    return candidates, scores


def check_same(found: Float64, wanted: Float64, *, tolerance: float, file: object) -> None:
    """Refuse scores that differ by more than the tolerance, as a share of the largest."""
    scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
    if found.shape == wanted.shape and bool((np.abs(found - wanted) <= tolerance * scale).all()):
        return
    worst = float(np.abs(found - wanted).max()) if found.shape == wanted.shape else np.inf
    problem = f"scores its own sample by up to {worst:.3g} otherwise than the ranker that it was made from"
    raise DataError(problem, file=file, remedy="Create the bundle again, with this version of clickprism")


def check_sample(scorer: Scorer, bundle: Bundle, role: Role, *, tolerance: float | None = None) -> None:
    """Score the sample of a bundle; an error where the scores are not those that it was made with."""
    candidates, wanted = read_sample(bundle, role)
    check_same(scorer.score(candidates).scores, wanted, tolerance=tolerance or TOLERANCE, file=bundle.folder)
