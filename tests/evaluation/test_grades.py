"""Rankings of a log evaluated on grades that a user gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clickprism.data.logged import Logged
from clickprism.errors import DataError
from clickprism.evaluation.grades import evaluate_on_grades
from clickprism.types import Clicks, Lists


def log() -> Logged:
    """Query q shows a, b, c in this order, and names d; query r shows e."""
    ids = np.array(["a", "b", "c", "d", "e"])
    lists = Lists(np.zeros((5, 1), np.float32), np.array([0, 4, 5]), np.array(["q", "r"]), ids)
    rows, positions = np.array([0, 1, 2, 4]), np.array([1, 2, 3, 1])
    return Logged(Clicks(lists, np.array([0, 3, 4]), rows, positions, np.zeros(4, np.int64), np.array([5, 5])))


def test_only_graded_documents_count(tmp_path: Path) -> None:
    """In q, b (grade 1) is before d (0) as logged: nDCG 1; after it with these scores: 1 / log2(3)."""
    file = tmp_path / "grades.txt"
    file.write_text("q 0 b 1\nq 0 d 0\nr 0 e 1\nother 0 a 1\n")
    found = evaluate_on_grades(log(), file, {"new": np.array([9.0, 1.0, 9.0, 2.0, 0.0])})
    assert found["queries"] == 1
    assert found["documents"] == 2
    assert found["values"] == {"new": pytest.approx(1 / np.log2(3)), "order of the log": 1.0}


def test_grades_that_cannot_be_matched_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "grades.txt"
    file.write_text("r 0 e 1\n")
    with pytest.raises(DataError, match=r"grades.txt: has no two documents of one query of the log. Each line is"):
        evaluate_on_grades(log(), file, {})
    logged = log()
    lists = replace(logged.clicks.lists, document_ids=None)
    with pytest.raises(DataError, match="the documents of the log have no ids"):
        evaluate_on_grades(replace(logged, clicks=replace(logged.clicks, lists=lists)), file, {})
