"""Scores by rankers on features: networks, with their normaliser, in ONNX Runtime; trees in LightGBM."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias, final

import numpy as np

from clickprism.data.normalise import Normaliser
from clickprism.errors import DataError
from clickprism.serve.bundle.bundle import Bundle, Part, Role, file_name, read_arrays
from clickprism.serve.bundle.untrusted import checked_trees
from clickprism.serve.scoring.scorer import Candidates, Need, Scored
from clickprism.types import Float32, Float64, Int64

Forward: TypeAlias = Callable[[Float32], Float64]
CHUNK: Final = 1024  # documents whose layers fit into a processor's cache


@final
class FeatureScorer:
    """Raw features in, scores out; see `clickprism.serve.scoring.scorer.Scorer`."""

    needs: frozenset[Need] = frozenset({"features"})
    click_fields: tuple[str, ...] = ()

    def __init__(self, bundle: Bundle, *, threads: int = 1, role: Role = "main") -> None:
        part = bundle.manifest.part(role)
        self.kind, self.feature_names = part.kind, bundle.manifest.feature_names
        self._bundle, self._role = bundle, role
        self._observation = np.array(bundle.manifest.observation if role == "main" else ())
        self._shape = (len(self.feature_names),)
        normaliser = _normaliser(bundle, part, role, len(self.feature_names))
        self._forward: Forward
        self._before = normaliser
        if part.kind == "lambdamart":
            self._forward = _trees(bundle, role, threads)
        else:
            rule = _fill(normaliser, features=len(self.feature_names))
            if part.normaliser is not None and part.normaliser.get("in_graph"):
                self._before = None
            self._forward = _network(bundle, role, threads, None if part.kind == "attention" else rule)

    def score(self, candidates: Candidates, *, explain: bool = False) -> Scored:
        """Scores, [n]; with `explain` relevance, and observation where the method has one."""
        features = self._checked(candidates)
        if self._before is not None and len(features):
            features = self._before.features(features, _offsets(candidates, len(features)))
        scores = self._forward(features)
        if not math.isfinite(scores.sum()) and not np.isfinite(scores).all():
            self._refuse(candidates, scores)
        parts = {"relevance": scores} if explain else {}
        if explain and len(self._observation):
            parts["observation"] = self._observation
        return Scored(scores, parts)

    def warm(self) -> None:
        """Score the sample of the bundle; an error where it scores otherwise than when it was made."""
        from clickprism.serve.scoring.scorer import check_sample

        check_sample(self, self._bundle, self._role)

    def _checked(self, candidates: Candidates) -> Float32:
        given = candidates.features
        if given is None:
            raise DataError(f"the {self.kind} ranker needs the {self._shape[0]} features of each document")
        features = np.ascontiguousarray(given, dtype=np.float32)
        if features.shape[1:] != self._shape:
            raise DataError(f"the ranker takes {self._shape[0]} features, got an array of shape {list(features.shape)}")
        return features

    def _refuse(self, candidates: Candidates, scores: Float64) -> None:
        place = int(np.argmin(np.isfinite(scores)))
        row = np.asarray(candidates.features)[place]
        missing = [self.feature_names[column] for column in np.flatnonzero(~np.isfinite(row))[:3]]
        why = f"it has no finite value of {', '.join(map(repr, missing))}" if missing else "its features are too large"
        remedy = "Give every feature a number: the ranker was trained without a rule for missing ones"
        raise DataError(f"document {place + 1} of the list has no score: {why}", remedy=remedy)


def _offsets(candidates: Candidates, rows: int) -> Int64:
    if candidates.offsets is None:
        return np.array([0, rows], dtype=np.int64)
    offsets = np.asarray(candidates.offsets, dtype=np.int64)
    if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or offsets[-1] != rows or (np.diff(offsets) < 0).any():
        raise DataError(f"the offsets of the lists must rise from 0 to {rows}")
    return offsets


def _network(bundle: Bundle, role: Role, threads: int, missing: Float32 | None) -> Forward:
    """Return the graph of the bundle as a function.

    Args:
        bundle: whose network it is.
        role: of the network.
        threads: of a run.
        missing: what a missing value is taken for; a document with a missing value for which this is NaN has no score,
            whatever a ReLU would make of it. None leaves that to the network.
    """
    from clickprism.serve.scoring.scorer import open_session

    name = file_name(role, "network.onnx")
    session = open_session(bundle.read(name), threads=threads, file=bundle.path(name))
    shape = [given.shape[1:] for given in session.get_inputs()]
    if shape != [[len(bundle.manifest.feature_names)]]:
        raise DataError(f"takes {shape}, the manifest says {len(bundle.manifest.feature_names)} features", file=name)
    run, wanted = session.run, ["scores"]
    ruleless = None if missing is None or not np.isnan(missing).any() else np.isnan(missing)

    def chunk(features: Float32) -> Float64:
        scores: Float64 = run(wanted, {"features": features})[0].astype(np.float64)
        if ruleless is not None and math.isnan(features.sum()):
            scores[(np.isnan(features) & ruleless).any(1)] = np.nan
        return scores

    def forward(features: Float32) -> Float64:
        if len(features) <= CHUNK:
            return chunk(features)
        return np.concatenate([chunk(features[start : start + CHUNK]) for start in range(0, len(features), CHUNK)])

    return forward


def _fill(normaliser: Normaliser | None, *, features: int) -> Float32:
    """Return what a missing value is taken for, NaN where there is no rule, [features]."""
    if normaliser is None or normaliser.kind == "none":
        return np.full(features, np.nan, np.float32)
    values = normaliser.mean.astype(np.float32)
    values[list(normaliser.keep)] = np.nan
    return values


def _trees(bundle: Bundle, role: Role, threads: int) -> Forward:
    from clickprism.rankers.lambdamart import Trees

    name = file_name(role, "trees.txt")
    try:
        trees = Trees.from_text(checked_trees(bundle.read(name).decode(), features=len(bundle.manifest.feature_names)))
    except (DataError, UnicodeDecodeError) as error:
        raise DataError(str(error), file=bundle.path(name), remedy="Create the bundle again") from None
    if trees.features != len(bundle.manifest.feature_names):
        problem = f"takes {trees.features} features, the manifest names {len(bundle.manifest.feature_names)}"
        raise DataError(problem, file=bundle.path(name), remedy="Create the bundle again")
    return lambda features: trees(features, threads=threads)


def _normaliser(bundle: Bundle, part: Part, role: Role, features: int) -> Normaliser | None:
    """What features go through before the layers; None where they go in as they are."""
    if part.normaliser is None:
        return None
    normaliser = Normaliser.from_state(part.normaliser, read_arrays(bundle, file_name(role, "normaliser.safetensors")))
    if len(normaliser.mean) != features:
        raise DataError(f"the normaliser is of {len(normaliser.mean)} features", file=bundle.folder)
    return normaliser
