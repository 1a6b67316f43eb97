"""What `lbd` chose: in words, in a table, in JSON, in the results of a comparison and of training."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

from clickprism._util.tables import to_json
from clickprism.data.clicks import save_clicks
from clickprism.data.synthetic import SyntheticSettings
from clickprism.debias.lbd import Choice
from clickprism.experiments.compare import compare_methods
from clickprism.experiments.data import load_data, simulate_log
from clickprism.experiments.observation_models import (
    DocumentDependence,
    choice_text,
    dependence_of,
)
from clickprism.experiments.results import write_results
from clickprism.experiments.settings import DataSettings, ExperimentSettings
from clickprism.experiments.train import train_ranker
from clickprism.training.settings import FitSettings

TRIED = (Choice(16, 0.0, -1.2, 9), Choice(0, 0.01, -1.25, 8), Choice(0, math.inf, -1.5, 7))


def test_other_methods_have_no_choice() -> None:
    assert dependence_of(None) is None


def test_what_was_chosen_in_a_line() -> None:
    words = "(held-out log-likelihood -1.2000; positions only -1.5000)"
    network = "depends on documents: network of 16 units, penalty 0"
    assert choice_text(TRIED) == f"observation {network} {words}"
    assert choice_text(TRIED[:1]).endswith("(held-out log-likelihood -1.2000)")
    assert choice_text(TRIED[::-1]).endswith("(held-out log-likelihood -1.5000; best with documents -1.2000)")


def test_json_has_null_for_numbers_that_are_not_finite() -> None:
    written = json.loads(to_json(DocumentDependence((Choice(0, math.inf, math.nan, 3),))))
    assert written == {"choices": [{"hidden": 0, "penalty": None, "likelihood": None, "epochs": 3}], "doubt": ""}


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


def test_a_comparison_shows_how_observation_depends_on_documents(tmp_path: Path) -> None:
    results = compare_methods(SETTINGS)
    assert list(results.dependences) == ["lbd, seed 0", "lbd, seed 1"]
    assert all((run.document_dependence is None) == (run.label != "lbd") for run in results.runs)
    tried = results.dependences["lbd, seed 0"].choices
    assert len(tried) == 5
    assert {(choice.hidden, choice.penalty) for choice in tried} == {
        *((hidden, penalty) for hidden in (0, 16) for penalty in (0, 0.01)),
        (0, math.inf),
    }
    (label, text), *_ = results.tables()[-1].rows
    assert label == "lbd, seed 0"
    assert text.startswith("observation depends on ")
    page = write_results(results, tmp_path, title="coupling").read_text()
    assert "Observation models" in page
    assert f"(held-out log-likelihood {tried[0].likelihood:.4f}" in page


def test_training_shows_what_lbd_chose(tmp_path: Path) -> None:
    data = load_data(SETTINGS.data).dataset
    log = simulate_log(SETTINGS, data, seed=0).simulation
    save_clicks(log.clicks, tmp_path / "clicks.npz", truth=log.truth)
    trained = train_ranker(SETTINGS, method="lbd", out=tmp_path / "lbd")
    assert trained.document_dependence is not None
    assert f"{trained.document_dependence.choices[0].likelihood:.4f}" in trained.tables()[0].text()
    trees, source = replace(SETTINGS, ranker={"name": "lambdamart", "trees": 2}), tmp_path / "clicks.npz"
    grown = train_ranker(trees, method="lbd", source=source, out=tmp_path / "trees").document_dependence
    assert grown is not None
    assert len(grown.choices) == 5
    assert train_ranker(SETTINGS, method="dla", source=source, out=tmp_path / "dla").document_dependence is None
