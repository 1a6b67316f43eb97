"""Score files with a bundle: LETOR text, or a table of CSV, TSV, JSON lines or Parquet."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import numpy as np

from clickprism._util.tables import Table, counted
from clickprism.errors import DataError
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.scoring.scorer import Candidates, Scorer, open_scorer

IDS: Final = ("query_id", "document_id")
Documents: TypeAlias = tuple[dict[str, Any], Candidates]  # the ids of the rows of a file, and what is scored


@final
@dataclass(frozen=True)
class ScoredFile:
    """What `score_file` did.

    Attributes:
        bundle: Name of the bundle.
        version: Version of the bundle.
        documents: Number of documents that were scored.
        seconds: Time that it took.
        out: File with the scores.
    """

    bundle: str
    version: str
    documents: int
    seconds: float
    out: Path

    def tables(self) -> list[Table]:
        """Return one row for each fact."""
        rows = [["bundle", f"{self.bundle}, version {self.version}"], ["documents", f"{self.documents:,}"]]
        return [Table("", ["scores", str(self.out)], [*rows, ["seconds", f"{self.seconds:.1f}"]])]


def score_file(
    bundle: Bundle, file: Path, out: Path, *, threads: int = 1, spreadsheet_safe: bool = False
) -> ScoredFile:
    """Score every document of a file and write query_id, document_id and score, in the order of the file.

    LETOR text has the features in the order of the bundle. Tables have columns with the names of the features and of
    the values of click vectors; other columns are ignored. If features are normalised within a list, the rows of a
    query must follow one another.
    """
    from clickprism.relevance.pair_files import SUFFIXES, check_suffix, write_rows

    start = time.perf_counter()
    check_suffix(out)
    scorer = open_scorer(bundle, threads=threads)
    if "texts" in scorer.needs:
        raise DataError("the ranker reads texts, which files of features do not have", file=file)
    if not file.is_file():
        raise DataError("does not exist", file=file, remedy="Name a file of LETOR text, Parquet, CSV or JSON lines")
    if file.suffix in SUFFIXES:
        ids, candidates = _table(file, scorer, whole=bundle.manifest.within_list)
    else:
        ids, candidates = _letor(file, scorer)
    if not len(candidates):
        raise DataError("has no row to score", file=file)
    scores = scorer.score(candidates).scores
    write_rows(out, {**ids, "score": scores}, spreadsheet_safe=spreadsheet_safe)
    seconds = round(time.perf_counter() - start, 3)
    return ScoredFile(bundle.manifest.name, bundle.version, len(scores), seconds, out)


def _letor(file: Path, scorer: Scorer) -> Documents:
    from clickprism.data.letor import read_letor

    if scorer.click_fields:
        remedy = f"Give a table with the columns {', '.join(scorer.click_fields[:3])}, ..."
        raise DataError("is LETOR text, and the ranker takes click vectors", file=file, remedy=remedy)
    lists = read_letor(file, features=len(scorer.feature_names), missing="nan", cache=None).lists
    ids: dict[str, Any] = {"query_id": lists.query_ids[lists.list_of]}
    if lists.document_ids is not None:
        ids["document_id"] = lists.document_ids
    return ids, Candidates(features=lists.features, offsets=lists.offsets)


def _table(file: Path, scorer: Scorer, *, whole: bool) -> Documents:
    """Return the rows of a table; if features are normalised within a list, with the lists of consecutive rows."""
    import pyarrow as pa

    from clickprism.data.tables import read_file

    read = read_file(str(file), text=lambda name: name in IDS)
    if read.broken:
        raise DataError(
            f"has {counted(read.broken, 'broken row')}, such as {read.example}", file=file, remedy="Correct it"
        )
    table = read.table
    missing = [name for name in (*scorer.feature_names, *scorer.click_fields) if name not in table.column_names]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        remedy = f"Its columns are {', '.join(table.column_names[:8])}, ...; the bundle names what it needs"
        raise DataError(f"has no column {missing[0]!r}{more}", file=file, remedy=remedy)
    ids = {name: np.array(table[name].cast(pa.string()).to_pylist()) for name in IDS if name in table.column_names}

    def matrix(names: tuple[str, ...]) -> Any:
        columns = []
        for name in names:
            try:
                columns.append(table[name].cast(pa.float32()).to_numpy())
            except pa.ArrowException as error:
                problem = f"has no number in a row of column {name!r} ({error})"
                raise DataError(problem, file=file, remedy="Correct the file") from None
        return np.stack(columns, axis=1) if columns else None

    features, clicks, offsets = matrix(scorer.feature_names), matrix(scorer.click_fields), None
    if whole:
        if "query_id" not in ids:
            remedy = "Give a column query_id: features are normalised within the list of each query"
            raise DataError("does not say the query of each row", file=file, remedy=remedy)
        queries = ids["query_id"]
        starts = np.flatnonzero(np.concatenate([[True], queries[1:] != queries[:-1]]))
        if len(np.unique(queries[starts])) < len(starts):
            raise DataError("has rows of a query apart from each other", file=file, remedy="Sort it by query_id")
        offsets = np.append(starts, len(queries)).astype(np.int64)
    return ids, Candidates(features=features, clicks=clicks, offsets=offsets)
