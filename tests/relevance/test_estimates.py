from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.errors import DataError
from clickprism.log_model.results import ClickParameters
from clickprism.relevance.estimate import LogEstimates
from clickprism.relevance.pairs import PairCounts

SHOWN, CLICKED = np.array([[3, 0], [1, 2]]), np.array([[2, 0], [0, 1]])
E = np.array([[1.5, 0.0], [0.5, 1.0]])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"clicked": CLICKED[:, :1]}, r"clicked must be \[2, 2\] as impressions are, got \[2, 1\]"),
        ({"clicked": CLICKED + 2}, "clicked must be from 0 to impressions"),
        ({"clicked": -CLICKED}, "clicked must be from 0 to impressions"),
        ({"clicked": CLICKED * 1.0}, "whole numbers, got float64"),
        ({"examination": E * 9}, "examination must be a sum of values between 0 and 1"),
        ({"examination": E * np.nan}, "examination must be a sum"),
        ({"examination": E, "examination_squared": E + 1}, "examination_squared must be a sum"),
    ],
)
def test_broken_counts_are_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        PairCounts(**{"impressions": SHOWN, "clicked": CLICKED, **change})


def test_sums_select_and_total() -> None:
    counts = PairCounts(SHOWN, CLICKED, E, CLICKED * 0.5, E * 0.5)
    assert counts.select(np.array([False, True])).impressions.tolist() == [[1, 2]]
    total = counts.total()
    assert (total.impressions.tolist(), total.clicked.tolist()) == ([[4, 2]], [[2, 1]])
    assert total.examination is not None
    assert total.examination.tolist() == [[2.0, 1.0]]
    assert counts.shown.tolist() == [3, 3]


def test_no_pairs_are_fine() -> None:
    counts = PairCounts(SHOWN[:0], CLICKED[:0])
    assert len(counts) == 0
    assert counts.total().impressions.tolist() == [[0, 0]]


@pytest.mark.parametrize(("suppressed", "warned"), [(0, False), (2, False), (3, True)])
def test_a_file_without_most_pairs_says_how_to_include_them(suppressed: int, *, warned: bool) -> None:
    parameters = ClickParameters(np.ones(1), np.zeros(1))
    found = LogEstimates(2, {"clicks": 2}, 0, suppressed, 0, 0, "affine", parameters, None, Path("estimates.parquet"))
    assert bool(found.warnings) == warned
    if warned:
        assert "3 of 5 pairs" in found.warnings[0]
        assert "--min-users 0" in found.warnings[0]
