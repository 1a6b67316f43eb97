"""The raw log of the demo: its rows are as an ingest needs them, and its users behave as it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickprism.errors import SettingError
from clickprism.simulation.demo_log import FEATURES, RANDOMISED, _browse, write_demo_log
from clickprism.simulation.raw_settings import DemoSettings

SETTINGS = DemoSettings(searches=4000, queries=100, test_queries=10, days=4)


def read(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(file) for file in sorted(folder.iterdir())])


def test_a_log_has_ten_results_for_each_search_and_the_same_seed_the_same_rows(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        truth = write_demo_log(tmp_path / name, SETTINGS)
    rows = read(tmp_path / "one")
    assert rows.equals(read(tmp_path / "two"))
    assert len(rows) == 40_000
    assert set(np.bincount(rows["position"].to_numpy())[1:]) == {4000}
    assert len(set(rows["event_id"].to_pylist())) == len(rows)
    assert rows["features"].type.names == sorted(FEATURES) == list(FEATURES)
    assert int(truth.searches.sum()) == 4000
    assert sum(rows["click"].to_pylist()) == truth.clicks


def test_users_observe_by_position_and_some_first_results_are_random(tmp_path: Path) -> None:
    truth = write_demo_log(tmp_path, SETTINGS)
    rows = read(tmp_path)
    first = rows["position"].to_numpy() == 1
    clicked, randomised = (rows[name].to_numpy(zero_copy_only=False) for name in ("click", "randomised"))
    # 4000 searches: the standard error of the share is .0034; a result that is drawn again stays where it is
    assert randomised[first].mean() == pytest.approx(RANDOMISED, abs=0.015)
    assert not randomised[~first].any()
    assert clicked[first].mean() > 2 * clicked[~first].mean()
    assert truth.observation[0] == 1
    assert (np.diff(truth.observation) < 0).all()
    grades = truth.train.grades[truth.train.lists.list_of == 0]
    assert grades.max() > grades.min() == 0


def test_settings_that_make_no_log_are_refused() -> None:
    with pytest.raises(SettingError, match="candidates must be at least 10"):
        DemoSettings(candidates=9)


def test_users_of_the_other_form_read_from_the_top(tmp_path: Path) -> None:
    """All observe the first two results but 5%; half of them stop after three, the others after a click."""
    attracted = np.zeros((20_000, 5), dtype=np.bool_)
    attracted[:, 3] = True
    share = _browse(attracted, np.random.default_rng(1)).mean(axis=0)
    assert share == pytest.approx([1, 0.95, 0.95**2, 0.95**3 / 2, 0], abs=0.012)
    log = write_demo_log(tmp_path, DemoSettings(searches=100, queries=20, days=2), browsing=True)
    assert log.clicks > 0
