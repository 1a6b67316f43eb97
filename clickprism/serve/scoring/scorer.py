"""Score documents with a bundle, whatever ranker it contains.

Features are raw, as the bundle names them; a scorer normalises them like its training data. Networks run in ONNX
Runtime, trees in LightGBM; nothing needs PyTorch. Several threads may use a scorer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, final

import msgspec
import numpy as np

from clickprism.errors import DataError, MissingExtraError
from clickprism.rankers import RANKERS
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.onnx.graph import check_graph
from clickprism.types import Float32, Float64, Int64

Need: TypeAlias = Literal["features", "clicks", "texts"]


@final
class Candidates(msgspec.Struct, frozen=True, eq=False):
    """The documents to score, of one query, or of several in order.

    Attributes:
        query: Text of the query, for rankers that read texts.
        texts: Texts of the documents, for rankers that read texts, [n].
        features: Raw features in the order of the bundle, NaN if missing, [n, F].
        clicks: Click vectors; the store's `empty` for pairs without one, [n, L].
        offsets: List i has the rows from `offsets[i]` to `offsets[i + 1]`; None for a single list.
    """

    query: str | None = None
    texts: Sequence[str] | None = None
    features: Float32 | None = None
    clicks: Float32 | None = None
    offsets: Int64 | None = None

    def __len__(self) -> int:
        for values in (self.features, self.clicks, self.texts):
            if values is not None:
                return len(values)
        return 0


@final
class Scored(msgspec.Struct, frozen=True, eq=False):
    """Scores, higher is better, and with `explain` what they consist of.

    Attributes:
        scores: Score of each document, [n].
        parts: The parts that apply, by name, [n] each: relevance; observation (by position, [positions]);
            click_features, estimated from the click vector; imputation, estimated without it; trade_off, how much of
            the imputation is added; spread of the members of an ensemble.
    """

    scores: Float64
    parts: Mapping[str, Float64] = msgspec.field(default_factory=dict)


class Scorer(Protocol):
    """Scores documents with a bundle.

    Attributes:
        kind: Kind of the ranker.
        needs: Fields of the candidates that must be given.
        feature_names: Columns of `features`.
        click_fields: Columns of `clicks`.
    """

    kind: str
    needs: frozenset[Need]
    feature_names: tuple[str, ...]
    click_fields: tuple[str, ...]

    def score(self, candidates: Candidates, *, explain: bool = False) -> Scored:
        """Score candidates, [n]; raise a DataError if something is missing or a score is not a number."""
        ...

    def warm(self) -> None:
        """Score the sample in the bundle, so that the first request is fast; raise an error if scores have changed."""
        ...


def open_scorer(bundle: Bundle, *, threads: int = 1) -> Scorer:
    """Return the scorer of a bundle; a call of it may use this many threads."""
    kind = bundle.manifest.kind
    if kind == "approximation":
        from clickprism.serve.scoring.features import ApproximationScorer

        return ApproximationScorer(bundle, threads=threads)
    if kind == "cross-encoder":
        from clickprism.serve.scoring.language import LanguageScorer

        return LanguageScorer(bundle, threads=threads)
    if kind not in RANKERS:
        known = ", ".join([*RANKERS, "approximation", "cross-encoder"])
        raise DataError(f"is of kind {kind!r}, which no scorer knows", file=bundle.folder, remedy=f"Known: {known}")
    from clickprism.serve.scoring.features import FeatureScorer

    return FeatureScorer(bundle, threads=threads)


def open_session(content: bytes, *, threads: int, file: object, varying: bool = False) -> Any:
    """Check a graph and return a session that several threads may use.

    Args:
        content: The graph.
        threads: Number of threads that one run may use.
        file: File for errors.
        varying: Whether shapes differ from run to run, so that no plan of memory is kept for each.
    """
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("serve", "scoring by a network") from None
    check_graph(content, file=file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.enable_mem_pattern = not varying
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        problem = f"cannot be run by ONNX Runtime ({str(error).splitlines()[0]})"
        raise DataError(problem, file=file, remedy="Create the bundle again") from None


NAME: Final = "sample.json"
TOLERANCE: Final = 1e-4  # relative to the largest score: other processors may add in a different order


def read_sample(bundle: Bundle) -> tuple[Candidates, Float64]:
    """Return the sample of a bundle, and the scores that its ranker gave."""
    try:
        held = json.loads(bundle.read(NAME))
        features, clicks = (
            None if held.get(name) is None else np.array(held[name], dtype=np.float32)
            for name in ("features", "clicks")
        )
        candidates = Candidates(held.get("query"), held.get("texts"), features, clicks)
        scores = np.array(held["scores"], dtype=np.float64)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"is no sample ({error})", file=bundle.path(NAME), remedy="Create the bundle again") from None
    return candidates, scores


def check_same(found: Float64, wanted: Float64, *, tolerance: float, file: object) -> None:
    """Raise a DataError if scores differ by more than this share of the largest."""
    scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
    if found.shape == wanted.shape and bool((np.abs(found - wanted) <= tolerance * scale).all()):
        return
    worst = float(np.abs(found - wanted).max()) if found.shape == wanted.shape else np.inf
    problem = f"scores its own sample by up to {worst:.3g} otherwise than the ranker that it was made from"
    raise DataError(problem, file=file, remedy="Create the bundle again, with this version of clickprism")


def check_sample(scorer: Scorer, bundle: Bundle, *, tolerance: float = TOLERANCE) -> None:
    """Score the sample of a bundle; raise an error if its scores have changed."""
    candidates, wanted = read_sample(bundle)
    check_same(scorer.score(candidates).scores, wanted, tolerance=tolerance, file=bundle.folder)
