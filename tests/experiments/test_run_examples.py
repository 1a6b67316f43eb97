"""Examples of a run: its log simulated again, ranked by its models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clickprism._util.tables import to_json
from clickprism.data.synthetic import SyntheticSettings
from clickprism.errors import DataError
from clickprism.experiments.bundle import examples_of_run
from clickprism.experiments.data import load_data, simulate_log
from clickprism.experiments.settings import DataSettings, ExperimentSettings
from clickprism.experiments.train import RUN, RunRecord, train_ranker
from clickprism.training.settings import FitSettings

SETTINGS = ExperimentSettings(
    data=DataSettings(synthetic=SyntheticSettings(train_queries=12, validation_queries=6, test_queries=6)),
    user={"name": "pbm"},
    ranker={"name": "linear"},
    methods={"dla": {}, "click": {}},
    fit=FitSettings(epochs=1, threads=1),
    sessions=300,
    seed=3,
)


def test_a_run_has_the_clicks_it_was_trained_on(tmp_path: Path) -> None:
    for method in ("dla", "click"):
        train_ranker(SETTINGS, method=method, out=tmp_path / method, show=False)
    clicks = simulate_log(SETTINGS, load_data(SETTINGS.data).dataset, seed=3).simulation.clicks
    made = examples_of_run(tmp_path / "dla", naive=tmp_path / "click", most=50)
    shown = [each for query in made.queries for each in query.documents]
    assert sum(each.clicks for each in shown) == clicks.clicks.sum()
    assert sum(each.impressions for each in shown) == clicks.list_impressions.sum()
    assert all(each.naive is not None for each in shown)
    assert made.observation[0] == 1.0
    assert len(examples_of_run(tmp_path / "dla", most=2).queries) == 2
    known = RunRecord.read(tmp_path / "dla")
    assert known is not None
    (tmp_path / "dla" / RUN).write_text(to_json(replace(known, data={"clicks": "of the file clicks.npz"})))
    with pytest.raises(DataError, match="does not say where its clicks came from"):
        examples_of_run(tmp_path / "dla")
