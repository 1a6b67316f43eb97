"""The initial ranker (a ranking SVM), and `rank`, which returns the top of each list."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from clickprism.errors import DataError, SettingError
from clickprism.simulation.rankings import InitialRanker, _list_pairs, rank
from clickprism.types import JudgedLists, Lists


def judged_lists(grades: list[list[int]], features: list[list[float]]) -> JudgedLists:
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in grades])]).astype(np.int64)
    lists = Lists(np.array(features, dtype=np.float32), offsets, np.array([str(i) for i in range(len(grades))]))
    return JudgedLists(lists, np.array([grade for part in grades for grade in part], dtype=np.int32))


def random_lists(*, queries: int = 100) -> JudgedLists:
    rng = np.random.default_rng(0)
    features = rng.normal(5, [1, 100, 0.01, 1], (queries * 10, 4))
    truth = features[:, 0] + features[:, 1] / 100 - features[:, 2] * 100
    grades = np.digitize(truth, np.quantile(truth, [0.5, 0.8])).reshape(queries, 10)
    return judged_lists(grades.tolist(), features.tolist())


def test_rank_by_hand() -> None:
    judged = judged_lists([[0, 0, 0], [], [0], [0, 0]], [[0.0]] * 6)
    scores = np.array([1.0, 3.0, 2.0, 0.0, -1.0, 5.0])
    offsets, rows = rank(judged.lists, scores, length=2, seed=0)
    assert offsets.tolist() == [0, 2, 2, 3, 5]
    assert rows.tolist() == [1, 2, 3, 5, 4]
    assert rank(judged.lists, scores, length=99, seed=0)[1].tolist() == [1, 2, 0, 3, 5, 4]


def test_ties_are_in_random_order_by_seed() -> None:
    judged = judged_lists([[0, 0]] * 2000, [[0.0]] * 4000)
    scores = np.zeros(4000)
    offsets, rows = rank(judged.lists, scores, length=1, seed=1)
    assert (rows % 2).mean() == pytest.approx(0.5, abs=0.05)
    assert np.array_equal(rows, rank(judged.lists, scores, length=1, seed=1)[1])
    assert not np.array_equal(rows, rank(judged.lists, scores, length=1, seed=2)[1])
    assert len(offsets) == 2001


def test_rank_rejects_invalid_scores() -> None:
    judged = judged_lists([[0, 1]], [[0.0]] * 2)
    with pytest.raises(SettingError, match="length"):
        rank(judged.lists, np.zeros(2), length=0, seed=0)
    with pytest.raises(DataError, match="2 documents"):
        rank(judged.lists, np.zeros(3), seed=0)
    with pytest.raises(DataError, match="finite"):
        rank(judged.lists, np.array([0, np.nan]), seed=0)


def test_training_does_not_depend_on_the_scale_of_features() -> None:
    judged = random_lists()
    few, many = (InitialRanker(share=share).fit(judged, seed=0) for share in (0.05, 1.0))
    deviation = judged.lists.features.std(axis=0)
    weights = many.weights * deviation
    assert weights[:3] / weights[0] == pytest.approx(np.array([1, 1, -1]), abs=0.15)
    assert abs(weights[3] / weights[0]) < 0.15
    assert np.corrcoef(few(judged.lists.features), many(judged.lists.features))[0, 1] > 0.7


def test_the_seed_determines_the_ranker() -> None:
    judged = random_lists()
    one, same, other = (InitialRanker().fit(judged, seed=seed).weights for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_the_sample_grows_until_a_query_has_two_grades() -> None:
    judged = judged_lists([[1, 1]] * 99 + [[0, 1]], [[0.0]] * 198 + [[1.0], [2.0]])
    for seed in range(5):
        assert InitialRanker(share=0.01).fit(judged, seed=seed).weights[0] > 0
    with pytest.raises(DataError, match="two different grades"):
        InitialRanker().fit(judged.take(list(range(99))), seed=0)


def test_the_number_of_pairs_per_query_is_limited() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 2))
    judged = judged_lists([(features[:, 0] > 0).astype(int).tolist()], features.tolist())
    weights = InitialRanker(share=1.0, pairs=50).fit(judged, seed=0).weights
    assert weights[0] > abs(weights[1])


def test_pairs_of_one_list_by_hand() -> None:
    rng = np.random.default_rng(0)
    high, low = _list_pairs(np.array([1, 0, 2, 1], np.int32), 5, rng)
    assert list(zip(high.tolist(), low.tolist(), strict=True)) == [(0, 1), (2, 0), (2, 1), (2, 3), (3, 1)]
    grades = rng.integers(0, 5, 60).astype(np.int32)
    all_pairs = np.nonzero(grades[:, None] > grades[None, :])
    assert all(map(np.array_equal, _list_pairs(grades, 3600, rng), all_pairs))
    drawn = np.sort(np.random.default_rng(1).choice(len(all_pairs[0]), 100, replace=False))
    some = _list_pairs(grades, 100, np.random.default_rng(1))
    assert all(map(np.array_equal, some, (part[drawn] for part in all_pairs)))


def test_pairs_of_a_long_list_need_little_memory() -> None:
    grades = (np.arange(20_000) % 5).astype(np.int32)
    tracemalloc.start()
    high, low = _list_pairs(grades, 1000, np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6, "a table of all pairs has 4e8 entries"
    assert len(high) == len(set(zip(high.tolist(), low.tolist(), strict=True))) == 1000
    assert (grades[high] > grades[low]).all()
    # Pairs of grades (a, b) with a > b are all equally frequent here: 4 in 10 have the better grade 4.
    assert (grades[high] == 4).mean() == pytest.approx(0.4, abs=0.07)


def test_constant_features_have_weight_zero() -> None:
    judged = judged_lists([[0, 1], [1, 0]], [[0, 7], [1, 7], [2, 7], [1, 7]])
    weights = InitialRanker(share=1.0).fit(judged, seed=0).weights
    assert weights[0] > 0
    assert weights[1] == 0


def test_invalid_features_and_settings_are_rejected() -> None:
    with pytest.raises(DataError, match="finite"):
        InitialRanker().fit(judged_lists([[0, 1]], [[0.0], [float("inf")]]), seed=0)
    for field, value in (("share", 0.0), ("share", 1.5), ("pairs", 0), ("cost", -1.0)):
        with pytest.raises(SettingError, match=field):
            InitialRanker(**{field: value})  # type: ignore[arg-type]
