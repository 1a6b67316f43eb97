"""Targets: clicks over exposure, little evidence drawn to what its positions earn; one list a query."""

from __future__ import annotations

import numpy as np
import pytest

from clickprism.choice.targets import Exposure, as_clicks, targets
from clickprism.types import Lists


def lines(
    rows: list[int], positions: list[int], clicks: list[float], shown: list[float], **more: list[float]
) -> Exposure:
    counts = np.array(clicks, float), np.array(shown, float)
    extra = {name: np.array(values, float) for name, values in more.items()}
    extra.setdefault("seen", counts[1])
    extra.setdefault("background", np.zeros(len(rows)))
    return Exposure(np.array(rows), np.array(positions), *counts, extra["seen"], extra["background"])


def test_clicks_over_exposure_are_the_same_wherever_a_document_stood() -> None:
    told = lines([0, 1], [0, 1], [5, 2], [10, 10], seen=[10, 4])
    assert targets(told, 3, shrinkage=0).tolist()[:2] == [0.5, 0.5]
    assert np.isnan(targets(told, 3)[2])


def test_clicks_without_relevance_are_taken_off_and_none_is_below_0() -> None:
    told = lines([0, 1], [0, 0], [5, 1], [10, 10], background=[2, 2])
    assert targets(told, 2, shrinkage=0).tolist() == pytest.approx([0.3, 0.0])


def test_little_evidence_is_drawn_to_what_its_position_earns() -> None:
    told = lines([0, 1, 2], [0, 0, 1], [90, 1, 0], [99, 1, 100], seen=[99, 1, 50])
    found = targets(told, 3, shrinkage=4)
    assert found[0] == pytest.approx((90 + 4 * 0.91) / 103)
    assert found[1] == pytest.approx((1 + 4 * 0.91) / 5)
    assert found[2] == 0


def test_one_list_a_query_with_targets_as_weights() -> None:
    lists = Lists(np.zeros((5, 1), np.float32), np.array([0, 2, 5]), np.array(["a", "b"]))
    made = as_clicks(lists, np.array([0.5, np.nan, 0.1, 0.2, 0.3]), np.array([True, True]))
    assert made.rows.tolist() == [0, 2, 3, 4]
    assert made.offsets.tolist() == [0, 1, 4]
    assert made.weighted_clicks.tolist() == [0.5, 0.1, 0.2, 0.3]
    assert len(as_clicks(lists, np.array([0.5, np.nan, 0.1, 0.2, 0.3]), np.array([False, True]))) == 1
