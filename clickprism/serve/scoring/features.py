"""Scores from numbers: rankers on features, and the approximated doubly robust estimate from click vectors.

Networks, with their normaliser, run in ONNX Runtime, trees in LightGBM.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias, final

import numpy as np

from clickprism.data.normalise import Normaliser
from clickprism.errors import DataError
from clickprism.serve.bundle.bundle import Bundle, read_arrays
from clickprism.serve.bundle.untrusted import checked_trees
from clickprism.serve.scoring.scorer import Candidates, Need, Scored, check_sample, open_session
from clickprism.types import Bool, Float32, Float64, Int64

Forward: TypeAlias = Callable[[Float32], Float64]
CHUNK: Final = 1024  # documents whose layers fit into a processor's cache


@final
class FeatureScorer:
    """Scores by raw features; see `clickprism.serve.scoring.scorer.Scorer`."""

    needs: frozenset[Need] = frozenset({"features"})
    click_fields: tuple[str, ...] = ()

    def __init__(self, bundle: Bundle, *, threads: int = 1) -> None:
        own = bundle.manifest
        self.kind, self.feature_names = own.kind, own.feature_names
        self._bundle, width = bundle, len(self.feature_names)
        self._shape, self._before = (width,), None
        self._observation = np.array(own.observation)
        without_rule: Bool | None = np.ones(width, np.bool_)  # features whose missing value has no rule
        normaliser = None
        if own.normaliser is not None:
            normaliser = Normaliser.from_state(own.normaliser, read_arrays(bundle, "normaliser.safetensors"))
            if len(normaliser.mean) != width:
                raise DataError(f"the normaliser is of {len(normaliser.mean)} features", file=bundle.folder)
            if normaliser.kind != "none":
                without_rule = np.isin(np.arange(width), normaliser.keep)
        if own.kind == "lambdamart":
            self._before, self._forward = normaliser, _trees(bundle, threads)
        else:
            if own.kind == "attention":  # its network has a rule for codes
                without_rule = None
            self._before = None if own.normaliser is not None and own.normaliser.get("in_graph") else normaliser
            self._forward = _network(bundle, threads, without_rule)

    def score(self, candidates: Candidates, *, explain: bool = False) -> Scored:
        """Return scores, [n]; with `explain` relevance, and observation if the method has a curve."""
        given = candidates.features
        if given is None:
            raise DataError(f"the {self.kind} ranker needs the {self._shape[0]} features of each document")
        features = np.ascontiguousarray(given, dtype=np.float32)
        if features.shape[1:] != self._shape:
            raise DataError(f"the ranker takes {self._shape[0]} features, got an array of shape {list(features.shape)}")
        if self._before is not None and len(features):
            features = self._before.features(features, _offsets(candidates, len(features)))
        scores = self._forward(features)
        if not math.isfinite(scores.sum()) and not np.isfinite(scores).all():
            place = int(np.argmin(np.isfinite(scores)))
            row = np.asarray(given)[place]
            missing = ", ".join(repr(self.feature_names[column]) for column in np.flatnonzero(~np.isfinite(row))[:3])
            why = f"it has no finite value of {missing}" if missing else "its features are too large"
            remedy = "Give every feature a number: the ranker was trained without a rule for missing ones"
            raise DataError(f"document {place + 1} of the list has no score: {why}", remedy=remedy)
        parts = {"relevance": scores} if explain else {}
        if explain and len(self._observation):
            parts["observation"] = self._observation
        return Scored(scores, parts)

    def warm(self) -> None:
        """Score the sample of the bundle; raise an error if its scores have changed."""
        check_sample(self, self._bundle)


def _offsets(candidates: Candidates, rows: int) -> Int64:
    if candidates.offsets is None:
        return np.array([0, rows], dtype=np.int64)
    offsets = np.asarray(candidates.offsets, dtype=np.int64)
    if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or offsets[-1] != rows or (np.diff(offsets) < 0).any():
        raise DataError(f"the offsets of the lists must rise from 0 to {rows}")
    return offsets


def _network(bundle: Bundle, threads: int, without_rule: Bool | None) -> Forward:
    """Return the graph of a bundle as a function.

    A document that lacks a feature `without_rule` gets the score NaN, whatever a ReLU would make of the missing value.
    """
    name = "network.onnx"
    session = open_session(bundle.read(name), threads=threads, file=bundle.path(name))
    shape = [given.shape[1:] for given in session.get_inputs()]
    if shape != [[len(bundle.manifest.feature_names)]]:
        raise DataError(f"takes {shape}, the manifest says {len(bundle.manifest.feature_names)} features", file=name)
    run, wanted = session.run, ["scores"]
    refused = None if without_rule is None or not without_rule.any() else without_rule

    def chunk(features: Float32) -> Float64:
        scores: Float64 = run(wanted, {"features": features})[0].astype(np.float64)
        if refused is not None and math.isnan(features.sum()):
            scores[(np.isnan(features) & refused).any(1)] = np.nan
        return scores

    def forward(features: Float32) -> Float64:
        if len(features) <= CHUNK:
            return chunk(features)
        return np.concatenate([chunk(features[start : start + CHUNK]) for start in range(0, len(features), CHUNK)])

    return forward


def _trees(bundle: Bundle, threads: int) -> Forward:
    from clickprism.rankers.lambdamart import Trees

    name = "trees.txt"
    try:
        trees = Trees.from_text(checked_trees(bundle.read(name).decode(), features=len(bundle.manifest.feature_names)))
    except (DataError, UnicodeDecodeError) as error:
        raise DataError(str(error), file=bundle.path(name), remedy="Create the bundle again") from None
    return lambda features: trees(features, threads=threads)


OUTPUTS: Final = ["estimate", "affine", "trade_off", "spread"]
SMALL: Final = 1e-6


@final
class ApproximationScorer:
    """Scores by click vectors, and imputed relevance if there is any; see `clickprism.serve.scoring.scorer.Scorer`."""

    kind = "approximation"

    def __init__(self, bundle: Bundle, *, threads: int = 1) -> None:
        from clickprism.relevance.click_vectors import VectorScale

        manifest = bundle.manifest
        self.click_fields, self._bundle = manifest.click_fields, bundle
        arrays = read_arrays(bundle, "network.safetensors")
        try:
            scale = {name: arrays[f"scale.{name}"].astype(np.float64) for name in ("empty", "rates", "mean", "factor")}
            self._scale = VectorScale(fields=self.click_fields, **scale)
        except (KeyError, DataError) as error:
            problem = f"does not fit the click fields of the manifest ({error})"
            raise DataError(problem, file=bundle.path("network.safetensors")) from None
        self.feature_names, self._mean = manifest.feature_names, float(manifest.settings["imputed"])
        self.needs: frozenset[Need] = frozenset({"features", "clicks"} if self.feature_names else {"clicks"})
        file = bundle.path("network.onnx")
        self._session = open_session(bundle.read("network.onnx"), threads=threads, file=file)

    def score(self, candidates: Candidates, *, explain: bool = False) -> Scored:
        """Return estimates, [n]; with `explain` relevance, click_features, imputation, trade_off and spread."""
        from clickprism.relevance.click_vectors import most_shown

        width = len(self.click_fields)
        if candidates.clicks is None:
            raise DataError(f"the ranker needs the click vector of each document, of {width} fields")
        x = np.asarray(candidates.clicks, dtype=np.float32)
        if x.ndim != 2 or x.shape[1] != width:
            raise DataError(f"the ranker takes click vectors of {width} fields, got an array of shape {list(x.shape)}")
        if not len(x):
            return Scored(np.zeros(0))
        imputed = self._impute(candidates)
        shown = most_shown(x, self.click_fields).astype(np.float32)
        wanted = OUTPUTS if explain else OUTPUTS[:1]
        found = {name: np.empty(len(x)) for name in wanted}
        for start in range(0, len(x), CHUNK):
            rows = slice(start, start + CHUNK)
            given = {"x": self._scale(x[rows]), "imputed": imputed[rows].astype(np.float32), "shown": shown[rows]}
            for name, values in zip(wanted, self._session.run(wanted, given), strict=True):
                found[name][rows] = values
        scores = found["estimate"]
        if not explain:
            return Scored(scores)
        names = {"click_features": "affine", "trade_off": "trade_off", "spread": "spread"}
        parts = {"relevance": scores, "imputation": imputed} | {name: found[of] for name, of in names.items()}
        return Scored(scores, parts)

    def warm(self) -> None:
        """Score the sample of the bundle; raise an error if its scores have changed."""
        check_sample(self, self._bundle)

    def _impute(self, candidates: Candidates) -> Float64:
        """Return the imputed relevance of each candidate, such as from the store; the mean where it is missing."""
        if not self.feature_names:
            return np.full(len(candidates), self._mean)
        given = candidates.features
        if given is None or given.ndim != 2 or given.shape[1] != 1:
            raise DataError(f"the ranker needs the feature {self.feature_names[0]!r} of each document")
        values = given[:, 0].astype(np.float64)
        wrong = (values < 0) | (values > 1)
        if wrong.any():
            raise DataError(f"imputed values are probabilities, got {values[int(np.argmax(wrong))]:g}")
        return np.clip(np.where(np.isnan(values), self._mean, values), SMALL, 1 - SMALL)
