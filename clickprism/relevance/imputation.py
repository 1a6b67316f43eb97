"""Imputation: predict the relevance of a pair without its own clicks (Zou et al. 2022, §4).

An imputation returns the click probability c_1 at position 1 of any pair. It learns from clicks on randomised first
results, which have no position bias. `TextImputation` reads the texts of query and document; `FeatureImputation` uses
any ranker on features.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, final

import numpy as np

from clickprism._util.files import sha256
from clickprism._util.manifest import Manifest
from clickprism._util.progress import Progress, no_progress
from clickprism._util.tables import Table
from clickprism.data.normalise import Kind
from clickprism.data.normalise import fit as fit_normaliser
from clickprism.data.texts import Texts, read_texts
from clickprism.errors import DataError, SettingError
from clickprism.model import Model
from clickprism.rankers import RANKERS
from clickprism.rankers.language_model import CrossEncoder, check_installed
from clickprism.relevance.pair_files import check_suffix, read_features, read_pairs, read_slot, write_rows
from clickprism.relevance.pairs import PAIR, FirstSlot, distinct_pairs, find_pairs
from clickprism.settings import build, check_fields, choose, plain, read_values
from clickprism.training.calibration import Calibration, log_loss, log_odds
from clickprism.training.settings import FitSettings, Fitted, Validation
from clickprism.training.split import CHOOSE, MEASURE, TRAIN, split_queries
from clickprism.training.text_settings import TextFitSettings
from clickprism.types import Clicks, Float64, Int64, Lists, Text

if TYPE_CHECKING:
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork
    from clickprism.rankers.prior import Prior
    from clickprism.rankers.text_tokens import Pairs

FORMAT: Final = 2
FILES: Final = re.compile(r"(network|config|tokenizer|about|corpus|untuned)-[0-9a-f]{16}\.(safetensors|json)")
FIT: Final = "Name a folder that was written by: clickprism relevance impute fit"
MANIFEST: Final = Manifest("imputation.json", FILES, "the manifest of an imputation", FIT)
SMALL: Final = 1e-6
HELD_OUT: Final = 0.1  # share of the queries that choose the best epoch and calibrate an imputation by features
MEASURED: Final = 0.1  # share of the queries on which only its final loss is measured
MOST_IMPRESSIONS: Final = 50  # maximum number of impressions that a pair counts for, at its own click rate
LOSSES: Final = {"best": "imputation", "untrained": "untrained", "constant": "click rate alone"}


class Imputation(Protocol):
    """Anything that predicts the relevance of pairs."""

    def impute(self, queries: Sequence[str] | Text, documents: Sequence[str] | Text) -> Float64:
        """Return the click probability at position 1 of each pair, given the ids of both, in (0, 1), [pairs]."""
        ...


@final
class TextImputation:
    """A cross-encoder over the texts of queries and documents, fine-tuned by `fit_imputation`."""

    def __init__(self, network: CrossEncoderNetwork, queries: Texts, documents: Texts) -> None:
        self.network, self.queries, self.documents = network, queries, documents

    def impute(self, queries: Sequence[str] | Text, documents: Sequence[str] | Text) -> Float64:
        """Return the click probability at position 1, [pairs]; each distinct pair is read once."""
        from clickprism.rankers.cross_encoder import probabilities

        query_ids, document_ids = (np.asarray(ids, dtype=np.str_) for ids in (queries, documents))
        first, pair = distinct_pairs(query_ids, document_ids)
        pairs = pairs_of(self.network, self.queries, self.documents, query_ids[first], document_ids[first])
        return probabilities(self.network.odds(pairs))[pair]

    def save(self, folder: Path | str) -> None:
        """Write the network, its language model and tokenizer into a folder; the texts are not saved."""
        about = {"format": FORMAT, "kind": "text", "encoder": plain(self.network.settings)}
        MANIFEST.save(Path(folder), about, self.network.files())

    @classmethod
    def load(cls, folder: Path | str, *, queries: Texts, documents: Texts) -> TextImputation:
        """Read what `save` wrote; every file is checked against its hash, and no code in it is run."""
        return cls(read_network(folder), queries, documents)


def read_network(folder: Path | str) -> CrossEncoderNetwork:
    """Read the cross-encoder of a saved imputation by texts; no code in its files is run."""
    from clickprism.rankers.cross_encoder import CrossEncoderNetwork

    def read(about: dict[str, Any], contents: dict[str, tuple[Path, bytes]]) -> CrossEncoderNetwork:
        _check_kind(about, "text", Path(folder))
        settings = build(CrossEncoder, about["encoder"], path="encoder")
        files = {f"{stem}{path.suffix}": content for stem, (path, content) in contents.items()}
        return CrossEncoderNetwork.of_files(settings, files)

    return MANIFEST.load(Path(folder), FORMAT, read)


def pairs_of(
    network: CrossEncoderNetwork, queries: Texts, documents: Texts, query_ids: Text, document_ids: Text
) -> Pairs:
    """Return the tokens of pairs, given their ids; only texts that occur are tokenised."""
    sides = []
    for texts, ids, what in ((queries, query_ids, "query"), (documents, document_ids, "document")):
        used, rows = np.unique(texts.rows(ids, what=what), return_inverse=True)
        sides.append(([texts.texts[row] for row in used.tolist()], rows.astype(np.int64)))
    (words, rows), (others, other_rows) = sides
    return network.pairs_of_rows(words, others, rows, other_rows)


@final
@dataclass(frozen=True, eq=False)
class FeatureImputation:
    """Any ranker on the features of pairs, its scores calibrated by clicks on randomised first results."""

    model: Model  # A ranker, trained by any method
    lists: Lists  # Features of every pair to impute, with document ids
    calibration: Calibration  # From scores to log odds

    @classmethod
    def fit(cls, model: Model, lists: Lists, slot: FirstSlot) -> FeatureImputation:
        """Calibrate a ranker by clicks on randomised first results; pairs without features are ignored."""
        known, rows = cls.known(lists, slot)
        return cls(model, lists, Calibration.fit(model.score(lists)[rows], slot.clicks[known], slot.impressions[known]))

    def impute(self, queries: Sequence[str] | Text, documents: Sequence[str] | Text) -> Float64:
        """Return the click probability at position 1, [pairs]; a pair without features is an error."""
        from scipy.special import expit

        query_ids, document_ids = (np.asarray(ids, dtype=np.str_) for ids in (queries, documents))
        rows = self.rows(self.lists, query_ids, document_ids)
        if (rows < 0).any():
            first = int(np.argmax(rows < 0))
            named = f"{str(query_ids[first])!r}, {str(document_ids[first])!r}"
            raise DataError(f"{int((rows < 0).sum()):,} pairs have no features, first {named}")
        return np.clip(expit(self.calibration(self.model.score(self.lists)[rows])), SMALL, 1 - SMALL)

    def save(self, folder: Path | str) -> None:
        """Write the ranker and its calibration into a folder; the features are not saved."""
        model = Path(folder) / "model"
        self.model.save(model)
        about = {"format": FORMAT, "kind": "features", "calibration": plain(self.calibration)}
        MANIFEST.save(Path(folder), about | {"model": sha256(model / "model.json")}, {})

    @classmethod
    def load(cls, folder: Path | str, *, lists: Lists) -> FeatureImputation:
        """Read what `save` wrote; every file is checked against its hash, and no code in it is run."""
        folder = Path(folder)

        def read(about: dict[str, Any], _: dict[str, tuple[Path, bytes]]) -> FeatureImputation:
            _check_kind(about, "features", folder)
            if about["model"] != sha256(folder / "model" / "model.json"):
                raise DataError("is not the model of this imputation", file=folder / "model", remedy="Save it again")
            calibration = build(Calibration, about["calibration"], path="calibration")
            return cls(Model.load(folder / "model"), lists, calibration)

        return MANIFEST.load(folder, FORMAT, read)

    @staticmethod
    def rows(lists: Lists, query_ids: Text, document_ids: Text) -> Int64:
        """Return the row of each pair in the lists, -1 if it has none, [pairs]."""
        if lists.document_ids is None:
            raise DataError("the lists have no document ids", remedy="Give lists with document ids")
        return find_pairs((lists.query_ids[lists.list_of], lists.document_ids), (query_ids, document_ids))

    @classmethod
    def known(cls, lists: Lists, slot: FirstSlot) -> tuple[Int64, Int64]:
        """Return the pairs of `slot` that have features, and their rows in the lists, in the order of those rows."""
        rows = cls.rows(lists, slot.query_ids, slot.document_ids)
        known = np.flatnonzero(rows >= 0)
        if not len(known):
            remedy = "The ids of queries and documents must be those of the features"
            raise DataError("none of the pairs with randomised first results has features", remedy=remedy)
        known = known[np.argsort(rows[known], kind="stable")]
        return known, rows[known]


def _check_kind(about: dict[str, Any], kind: str, folder: Path) -> None:
    if about["kind"] != kind:
        problem = f"is an imputation of kind {about['kind']!r}, not {kind!r}"
        remedy = "Give --features for one, --queries and --documents for the other"
        raise DataError(problem, file=folder / MANIFEST.name, remedy=remedy)


@final
@dataclass(frozen=True, kw_only=True)
class ImputationSummary:
    """What an imputation was fitted to, and how good it is."""

    kind: Literal["text", "features"]  # What it reads: texts or features
    pairs: int  # Number of pairs with randomised first results
    impressions: int  # Number of impressions of these pairs as randomised first results
    clicks: int  # Number of clicks on them
    # Epoch of the ranker, or step of the language model, that was kept; None if only weights of scores were fitted
    best: int | None
    stopped: str | None  # Why training ended: all epochs, patience, or interrupted; None if there was none
    # Losses on queries that were used for nothing else: of the imputation (best), of the untrained language model
    # (untrained) and of the click rate (constant); nan without such queries
    losses: dict[str, float]
    without_features: int = 0  # Number of pairs without features, which were not used
    folder: Path | None = None  # The folder that was written, if any

    @classmethod
    def of(cls, kind: Literal["text", "features"], slot: FirstSlot, **values: Any) -> ImputationSummary:
        """Return the summary of an imputation that was fitted to `slot`."""
        impressions, clicks = int(slot.impressions.sum()), int(slot.clicks.sum())
        return cls(kind=kind, pairs=len(slot), impressions=impressions, clicks=clicks, **values)

    def tables(self) -> list[Table]:
        """Return tables of the training data and of the losses."""
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
            losses = [[LOSSES[name], f"{loss:.4f}"] for name, loss in self.losses.items()]
            tables.append(Table("", ["loss on queries used for nothing else", ""], losses))
        return tables

    @property
    def warning(self) -> str | None:
        """Return why the imputation should not be used yet; None if it is better than the click rate alone."""
        if np.isnan(self.losses["best"]):
            return "note: no query was left to measure how good the imputation is. Use the clicks of more queries"
        if self.losses["best"] < self.losses["constant"]:
            return None
        return "warning: it is not better than the click rate alone. Randomise the first result of more searches"


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
) -> tuple[TextImputation, ImputationSummary]:
    """Fine-tune a cross-encoder on clicks on randomised first results.

    Args:
        slot: The clicks.
        queries: Text of every query, also of those to impute later.
        documents: Text of every document.
        encoder: The language model, and how it reads a pair.
        settings: Settings of the training.
        known: Prior of an imputation over the same texts, which is used again.
        note: Receives messages about the training, see `fit_text`.
        progress: Called after each step.
    """
    from clickprism.training.text import fit_text

    settings = TextFitSettings() if settings is None else settings
    network = (CrossEncoder() if encoder is None else encoder).build(documents, known=known)
    pairs = pairs_of(network, queries, documents, slot.query_ids, slot.document_ids)
    fitted = fit_text(network, pairs, slot.clicks, slot.impressions, settings=settings, note=note, progress=progress)
    best = fitted.best_step if network.residual else None
    losses = {"best": fitted.best, "untrained": fitted.untrained, "constant": fitted.constant}
    summary = ImputationSummary.of("text", slot, best=best, stopped=fitted.stopped, losses=losses)
    return TextImputation(network, queries, documents), summary


@final
@dataclass(frozen=True, kw_only=True)
class FeatureImputationSettings:
    """How an imputation by features is trained.

    Attributes:
        ranker: Ranker: its name (linear, mlp, attention or lambdamart) and its settings.
        normalise: Normalisation of the features.
        fit: How the ranker is trained.
    """

    ranker: dict[str, Any] = field(default_factory=dict)
    normalise: Kind = "standard"
    fit: FitSettings = field(
        default_factory=lambda: FitSettings(epochs=60, batch_size=256, learning_rate=0.02, patience=8)
    )

    def __post_init__(self) -> None:
        ranker = read_values(self.ranker)
        if ranker.get("name", "mlp") == "mlp":
            ranker = {"name": "mlp", "hidden": [64, 32], **ranker}
        object.__setattr__(self, "ranker", ranker)
        choose(RANKERS, self.ranker, path="ranker")


def fit_features(
    slot: FirstSlot, lists: Lists, *, settings: FeatureImputationSettings | None = None
) -> tuple[FeatureImputation, ImputationSummary]:
    """Train a ranker on features and clicks on randomised first results, and calibrate its scores.

    Queries are split: most train, some choose the best epoch and calibrate, on some only the loss is measured. At one
    position there is no position bias, so the loss is plain cross entropy.

    Args:
        slot: The clicks; pairs without features are ignored.
        lists: The features, with document ids.
        settings: Settings of the training.
    """
    settings = FeatureImputationSettings() if settings is None else settings
    known, rows = FeatureImputation.known(lists, slot)
    shown = np.minimum(slot.impressions[known], MOST_IMPRESSIONS)
    clicks = np.rint(slot.clicks[known] * shown / slot.impressions[known]).astype(np.int64)
    parts = split_queries(lists.list_of[rows], (HELD_OUT, MEASURED), seed=settings.fit.seed)
    last, calibrating = parts == MEASURE, parts == CHOOSE if (parts == CHOOSE).any() else parts != MEASURE
    normaliser = fit_normaliser(settings.normalise, lists)
    fitted = _trained(normaliser(lists), rows, clicks, shown, parts, settings=settings)
    model = fitted.model.with_normaliser(normaliser)
    scores = model.score(lists)[rows]
    calibration = Calibration.fit(scores[calibrating], clicks[calibrating], shown[calibrating])
    losses = {"best": float("nan"), "constant": float("nan")}
    if last.any():
        level = np.full(int(last.sum()), log_odds(clicks[~last], shown[~last]))
        odds = {"best": calibration(scores[last]), "constant": level}
        losses = {name: log_loss(each, clicks[last], shown[last]) for name, each in odds.items()}
    summary = ImputationSummary.of(
        "features",
        slot,
        best=fitted.best_epoch,
        stopped=fitted.stopped,
        losses=losses,
        without_features=len(slot) - len(known),
    )
    return FeatureImputation(model, lists, calibration), summary


def _trained(
    lists: Lists, rows: Int64, clicks: Int64, shown: Int64, parts: Int64, *, settings: FeatureImputationSettings
) -> Fitted:
    """Train the ranker; the likelihood of held-out clicks chooses the best epoch."""
    from clickprism.debias.position_based import PositionAware
    from clickprism.training.fit import fit

    train, held_out = np.flatnonzero(parts == TRAIN), np.flatnonzero(parts == CHOOSE)

    def likelihood(score: Callable[[Lists], Float64]) -> float:
        scores = score(lists)
        odds = Calibration.fit(scores[rows[train]], clicks[train], shown[train])(scores[rows[held_out]])
        return -log_loss(odds, clicks[held_out], shown[held_out])

    single = np.ones(len(train), np.int32)
    return fit(
        Clicks(lists, np.arange(len(train) + 1), rows[train], single, clicks[train], shown[train]),
        method=PositionAware(),
        ranker=choose(RANKERS, settings.ranker, path="ranker"),
        settings=settings.fit,
        validation=Validation("the likelihood of held-out clicks", likelihood) if len(held_out) else None,
        show=False,
    )


def cross_fit(
    slot: FirstSlot,
    query_ids: Text,
    document_ids: Text,
    *,
    fit: Callable[[FirstSlot], Imputation],
    folds: int = 5,
    seed: int = 0,
) -> Float64:
    """Return the imputation of pairs, each by a model that was fitted without the clicks of its query, [pairs].

    Clicks that both train the imputation and enter the estimate of the same pair would count twice. Queries are split
    into folds, and each fold is imputed by a model of the other folds.

    Args:
        slot: The clicks to learn from.
        query_ids: Query ids of the pairs to impute.
        document_ids: Document ids of the pairs to impute.
        fit: Returns an imputation that is fitted to some clicks.
        folds: Number of folds, and of models.
        seed: Random seed of the folds.
    """
    distinct, places = np.unique(np.concatenate([slot.query_ids, query_ids]), return_inverse=True)
    known = np.isin(distinct, slot.query_ids)
    if not 2 <= folds <= known.sum():
        raise SettingError("folds", folds, f"be at most the number of queries with clicks, {known.sum()}, at least 2")
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
        seed: Random seed.
    """

    text: TextImputationSettings = field(default_factory=TextImputationSettings)
    feature: FeatureImputationSettings = field(default_factory=FeatureImputationSettings)
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, seed=(0, 2**32 - 1))
        for name in ("text", "feature"):
            part: Any = getattr(self, name)
            if part.fit.seed == 0:
                object.__setattr__(self, name, replace(part, fit=replace(part.fit, seed=self.seed)))


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
        self._prior: Prior | None = None  # of the texts, computed by the first fit
        queries, documents, features = files.queries, files.documents, files.features
        if features is not None:
            if queries is not None or documents is not None:
                raise SettingError("features", str(features), "not be given with --queries and --documents")
            self._read = read_features(_updated(features, note))
            return
        if queries is None or documents is None:
            raise SettingError("queries", None, "be given with --documents, or else --features")
        check_installed("an imputation by texts")
        self._read = read_texts(queries), read_texts(documents)

    def fit(self, slot: FirstSlot) -> tuple[TextImputation | FeatureImputation, ImputationSummary]:
        """Fit an imputation to clicks on randomised first results."""
        if isinstance(self._read, Lists):
            return fit_features(slot, self._read, settings=self.settings.feature)
        text = self.settings.text
        fitted, summary = fit_imputation(
            slot,
            *self._read,
            encoder=text.encoder,
            settings=text.fit,
            known=self._prior,
            note=self.note,
            progress=self.progress,
        )
        self._prior = fitted.network.prior
        return fitted, summary

    def load(self, folder: Path) -> Imputation:
        """Read a saved imputation from a folder, to be used with these texts or features."""
        if isinstance(self._read, Lists):
            return FeatureImputation.load(folder, lists=self._read)
        return TextImputation.load(folder, queries=self._read[0], documents=self._read[1])


