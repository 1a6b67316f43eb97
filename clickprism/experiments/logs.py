"""Any log with the features of its documents, and the scores that models, bundles or files give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from clickprism.data.clicks import saved_data
from clickprism.data.logged import Logged
from clickprism.errors import DataError
from clickprism.experiments.bundle import model_folder
from clickprism.experiments.settings import DataSettings
from clickprism.log.logged import READ, ReadSettings, read_logged
from clickprism.model import Model
from clickprism.settings import build
from clickprism.types import Float64, Lists, Text

BUNDLE: Final = "manifest.json"
QUERY, DOCUMENT, SCORE = ("query_id", "query"), ("document_id", "document"), "score"


@final
@dataclass(frozen=True, eq=False)
class ValuedLog:
    """A log, and its documents with the features as models take them.

    Attributes:
        logged: the log.
        lists: its documents, raw, row by row those of the log.
    """

    logged: Logged
    lists: Lists

    def scores(self, path: Path) -> Float64:
        """The scores of all documents by a run, a model or a bundle, [documents]."""
        if not self.logged.has_features:
            raise DataError(
                "the documents of the log have no features to score them by",
                remedy="Score them elsewhere and give the file: --scores FILE with query, document, score",
            )
        if (path / BUNDLE).is_file():
            return self._by_bundle(path)
        model = Model.load(model_folder(path))
        _check_width(path, model.features, self.lists.features.shape[1])
        return model.score(self.lists)

    def _by_bundle(self, path: Path) -> Float64:
        from clickprism.serve.bundle import Bundle
        from clickprism.serve.scorer import Candidates, open_scorer

        scorer = open_scorer(Bundle.load(path))
        if scorer.needs != {"features"}:
            needs = " and ".join(sorted(scorer.needs - {"features"}))
            remedy = "Score them by the service, and give the file: --scores FILE"
            raise DataError(f"is a bundle that needs {needs} of each document", file=path, remedy=remedy)
        features, names = self.lists.features, self.logged.feature_names
        if names and set(scorer.feature_names) <= set(names):
            features = features[:, [names.index(name) for name in scorer.feature_names]]
        _check_width(path, len(scorer.feature_names), features.shape[1])
        return scorer.score(Candidates(features=features, offsets=self.lists.offsets)).scores

    def scores_in(self, path: Path, *, note: Callable[[str], None] = lambda _: None) -> Float64:
        """The scores that a file with query, document and score gives, [documents]; those it lacks rank last.

        Args:
            path: .csv, .tsv, .jsonl or .parquet, as `model score` writes it.
            note: told how many documents have no score.
        """
        from clickprism.data.tables import read_table
        from clickprism.data.vocabulary import Names

        if self.lists.document_ids is None:
            raise DataError("the log does not name its documents, so a file cannot score them", remedy="Name a model")
        table = read_table(
            path, lambda name: "names" if name in QUERY + DOCUMENT else "numbers" if name == SCORE else "none"
        )
        if table.broken:
            raise DataError(table.broken[0].reason, file=path, line=table.broken[0].line)
        columns = [next((name for name in each if name in table.columns), "") for each in (QUERY, DOCUMENT, (SCORE,))]
        if not all(columns):
            has = ", ".join(table.header) or "nothing"
            raise DataError(f"needs the columns query, document and score, and has {has}", file=path)
        query, document, score = (table.columns[name] for name in columns)
        if not isinstance(query, Names) or not isinstance(document, Names) or isinstance(score, Names):
            raise DataError("query and document must be names, score a number", file=path)
        scores = _joined(self.lists, query.texts("queries"), document.texts("documents"), score)
        lacking = int(np.isneginf(scores).sum())
        if lacking == len(scores):
            raise DataError("has no score of any document of the log", file=path, remedy="Ids must be those of the log")
        if lacking:
            note(f"{lacking:,} of {len(scores):,} documents of the log have no score, and rank last")
        return scores


def open_log(path: Path, *, settings: ReadSettings = READ, note: Callable[[str], None] = lambda _: None) -> ValuedLog:
    """Read a log of any kind; the features of a simulated log are those of the data that it records.

    Args:
        path: An ingested log, a session file or a simulated log, as `read_logged` takes it.
        settings: How to read it.
        note: Called with messages about the progress.
    """
    data = saved_data(path) if path.suffix == ".npz" and path.is_file() else None
    if data is None:
        logged = read_logged(path, settings=settings, note=note)
        return ValuedLog(logged, logged.clicks.lists)
    from clickprism.experiments.stages import load_data, load_raw

    made_on = build(DataSettings, data)
    logged = read_logged(path, lists=load_data(made_on).dataset.train.lists, settings=settings)
    return ValuedLog(logged, load_raw(made_on).train.lists)


def _check_width(path: Path, wanted: int, has: int) -> None:
    if wanted != has:
        raise DataError(f"takes {wanted} features, the documents of the log have {has}", file=path)


def _joined(lists: Lists, query: Text, document: Text, score: Float64) -> Float64:
    """The score of each document of the lists, minus infinity where there is none; of several, the last."""
    if lists.document_ids is None:
        return np.full(lists.documents, -np.inf)
    _, number = np.unique(np.concatenate([lists.query_ids, query]), return_inverse=True)
    names, name = np.unique(np.concatenate([lists.document_ids, document]), return_inverse=True)
    mine = number[: len(lists)][lists.list_of] * len(names) + name[: lists.documents]
    given = number[len(lists) :] * len(names) + name[lists.documents :]
    order = np.argsort(given, kind="stable")
    last = np.searchsorted(given[order], mine, side="right") - 1
    found = (last >= 0) & (given[order][np.maximum(last, 0)] == mine)
    return np.where(found, score[order][np.maximum(last, 0)], -np.inf)
