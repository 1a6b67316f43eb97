"""Fit imputations to clicks and texts, or features, in files, and write their predictions."""

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
from clickprism.rankers.language_model import CrossEncoder, check_installed
from clickprism.relevance.imputation import (
    FeatureImputation,
    FeatureImputationSettings,
    FittedImputation,
    Imputation,
    TextImputation,
    cross_fit,
    fit_features,
    fit_imputation,
)
from clickprism.relevance.pair_files import check_suffix, read_features, read_pairs, read_slot, write_rows
from clickprism.relevance.pairs import PAIR, FirstSlot
from clickprism.training.text_settings import TextFitSettings
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
        pairs: Number of pairs with randomised first results.
        impressions: Number of impressions of these pairs as randomised first results.
        clicks: Number of clicks on them.
        best: Epoch of the ranker, or step of the language model, that was kept; None if only a scale was fitted.
        stopped: Why training ended: all epochs, patience, or interrupted; None if there was none.
        losses: Losses on queries that were used for nothing else: of the imputation (best), of the untrained language
            model (untrained) and of the click rate (constant).
        without_features: Number of pairs without features, which were not used.
        folder: The folder that was written.
    """

    kind: Literal["text", "features"]
    pairs: int
    impressions: int
    clicks: int
    best: int | None
    stopped: str | None
    losses: dict[str, float]
    without_features: int
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
        if self.best is not None:
            rows.append([f"best {'epoch' if self.kind == 'features' else 'step'}", f"{self.best} ({self.stopped})"])
        tables = [Table("", ["fitted to", ""], rows)]
        if np.isfinite(self.losses["best"]):
            names = {"best": "imputation", "untrained": "untrained", "constant": "click rate alone"}
            losses = [[names[name], f"{loss:.4f}"] for name, loss in self.losses.items()]
            tables.append(Table("", ["loss on queries used for nothing else", ""], losses))
        return tables

    @property
    def warning(self) -> str | None:
        """Return why the imputation should not be used; None if it is better than the click rate alone."""
        if not self.losses["best"] >= self.losses["constant"]:
            return None
        return "warning: it is not better than the click rate alone. Randomise the first result of more searches"


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
class Source:
    """The texts or the features that an imputation reads, from files.

    Args:
        files: The files to read.
        settings: Settings of both kinds.
        note: Receives messages for the user.
        progress: Called after each training step.
    """

    def __init__(
        self,
        files: SourceFiles,
        *,
        settings: ImputeSettings | None = None,
        note: Callable[[str], None] = lambda _: None,
        progress: Progress = no_progress,
    ) -> None:
        self.settings, self.note, self.progress = settings or ImputeSettings(), note, progress
        self._read: Lists | tuple[Texts, Texts]
        self._model: Model | None = None
        self._prior: Prior | None = None  # of the texts, computed by the first fit
        queries, documents, features, model = files.queries, files.documents, files.features, self.settings.model
        if features is not None:
            if queries is not None or documents is not None:
                raise SettingError("features", str(features), "not be given with --queries and --documents")
            if features.is_dir():
                _update(features, note)
            self._read = read_features(features)
            self._model = None if model is None else Model.load(model)
            return
        if queries is None or documents is None:
            raise SettingError("queries", None, "be given with --documents, or else --features")
        if model is not None:
            raise SettingError("model", str(model), "be given with --features only")
        check_installed("an imputation by texts")
        self._read = read_texts(queries), read_texts(documents)

    def fit(self, slot: FirstSlot) -> FittedImputation:
        """Fit an imputation to clicks on randomised first results."""
        if isinstance(self._read, Lists):
            return fit_features(slot, self._read, settings=self.settings.feature, model=self._model, show=False)
        text = self.settings.text
        fitted = fit_imputation(
            slot,
            *self._read,
            encoder=text.encoder,
            settings=text.fit,
            known=self._prior,
            note=self.note,
            progress=self.progress,
        )
        if isinstance(fitted.imputation, TextImputation):
            self._prior = fitted.imputation.network.prior
        return fitted

    def load(self, folder: Path) -> Imputation:
        """Read a saved imputation from a folder, to be used with these texts or features."""
        if isinstance(self._read, Lists):
            return FeatureImputation.load(folder, lists=self._read)
        return TextImputation.load(folder, queries=self._read[0], documents=self._read[1])


def train_imputation(clicks: Path, source: Source, out: Path) -> ImputationSummary:
    """Fit an imputation to clicks on randomised first results, and save it.

    Args:
        clicks: Table of query_id, document_id, clicks, impressions, or the folder of an ingested log.
        source: Texts or features.
        out: Folder for the imputation.
    """
    slot = _read_clicks(clicks, source.note)
    done = source.fit(slot)
    done.imputation.save(out)
    return ImputationSummary(
        kind="features" if isinstance(done.imputation, FeatureImputation) else "text",
        pairs=len(slot),
        impressions=int(slot.impressions.sum()),
        clicks=int(slot.clicks.sum()),
        best=done.best,
        stopped=done.stopped,
        losses=done.losses,
        without_features=done.without_features,
        folder=out,
    )


def apply_imputation(folder: Path, source: Source, pairs: Path, out: Path) -> ImputedPairs:
    """Predict the relevance of every pair of a table; write query_id, document_id, imputation to a file."""
    check_suffix(out)
    return _written(out, read_pairs(pairs), source.load(folder).impute)


def cross_impute(clicks: Path, source: Source, pairs: Path, out: Path, *, folds: int) -> ImputedPairs:
    """Predict the relevance of every pair of a table, each query by an imputation fitted to other queries."""
    check_suffix(out)
    slot, ids, seed = _read_clicks(clicks, source.note), read_pairs(pairs), source.settings.seed

    def fit(part: FirstSlot) -> Imputation:
        return source.fit(part).imputation

    return _written(out, ids, lambda *wanted: cross_fit(slot, *wanted, fit=fit, folds=folds, seed=seed))


def _read_clicks(clicks: Path, note: Callable[[str], None]) -> FirstSlot:
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
