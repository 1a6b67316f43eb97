"""From files to an imputation and back: first-slot clicks and texts, or features, in; estimates of pairs out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, final

from clickprism.data.texts import Texts, read_texts
from clickprism.errors import SettingError
from clickprism.model import Model
from clickprism.rankers import RANKERS
from clickprism.rankers.cross_encoder import CrossEncoder
from clickprism.rankers.prior import Prior
from clickprism.relevance.by_features import FeatureImputationSettings, FittedFeatures, fit_features
from clickprism.relevance.files import check_suffix, write_rows
from clickprism.relevance.imputation import (
    FeatureImputation,
    FittedImputation,
    Imputation,
    TextImputation,
    cross_fit,
    fit_imputation,
)
from clickprism.relevance.pair_tables import PAIR, read_features, read_pairs, read_slot
from clickprism.relevance.randomised import FirstSlot
from clickprism.training.text_settings import TextFitSettings
from clickprism.types import Float64, Lists, Text

if TYPE_CHECKING:
    from clickprism.training.text_settings import TextRecord

Show = Callable[[int, int, "TextRecord | None"], None]


@final
@dataclass(frozen=True)
class ImputationSettings:
    """All settings of an imputation by text: the encoder, and how it is trained."""

    encoder: CrossEncoder = field(default_factory=CrossEncoder)
    fit: TextFitSettings = field(default_factory=TextFitSettings)


@final
class TextSource:
    """An imputation by the texts in two files.

    Args:
        queries: the texts of the queries.
        documents: the texts of the documents.
        settings: of the encoder and of training.
        note: is told beforehand what an epoch costs.
        show: is told of every step.
    """

    def __init__(
        self,
        queries: Path,
        documents: Path,
        *,
        settings: ImputationSettings | None = None,
        note: Callable[[str], None] = lambda _: None,
        show: Show = lambda _step, _steps, _record: None,
    ) -> None:
        self.texts: tuple[Texts, Texts] = read_texts(queries), read_texts(documents)
        self.settings = ImputationSettings() if settings is None else settings
        self.note, self.show = note, show
        self.known: Prior | None = None

    def fit(self, slot: FirstSlot) -> FittedImputation:
        """Fine-tune a language model on first-slot clicks."""
        done = fit_imputation(
            slot,
            *self.texts,
            encoder=self.settings.encoder,
            settings=self.settings.fit,
            known=self.known,
            note=self.note,
            show=self.show,
        )
        self.known = done.imputation.network.prior
        return done

    def load(self, folder: Path) -> TextImputation:
        """What was saved there, over these texts."""
        return TextImputation.load(folder, queries=self.texts[0], documents=self.texts[1])


@final
class FeatureSource:
    """An imputation by the features in a file.

    Args:
        features: of every pair; `read_features` says in which forms.
        ranker: a name of the project's rankers, or the folder of a trained one, which is then only calibrated.
        settings: of training; `ranker` goes before theirs.
    """

    def __init__(
        self, features: Path, *, ranker: str | None = None, settings: FeatureImputationSettings | None = None
    ) -> None:
        self.lists: Lists = read_features(features)
        self.settings = FeatureImputationSettings() if settings is None else settings
        folder = None if ranker is None or ranker in RANKERS else Path(ranker)
        if folder is not None and not folder.is_dir():
            raise SettingError("--ranker", ranker, f"be one of {', '.join(RANKERS)}, or the folder of a model")
        self.model = None if folder is None else Model.load(folder)

    def fit(self, slot: FirstSlot) -> FittedFeatures:
        """Train a ranker on first-slot clicks, or calibrate the one that is there."""
        return fit_features(slot, self.lists, settings=self.settings, model=self.model, show=False)

    def load(self, folder: Path) -> FeatureImputation:
        """What was saved there, over these features."""
        return FeatureImputation.load(folder, lists=self.lists)


Source = TextSource | FeatureSource


def train_imputation(clicks: Path, source: Source, out: Path) -> tuple[FirstSlot, FittedImputation | FittedFeatures]:
    """Learn an imputation from first-slot clicks, and save it.

    Args:
        clicks: a table of query_id, document_id, clicks, impressions, or the folder of an ingested log.
        source: of texts or of features.
        out: the folder for the imputation.
    """
    slot = read_slot(clicks)
    done = source.fit(slot)
    done.imputation.save(out)
    return slot, done


def apply_imputation(folder: Path, source: Source, pairs: Path, out: Path) -> Float64:
    """Write query_id, document_id, imputation of every pair of a table to a file."""
    check_suffix(out)
    return _written(out, read_pairs(pairs), source.load(folder).impute)


def cross_impute(clicks: Path, source: Source, pairs: Path, out: Path, *, folds: int, seed: int) -> Float64:
    """The same, each query by an imputation that learned from the other queries only."""
    check_suffix(out)
    slot, ids = read_slot(clicks), read_pairs(pairs)

    def fit(part: FirstSlot) -> Imputation:
        return source.fit(part).imputation

    return _written(out, ids, lambda *wanted: cross_fit(slot, *wanted, fit=fit, folds=folds, seed=seed))


def _written(out: Path, ids: tuple[Text, Text], impute: Callable[[Text, Text], Float64]) -> Float64:
    values = impute(*ids)
    write_rows(out, dict(zip((*PAIR, "imputation"), (*ids, values), strict=True)))
    return values
