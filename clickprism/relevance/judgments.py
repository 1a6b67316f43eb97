"""Judgment lists: a grade for every pair of a file of estimates, and the files that other tools read.

| format | file | a row |
|---|---|---|
| table | CSV, TSV, JSON lines or Parquet, by the suffix | all columns of `judge_file` |
| workbench | body of OpenSearch's `PUT _plugins/_search_relevance/judgments` | query: docId, rating |
| quepid | CSV of Quepid: query, docid, rating | star wars,3574597,3 |
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, Final, Literal, final

import numpy as np

from clickprism._util.files import atomic_file, write_errors
from clickprism._util.tables import Table
from clickprism.data.texts import read_texts
from clickprism.errors import SettingError
from clickprism.relevance.estimates import SOURCES, Estimates, count_suppressed, read_estimates
from clickprism.relevance.pair_files import check_suffix, write_rows
from clickprism.settings import check_fields
from clickprism.types import Bool, Float64, Int32, Int64, check

Format = Literal["table", "workbench", "quepid"]
Row = tuple[str, str, int]

MULTIPLES: Final = (0.5, 1.0, 2.0, 4.0)


@final
@dataclass(frozen=True, kw_only=True)
class JudgmentSettings:
    """How estimates become grades.

    Attributes:
        cuts: Click probability at position 1 at which grade 1, 2, ... starts; repeat the option, up to four times. By
            default the probabilities with 1/2, 1, 2 and 4 times the odds of a click of the average impression.
        min_weight: Mark pairs as uncertain whose clicks are equivalent to fewer impressions at position 1.
    """

    cuts: tuple[float, ...] = ()
    min_weight: float = 1.0

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.cuts, self.cuts[1:], strict=False))
        if len(self.cuts) > 4 or not rising or not all(0 < cut < 1 for cut in self.cuts):
            raise SettingError("cuts", self.cuts, "be 1 to 4 numbers between 0 and 1, each above the one before")
        check_fields(self, min_weight=(0, None))


@final
@dataclass(frozen=True, eq=False)
class Judgments:
    """Grades of pairs."""

    grades: Int32  # Grades from 0; -1 for a pair without an estimate, [pairs]
    uncertain: Bool  # Whether the grade is uncertain, [pairs]
    cuts: Float64  # Click probability at position 1 at which grade 1, 2, ... starts, [cuts]


@final
@dataclass(frozen=True, eq=False)
class JudgmentSummary:
    """What a judgment list contains."""

    judged: int  # Number of pairs with a grade
    uncertain: int  # Number of them whose grade is uncertain
    grades: dict[str, int]  # Number of pairs of each grade
    uncertain_grades: dict[str, int]  # Number of uncertain pairs of each grade
    cuts: Float64  # Click probability at position 1 at which each grade above 0 starts
    sources: dict[str, int]  # Number of pairs by the main source of the estimate
    suppressed: int  # Number of pairs that are not in the list, since too few users saw them (privacy)
    without_estimate: int  # Number of pairs of the file without an estimate, which are not in the list
    file: Path

    def tables(self) -> list[Table]:
        """Return the grades, the sources, and the pairs that are not in the list."""
        starts = ["0", *(f"{cut:.4f}" for cut in self.cuts)]
        rows = [
            [grade, start, f"{pairs:,}", f"{self.uncertain_grades[grade]:,}"]
            for (grade, pairs), start in zip(self.grades.items(), starts, strict=True)
        ]
        tables = [Table("", ["grade", "click probability from", "pairs", "uncertain"], rows)]
        tables.append(Table("", ["source", "pairs"], [[name, f"{pairs:,}"] for name, pairs in self.sources.items()]))
        missing = {"seen by too few users (privacy)": self.suppressed, "without an estimate": self.without_estimate}
        rows = [[reason, f"{pairs:,}"] for reason, pairs in missing.items() if pairs]
        return [*tables, Table("", ["not in the list", "pairs"], rows)] if rows else tables

    @property
    def warning(self) -> str | None:
        """Return how to include pairs that too few users saw, if they are most pairs; otherwise None."""
        if self.suppressed <= self.judged:
            return None
        return (
            f"Warning: {self.suppressed:,} of {self.suppressed + self.judged:,} pairs are not in the list, since too "
            "few users saw them (privacy). If this log does not need that, include them: "
            "clickprism relevance estimate LOG --min-users 0"
        )


def default_cuts(values: Float64, impressions: Int64) -> Float64:
    """Return the cuts at 1/2, 1, 2 and 4 times the odds of c_1 of the average impression of the log.

    Grade 0 is less than half the odds, 1 below average, 2 above average, 3 at least twice and 4 at least four times
    the odds. Odds instead of probabilities keep the cuts below 1 on a log with many clicks.

    Args:
        values: Estimates of c_1, [pairs].
        impressions: Impressions of each pair, which weight the average; without any, pairs count equally, [pairs].

    >>> default_cuts(np.array([0.3, 0.1]), np.array([10, 10])).round(4).tolist()
    [0.1111, 0.2, 0.3333, 0.5]
    """
    known = np.isfinite(values)
    weights = impressions[known] if impressions[known].any() else np.ones(int(known.sum()))
    mean = float(np.average(np.clip(values[known], 0, 1), weights=weights)) if known.any() else 0.5
    mean = min(max(mean, 1e-6), 1 - 1e-6)
    odds = mean / (1 - mean) * np.array(MULTIPLES)
    return np.asarray(odds / (1 + odds), dtype=np.float64)


def judge(estimates: Estimates, impressions: Int64, *, settings: JudgmentSettings | None = None) -> Judgments:
    """Grade every pair, and mark uncertain grades.

    A grade is uncertain if the interval of the estimate contains more than one cut (or the only one), or if the clicks
    of the pair are equivalent to fewer than `min_weight` impressions at position 1.

    >>> found = Estimates(np.array([0.9, 0.5, 0.1]), np.array([0.85, 0.2, 0.0]), np.array([0.95, 0.85, 0.2]),
    ...     np.ones(3), np.array([50.0, 20.0, 0.0]), np.zeros(3, np.bool_))
    >>> judgments = judge(found, np.array([60, 30, 5]), settings=JudgmentSettings(cuts=(0.3, 0.8)))
    >>> judgments.grades.tolist(), judgments.uncertain.tolist()
    ([2, 1, 0], [False, True, True])
    """
    settings = JudgmentSettings() if settings is None else settings
    check(len(impressions) == len(estimates), f"{len(estimates)} estimates but {len(impressions)} impressions")
    cuts = np.array(settings.cuts) if settings.cuts else default_cuts(estimates.values, impressions)
    lowest, grades, highest = (
        np.searchsorted(cuts, ends, side="right") for ends in (estimates.lower, estimates.values, estimates.upper)
    )
    uncertain = (highest - lowest > min(1, len(cuts) - 1)) | (estimates.weight < settings.min_weight)
    return Judgments(np.where(np.isnan(estimates.values), -1, grades).astype(np.int32), uncertain, cuts)


def judge_file(
    estimates: Path,
    out: Path,
    settings: JudgmentSettings | None = None,
    *,
    kind: Format = "table",
    queries: Path | None = None,
) -> JudgmentSummary:
    """Grade every pair of a file of estimates, and write the judgment list.

    A table has the columns query_id, document_id, query (text, if known), grade, estimate, lower, upper, source,
    impressions, uncertain. The other formats have the text of the query (its id if it is not known), document and
    grade; queries of the same text are one.

    Args:
        estimates: Parquet file that `clickprism relevance estimate` has written.
        out: File to write; the suffix of a table decides its format.
        settings: How estimates become grades.
        kind: Format of the list.
        queries: Texts of the queries; by default those of the file of estimates.
    """
    if kind == "table":
        check_suffix(out)
    table, query, known = read_estimates(estimates)
    impressions = table["impressions"].to_numpy().astype(np.int64)
    judgments = judge(known, impressions, settings=settings)
    order = np.lexsort((-known.values, query))
    order = order[judgments.grades[order] >= 0]
    grades, uncertain, listed = judgments.grades[order], judgments.uncertain[order], known.select(order)
    query_ids, document_ids = (table[name].take(order) for name in ("query_id", "document_id"))
    names, texts = listed.source_names, table["query"].take(order).to_pylist()
    if queries is not None:
        read = read_texts(queries)
        found = dict(zip(read.names, read.texts, strict=True))
        texts = [found.get(each) for each in query_ids.to_pylist()]
    if kind == "table":
        columns = {"query_id": query_ids, "document_id": document_ids, "query": np.array(texts, dtype=object)}
        values = {"estimate": listed.values, "lower": listed.lower, "upper": listed.upper, "source": names}
        last = {"impressions": impressions[order], "uncertain": uncertain}
        write_rows(out, {**columns, "grade": grades, **values, **last})
    else:
        shown = [query if text is None else text for text, query in zip(texts, query_ids.to_pylist(), strict=True)]
        rows = zip(shown, document_ids.to_pylist(), grades.tolist(), strict=True)
        write_judgments(out, _by_text(rows, impressions[order]), kind=kind, name=out.stem)
    levels = range(len(judgments.cuts) + 1)
    return JudgmentSummary(
        judged=len(order),
        uncertain=int(uncertain.sum()),
        grades={str(level): int((grades == level).sum()) for level in levels},
        uncertain_grades={str(level): int(uncertain[grades == level].sum()) for level in levels},
        cuts=judgments.cuts,
        sources={name: int((names == name).sum()) for name in SOURCES if (names == name).any()},
        suppressed=count_suppressed(estimates),
        without_estimate=len(known) - len(order),
        file=out,
    )


def _by_text(rows: Iterable[Row], impressions: Int64) -> list[Row]:
    """Return the rows query by query, where queries of the same text are one.

    If a document has several grades for a text, the one with the most impressions is kept.

    >>> _by_text([("jeans", "a", 2), ("shirt", "b", 1), ("jeans", "a", 3)], np.array([5, 1, 9]))
    [('jeans', 'a', 3), ('shirt', 'b', 1)]
    """
    graded: dict[str, dict[str, tuple[int, int]]] = {}
    for (text, document, grade), shown in zip(rows, impressions.tolist(), strict=True):
        grades = graded.setdefault(text, {})
        if document not in grades or shown > grades[document][0]:
            grades[document] = shown, grade
    return [(text, document, grade) for text, grades in graded.items() for document, (_, grade) in grades.items()]


def write_judgments(out: Path, rows: Iterable[Row], *, kind: str, name: str = "clickprism") -> None:
    """Write (query, document, grade) rows in the format of another tool; those of a query must follow one another.

    `name` is the name of the list in the workbench.
    """
    with (
        write_errors(out, remedy="Choose another --out"),
        atomic_file(out, parents=True) as draft,
        draft.open("w", encoding="utf-8", newline="") as file,
    ):
        if kind == "workbench":
            _workbench(file, rows, name)
        else:
            csv.writer(file, lineterminator="\n").writerows([("query", "docid", "rating"), *rows])


def _workbench(file: IO[str], rows: Iterable[Row], name: str) -> None:
    about = {"name": name, "description": "Graded by clickprism from clicks", "type": "IMPORT_JUDGMENT"}
    file.write(json.dumps(about, ensure_ascii=False)[:-1] + ', "judgmentRatings": [')
    for number, (query, group) in enumerate(groupby(rows, key=lambda row: row[0])):
        ratings = [{"docId": document, "rating": f"{grade:.3f}"} for _, document, grade in group]
        file.write(",\n" if number else "\n")
        file.write(json.dumps({"query": query, "ratings": ratings}, ensure_ascii=False))
    file.write("\n]}\n")
