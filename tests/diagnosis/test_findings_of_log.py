"""Coverage, selection and drift: counted by hand on tiny logs."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.diagnosis.coverage import coverage, selection
from clickprism.diagnosis.drift import drift, sums_p_value
from tests.diagnosis.tiny_logs import Page, log_of, swapped


def test_coverage_counts_searches_documents_and_clicks() -> None:
    pages = [((0, 1), (1,), 3, 0), ((1, 0), (), 2, 0), ((3, 4), (1, 2), 1, 0)]
    facts = coverage(log_of(pages, documents=[3, 2])).details
    assert (facts["searches"], facts["queries"], facts["queries_once"]) == (6, 2, 1)
    assert (facts["documents"], facts["documents_shown"], facts["documents_at_several_positions"]) == (5, 4, 2)
    assert (facts["clicks"], facts["impressions"], facts["lists"]) == (5, 12, 3)
    assert facts["head_share"] == pytest.approx(5 / 6)
    assert "features of documents" in facts["missing"]


def test_coverage_says_what_is_scarce_and_what_to_log() -> None:
    enough = coverage(swapped(12, first=(40, 20), second=(20, 10)))  # 12 queries with 120 clicks each
    assert (enough.verdict, enough.word, enough.estimate) == ("present", "✓ enough data", 1080.0)
    assert "queries with clicks (12)" in enough.sentence
    assert "Log features of documents: coupling needs them" in enough.advice
    little = coverage(swapped(9, first=(40, 20), second=(20, 10)))
    assert (little.verdict, little.tone) == ("absent", "bad")
    assert "clicks (fewer than 1,000)" in little.sentence
    empty = coverage(log_of([((0,), (), 1, 0)], documents=[1]).take(np.zeros(1, dtype=np.bool_)))
    assert empty.verdict == "absent"


def test_what_was_never_shown_is_counted() -> None:
    found = selection(log_of([((0, 1), (1,), 3, 0), ((4,), (), 1, 0)], documents=[4, 1, 2]))
    assert found.verdict == "present"
    assert found.estimate == pytest.approx(2 / 5)  # the last query was never asked
    assert found.details["queries_shown_completely"] == pytest.approx(1 / 2)
    everything = selection(log_of([((0, 1), (1,), 3, 0)], documents=[2]))
    assert everything.verdict == "inconclusive"
    assert everything.advice == "Log all candidates of each search, or their number."


def test_drift_of_the_click_rate() -> None:
    pages: list[Page] = []
    for query in range(20):
        pages += [((query,), (1,), 50, 0), ((query,), (), 50, 0), ((query,), (1,), 20, 1), ((query,), (), 80, 1)]
    found = drift(log_of(pages, documents=[1] * 20, days=True))
    assert found.verdict == "present"
    assert found.details["changes"][0]["by_day"].tolist() == pytest.approx([0.5, 0.2])
    assert found.estimate == pytest.approx(0.5 / 0.35 - 1)
    assert "The days differ: clicks per search differ from their mean by up to 43% on one day" in found.sentence
    assert found.figure is not None
    assert len(found.figure().axes[0].lines) == 2
    assert drift(log_of(pages, documents=[1] * 20)).verdict == "inconclusive"
    same = [(*page[:2], 50, page[3]) for page in pages]
    assert drift(log_of(same, documents=[1] * 20, days=True)).verdict == "absent"


def test_sums_of_queries_that_cancel_are_no_evidence() -> None:
    query = np.repeat(np.arange(40), 2)
    assert sums_p_value(query, np.tile([1.0, -1.0], 40)[:, None]) == 1.0  # they cancel within each query
    assert sums_p_value(query, np.ones((80, 1))) == pytest.approx(2.5e-10, rel=0.05)  # chi-square 40 of 40 queries
    assert sums_p_value(query[:18], np.ones((18, 1))) == 1.0  # too few queries
