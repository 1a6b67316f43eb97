"""How a ranking moves documents, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clickprism.data.items import items_across
from clickprism.types import Clicks, Dataset, JudgedLists, Lists
from reproduce.inforank.bias import bias_curves
from reproduce.inforank.curves import Curve


def judged(ids: tuple[str, ...] | None, grades: tuple[int, ...]) -> JudgedLists:
    """One list, the features of a document an indicator of its place."""
    size = len(grades)
    names = None if ids is None else np.array(ids)
    lists = Lists(np.eye(size, dtype=np.float32), np.array([0, size]), np.array(["q"]), names)
    return JudgedLists(lists, np.array(grades, np.int32))


def dataset(test: tuple[str, ...] | None = ("c", "a", "new")) -> Dataset:
    train = judged(None if test is None else ("a", "b", "c"), (0, 1, 2))
    return Dataset("tiny", train, train, judged(test, (1, 0, 2)))


def log(data: Dataset) -> Clicks:
    """Four sessions that show a, b, c, and two of a, b: a was clicked once, b never, c three times."""
    rows, places = np.array([0, 1, 2, 0, 1]), np.array([1, 2, 3, 1, 2], np.int32)
    return Clicks(
        data.train.lists, np.array([0, 3, 5]), rows, places, np.array([1, 0, 3, 0, 0]), np.array([4, 2], np.int64)
    )


INITIAL = np.array([3.0, 2.0, 1.0])


def curves(data: Dataset, scores: Any) -> dict[str, Curve]:
    trained, tested = items_across([data.train.lists, data.test.lists], by="ids")
    about: dict[str, Any] = {"dataset": data, "clicks": log(data), "initial": INITIAL, "length": 2, "top": None}
    return bias_curves(scores, items=(trained, tested), **about)


def test_a_ranking_by_hand() -> None:
    data = dataset()
    moved, own = curves(data, np.array([1.0, 2.0, 3.0])), curves(data, data.test.grades)
    # of the two that users are shown, c and a, the ranking puts a first; the labels leave them
    assert (moved["position"].at.tolist(), moved["position"].value.tolist()) == ([1, 2], [2, 1])
    assert own["position"].value.tolist() == [1, 2]
    # c was shown 4 times, a 6 times
    assert (moved["frequency"].at.tolist(), moved["frequency"].value.tolist()) == ([4 / 6, 1], [2, 1])
    # clicks: new 0, a 1, c 3; the ranking is new, a, c and the labels' own new, c, a
    worth = 1 / np.log2([2, 3, 4])
    assert moved["popularity"].at == pytest.approx([0, 1 / 3, 1])
    assert moved["popularity"].value == pytest.approx(worth / worth.sum())
    away = (worth[1] - worth[2]) / worth.sum()
    distances = {name: curve.distance(own[name]) for name, curve in moved.items()}
    assert distances == pytest.approx({"position": 1, "frequency": 1, "popularity": away})


def test_popularity_is_not_measured_if_the_log_shows_no_item_of_the_test_part() -> None:
    assert set(curves(dataset(("x", "y", "z")), INITIAL)) == {"position"}
