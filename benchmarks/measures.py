"""Measures for 30,000 queries of 25 documents, against pytrec_eval on the same work."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

import numpy as np
import pytrec_eval

from benchmarks.base import Result, seconds
from clickprism.evaluation.measures import evaluate
from clickprism.types import Float64, JudgedLists, Lists

T = TypeVar("T")
QUERIES, DOCUMENTS = 30_000, 25


def run() -> list[Result]:
    """Queries a second, from an array of scores to values per query; the judgements are prepared beforehand."""
    rng = np.random.default_rng(0)
    rows = QUERIES * DOCUMENTS
    grades = rng.choice(5, size=rows, p=[0.5, 0.27, 0.16, 0.05, 0.02]).astype(np.int32)
    scores = rng.permutation(rows).astype(np.float64)
    offsets = np.arange(0, rows + 1, DOCUMENTS)
    judged = JudgedLists(Lists(np.zeros((rows, 1), np.float32), offsets, np.arange(QUERIES).astype(np.str_)), grades)
    names = [str(row) for row in range(rows)]
    qrels = by_query(names, grades.tolist())
    results = []
    for title, ours, theirs in (
        ("nDCG@10", ["nDCG(lin)@10"], {"ndcg_cut.10"}),
        (
            "nDCG@10, MAP, MRR, P@10",
            ["nDCG(lin)@10", "MAP", "MRR", "P@10"],
            {"ndcg_cut.10", "map", "recip_rank", "P.10"},
        ),
    ):
        evaluator = pytrec_eval.RelevanceEvaluator(qrels, theirs)
        quick = partial(evaluate, judged, scores, ours, empty="zero")
        slow = partial(peer, evaluator, names, scores)
        np.testing.assert_allclose(quick().values[0], [query["ndcg_cut_10"] for query in slow().values()], atol=1e-9)
        ours_rate, peer_rate = QUERIES / seconds(quick, repeats=15), QUERIES / seconds(slow)
        results.append(Result(f"measures, {title}: pytrec_eval", ours_rate, peer_rate, 10, "queries/s"))
    return results


def peer(evaluator: pytrec_eval.RelevanceEvaluator, names: list[str], scores: Float64) -> dict[str, dict[str, float]]:
    """The same work by pytrec_eval, which takes dictionaries."""
    values: dict[str, dict[str, float]] = evaluator.evaluate(by_query(names, scores.tolist()))
    return values


def by_query(names: list[str], values: list[T]) -> dict[str, dict[str, T]]:
    """A dictionary from query to document to value."""
    pieces = [slice(start, start + DOCUMENTS) for start in range(0, len(names), DOCUMENTS)]
    return {str(i): dict(zip(names[piece], values[piece], strict=True)) for i, piece in enumerate(pieces)}
