"""The imputation: what a model says about a pair that has too few clicks of its own (Zou et al. 2022, §4).

An imputation gives, for any pair, the click probability c_1 in the first slot, on the scale of the estimators, since it
learned from clicks there. `TextImputation` reads query and document; `FeatureImputation` takes any ranker on features.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import numpy as np

from clickprism._util.files import sha256
from clickprism._util.manifest import Manifest
from clickprism._util.progress import Progress, no_progress
from clickprism.data.texts import Texts
from clickprism.errors import DataError, SettingError
from clickprism.relevance.pairs import distinct_pairs, find_pairs
from clickprism.relevance.randomised import FirstSlot
from clickprism.settings import build, plain
from clickprism.training.calibration import Calibration
from clickprism.types import Float64, Int64, Lists, Text

if TYPE_CHECKING:
    from clickprism.model import Model
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork
    from clickprism.rankers.cross_encoder_settings import CrossEncoder
    from clickprism.rankers.prior import Prior
    from clickprism.rankers.text_tokens import Pairs
    from clickprism.training.text_settings import TextFitSettings, TextFitted

FORMAT: Final = 2
FILES: Final = re.compile(r"(network|config|tokenizer|about|corpus|untuned)-[0-9a-f]{16}\.(safetensors|json)")
MANIFEST: Final = Manifest("imputation.json", FILES, "the manifest of an imputation")
SMALL: Final = 1e-6


class Imputation(Protocol):
    """What estimates a pair without any click of its own."""

    def impute(self, queries: Sequence[str] | Text, documents: Sequence[str] | Text) -> Float64:
        """The probability of a click in the first slot of each pair, by the ids of both, [pairs], in (0, 1)."""
        ...


@final
class TextImputation:
    """A cross-encoder over the texts of queries and documents.

    Attributes:
        network: of a language model, fine-tuned by `fit_imputation`.
        queries: the texts of the queries.
        documents: the texts of the documents.
    """

    def __init__(self, network: CrossEncoderNetwork, queries: Texts, documents: Texts) -> None:
        self.network, self.queries, self.documents = network, queries, documents

    def impute(self, queries: Sequence[str] | Text, documents: Sequence[str] | Text) -> Float64:
        """The probability of a click in the first slot, [pairs]; each distinct pair is read once."""
        from clickprism.rankers.cross_encoder import probabilities

        query_ids, document_ids = (np.asarray(ids, dtype=np.str_) for ids in (queries, documents))
        first, pair = distinct_pairs(query_ids, document_ids)
        pairs = pairs_of(self.network, self.queries, self.documents, query_ids[first], document_ids[first])
        return probabilities(self.network.odds(pairs))[pair]

    def save(self, folder: Path | str) -> None:
        """Write the network, its language model and tokenizer into a folder; the texts stay where they are."""
        about = {"format": FORMAT, "kind": "text", "encoder": plain(self.network.settings)}
        MANIFEST.save(Path(folder), about, self.network.files())

    @classmethod
    def load(cls, folder: Path | str, *, queries: Texts, documents: Texts) -> TextImputation:
        """Read what `save` wrote; every file is checked against its hash, and nothing in them is run."""
        return cls(read_network(folder), queries, documents)


def read_network(folder: Path | str) -> CrossEncoderNetwork:
    """The cross-encoder of an imputation by text that was saved; nothing in its files is run."""
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork
    from clickprism.rankers.cross_encoder_settings import CrossEncoder

    def made(about: dict[str, Any], contents: dict[str, tuple[Path, bytes]]) -> CrossEncoderNetwork:
        if about["kind"] != "text":
            raise DataError(f"is an imputation of kind {about['kind']!r}", file=Path(folder) / MANIFEST.name)
        settings = build(CrossEncoder, about["encoder"], path="encoder")
        files = {f"{stem}{path.suffix}": content for stem, (path, content) in contents.items()}
        return CrossEncoderNetwork.of_files(settings, files)

    return MANIFEST.load(Path(folder), FORMAT, made)


@final
@dataclass(frozen=True, eq=False)
class FeatureImputation:
    """Any ranker of the project on the features of pairs, its scores calibrated by first-slot clicks.

    Attributes:
        model: a ranker that was trained by whatever method.
        lists: the features of every pair it will be asked for, with document ids.
        calibration: from scores to log odds.
    """

    model: Model
    lists: Lists
    calibration: Calibration

    @classmethod
    def fit(cls, model: Model, lists: Lists, slot: FirstSlot) -> FeatureImputation:
        """Calibrate a model by the first-slot clicks of pairs that the lists have; the others are left out."""
        rows = cls.rows(lists, slot.query_ids, slot.document_ids)
        known = rows >= 0
        if not known.any():
            remedy = "The ids of queries and documents must be those of the lists"
            raise DataError("none of the pairs with first-slot clicks is in the lists", remedy=remedy)
        scores = model.score(lists)[rows[known]]
        return cls(model, lists, Calibration.fit(scores, slot.clicks[known], slot.impressions[known]))

    def impute(self, queries: Sequence[str] | Text, documents: Sequence[str] | Text) -> Float64:
        """The probability of a click in the first slot, [pairs]; a pair without features is an error."""
        from scipy.special import expit

        query_ids, document_ids = (np.asarray(ids, dtype=np.str_) for ids in (queries, documents))
        rows = self.rows(self.lists, query_ids, document_ids)
        if (rows < 0).any():
            first = int(np.argmax(rows < 0))
            named = f"{str(query_ids[first])!r}, {str(document_ids[first])!r}"
            raise DataError(f"{int((rows < 0).sum()):,} pairs have no features, first {named}")
        return np.clip(expit(self.calibration(self.model.score(self.lists)[rows])), SMALL, 1 - SMALL)

    def save(self, folder: Path | str) -> None:
        """Write the ranker and its calibration into a folder; the features stay where they are."""
        folder = Path(folder)
        self.model.save(folder / "model")
        about = {"format": FORMAT, "kind": "features", "calibration": plain(self.calibration), "model": _digest(folder)}
        MANIFEST.save(folder, about, {})

    @classmethod
    def load(cls, folder: Path | str, *, lists: Lists) -> FeatureImputation:
        """Read what `save` wrote; every file is checked against its hash, and nothing in them is run."""
        from clickprism.model import Model

        folder = Path(folder)

        def made(about: dict[str, Any], _: dict[str, tuple[Path, bytes]]) -> FeatureImputation:
            _check_kind(about, "features", folder)
            if about["model"] != _digest(folder):
                raise DataError("is not the model of this imputation", file=folder / "model", remedy="Save it anew")
            calibration = build(Calibration, about["calibration"], path="calibration")
            return cls(Model.load(folder / "model"), lists, calibration)

        return MANIFEST.load(folder, FORMAT, made)

    @staticmethod
    def rows(lists: Lists, query_ids: Text, document_ids: Text) -> Int64:
        """The row of each pair in the lists, -1 where it has none, [pairs]."""
        if lists.document_ids is None:
            raise DataError("the lists have no document ids", remedy="Read them with ids, or give them")
        return find_pairs((lists.query_ids[lists.list_of], lists.document_ids), (query_ids, document_ids))


@final
@dataclass(frozen=True, eq=False)
class FittedImputation:
    """An imputation that was trained, and how: `fitted` has the history."""

    imputation: TextImputation
    fitted: TextFitted

    @property
    def losses(self) -> dict[str, float]:
        """On queries that had no other part: of the imputation, of it untrained, of the click rate alone."""
        fitted = self.fitted
        return {"best": fitted.best, "untrained": fitted.untrained, "constant": fitted.constant}


def fit_imputation(
    slot: FirstSlot,
    queries: Texts,
    documents: Texts,
    *,
    encoder: CrossEncoder | None = None,
    settings: TextFitSettings | None = None,
    known: Prior | None = None,
    note: Callable[[str], None] = lambda _: None,
    progress: Progress = no_progress,
) -> FittedImputation:
    """Fine-tune a cross-encoder on the clicks of a randomised first slot.

    Args:
        slot: the clicks; every pair stands once, with counts.
        queries: the text of every query of the slot, and of those to come.
        documents: the text of every document.
        encoder: the language model and how it reads a pair.
        settings: of training.
        known: the prior of an imputation over the same texts, which remembers them.
        note: called with messages about the training, see `fit_text`.
        progress: called after each step.
    """
    from clickprism.rankers.cross_encoder_settings import CrossEncoder
    from clickprism.training.text import fit_text
    from clickprism.training.text_settings import TextFitSettings

    settings = TextFitSettings() if settings is None else settings
    network = (CrossEncoder() if encoder is None else encoder).build(documents, known=known)
    pairs = pairs_of(network, queries, documents, slot.query_ids, slot.document_ids)
    fitted = fit_text(network, pairs, slot.clicks, slot.impressions, settings=settings, note=note, progress=progress)
    return FittedImputation(TextImputation(network, queries, documents), fitted)


def pairs_of(
    network: CrossEncoderNetwork, queries: Texts, documents: Texts, query_ids: Text, document_ids: Text
) -> Pairs:
    """The tokens of pairs by id; only texts that occur are cut into tokens."""
    sides = []
    for texts, ids, what in ((queries, query_ids, "query"), (documents, document_ids, "document")):
        used, rows = np.unique(texts.rows(ids, what=what), return_inverse=True)
        sides.append(([texts.texts[row] for row in used.tolist()], rows.astype(np.int64)))
    (words, rows), (others, other_rows) = sides
    return network.pairs_of_rows(words, others, rows, other_rows)


def cross_fit(
    slot: FirstSlot,
    query_ids: Text,
    document_ids: Text,
    *,
    fit: Callable[[FirstSlot], Imputation],
    folds: int = 5,
    seed: int = 0,
) -> Float64:
    """The imputation of pairs, each by a model that saw no click of its query, [pairs].

    An imputation that learned from a log knows something of the very clicks that an estimate from this log adds to it:
    they would count twice. Queries are dealt into folds, and each fold is imputed by a model of the others.

    Args:
        slot: the first-slot clicks to learn from.
        query_ids: of the pairs to impute.
        document_ids: likewise.
        fit: makes an imputation of clicks.
        folds: how many parts, and models.
        seed: of the parts.
    """
    if folds < 2:
        raise SettingError("folds", folds, "be at least 2")
    distinct, places = np.unique(np.concatenate([slot.query_ids, query_ids]), return_inverse=True)
    if len(np.unique(slot.query_ids)) < folds:
        raise SettingError("folds", folds, "be at most the number of queries with first-slot clicks")
    known = np.isin(distinct, slot.query_ids)
    fold = np.empty(len(distinct), dtype=np.int64)
    random = np.random.default_rng([seed, 13])
    for some in (known, ~known):
        fold[some] = random.permutation(np.arange(int(some.sum())) % folds)
    learned, wanted = fold[places[: len(slot)]], fold[places[len(slot) :]]
    values = np.empty(len(query_ids))
    for part in range(folds):
        rows = wanted == part
        if rows.any():
            values[rows] = fit(slot.take(learned != part)).impute(query_ids[rows], document_ids[rows])
    return values


def _check_kind(about: Mapping[str, Any], kind: str, folder: Path) -> None:
    if about["kind"] != kind:
        problem = f"is an imputation of kind {about['kind']!r}, not {kind!r}"
        remedy = "Give --features for one, --queries and --documents for the other"
        raise DataError(problem, file=folder / MANIFEST.name, remedy=remedy)


def _digest(folder: Path) -> str:
    return sha256(folder / "model" / "model.json")
