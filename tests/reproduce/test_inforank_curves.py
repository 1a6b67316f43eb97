"""Curves of position and popularity: by hand, and against all orders of tied documents."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest

from clickprism._util.tables import to_plain
from clickprism.errors import DataError, SettingError
from clickprism.evaluation.measures import expected_value
from clickprism.types import Clicks, Int64, JudgedLists, Lists
from reproduce.inforank.curves import by_frequency, by_position, exposure_shares, groups_of, initial_order


def lists_of(*lengths: int) -> Lists:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Lists(np.zeros((int(offsets[-1]), 1), np.float32), offsets, np.array([f"q{i}" for i in range(len(lengths))]))


def log_of(lists: Lists, impressions: Int64) -> Clicks:
    shown = initial_order(lists, -np.arange(lists.documents, dtype=np.float64))
    return Clicks(lists, shown.offsets, shown.rows, shown.positions, shown.clicks, impressions)


def test_expected_value_is_the_mean_over_all_orders_of_the_tied() -> None:
    grades = np.array([1.0, 0.0, 1.0, 2.0, 0.0, 0.0])
    worth = 1 / np.log2(np.arange(2, 8))
    total, orders = np.zeros(6), 0
    for order in permutations(range(6)):
        if all(grades[one] >= grades[other] for one, other in pairwise(order)):
            orders += 1
            total[list(order)] += worth
    assert orders == 2 * 6
    np.testing.assert_allclose(expected_value(np.array([0, 6]), grades, worth), total / orders)


def test_by_position_counts_impressions() -> None:
    lists = lists_of(3, 2)
    shown = log_of(lists, np.array([3, 1]))
    scores = np.array([0.1, 0.9, 0.5, 0.7, 0.2])
    curve = by_position(shown, scores)
    assert curve.at.tolist() == [1, 2, 3]
    assert curve.value.tolist() == [(3 * 3 + 1) / 4, (3 * 1 + 2) / 4, 2]
    assert curve.weight.tolist() == [4, 4, 3]


def test_by_position_uses_the_positions_of_the_log() -> None:
    lists = lists_of(2)
    shown = Clicks(
        lists, np.array([0, 2]), np.array([0, 1]), np.array([2, 5], np.int32), np.zeros(2, int), np.array([1])
    )
    curve = by_position(shown, np.array([1.0, 2.0]))
    assert curve.at.tolist() == [2, 5]
    assert curve.value.tolist() == [2, 1]


def test_the_distance_is_the_mean_difference_in_positions_over_documents() -> None:
    shown = log_of(lists_of(3, 1), np.array([1, 5]))
    one, other = by_position(shown, np.array([3.0, 2.0, 1.0, 0.0])), by_position(shown, np.array([1.0, 2.0, 3.0, 0.0]))
    assert one.value.tolist() == [1, 2, 3]
    assert other.value.tolist() == [(3 + 5 * 1) / 6, 2, 1]
    assert one.distance(other) == pytest.approx((6 * (2 / 6) + 1 * 0 + 1 * 2) / 8)
    assert one.distance(one) == 0
    with pytest.raises(DataError, match="by position over 3 points and one by position over 2"):
        one.distance(by_position(log_of(lists_of(2), np.array([1])), np.zeros(2)))


def test_constant_scores_leave_everything_in_the_middle(judged: JudgedLists) -> None:
    shown = initial_order(judged.lists, judged.lists.features[:, 0])
    curve = by_position(shown, np.zeros(judged.lists.documents))
    middle = np.array([(judged.lists.lengths[judged.lists.lengths >= at].mean() + 1) / 2 for at in range(1, 13)])
    np.testing.assert_allclose(curve.value, middle)


def test_initial_order_ranks_cuts_and_breaks_ties_without_looking_at_the_file() -> None:
    lists = lists_of(3, 2)
    shown = initial_order(lists, np.array([0.0, 2.0, 1.0, 0.0, 5.0]), length=2)
    assert shown.rows.tolist() == [1, 2, 4, 3]
    assert shown.positions.tolist() == [1, 2, 1, 2]
    assert shown.impressions.tolist() == [1, 1]
    tied = initial_order(lists_of(50), np.zeros(50))
    assert sorted(tied.rows.tolist()) == list(range(50)) != tied.rows.tolist()
    with pytest.raises(SettingError, match="length must be at least 1"):
        initial_order(lists, np.zeros(5), length=0)


def test_by_frequency_by_hand() -> None:
    lists = lists_of(2, 2)
    shown = log_of(lists, np.array([1, 1]))
    items, frequency = np.array([0, 1, 0, 2]), np.array([10.0, 1.0, 4.0])
    curve = by_frequency(shown, np.array([0.0, 1.0, 5.0, 1.0]), items, frequency, bins=2)
    assert curve.weight.tolist() == [2, 2]
    np.testing.assert_allclose(curve.at, [(0.1 + 0.4) / 2, 1.0])
    np.testing.assert_allclose(curve.value, [(1 + 2) / 2, (2 + 1) / 2])
    whole = by_frequency(shown, np.zeros(4), items, frequency, bins=1)
    assert whole.value.tolist() == [1.5]
    with pytest.raises(DataError, match="items must be from 0 to 1"):
        by_frequency(shown, np.zeros(4), items, frequency[:2])
    with pytest.raises(DataError, match="4 documents need as many items"):
        by_frequency(shown, np.zeros(4), items[:2], frequency)


def test_exposure_shares_by_hand() -> None:
    lists = lists_of(3, 3)
    shown = log_of(lists, np.array([1, 3]))
    items, popularity = np.array([0, 1, 2, 0, 1, 3]), np.array([8.0, 0.0, 2.0, 6.0, 99.0])  # item 4 is not here
    scores = np.array([3.0, 2.0, 1.0, 1.0, 1.0, 0.0])
    shares = exposure_shares(shown, scores, items, popularity, groups=2, top=1)
    assert shares.weight.tolist() == [0.5, 0.5]  # items 1 and 2; 3 and 0
    np.testing.assert_allclose(shares.value, [(0 + 3 * 0.5) / 4, (1 + 3 * 0.5) / 4])
    np.testing.assert_allclose(shares.at, np.array([1, 7]) / 99)
    smooth = exposure_shares(shown, scores, items, popularity, groups=2, top=None)
    gain = 1 / np.log2([2, 3, 4])
    low = gain[1] + gain[2] + 3 * (gain[0] + gain[1]) / 2
    np.testing.assert_allclose(smooth.value[0], low / (4 * gain.sum()))
    ideal = exposure_shares(shown, np.array([0.0, 0.0, 1.0, 0.0, 1.0, 0.0]), items, popularity, groups=2, top=1)
    assert shares.distance(ideal) == pytest.approx(1 - 1.5 / 4)
    with pytest.raises(SettingError, match="top must be at least 1"):
        exposure_shares(shown, scores, items, popularity, top=0)


@pytest.mark.parametrize("lengths", [(), (0,), (1,), (0, 2, 0)])
def test_lists_may_be_empty_or_of_one_document(lengths: tuple[int, ...]) -> None:
    shown = initial_order(lists_of(*lengths), np.zeros(sum(lengths)))
    items, often = np.arange(sum(lengths)), np.ones(sum(lengths))
    curve, shares = by_position(shown, often), exposure_shares(shown, often, items, often)
    assert curve.value.tolist() == by_frequency(shown, often, items, often, bins=1).value.tolist() * max([*lengths, 0])
    assert shares.value.tolist() == [1.0] * bool(sum(lengths))
    assert np.isnan(curve.distance(curve)) == (not sum(lengths))


def test_groups_keep_equal_values_together_and_none_is_empty() -> None:
    values = np.array([0.0, 0, 0, 0, 0, 0, 1, 2, 3, 3])
    group = groups_of(values, 5)
    assert group.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 2, 2]
    assert groups_of(np.ones(4), 3).tolist() == [0, 0, 0, 0]
    assert groups_of(np.empty(0), 3).tolist() == []
    weighted = groups_of(np.array([1.0, 2.0, 3.0]), 2, weights=np.array([10.0, 1.0, 1.0]))
    assert weighted.tolist() == [0, 1, 1]
    with pytest.raises(SettingError, match="groups must be at least 1"):
        groups_of(values, 0)


def test_values_are_plain_json() -> None:
    shown = log_of(lists_of(2), np.array([1]))
    items, often = np.array([0, 1]), np.array([1.0, 2.0])
    plain = to_plain(by_position(shown, np.array([1.0, 2.0])))
    assert plain == {"axis": "position", "at": [1, 2], "value": [2, 1], "weight": [1, 1]}
    shares = to_plain(exposure_shares(shown, np.array([1.0, 2.0]), items, often, groups=2, top=1))
    assert shares == {
        "axis": "popularity",
        "at": [0.5, 1],
        "value": [0, 1],
        "weight": [0.5, 0.5],
    }
