"""Scores by a cross-encoder that reads query and document: PyTorch, behind the same door as all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np

from clickprism.errors import ClickprismError, DataError, MissingExtraError
from clickprism.serve.bundle import Bundle, Role
from clickprism.serve.scorer import Candidates, Need, Scored
from clickprism.settings import build
from clickprism.types import Float64

if TYPE_CHECKING:
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork


@final
class LanguageScorer:
    """Texts in, click probabilities in the first slot out; see `clickprism.serve.scorer.Scorer`."""

    kind = "cross-encoder"
    needs: frozenset[Need] = frozenset({"texts"})
    feature_names: tuple[str, ...] = ()
    click_fields: tuple[str, ...] = ()

    def __init__(self, bundle: Bundle, *, threads: int = 1, role: Role = "main") -> None:
        self._bundle, self._role, self._threads = bundle, role, threads
        self._network = read_network(bundle, role)

    def score(self, candidates: Candidates, *, explain: bool = False) -> Scored:
        """Probabilities, [n]; with `explain` the same as relevance."""
        if candidates.query is None or candidates.texts is None:
            raise DataError("the ranker reads: it needs the text of the query and of each document")
        texts = list(candidates.texts)
        scores = self._probabilities(candidates.query, texts) if texts else np.zeros(0)
        return Scored(scores, {"relevance": scores} if explain else {})

    def warm(self) -> None:
        """Score the sample of the bundle; an error where it scores otherwise than when it was made."""
        from clickprism.serve.sample import check_sample

        check_sample(self, self._bundle, self._role)

    def _probabilities(self, query: str, texts: list[str]) -> Float64:
        return self._network.score_pairs([query] * len(texts), texts)


def read_network(bundle: Bundle, role: Role = "main") -> CrossEncoderNetwork:
    """The cross-encoder of a bundle, in PyTorch; nothing in its files is run."""
    try:
        from clickprism.rankers.cross_encoder import CrossEncoder, CrossEncoderNetwork
    except ImportError:
        raise MissingExtraError("lm", "scoring by a language model") from None
    part = bundle.manifest.part(role)
    settings = build(CrossEncoder, part.settings, path="settings")
    try:
        return CrossEncoderNetwork.of_files(settings, bundle.read_part(role))
    except ClickprismError:
        raise
    except Exception as error:
        raise DataError(f"is no cross-encoder ({error})", file=bundle.folder, remedy="Make the bundle anew") from None
