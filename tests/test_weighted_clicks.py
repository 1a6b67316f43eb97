"""Clicks that count as more or less than one: carried along exactly, and refused where a loss cannot take them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clickprism.data.clicks import load_clicks, save_clicks
from clickprism.debias import method
from clickprism.debias.loop import pad
from clickprism.errors import DataError
from clickprism.rankers.linear import Linear
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings
from clickprism.training.trees import clicks_per_exposure
from clickprism.types import Clicks, Lists, concatenate

FIT = FitSettings(epochs=2, threads=1)


def log() -> Clicks:
    """One query of two documents in three sessions, the first two ranked alike."""
    lists = Lists(np.array([[0.0], [1.0]], np.float32), np.array([0, 2]), np.array(["q"]))
    return Clicks(
        lists,
        np.array([0, 2, 4, 6]),
        np.array([0, 1, 0, 1, 1, 0]),
        np.array([1, 2, 1, 2, 1, 2], np.int32),
        np.array([1, 0, 3, 0, 1, 1]),
        np.array([1, 3, 2]),
        np.array([4.0, 2.0, 2.0, 6.0, 0.5, 3.0]),
    )


def test_weights_are_carried_along() -> None:
    clicks = log()
    assert clicks.weighted_clicks.tolist() == [4.0, 0.0, 6.0, 0.0, 0.5, 3.0]
    assert replace(clicks, weights=None).weighted_clicks.tolist() == [1, 0, 3, 0, 1, 1]
    merged = clicks.merge()
    assert merged.clicks.tolist() == [4, 0, 1, 1]
    assert merged.weights is not None
    assert merged.weights.tolist() == [2.5, 4.0, 0.5, 3.0]  # (1 x 4 + 3 x 2) / 4; no click: the mean of 2 and 6
    assert merged.weighted_clicks.tolist() == [10.0, 0.0, 0.5, 3.0]
    taken = clicks.take([2, 0]).weights
    assert taken is not None
    assert taken.tolist() == [0.5, 3.0, 4.0, 2.0]
    joined = concatenate([clicks.take([0]), replace(clicks.take([2]), weights=None)]).weights
    assert joined is not None
    assert joined.tolist() == [4.0, 2.0, 1.0, 1.0]
    assert concatenate([replace(clicks, weights=None)] * 2).weights is None


@pytest.mark.parametrize(
    ("weights", "problem"),
    [
        (np.ones(5), "6 rows but weights of shape"),
        (np.full(6, np.nan), "finite and not negative"),
        (np.full(6, -1.0), "finite and not negative"),
    ],
)
def test_bad_weights_are_refused(weights: Any, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        log().weighted(weights)
    with pytest.raises(DataError, match="weights must be float64, got int64"):
        replace(log(), weights=np.ones(6, np.int64))


def test_batches_and_targets_of_trees_count_clicks_by_weight() -> None:
    clicks = log()
    batch = pad(clicks, np.arange(3), scale=2.0)
    assert batch.clicks.tolist() == [[2.0, 0.0], [3.0, 0.0], [0.25, 1.5]]
    assert batch.impressions.tolist() == [0.5, 1.5, 1.0]
    _, targets, _ = clicks_per_exposure(clicks, clicks.list_impressions.astype(float), shrinkage=0.0)
    assert targets.tolist() == pytest.approx([13 / 6, 0.5 / 6])


@pytest.mark.parametrize("name", ["click", "dla"])
def test_a_weighted_click_is_as_many_clicks(name: str, clicks: Clicks) -> None:
    """Weights of 0 to 2 against counts multiplied by them: the same model."""
    times = np.random.default_rng(0).integers(0, 3, len(clicks.rows))
    half = replace(clicks, impressions=clicks.impressions * 2)
    counted = replace(half, clicks=clicks.clicks * times)
    scores = [
        fit(each, method=method(name), ranker=Linear(), settings=FIT).model.score(clicks.lists)
        for each in (half.weighted(times.astype(np.float64)), counted)
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def test_methods_that_take_no_weights_name_those_that_do(clicks: Clicks) -> None:
    weighted = clicks.weighted(np.ones(len(clicks.rows)))
    with pytest.raises(DataError, match=r"have weights, and pal takes none\. Take labels, click, ipw"):
        fit(weighted, method=method("pal"), ranker=Linear(), settings=FIT)
    with pytest.raises(DataError, match="clicks to learn from have weights, those held out none"):
        fit(weighted, method=method("click"), ranker=Linear(), settings=FIT, validation=clicks)
    fitted = fit(weighted, method=method("click"), ranker=Linear(), settings=FIT, validation=weighted)
    plain = fit(clicks, method=method("click"), ranker=Linear(), settings=FIT, validation=clicks)
    assert torch.equal(*(torch.from_numpy(one.model.score(clicks.lists)) for one in (fitted, plain)))


def test_weights_survive_a_file(tmp_path: Path) -> None:
    clicks = log()
    save_clicks(clicks, tmp_path / "log.npz")
    loaded = load_clicks(tmp_path / "log.npz", clicks.lists)
    np.testing.assert_array_equal(np.asarray(loaded.weights), np.asarray(clicks.weights))
    save_clicks(replace(clicks, weights=None), tmp_path / "plain.npz")
    assert load_clicks(tmp_path / "plain.npz", clicks.lists).weights is None
