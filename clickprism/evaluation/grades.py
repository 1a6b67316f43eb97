"""Evaluate rankings of the documents of a log on grades that a user gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from clickprism.data.logged import Logged
from clickprism.data.texts import read_qrel
from clickprism.errors import DataError
from clickprism.evaluation.measures import evaluate
from clickprism.types import Float64, JudgedLists, Lists

MEASURE: Final = "nDCG@10"
FORMAT: Final = "Each line is: query id, 0, document id, grade"


def evaluate_on_grades(logged: Logged, file: Path | str, scores: Mapping[str, Float64]) -> dict[str, Any]:
    """Return the mean nDCG@10 of rankings of the graded documents of a log, beside the order of the log.

    Only graded documents count, in queries with at least two of them.

    Args:
        logged: The log; its documents need ids.
        file: Grades in the TREC format: query id, 0, document id and grade in each line.
        scores: Scores of all documents of the log by name of the ranking; higher ranks first, [documents] each.

    Returns:
        "queries", "documents" and "values" by name; "order of the log" ranks by average position.
    """
    lists = logged.clicks.lists
    if lists.document_ids is None:
        raise DataError("the documents of the log have no ids, so that grades cannot be matched", file=file)
    known = read_qrel(file)
    pairs = zip(lists.query_ids[lists.list_of].tolist(), lists.document_ids.tolist(), strict=True)
    grades = np.array([known.get(pair, -1) for pair in pairs], dtype=np.int32)
    several = np.bincount(lists.list_of[grades >= 0], minlength=len(lists)) > 1
    rows = np.flatnonzero((grades >= 0) & several[lists.list_of])
    if not len(rows):
        raise DataError("has no two documents of one query of the log", file=file, remedy=FORMAT)
    part = Lists(lists.features[rows], np.searchsorted(rows, lists.offsets), lists.query_ids, lists.document_ids[rows])
    judged = JudgedLists(part, grades[rows])
    rankings = {**scores, "order of the log": -_average_positions(logged)}
    values = {name: evaluate(judged, each[rows], MEASURE)[MEASURE] for name, each in rankings.items()}
    return {
        "queries": int(several.sum()),
        "documents": len(rows),
        "values": {name: float(np.nanmean(each)) if np.isfinite(each).any() else None for name, each in values.items()},
    }


def _average_positions(logged: Logged) -> Float64:
    """Return the average position of each document, one below the last if it was never shown, [documents]."""
    clicks = logged.clicks
    size, weight = clicks.lists.documents, clicks.list_impressions
    shown = np.bincount(clicks.rows, weights=weight, minlength=size)
    total = np.bincount(clicks.rows, weights=weight * clicks.positions, minlength=size)
    return np.asarray(np.divide(total, shown, out=np.full(size, clicks.max_position + 1.0), where=shown > 0))
