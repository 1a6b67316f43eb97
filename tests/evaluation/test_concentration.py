from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.evaluation.concentration import concentration, gini, given_grades, position_exposure
from clickprism.types import JudgedLists, Lists

LISTS = Lists(np.zeros((6, 1), np.float32), np.array([0, 3, 6]), np.array(["q", "r"]))
JUDGED = JudgedLists(LISTS, np.array([2, 0, 0, 1, 1, 0], np.int32))


def test_gini_by_all_pairs() -> None:
    values = np.array([0.3, 0.0, 2.0, 0.7, 0.7])
    pairs = np.abs(values[:, None] - values).sum() / (2 * len(values) * values.sum())
    assert gini(values) == pytest.approx(pairs)


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [1.0, -1.0]])
def test_gini_needs_something_to_share(values: list[float]) -> None:
    with pytest.raises(DataError, match="not negative, and one above 0"):
        gini(np.array(values))


def test_exposure_is_that_of_the_position_and_none_below_what_is_shown() -> None:
    scores = np.array([0.0, 5.0, 1.0, 3.0, 2.0, 9.0])
    found = position_exposure(LISTS, scores, observation=np.array([0.7, 0.4]))
    assert found.tolist() == [0.0, 0.7, 0.4, 0.4, 0.0, 0.7]
    tied = position_exposure(LISTS, np.zeros(6), observation=np.array([0.7, 0.4]))
    assert np.array_equal(tied, position_exposure(LISTS, np.zeros(6), observation=np.array([0.7, 0.4])))
    assert sorted(tied[:3]) == sorted(tied[3:]) == [0.0, 0.4, 0.7]


def test_shares_agree_with_a_calculation_by_hand() -> None:
    items, exposure = np.array([0, 1, 2, 0, 3, 4]), np.array([0.5, 0.2, 0.0, 0.5, 0.2, 0.6])
    found = concentration(JUDGED, exposure, items=items, popularity=np.array([0.0, 1.0, 0.5, 0.0, 0.25, 0.9]))
    assert found.top == pytest.approx(1.0 / 2.0)  # one item of five: item 0 has 1 of 2
    assert found.popular == pytest.approx(0.2 / 2.0)  # item 1; item 5 is in no list
    assert found.mean == pytest.approx((0.2 * 1.0 + 0.6 * 0.25) / 2.0)
    assert found.gini == pytest.approx(gini(np.array([1.0, 0.2, 0.0, 0.2, 0.6])))


def test_without_a_past_nothing_is_popular() -> None:
    found = concentration(JUDGED, np.full(6, 0.5), items=np.arange(6), popularity=np.zeros(6))
    assert found.gini == 0
    assert np.isnan([found.popular, found.mean, found.correlation]).all()


def test_items_with_equal_clicks_share_a_rank_of_popularity() -> None:
    """Two of ten items: the first is popular, and one of the three that follow it, any of them alike."""
    lists = Lists(np.zeros((10, 1), np.float32), np.array([0, 10]), np.array(["q"]))
    judged, exposure = JudgedLists(lists, np.zeros(10, np.int32)), np.arange(1.0, 11.0)
    past = np.array([0.1, 0.5, 0.9, 0.5, 0.2, 0.1, 0.1, 0.0, 0.0, 0.5])
    for order in (np.arange(10), np.arange(10)[::-1]):
        found = concentration(judged, exposure[order], items=np.arange(10), popularity=past[order])
        assert found.popular == pytest.approx((3 + (2 + 4 + 10) / 3) / 55)


def test_the_correlation_is_that_of_what_a_regression_on_list_and_grade_together_leaves() -> None:
    rng = np.random.default_rng(0)
    lists = Lists(np.zeros((60, 1), np.float32), np.arange(0, 61, 6), np.array([f"q{i}" for i in range(10)]))
    judged = JudgedLists(lists, rng.integers(0, 4, 60).astype(np.int32))
    exposure = rng.random(60) + judged.grades
    popularity = rng.random(60) + 0.5 * exposure
    dummies = np.eye(40)[lists.list_of * 4 + judged.grades]
    left = [v - dummies @ np.linalg.lstsq(dummies, v, rcond=None)[0] for v in (exposure, popularity)]
    assert given_grades(judged, exposure, popularity) == pytest.approx(np.corrcoef(left)[0, 1])


def test_over_all_orders_of_ties_a_ranking_by_grades_has_a_correlation_of_0_whatever_is_popular() -> None:
    """Popular is what is relevant where little is: additive effects of list and grade would leave .19 here."""
    lists = Lists(np.zeros((8, 1), np.float32), np.array([0, 4, 8]), np.array(["few", "many"]))
    judged = JudgedLists(lists, np.array([1, 0, 0, 0, 1, 1, 1, 0], np.int32))
    popularity = np.array([1.0, 0.0, 0.1, 0.2, 0.5, 0.6, 0.4, 0.0])
    seen = np.array([1.0, 0.6, 0.4, 0.3])
    found = [
        given_grades(judged, np.array([seen[0], *few, *many, seen[3]]), popularity)
        for few in permutations(seen[1:].tolist())
        for many in permutations(seen[:3].tolist())
    ]
    assert np.mean(found) == pytest.approx(0, abs=1e-12)
    assert max(found) > 0.9


def test_a_ranking_by_grades_has_no_correlation_with_popularity_that_grades_do_not_explain() -> None:
    """5000 documents: the standard error of a correlation of nothing is .014."""
    rng = np.random.default_rng(1)
    lists = Lists(np.zeros((5000, 1), np.float32), np.arange(0, 5001, 10), np.array([f"q{i}" for i in range(500)]))
    judged = JudgedLists(lists, rng.integers(0, 4, 5000).astype(np.int32))
    exposure = position_exposure(lists, judged.grades + rng.random(5000), observation=1 / np.arange(1, 11))
    popularity = judged.grades + rng.normal(size=5000)
    assert abs(given_grades(judged, exposure, popularity)) < 0.05
    popular_first = position_exposure(lists, judged.grades + popularity, observation=1 / np.arange(1, 11))
    assert given_grades(judged, popular_first, popularity) > 0.4


def test_nothing_that_varies_has_no_correlation() -> None:
    assert given_grades(JUDGED, np.full(6, 0.3), np.arange(6.0)) == 0
    one_grade = JudgedLists(LISTS, np.zeros(6, np.int32))
    assert given_grades(one_grade, np.arange(6.0), np.arange(6.0)) == pytest.approx(1)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DataError, match="6 documents"):
        concentration(JUDGED, np.ones(5), items=np.arange(6), popularity=np.zeros(6))
    with pytest.raises(SettingError, match="share must be above 0"):
        concentration(JUDGED, np.ones(6), items=np.arange(6), popularity=np.zeros(6), share=1.0)
