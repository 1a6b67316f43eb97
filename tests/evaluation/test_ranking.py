"""Blocks cover every list once; the mean new position is arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickprism.errors import DataError
from clickprism.evaluation import ranking


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


def test_position_shift_by_hand() -> None:
    offsets, rows = np.array([0, 3, 5]), np.array([0, 1, 2, 3, 4])
    scores = np.array([1.0, 3.0, 2.0, 0.0, 5.0])
    assert ranking.position_shift(offsets, rows, scores).tolist() == [(3 + 2) / 2, (1 + 1) / 2, 2.0]
    weighted = ranking.position_shift(offsets, rows, scores, weights=np.array([3, 1]))
    assert weighted.tolist() == [(3 * 3 + 2) / 4, 1.0, 2.0]


def test_ties_share_their_positions() -> None:
    shift = ranking.position_shift(np.array([0, 4]), np.array([0, 1, 2, 3]), np.array([1.0, 2.0, 1.0, 1.0]))
    assert shift.tolist() == [3.0, 1.0, 3.0, 3.0]


def test_position_shift_without_lists_and_with_nan() -> None:
    assert ranking.position_shift(np.array([0]), np.array([], dtype=np.int64), np.array([])).tolist() == []
    with pytest.raises(DataError, match="not a number"):
        ranking.position_shift(np.array([0, 1]), np.array([0]), np.array([np.nan]))
