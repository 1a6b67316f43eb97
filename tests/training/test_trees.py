"""Training of trees: their targets, when they stop, what they keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clickprism.debias.click import Click
from clickprism.debias.dla import DualLearning
from clickprism.debias.ipw import InversePropensity
from clickprism.errors import SettingError
from clickprism.rankers.lambdamart import LambdaMART
from clickprism.rankers.linear import Linear
from clickprism.simulation.clicks import ideal_clicks
from clickprism.training.fit import fit
from clickprism.training.settings import FitSettings, Scorer, Validation
from clickprism.training.trees import clicks_per_exposure, per_exposure
from clickprism.types import Clicks, Float64, JudgedLists, Lists

FAST = FitSettings(epochs=6, batch_size=16, threads=1, seed=5)


def scripted(values: list[float]) -> Validation:
    """A validation that says these values, whatever the model, and then is interrupted."""
    left = iter(values)

    def measure(_: Scorer) -> float:
        for value in left:
            return value
        raise KeyboardInterrupt

    return Validation("script", measure)


def test_clicks_per_exposure_equal_a_calculation_by_hand() -> None:
    lists = Lists(np.zeros((4, 1), dtype=np.float32), np.array([0, 3, 4]), np.array(["a", "b"]))
    clicks = Clicks(
        lists,
        np.array([0, 2, 4]),
        np.array([0, 1, 1, 0]),
        np.array([1, 2, 1, 2], dtype=np.int32),
        np.array([4, 1, 2, 0]),
        np.array([10, 2]),
    )
    exposure: Float64 = clicks.list_impressions * np.array([1.0, 0.5])[clicks.positions - 1]
    rows, targets, lengths = clicks_per_exposure(clicks, exposure, shrinkage=0.0)
    assert rows.tolist() == [0, 1]
    assert lengths.tolist() == [2]
    assert targets.tolist() == pytest.approx([4 / 11, 3 / 7])
    _, shrunk, _ = clicks_per_exposure(clicks, exposure, shrinkage=3.0)
    high, low = 6 / 12, 1 / 6
    first, second = (10 * high + 2 * low) / 12, (2 * high + 10 * low) / 12
    off = 3 * second / 14
    assert shrunk.tolist() == pytest.approx([(4 + 3 * first) / 14 - off, (3 + 3 * second) / 10 - off])
    _, net, _ = clicks_per_exposure(clicks, exposure, shrinkage=0.0, background=np.array([1.0, 0.5, 0, 0]))
    assert net.tolist() == pytest.approx([3 / 11, 2.5 / 7])


def test_with_equal_exposure_little_evidence_is_drawn_to_the_mean_of_the_log() -> None:
    lists = Lists(np.zeros((3, 1), dtype=np.float32), np.array([0, 2, 3]), np.array(["a", "b"]))
    places, counts = np.array([1, 2, 1], dtype=np.int32), np.array([4, 1, 1])
    clicks = Clicks(lists, np.array([0, 2, 3]), np.array([0, 1, 2]), places, counts, np.array([8, 2]))
    _, targets, _ = clicks_per_exposure(clicks, clicks.list_impressions.astype(np.float64), shrinkage=2.0)
    mean = 6 / 18
    assert targets.tolist() == pytest.approx([0.4, 0.1, (1 + 2 * mean) / 4 - 2 * mean / 10])


def test_targets_of_grades_are_proportional_to_their_gains(judged: JudgedLists) -> None:
    high = JudgedLists(judged.lists, judged.grades + 1)
    log = ideal_clicks(high)
    _, targets, _ = clicks_per_exposure(log, log.list_impressions.astype(np.float64), shrinkage=1.0)
    ratios = targets / (2.0**high.grades - 1)
    assert ratios == pytest.approx(np.full(len(ratios), ratios[0]))


def test_hardly_observed_impressions_count_as_the_floor(clicks: Clicks) -> None:
    curve = tuple(1 / place for place in range(1, 13))
    learner = InversePropensity(curve).learner(Linear().build(5), clicks)
    ranker = LambdaMART(shrinkage=0.0, floor=0.25)
    floored = InversePropensity(curve, floor=0.25).learner(Linear().build(5), clicks)
    for one, other, same in ((ranker, floored, True), (replace(ranker, floor=0.0), floored, False)):
        targets = per_exposure(clicks, learner, one).targets
        wanted = per_exposure(clicks, other, replace(one, floor=0.0)).targets
        assert (targets == pytest.approx(wanted)) is same


def test_trees_stop_and_keep_the_best(clicks: Clicks) -> None:
    ranker = LambdaMART(trees=100, leaves=4, min_data_in_leaf=5)
    fitted = fit(
        clicks, method=Click(), ranker=ranker, settings=replace(FAST, patience=2), validation=scripted([1, 3, 2, 2, 2])
    )
    assert (fitted.best_epoch, fitted.best_value, fitted.stopped) == (20, 3, "patience")
    twenty = fit(clicks, method=Click(), ranker=replace(ranker, trees=20), settings=FAST).model
    np.testing.assert_array_equal(fitted.model.score(clicks.lists), twenty.score(clicks.lists))
    with pytest.raises(SettingError, match="validation must be a measure for trees"):
        fit(clicks, method=Click(), ranker=ranker, settings=FAST, validation=clicks)


def test_ctrl_c_keeps_the_best_trees_so_far(clicks: Clicks, tmp_path: Path) -> None:
    ranker = LambdaMART(trees=100, leaves=4, min_data_in_leaf=5)
    validation = scripted([1, 2])
    fitted = fit(clicks, method=Click(), ranker=ranker, settings=FAST, validation=validation, out=tmp_path)
    assert (fitted.stopped, fitted.best_epoch) == ("interrupted", 20)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_trees_learn_the_observation_with_a_network_first(clicks: Clicks) -> None:
    ranker = LambdaMART(trees=5, leaves=4, min_data_in_leaf=5)
    fitted = fit(clicks, method=DualLearning(), ranker=ranker, settings=FAST, observer=Linear())
    assert fitted.observation is not None
    assert fitted.observation[0] == 1.0
    assert fitted.observation[-1] < 0.9
