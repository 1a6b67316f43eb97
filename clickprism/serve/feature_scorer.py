"""Scores by rankers on features: networks in ONNX Runtime, trees in LightGBM, small rankers by compiled code."""

from __future__ import annotations

import math
from typing import Final, final

import numpy as np

from clickprism.data.normalise import Normaliser
from clickprism.errors import DataError
from clickprism.serve.bundle import Bundle, Part, Role, file_name
from clickprism.serve.folded import Forward, can_fold, folded_linear, folded_network
from clickprism.serve.scorer import Candidates, Need, Scored
from clickprism.serve.small import MOST, small
from clickprism.serve.tensors import read_arrays
from clickprism.types import Float32, Float64, Int64

CHUNK: Final = 1024  # documents whose layers fit into a processor's cache


@final
class FeatureScorer:
    """Raw features in, scores out; see `clickprism.serve.scorer.Scorer`.

    Attributes:
        small: the same for short lists; None where the ranker is not small.
    """

    needs: frozenset[Need] = frozenset({"features"})
    click_fields: tuple[str, ...] = ()

    def __init__(self, bundle: Bundle, *, threads: int = 1, role: Role = "main") -> None:
        part = bundle.manifest.part(role)
        self.kind, self.feature_names = part.kind, bundle.manifest.feature_names
        self._bundle, self._role = bundle, role
        self._observation = np.array(bundle.manifest.observation if role == "main" else ())
        self._shape = (len(self.feature_names),)
        normaliser = _normaliser(bundle, part, role, len(self.feature_names))
        graph = folded_network(bundle, part, role, normaliser)
        folded = graph is not None or (part.kind == "linear" and can_fold(normaliser))
        self._fill = _fill(normaliser) if folded else None
        within = part.normaliser is not None and bool(part.normaliser.get("in_graph")) and part.kind != "linear"
        self._before = None if folded or within else normaliser
        self.small = small(bundle, part, role, normaliser, _fill(normaliser))
        if part.kind == "lambdamart":
            self._forward = _trees(bundle, role, threads)
        elif part.kind == "linear":
            self._forward = folded_linear(bundle, role, normaliser)
        else:
            self._forward = _network(bundle, role, threads, graph)

    def score(self, candidates: Candidates, *, explain: bool = False) -> Scored:
        """Scores, [n]; with `explain` relevance, and observation where the method has one."""
        features = self._checked(candidates)
        if self.small is not None and len(features) <= MOST:
            return self._said(self.small.scores(features), candidates, explain=explain)
        if self._before is not None and len(features):
            features = self._before.features(features, _offsets(candidates, len(features)))
        scores = self._forward(features)
        if self._fill is not None and not math.isfinite(scores.sum()):
            scores = self._forward(np.where(np.isnan(features), self._fill, features))
        return self._said(scores, candidates, explain=explain)

    def _said(self, scores: Float64, candidates: Candidates, *, explain: bool) -> Scored:
        """The scores with their parts; an error that names a document without one."""
        if not math.isfinite(scores.sum()) and not np.isfinite(scores).all():
            self._refuse(candidates, scores)
        parts = {"relevance": scores} if explain else {}
        if explain and len(self._observation):
            parts["observation"] = self._observation
        return Scored(scores, parts)

    def warm(self) -> None:
        """Score the sample of the bundle; an error where it scores otherwise than when it was made."""
        from clickprism.serve.sample import TOLERANCE, check_same, check_sample, read_sample

        check_sample(self, self._bundle, self._role)
        if self.small is not None:  # long lists go another way
            candidates, wanted = read_sample(self._bundle, self._role)
            times = MOST // len(wanted) + 1
            features = np.tile(np.asarray(candidates.features), (times, 1))
            found = self.score(Candidates(features=features)).scores
            check_same(found, np.tile(wanted, times), tolerance=TOLERANCE, file=self._bundle.folder)

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


def _network(bundle: Bundle, role: Role, threads: int, graph: bytes | None) -> Forward:
    """The graph of the bundle, or the one given in its place."""
    from clickprism.serve.sessions import open_session

    name = file_name(role, "network.onnx")
    session = open_session(graph or bundle.read(name), threads=threads, file=bundle.path(name))
    shape = [given.shape[1:] for given in session.get_inputs()]
    if shape != [[len(bundle.manifest.feature_names)]]:
        raise DataError(f"takes {shape}, the manifest says {len(bundle.manifest.feature_names)} features", file=name)
    run, wanted = session.run, ["scores"]

    def forward(features: Float32) -> Float64:
        if len(features) <= CHUNK:
            if not len(features):
                return np.zeros(0)
            return np.asarray(run(wanted, {"features": features})[0], dtype=np.float64)
        scores = np.empty(len(features))
        for start in range(0, len(features), CHUNK):
            scores[start : start + CHUNK] = run(wanted, {"features": features[start : start + CHUNK]})[0]
        return scores

    return forward


def _trees(bundle: Bundle, role: Role, threads: int) -> Forward:
    from clickprism.rankers.lambdamart import Trees

    name = file_name(role, "trees.txt")
    try:
        trees = Trees.from_text(bundle.read(name).decode())
    except (DataError, UnicodeDecodeError) as error:
        raise DataError(str(error), file=bundle.path(name), remedy="Make the bundle anew") from None
    if trees.features != len(bundle.manifest.feature_names):
        problem = f"takes {trees.features} features, the manifest names {len(bundle.manifest.feature_names)}"
        raise DataError(problem, file=bundle.path(name), remedy="Make the bundle anew")
    return lambda features: trees(features, threads=threads)


def _normaliser(bundle: Bundle, part: Part, role: Role, features: int) -> Normaliser | None:
    """What features go through before the layers; None where they go in as they are."""
    if part.normaliser is None:
        return None
    normaliser = Normaliser.from_state(part.normaliser, read_arrays(bundle, file_name(role, "normaliser.safetensors")))
    if len(normaliser.mean) != features:
        raise DataError(f"the normaliser is of {len(normaliser.mean)} features", file=bundle.folder)
    return normaliser


def _fill(normaliser: Normaliser | None) -> Float32 | None:
    """What a missing value is taken for, NaN where there is no rule, [features]; None where there is none at all."""
    if normaliser is None or normaliser.kind == "none":
        return None
    fill = normaliser.mean.astype(np.float32)
    fill[list(normaliser.keep)] = np.nan
    return fill