def _updated(path: Path, note: Callable[[str], None]) -> Path:
    """Return the path; if it is an ingested log, update its sessions first."""
    from clickprism.log.sessions import update_sessions
    from clickprism.log.store import LogStore

    if path.is_dir():
        store = LogStore.open(path, note=note)
        with store.write() as writer:
            update_sessions(store, writer.engine)
    return path


def train_imputation(clicks: Path, source: Source, out: Path) -> ImputationSummary:
    """Fit an imputation to clicks on randomised first results, a table or an ingested log, and save it to a folder."""
    imputation, summary = source.fit(read_slot(_updated(clicks, source.note)))
    imputation.save(out)
    return replace(summary, folder=out)


@final
@dataclass(frozen=True)
class ImputedPairs:
    """Predicted relevance, which is in a file: the number of pairs, and the mean."""

    pairs: int
    mean: float
    file: Path

    def tables(self) -> list[Table]:
        """Return the counts."""
        return [Table("", ["imputation", ""], [["pairs", f"{self.pairs:,}"], ["mean", f"{self.mean:.4f}"]])]


def apply_imputation(folder: Path, source: Source, pairs: Path, out: Path) -> ImputedPairs:
    """Predict the relevance of every pair of a table; write query_id, document_id, imputation to a file."""
    check_suffix(out)
    return _write_imputed(out, read_pairs(pairs), source.load(folder).impute)


def cross_impute(clicks: Path, source: Source, pairs: Path, out: Path, *, folds: int) -> ImputedPairs:
    """Predict the relevance of every pair of a table, each query by an imputation fitted to other queries."""
    check_suffix(out)
    slot, ids, seed = read_slot(_updated(clicks, source.note)), read_pairs(pairs), source.settings.seed

    def fit(part: FirstSlot) -> Imputation:
        return source.fit(part)[0]

    return _write_imputed(out, ids, lambda *wanted: cross_fit(slot, *wanted, fit=fit, folds=folds, seed=seed))


def _write_imputed(out: Path, ids: tuple[Text, Text], impute: Callable[[Text, Text], Float64]) -> ImputedPairs:
    values = impute(*ids)
    write_rows(out, dict(zip((*PAIR, "imputation"), (*ids, values), strict=True)))
    return ImputedPairs(len(values), float(values.mean()), out)
