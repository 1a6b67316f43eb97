"""From files to an imputation and back: first-slot clicks and texts, or features, in; estimates of pairs out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np

from clickprism._util.progress import Progress, no_progress
from clickprism._util.tables import Table
from clickprism.data.texts import Texts, read_texts
from clickprism.errors import SettingError
from clickprism.model import Model
from clickprism.rankers.cross_encoder_settings import CrossEncoder
from clickprism.rankers.language_model import check_installed
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
from clickprism.training.text_settings import TextFitSettings, TextRecord
from clickprism.types import Float64, Lists, Text

if TYPE_CHECKING:
    from clickprism.rankers.prior import Prior


@final
@dataclass(frozen=True, kw_only=True)
class TextImputationSettings:
    """Settings of an imputation by texts.

    Attributes:
        encoder: The language model, and how it reads a pair.
        fit: How it is trained.
    """

    encoder: CrossEncoder = field(default_factory=CrossEncoder)
    fit: TextFitSettings = field(default_factory=TextFitSettings)


@final
@dataclass(frozen=True, kw_only=True)
class SourceFiles:
    """The files that an imputation reads: the texts of queries and documents, or features of pairs.

    Attributes:
        queries: Texts of the queries (TSV, CSV, JSON lines or Parquet).
        documents: Texts of the documents.
        features: Features of the pairs, instead of texts: LETOR lines that end in "# docid = ID", a table of query_id,
            document_id and numbers, or an ingested log whose impressions have features.
    """

    queries: Path | None = None
    documents: Path | None = None
    features: Path | None = None


@final
@dataclass(frozen=True, kw_only=True)
class ImputeSettings:
    """Settings of an imputation.

    Attributes:
        text: Settings for texts.
        feature: Settings for features.
        model: Folder of a trained ranker to calibrate, instead of training one, with features.
        seed: Random seed.
    """

    text: TextImputationSettings = field(default_factory=TextImputationSettings)
    feature: FeatureImputationSettings = field(default_factory=FeatureImputationSettings)
    model: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise SettingError("seed", self.seed, "be from 0 to 2^32 - 1")
        for name in ("text", "feature"):
            part: Any = getattr(self, name)
            if part.fit.seed == 0:
                object.__setattr__(self, name, replace(part, fit=replace(part.fit, seed=self.seed)))


@final
@dataclass(frozen=True, kw_only=True)
class ImputationSummary:
    """What an imputation was fitted to, and how good it is.

    Attributes:
        kind: What it reads: texts or features.
        pairs: Number of pairs with first-slot clicks.
        impressions: Number of their impressions.
        clicks: Number of their clicks.
        without_features: Number of these pairs without features, which were not used.
        ranker: Name of the ranker, of an imputation by features.
        encoder: Settings of the language model, of an imputation by texts.
        trained: Whether the ranker or the language model was trained; otherwise only its scale was fitted.
        best: Epoch of the ranker, or step of the language model, that was kept.
        stopped: Why training ended: all epochs, patience, or interrupted.
        losses: Losses on queries that were used for nothing else: of the imputation (best), of the untrained language
            model (untrained) and of the click rate (constant).
        history: The validations of the language model.
        folder: The folder that was written.
    """

    kind: Literal["text", "features"]
    pairs: int
    impressions: int
    clicks: int
    without_features: int
    ranker: str | None
    encoder: CrossEncoder | None
    trained: bool
    best: int | None
    stopped: str | None
    losses: dict[str, float]
    history: tuple[TextRecord, ...]
    folder: Path

    def tables(self) -> list[Table]:
        """Return what it was fitted to, and the losses."""
        rows = [
            ["pairs", f"{self.pairs:,}"],
            ["impressions as first results", f"{self.impressions:,}"],
            ["click rate", f"{self.clicks / max(self.impressions, 1):.3f}"],
        ]
        if self.without_features:
            rows.append(["pairs without features, not used", f"{self.without_features:,}"])
        if self.trained and self.best is not None:
            rows.append([f"best {'epoch' if self.kind == 'features' else 'step'}", f"{self.best} ({self.stopped})"])
        tables = [Table("", ["fitted to", ""], rows)]
        if np.isfinite(self.losses["best"]):
            names = {"best": "imputation", "untrained": "untrained", "constant": "click rate alone"}
            losses = [[names[name], f"{loss:.4f}"] for name, loss in self.losses.items()]
            tables.append(Table("", ["loss on queries used for nothing else", ""], losses))
        return tables

    @property
    def warning(self) -> str | None:
        """Why the imputation should not be used, if it is not better than the click rate alone."""
        if not self.losses["best"] >= self.losses["constant"]:
            return None
        return "warning: it is not better than the click rate alone: randomise the first result of more searches"


@final
@dataclass(frozen=True)
class ImputedPairs:
    """Predicted relevance, which is in a file.

    Attributes:
        pairs: Number of pairs.
        mean: Mean predicted relevance.
        file: The file that was written.
    """

    pairs: int
    mean: float
    file: Path

    def tables(self) -> list[Table]:
        """Return the counts."""
        return [Table("", ["imputation", ""], [["pairs", f"{self.pairs:,}"], ["mean", f"{self.mean:.4f}"]])]


@final
class TextSource:
    """An imputation by the texts in two files.

    Args:
        queries: the texts of the queries.
        documents: the texts of the documents.
        settings: of the encoder and of training.
        note: called with messages about the training.
        progress: called after each step.
    """

    def __init__(
        self,
        queries: Path,
        documents: Path,
        *,
        settings: TextImputationSettings | None = None,
        note: Callable[[str], None] = lambda _: None,
        progress: Progress = no_progress,
    ) -> None:
        self.texts: tuple[Texts, Texts] = read_texts(queries), read_texts(documents)
        self.settings = TextImputationSettings() if settings is None else settings
        self.note, self.progress = note, progress
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
            progress=self.progress,
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
        model: the folder of a trained ranker, which is then only calibrated.
        settings: of training.
    """

    def __init__(
        self, features: Path, *, model: Path | None = None, settings: FeatureImputationSettings | None = None
    ) -> None:
        self.lists: Lists = read_features(features)
        self.settings = FeatureImputationSettings() if settings is None else settings
        self.model = None if model is None else Model.load(model)

    def fit(self, slot: FirstSlot) -> FittedFeatures:
        """Train a ranker on first-slot clicks, or calibrate the one that is there."""
        return fit_features(slot, self.lists, settings=self.settings, model=self.model, show=False)

    def load(self, folder: Path) -> FeatureImputation:
        """What was saved there, over these features."""
        return FeatureImputation.load(folder, lists=self.lists)


