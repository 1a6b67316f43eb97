"""What methods say about observation, in training and in comparisons: the form that `lbd` chose, and Delta-CI."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

from clickprism._util.tables import to_plain
from clickprism.data.clicks import save_clicks
from clickprism.data.synthetic import SyntheticSettings
from clickprism.debias.lbd import Choice, choice_text
from clickprism.experiments.compare import compare_methods
from clickprism.experiments.data import load_data, simulate_log
from clickprism.experiments.results import Results, write_results
from clickprism.experiments.settings import DataSettings, ExperimentSettings
from clickprism.experiments.train import observation_model, train_ranker
from clickprism.training.settings import FitSettings
from tests.experiments import conftest

TRIED = (Choice(16, 0.0, -1.2, 9), Choice(0, 0.01, -1.25, 8), Choice(0, math.inf, -1.5, 7))
SETTINGS = ExperimentSettings(
    data=DataSettings(
        normalise="quantile",
        synthetic=SyntheticSettings(train_queries=60, validation_queries=10, test_queries=20, features=12),
    ),
    user={"name": "coupled", "eta": 0.5},
    ranker={"name": "linear"},
    methods={"click": {}, "lbd": {"observation": {"epochs": 2, "companion": [4]}}, "dla": {}},
    fit=FitSettings(epochs=2, threads=1),
    runs=2,
)


def test_what_was_chosen_in_a_line() -> None:
    words = "(held-out log-likelihood -1.2000; positions only -1.5000)"
    network = "depends on documents: network of 16 units, penalty 0"
    assert choice_text(TRIED) == f"observation {network} {words}"
    assert choice_text(TRIED[:1]).endswith("(held-out log-likelihood -1.2000)")
    assert choice_text(TRIED[::-1]).endswith("(held-out log-likelihood -1.5000; best with documents -1.2000)")


def test_a_comparison_shows_how_observation_depends_on_documents(tmp_path: Path) -> None:
    results = compare_methods(SETTINGS)
    assert all((run.observation_model == "") == (run.label != "lbd") for run in results.runs)
    assert [name for name, _ in results.tables()[-1].rows] == ["lbd, seed 0", "lbd, seed 1"]
    text = results.of("lbd")[0].observation_model
    assert re.match(r"observation depends on (documents|positions only).*\(held-out log-likelihood -\d\.\d{4}; ", text)
    page = write_results(results, tmp_path, title="coupling").read_text()
    assert "Observation models" in page
    assert text.partition("(")[2] in page


def test_training_shows_what_lbd_chose(tmp_path: Path) -> None:
    data = load_data(SETTINGS.data).dataset
    log = simulate_log(SETTINGS, data, seed=0).simulation
    save_clicks(log.clicks, tmp_path / "clicks.npz", truth=log.truth)
    trained = train_ranker(SETTINGS, method="lbd", out=tmp_path / "lbd")
    assert trained.observation_model.startswith("observation depends on ")
    assert trained.observation_model in trained.tables()[0].text()
    trees, source = replace(SETTINGS, ranker={"name": "lambdamart", "trees": 2}), tmp_path / "clicks.npz"
    grown = train_ranker(trees, method="lbd", source=source, out=tmp_path / "trees")
    assert grown.observation_model.startswith("observation depends on ")
    assert train_ranker(SETTINGS, method="dla", source=source, out=tmp_path / "dla").observation_model == ""
    assert observation_model(None, log.clicks) == ""


def test_a_comparison_measures_delta_ci(comparison: Results, tmp_path: Path) -> None:
    results = comparison
    texts = [run.observation_model for run in results.of("inforank")]
    assert all(re.fullmatch(r"Delta-CI 0\.\d{4} ± 0\.\d{4}, mutual information \S+ nats", text) for text in texts)
    assert all(run.observation_model == "" for run in results.of("click"))
    page = write_results(results, tmp_path, title="methods").read_text()
    epochs = ", ".join(str(run.best) for run in results.of("inforank"))
    assert re.search(rf"true and estimated, at the best epoch of at most \d+ \(inforank {epochs}\)", page)
    assert all(text in page for text in texts)
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept == to_plain(results)
    assert [run["label"] for run in kept["runs"]] == [run.label for run in results.runs]


def test_training_measures_delta_ci(tmp_path: Path) -> None:
    trained = train_ranker(conftest.SETTINGS, method="inforank", out=tmp_path / "inforank")
    assert re.match(r"Delta-CI 0\.\d{4} ± 0\.\d{4}, ", trained.observation_model)
    assert trained.observation_model in trained.tables()[0].text()
    assert train_ranker(conftest.SETTINGS, method="click", out=tmp_path / "click").observation_model == ""
