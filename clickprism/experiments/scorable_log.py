"""Logs whose documents a model, a bundle or a file can score."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from clickprism.data.click_table import NO_TABLE, TableSettings
from clickprism.data.clicks import saved_data
from clickprism.data.logged import ONLY_CLICKS, Logged
from clickprism.errors import DataError
from clickprism.experiments.bundle import model_folder
from clickprism.experiments.data import load_data, read_data
from clickprism.experiments.settings import DataSettings
from clickprism.log.open_log import READ, ReadSettings, open_source, read_logged
from clickprism.model import Model
from clickprism.relevance.pairs import find_pairs
from clickprism.serve.bundle.bundle import MANIFEST
from clickprism.settings import build
from clickprism.types import Float64, Lists

QUERY, DOCUMENT, SCORE = ("query_id", "query"), ("document_id", "document"), "score"


@final
@dataclass(frozen=True, eq=False)
class ScorableLog:
    """A log whose documents models can score.

    Attributes:
        logged: The log.
        lists: Its documents with raw features, in the order of the log.
    """

    logged: Logged
    lists: Lists

    def scores(self, path: Path) -> Float64:
        """Return the scores of all documents by a run, a model or a bundle, [documents]."""
        if not self.logged.has_features:
            raise DataError(
                "the documents of the log have no features to score",
                remedy="Score them elsewhere and give the file: --scores FILE with query, document, score",
            )
        if (path / MANIFEST).is_file():
            return self._by_bundle(path)
        model = Model.load(model_folder(path))
        _check_width(path, model.features, self.lists.features.shape[1])
        return model.score(self.lists)

    def _by_bundle(self, path: Path) -> Float64:
        from clickprism.serve.bundle.bundle import Bundle
        from clickprism.serve.scoring.scorer import Candidates, open_scorer

        scorer = open_scorer(Bundle.load(path))
        if scorer.needs != {"features"}:
            needs = " and ".join(sorted(scorer.needs - {"features"}))
            remedy = "Score them with the service, and give the file: --scores FILE"
            raise DataError(f"is a bundle that needs {needs} of each document", file=path, remedy=remedy)
        features, names = self.lists.features, self.logged.feature_names
        if names and set(scorer.feature_names) <= set(names):
            features = features[:, [names.index(name) for name in scorer.feature_names]]
        _check_width(path, len(scorer.feature_names), features.shape[1])
        return scorer.score(Candidates(features=features, offsets=self.lists.offsets)).scores

    def scores_in(self, path: Path, *, note: Callable[[str], None] = lambda _: None) -> Float64:
        """Return the scores of a file with query, document and score, [documents]; documents without one rank last."""
        from clickprism.data.tables import read_table

        if self.lists.document_ids is None:
            raise DataError("the log does not name its documents, so a file cannot score them", remedy="Name a model")
        table = read_table(
            path, lambda name: "names" if name in QUERY + DOCUMENT else "numbers" if name == SCORE else "none"
        )
        columns = [next((name for name in each if name in table.header), "") for each in (QUERY, DOCUMENT, (SCORE,))]
        if not all(columns):
            has = ", ".join(table.header) or "nothing"
            raise DataError(f"needs the columns query, document and score, and has {has}", file=path)
        known = (table.names[columns[0]][::-1], table.names[columns[1]][::-1])  # the last score of a document counts
        rows = find_pairs(known, (self.lists.query_ids[self.lists.list_of], self.lists.document_ids))
        scores = np.append(table.numbers[SCORE][::-1], -np.inf)[rows]
        lacking = int((rows < 0).sum())
        if lacking == len(scores):
            raise DataError("has no score of any document of the log", file=path, remedy="Ids must be those of the log")
        if lacking:
            note(f"{lacking:,} of {len(scores):,} documents of the log have no score and rank last")
        return scores


def open_log(
    source: str | Path,
    *,
    settings: ReadSettings = READ,
    table: TableSettings = NO_TABLE,
    outcome: str = "click",
    columns: Collection[str] = (),
    note: Callable[[str], None] = lambda _: None,
) -> ScorableLog:
    """Read a log of any kind; the features of a simulated log are those of the data that it records.

    Args:
        source: A path, or the URL of a database.
        settings: How to read a log that is not a table.
        table: Which column of a table holds what.
        outcome: Outcome that the log is read for.
        columns: Other columns of a session file to keep for each list.
        note: Called with messages about the progress.
    """
    path, lists = Path(source), None
    data = saved_data(path) if path.suffix == ".npz" and path.is_file() else None
    if data is None:
        logged = open_source(str(source), table, outcome=outcome, settings=settings, columns=columns, note=note)
    else:
        made_on = build(DataSettings, data)
        logged = read_logged(path, lists=load_data(made_on).dataset.train.lists, settings=settings)
        lists = read_data(made_on).dataset.train.lists
    if logged.has_only_clicks and ONLY_CLICKS not in logged.notes:
        note(ONLY_CLICKS)
    return ScorableLog(logged, logged.clicks.lists if lists is None else lists)


def _check_width(path: Path, wanted: int, has: int) -> None:
    if wanted != has:
        raise DataError(f"takes {wanted} features, the documents of the log have {has}", file=path)
