"""Criteria: estimated nDCG is arithmetic, and a lead within chance does not choose."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.choice.criterion import Gain, estimated_ndcg
from clickprism.types import Lists


def test_estimated_ndcg_by_hand() -> None:
    lists = Lists(np.zeros((6, 1), np.float32), np.array([0, 3, 6]), np.array(["a", "b"]))
    target = np.array([0.1, 0.4, np.nan, 0.0, 0.0, 0.0])
    found = estimated_ndcg(lists, np.array([2.0, 1.0, 9.0, 1.0, 2.0, 3.0]), target)
    second = 1 / np.log2(3)
    assert found[0] == pytest.approx((0.1 + 0.4 * second) / (0.4 + 0.1 * second))
    assert np.isnan(found[1])


def test_a_query_without_scores_takes_no_part() -> None:
    lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 1, 2]), np.array(["a", "b"]))
    assert np.isnan(estimated_ndcg(lists, np.array([1.0, np.nan]), np.array([0.5, 0.5]))).tolist() == [False, True]


def test_sure_is_two_standard_errors() -> None:
    assert Gain(2.1, 1.0).sure
    assert not Gain(1.9, 1.0).sure
    assert Gain.mean(np.array([1.0, 3.0])).error == pytest.approx(np.sqrt(0.5))
