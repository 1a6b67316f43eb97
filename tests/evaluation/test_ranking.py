"""Blocks cover every list once; ties share the mean value of their positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickprism.errors import DataError
from clickprism.evaluation import measures as ranking


@given(st.lists(st.integers(0, 70), max_size=60))
def test_blocks_hold_every_document_once(lengths: list[int]) -> None:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    seen: list[int] = []
    for block in ranking.blocks(offsets):
        seen += block.rows[block.mask].tolist()
        np.testing.assert_array_equal(block.mask.sum(axis=1), np.array(lengths)[block.lists])
        assert block.mask.shape[1] < 2 * block.mask.sum(axis=1).min() + 1
    assert sorted(seen) == list(range(sum(lengths)))


def test_blocks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "CELLS", 10)
    found = list(ranking.blocks(np.arange(0, 41, 4)))
    assert [len(block.lists) for block in found] == [2, 2, 2, 2, 2]


def test_ties_share_their_positions() -> None:
    value = ranking.expected_value(np.array([0, 4]), np.array([1.0, 2.0, 1.0, 1.0]), np.arange(1.0, 5))
    assert value.tolist() == [3.0, 1.0, 3.0, 3.0]
    assert ranking.expected_value(np.array([0]), np.array([]), np.array([])).tolist() == []


def test_scores_that_are_no_number_are_refused() -> None:
    with pytest.raises(DataError, match="1 of 2 scores are not a number, the first at row 1"):
        ranking.check_scores(np.array([0.5, np.nan]), 2)
