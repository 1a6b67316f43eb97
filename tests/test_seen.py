"""Logs that tell what was seen: counts that are checked, merged, joined, padded and kept on disk like clicks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clickprism.click_models.pbm import PositionUser
from clickprism.data.clicks import load_clicks, save_clicks
from clickprism.data.synthetic import SyntheticSettings, synthetic
from clickprism.debias.loop import pad
from clickprism.errors import DataError
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.types import Clicks, Lists, concatenate

LISTS = Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.array(["q"]))


def _log() -> Clicks:
    """Two sessions of one list of two, and one of another of three."""
    rows = np.array([0, 1, 0, 1, 0, 1, 2])
    places = np.array([1, 2, 1, 2, 1, 2, 3], dtype=np.int32)
    clicked, seen = np.array([1, 0, 0, 1, 0, 0, 0]), np.array([1, 0, 1, 1, 1, 1, 0])
    return Clicks(LISTS, np.array([0, 2, 4, 7]), rows, places, clicked, np.ones(3, dtype=np.int64), seen=seen)


def test_merging_adds_what_was_seen() -> None:
    merged = _log().merge()
    assert merged.seen is not None
    assert merged.clicks.tolist() == [1, 1, 0, 0, 0]
    assert merged.seen.tolist() == [2, 1, 1, 1, 0]


def test_taking_and_joining_keep_it() -> None:
    log = _log()
    again = concatenate([log.take([2]), log.take([0, 1])])
    assert again.seen is not None
    assert again.seen.tolist() == [1, 1, 0, 1, 0, 1, 1]
    with pytest.raises(DataError, match="cannot be joined"):
        concatenate([log, replace(log, seen=None)])


def test_a_batch_has_scaled_counts_and_none_where_masked() -> None:
    batch = pad(_log().merge(), np.array([0, 1]), scale=2.0)
    assert batch.seen is not None
    assert batch.seen.tolist() == [[1.0, 0.5, 0.0], [0.5, 0.5, 0.0]]
    assert pad(replace(_log(), seen=None), np.array([0])).seen is None


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        ([0, 0, 1, 1, 1, 1, 0], "what was clicked was seen"),
        ([2, 0, 1, 1, 1, 1, 0], "seen in more sessions than showed it"),
        ([1, 0], "7 rows but seen of shape"),
        ([1.0, 0, 1, 1, 1, 1, 0], "seen must be whole numbers"),
    ],
)
def test_what_cannot_be_is_refused(seen: list[float], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        replace(_log(), seen=np.array(seen))


def test_a_simulated_site_with_a_beacon_logs_the_truth_of_observation(tmp_path: Path) -> None:
    data = synthetic(SyntheticSettings(train_queries=20, validation_queries=2, test_queries=2))
    log = simulate(data.train, PositionUser(), sessions=200, seed=0, settings=SimulationSettings(seen=True))
    assert log.clicks.seen is not None
    assert np.array_equal(log.clicks.seen, log.truth.observed)
    save_clicks(log.clicks, tmp_path / "clicks.npz")
    loaded = load_clicks(tmp_path / "clicks.npz", data.train.lists)
    assert loaded.seen is not None
    assert np.array_equal(loaded.seen, log.clicks.seen)
