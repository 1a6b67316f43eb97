"""One door to every bundle: candidates in, scores out, by whatever ranker is in it.

Features go in raw, as the bundle names them; a scorer normalises them as its training data was. Networks run in ONNX
Runtime, trees in LightGBM; PyTorch is not needed but for the language model. A scorer may be used by several threads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, final

import msgspec
import numpy as np

from clickprism.errors import DataError, MissingExtraError
from clickprism.rankers import RANKERS
from clickprism.serve.bundle.bundle import Bundle, Role
from clickprism.serve.onnx.graph import check_graph
from clickprism.types import Float32, Float64, Int64

Need: TypeAlias = Literal["features", "clicks", "texts"]


@final
class Candidates(msgspec.Struct, frozen=True, eq=False):
    """The documents to score, of one query, or of several one after the other.

    Attributes:
        query: its text, for rankers that read.
        texts: of the documents, for rankers that read, [n].
        features: raw, in the order of the bundle; NaN where one is missing, [n, F].
        clicks: click vectors; the store's `empty` where it has none, [n, L].
        offsets: list i owns the rows `offsets[i]` to `offsets[i + 1]`; None for a single list. Normalisation within a
            list needs it; a query with a text is a single list.
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
    """Scores, higher first, and with `explain` what they are made of.

    Attributes:
        scores: [n].
        parts: by name, [n] each, those that apply: relevance; observation (by position, [positions]); click_features,
            what the click vector says; imputation, what is said without it; trade_off, how much of the imputation is
            added; spread, of the members of an ensemble.
    """

    scores: Float64
    parts: Mapping[str, Float64] = msgspec.field(default_factory=dict)


class Scorer(Protocol):
    """What scores by a bundle.

    Attributes:
        kind: of the bundle.
        needs: which of the candidates' fields must be there.
        feature_names: the columns of `features`.
        click_fields: the columns of `clicks`.
    """

    kind: str
    needs: frozenset[Need]
    feature_names: tuple[str, ...]
    click_fields: tuple[str, ...]

    def score(self, candidates: Candidates, *, explain: bool = False) -> Scored:
        """Score candidates, [n]; a DataError where something is missing, of another width, or the score no number."""
        ...

    def warm(self) -> None:
        """Score the sample in the bundle, so that the first request is not slow; an error where scores are others."""
        ...


def open_scorer(bundle: Bundle, *, threads: int = 1, role: Role = "main") -> Scorer:
    """The scorer of a bundle, or with `role` of the naive ranker beside it.

    Args:
        bundle: verified.
        threads: that one call may use; several calls may run at a time besides.
        role: "main", or "naive" where the bundle has it.
    """
    kind = bundle.manifest.part(role).kind
    if kind == "approximation":
        from clickprism.serve.scoring.approximation import ApproximationScorer

        return ApproximationScorer(bundle, threads=threads)
    if kind == "cross-encoder":
        from clickprism.serve.scoring.language import LanguageScorer

        return LanguageScorer(bundle, threads=threads, role=role)
    if kind not in RANKERS:
        known = ", ".join([*RANKERS, "approximation", "cross-encoder"])
        raise DataError(f"is of kind {kind!r}, which no scorer knows", file=bundle.folder, remedy=f"Known: {known}")
    from clickprism.serve.scoring.features import FeatureScorer

    return FeatureScorer(bundle, threads=threads, role=role)


def verify(folder: Path | str) -> Bundle:
    """Return the bundle in a folder, after a check of every file and of the scores of each of its rankers."""
    bundle = Bundle.load(folder)
    open_scorer(bundle).warm()
    if bundle.manifest.naive is not None:
        open_scorer(bundle, role="naive").warm()
    return bundle


def open_session(content: bytes, *, threads: int, file: object, varying: bool = False) -> Any:
    """A session over a graph that was checked; several threads may run it at a time.

    Args:
        content: the graph.
        threads: that one run may use.
        file: for errors.
        varying: shapes differ from run to run, so that no plan of memory is kept for each.
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
        first = str(error).partition("\n")[0]
        raise DataError(
            f"cannot be run by ONNX Runtime ({first})", file=file, remedy="Create the bundle again"
        ) from None


NAME: Final = "sample.json"
TOLERANCE: Final = 1e-4
"""A warm scorer may differ by so much of the largest score: other processors add up in another order."""


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