Source = TextSource | FeatureSource


def open_source(
    files: SourceFiles,
    *,
    settings: ImputeSettings | None = None,
    note: Callable[[str], None] = lambda _: None,
    progress: Progress = no_progress,
) -> Source:
    """Return the source of an imputation: texts or features.

    Args:
        files: The files to read.
        settings: Settings of both kinds.
        note: Receives messages for the user.
        progress: Called after each training step.
    """
    settings = settings or ImputeSettings()
    queries, documents, features = files.queries, files.documents, files.features
    if features is not None:
        if queries is not None or documents is not None:
            raise SettingError("features", str(features), "not be given with --queries and --documents")
        if features.is_dir():
            _update(features, note)
        return FeatureSource(features, model=settings.model, settings=settings.feature)
    if queries is None or documents is None:
        raise SettingError("queries", None, "be given with --documents, or else --features")
    if settings.model is not None:
        raise SettingError("model", str(settings.model), "be given with --features only")
    check_installed("an imputation by texts")
    return TextSource(queries, documents, settings=settings.text, note=note, progress=progress)


def train_imputation(
    clicks: Path, source: Source, out: Path, *, note: Callable[[str], None] = lambda _: None
) -> ImputationSummary:
    """Fit an imputation to first-slot clicks, and save it.

    Args:
        clicks: a table of query_id, document_id, clicks, impressions, or the folder of an ingested log.
        source: of texts or of features.
        out: the folder for the imputation.
        note: Receives messages for the user.
    """
    slot = _slot(clicks, note)
    done = source.fit(slot)
    done.imputation.save(out)
    text = None if isinstance(done, FittedFeatures) else done.fitted
    ranked = done.fitted if isinstance(done, FittedFeatures) else None
    return ImputationSummary(
        kind="features" if isinstance(done, FittedFeatures) else "text",
        pairs=len(slot),
        impressions=int(slot.impressions.sum()),
        clicks=int(slot.clicks.sum()),
        without_features=done.without_features if isinstance(done, FittedFeatures) else 0,
        ranker=done.imputation.model.ranker.name if isinstance(done, FittedFeatures) else None,
        encoder=None if text is None else text.network.settings,
        trained=ranked is not None if text is None else text.network.residual,
        best=text.best_step if text is not None else None if ranked is None else ranked.best_epoch,
        stopped=text.stopped if text is not None else None if ranked is None else ranked.stopped,
        losses=done.losses,
        history=() if text is None else tuple(text.history),
        folder=out,
    )


def apply_imputation(folder: Path, source: Source, pairs: Path, out: Path) -> ImputedPairs:
    """Predict the relevance of every pair of a table; write query_id, document_id, imputation to a file."""
    check_suffix(out)
    return _written(out, read_pairs(pairs), source.load(folder).impute)


def cross_impute(
    clicks: Path,
    source: Source,
    pairs: Path,
    out: Path,
    *,
    folds: int,
    seed: int,
    note: Callable[[str], None] = lambda _: None,
) -> ImputedPairs:
    """The same, each query by an imputation that was fitted to the clicks of other queries only."""
    check_suffix(out)
    slot, ids = _slot(clicks, note), read_pairs(pairs)

    def fit(part: FirstSlot) -> Imputation:
        return source.fit(part).imputation

    return _written(out, ids, lambda *wanted: cross_fit(slot, *wanted, fit=fit, folds=folds, seed=seed))


def _slot(clicks: Path, note: Callable[[str], None]) -> FirstSlot:
    if clicks.is_dir():
        _update(clicks, note)
    return read_slot(clicks)


def _update(log: Path, note: Callable[[str], None]) -> None:
    """Update the sessions of a log."""
    from clickprism.log.sessions import update_sessions
    from clickprism.log.store import LogStore

    store = LogStore.open(log, note=note)
    with store.write() as writer:
        update_sessions(store, writer.engine)


def _written(out: Path, ids: tuple[Text, Text], impute: Callable[[Text, Text], Float64]) -> ImputedPairs:
    values = impute(*ids)
    write_rows(out, dict(zip((*PAIR, "imputation"), (*ids, values), strict=True)))
    return ImputedPairs(len(values), float(values.mean()), out)
