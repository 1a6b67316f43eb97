"""Score files with a bundle: LETOR text, Parquet (in parts), CSV, TSV or JSON lines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import numpy as np

from clickprism._util.tables import Table
from clickprism.errors import DataError
from clickprism.serve.bundle.bundle import Bundle
from clickprism.serve.scoring.scorer import Candidates, Scorer, open_scorer
from clickprism.types import Float32

IDS: Final = ("query_id", "document_id")
TABLES: Final = {
    ".parquet": "read_parquet(?)",
    ".csv": "read_csv(?, header = true, all_varchar = true)",
    ".tsv": "read_csv(?, header = true, all_varchar = true)",
    ".jsonl": "read_json(?, format = 'newline_delimited')",
}
"""What DuckDB reads a kind of table with."""
ROWS: Final = 65_536
Block: TypeAlias = tuple[dict[str, Any], Candidates]  # the ids of rows of a file, and what is scored


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
    from clickprism.relevance.pair_files import check_suffix, write_rows

    start = time.perf_counter()
    check_suffix(out)
    scorer = open_scorer(bundle, threads=threads)
    if "texts" in scorer.needs:
        raise DataError("the ranker reads texts, which files of features do not have", file=file)
    ids: dict[str, list[Any]] = {}
    scores = []
    for named, candidates in _blocks(file, scorer, whole=bundle.manifest.within_list):
        scores.append(scorer.score(candidates).scores)
        for name, values in named.items():
            ids.setdefault(name, []).append(values)
    if not scores:
        raise DataError("has no row to score", file=file)
    columns: dict[str, Any] = {name: np.concatenate(parts) for name, parts in ids.items()}
    columns["score"] = np.concatenate(scores)
    write_rows(out, columns, spreadsheet_safe=spreadsheet_safe)
    seconds = round(time.perf_counter() - start, 3)
    return ScoredFile(bundle.manifest.name, bundle.version, len(columns["score"]), seconds, out)


def _blocks(file: Path, scorer: Scorer, *, whole: bool) -> Iterator[Block]:
    if not file.is_file():
        raise DataError("does not exist", file=file, remedy="Name a file of LETOR text, Parquet, CSV or JSON lines")
    return _table(file, scorer, whole=whole) if file.suffix in TABLES else _letor(file, scorer)


def _letor(file: Path, scorer: Scorer) -> Iterator[Block]:
    from clickprism.data.letor import read_letor

    if scorer.click_fields:
        remedy = f"Give a table with the columns {', '.join(scorer.click_fields[:3])}, ..."
        raise DataError("is LETOR text, and the ranker takes click vectors", file=file, remedy=remedy)
    lists = read_letor(file, features=len(scorer.feature_names), missing="nan", cache=None).lists
    ids: dict[str, Any] = {"query_id": lists.query_ids[lists.list_of]}
    if lists.document_ids is not None:
        ids["document_id"] = lists.document_ids
    yield ids, Candidates(features=lists.features, offsets=lists.offsets)


def _table(file: Path, scorer: Scorer, *, whole: bool) -> Iterator[Block]:
    import duckdb

    reader, names = TABLES[file.suffix], (*scorer.feature_names, *scorer.click_fields)
    try:
        with duckdb.connect() as connection:
            header = [row[0] for row in connection.execute(f"DESCRIBE FROM {reader}", [str(file)]).fetchall()]
            _check_columns(file, scorer, header)
            ids = [name for name in IDS if name in header]
            typed = [*((name, "VARCHAR") for name in ids), *((name, "FLOAT") for name in names)]
            columns = ['"{}"::{}'.format(name.replace('"', '""'), kind) for name, kind in typed]
            found = connection.sql(f"SELECT {', '.join(columns)} FROM {reader}", params=[str(file)])  # noqa: S608
            for batch in [found.to_arrow_table()] if whole else found.to_arrow_reader(ROWS):
                values = [batch.column(place) for place in range(len(columns))]
                texts = {name: np.array(each.to_pylist()) for name, each in zip(ids, values, strict=False)}
                numbers = [each.to_numpy(zero_copy_only=False) for each in values[len(ids) :]]
                if len(batch):
                    yield _block(file, scorer, dict(zip(names, numbers, strict=True)), texts, whole=whole)
    except duckdb.Error as error:
        lines = str(error).partition("\n\n")[0].splitlines()
        problem = "; ".join(line for line in lines if not line.startswith("Original Line"))
        raise DataError(f"cannot be read ({problem})", file=file, remedy="Correct the file") from None


def _check_columns(file: Path, scorer: Scorer, header: Any) -> None:
    missing = [name for name in (*scorer.feature_names, *scorer.click_fields) if name not in set(header)]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        remedy = f"Its columns are {', '.join(map(str, list(header)[:8]))}, ...; the bundle names what it needs"
        raise DataError(f"has no column {missing[0]!r}{more}", file=file, remedy=remedy)


def _block(file: Path, scorer: Scorer, numbers: dict[str, Float32], ids: dict[str, Any], *, whole: bool) -> Block:
    features, clicks = (
        np.stack([numbers[name] for name in names], axis=1) if names else None
        for names in (scorer.feature_names, scorer.click_fields)
    )
    offsets = None
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
