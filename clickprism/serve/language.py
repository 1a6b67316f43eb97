"""Scores by a cross-encoder that reads query and document, behind the same door as all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, final

import numpy as np

from clickprism.errors import ClickprismError, DataError, MissingExtraError
from clickprism.serve.bundle import Bundle, Role
from clickprism.serve.language_reader import ABOUT, LanguageReader, read_reading
from clickprism.serve.scorer import Candidates, Need, Scored
from clickprism.settings import build
from clickprism.types import Float64

if TYPE_CHECKING:
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork

Read: TypeAlias = Callable[[str, list[str]], Float64]
SMALL: Final = 1e-6
INT8: Final = 0.02
"""A warm scorer in int8 may differ by so much: other processors round states to other whole numbers."""


@final
class LanguageScorer:
    """Texts in, click probabilities in the first slot out; see `clickprism.serve.scorer.Scorer`.

    Attributes:
        reader: what reads, by ONNX Runtime; None where PyTorch does, for language models whose graph we do not write.
        tolerance: by how much scores may differ on another processor; None for the usual.
    """

    kind = "cross-encoder"
    needs: frozenset[Need] = frozenset({"texts"})
    feature_names: tuple[str, ...] = ()
    click_fields: tuple[str, ...] = ()

    def __init__(self, bundle: Bundle, *, threads: int = 1, role: Role = "main") -> None:
        self._bundle, self._role = bundle, role
        self.reader = open_reader(bundle, threads=threads, role=role)
        self.tolerance = INT8 if self.reader is not None and self.reader.reading.int8 else None
        self._odds = _by_torch(read_network(bundle, role)) if self.reader is None else self.reader.odds

    def score(self, candidates: Candidates, *, explain: bool = False) -> Scored:
        """Probabilities, [n]; with `explain` the same as relevance."""
        if candidates.query is None or candidates.texts is None:
            raise DataError("the ranker reads: it needs the text of the query and of each document")
        texts = list(candidates.texts)
        scores = probabilities(self._odds(candidates.query, texts)) if texts else np.zeros(0)
        return Scored(scores, {"relevance": scores} if explain else {})

    def warm(self) -> None:
        """Score the sample of the bundle; an error where it scores otherwise than when it was made."""
        from clickprism.serve.sample import check_sample

        check_sample(self, self._bundle, self._role, tolerance=self.tolerance)


def open_reader(bundle: Bundle, *, threads: int = 1, role: Role = "main") -> LanguageReader | None:
    """What reads by ONNX Runtime; None for a bundle of weights for PyTorch."""
    files = bundle.read_part(role)
    try:
        reading = read_reading(files[ABOUT], file=bundle.folder)
        if reading is None:
            return None
        return LanguageReader(reading, files, version=f"{bundle.version} {role}", threads=threads, file=bundle.folder)
    except ClickprismError:
        raise
    except Exception as error:
        raise _broken(bundle, error) from None


def read_network(bundle: Bundle, role: Role = "main") -> CrossEncoderNetwork:
    """The cross-encoder of a bundle of weights, in PyTorch; nothing in its files is run."""
    try:
        from clickprism.rankers.cross_encoder import CrossEncoderNetwork
        from clickprism.rankers.cross_encoder_settings import CrossEncoder
    except ImportError:
        raise MissingExtraError("lm", "scoring by a language model") from None
    part = bundle.manifest.part(role)
    settings = build(CrossEncoder, part.settings, path="settings")
    try:
        return CrossEncoderNetwork.of_files(settings, bundle.read_part(role))
    except ClickprismError:
        raise
    except Exception as error:
        raise _broken(bundle, error) from None


def probabilities(odds: Float64) -> Float64:
    """Log odds as probabilities that are never 0 or 1.

    >>> probabilities(np.array([0.0, -50.0])).tolist()
    [0.5, 1e-06]
    """
    from scipy.special import expit

    return np.clip(expit(odds), SMALL, 1 - SMALL)


def _by_torch(network: CrossEncoderNetwork) -> Read:
    return lambda query, texts: network.odds(network.pairs([query] * len(texts), texts))


def _broken(bundle: Bundle, error: Exception) -> DataError:
    return DataError(f"is no cross-encoder ({error})", file=bundle.folder, remedy="Create the bundle again")
