"""Judgement lists in the formats of other tools; whole or not at all.

| format | what | a row |
|---|---|---|
| workbench | OpenSearch's body of `PUT _plugins/_search_relevance/judgments` | query: docId, rating |
| quepid | Quepid's CSV: query, docid, rating | star wars,3574597,3 |
| letor | LETOR text without features, as Quepid and RankLib's tools take it | 3 qid:1 # 3574597 star wars |
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import IO, Literal

import numpy as np

from clickprism._util.files import atomic_file, write_errors
from clickprism.data.texts import read_texts
from clickprism.errors import DataError
from clickprism.relevance.judgments import JudgmentSettings, JudgmentSummary, judge

Format = Literal["table", "workbench", "quepid", "letor"]
Row = tuple[str, str, int]


def judge_file(
    estimates: Path,
    out: Path,
    settings: JudgmentSettings | None = None,
    *,
    kind: Format = "table",
    queries: Path | None = None,
) -> JudgmentSummary:
    """Grade the pairs of a file of estimates, and write the judgment list.

    Args:
        estimates: Parquet file that `clickprism relevance estimate` has written.
        out: File to write; of a table its suffix decides the format.
        settings: How estimates become grades.
        kind: Format of the list.
        queries: Texts of the queries, for the formats of other tools; without it they get the ids.
    """
    from clickprism.relevance.files import check_suffix, write_rows
    from clickprism.relevance.table import read_estimates

    if kind == "table":
        check_suffix(out)
    ids, query, known = read_estimates(estimates)
    made = judge(known, query, settings=settings)
    order = np.lexsort((-known.values[made.pairs], query[made.pairs]))
    pairs, grades = made.pairs[order], made.grades[order]
    kept = known.select(pairs)
    query_ids, document_ids = (ids[name].take(pairs) for name in ("query_id", "document_id"))
    if kind == "table":
        columns = {"query_id": query_ids, "document_id": document_ids, "grade": grades, "estimate": kept.values}
        write_rows(out, columns | {"lower": kept.lower, "upper": kept.upper, "weight": kept.weight})
    else:
        words = query_ids.to_pylist() if queries is None else query_words(queries, query_ids.to_pylist())
        write_judgments(
            out, zip(words, document_ids.to_pylist(), grades.tolist(), strict=True), kind=kind, name=out.stem
        )
    return made.summary(out)


def query_words(file: Path, query_ids: list[str]) -> list[str]:
    """The text of the query of each pair, [pairs]; two queries of one text are an error, as no tool can tell them."""
    distinct = list(dict.fromkeys(query_ids))
    words = dict(zip(distinct, read_texts(file).of_ids(distinct, what="query"), strict=True))
    first: dict[str, str] = {}
    for query, text in words.items():
        if first.setdefault(text, query) != query:
            problem = f"gives the queries {first[text]!r} and {query!r} the same text {text!r}"
            raise DataError(problem, file=file, remedy="Make them one query in the log, or their texts differ")
    return [words[query] for query in query_ids]


def write_judgments(out: Path, rows: Iterable[Row], *, kind: str, name: str = "clickprism") -> None:
    """Write judged pairs, the text of the query, the id of the document, the grade; those of a query together.

    Args:
        out: the file.
        rows: in the order in which they are to stand.
        kind: workbench, quepid or letor.
        name: of the list in the workbench.
    """
    with (
        write_errors(out, remedy="Choose another --out"),
        atomic_file(out, parents=True) as draft,
        draft.open("w", encoding="utf-8", newline="") as file,
    ):
        if kind == "workbench":
            _workbench(file, rows, name)
        elif kind == "quepid":
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["query", "docid", "rating"])
            writer.writerows(rows)
        else:
            file.writelines(_letor(rows))


def _workbench(file: IO[str], rows: Iterable[Row], name: str) -> None:
    about = {"name": name, "description": "Graded by clickprism from clicks", "type": "IMPORT_JUDGMENT"}
    file.write(json.dumps(about, ensure_ascii=False)[:-1] + ', "judgmentRatings": [')
    for place, (query, group) in enumerate(groupby(rows, key=lambda row: row[0])):
        ratings = [{"docId": document, "rating": f"{grade:.3f}"} for _, document, grade in group]
        file.write(",\n" if place else "\n")
        file.write(json.dumps({"query": query, "ratings": ratings}, ensure_ascii=False))
    file.write("\n]}\n")


def _letor(rows: Iterable[Row]) -> Iterator[str]:
    r"""Lines; queries are numbered from 1.

    >>> list(_letor([("star  wars", "d1", 3), ("star  wars", "d2", 0), ("x", "d1", 1)]))
    ['3 qid:1 # d1 star wars\n', '0 qid:1 # d2 star wars\n', '1 qid:2 # d1 x\n']
    """
    for place, (query, group) in enumerate(groupby(rows, key=lambda row: row[0]), 1):
        words = " ".join(query.split())
        for _, document, grade in group:
            if not re.fullmatch(r"\S+", document):
                problem = f"the document id {document!r} cannot stand in LETOR text"
                raise DataError(problem, remedy="Use --format quepid, which takes any id")
            yield f"{grade} qid:{place} # {document} {words}\n"
