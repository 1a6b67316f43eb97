"""How observation depends on documents: by hand, in tables, in JSON, and in the results of a comparison."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from clickprism._util.tables import to_json
from clickprism.data.clicks import save_clicks
from clickprism.data.synthetic import SyntheticSettings
from clickprism.debias.click import Click
from clickprism.debias.document import DocumentLearner
from clickprism.debias.steepness import Choice
from clickprism.experiments.bias import (
    Coupling,
    choice_text,
    choices_text,
    coupling_of,
    coupling_tables,
    mean_coupling,
    true_coupling,
)
from clickprism.experiments.compare import compare_methods
from clickprism.experiments.data import load_data, simulate_log
from clickprism.experiments.results import write_results
from clickprism.experiments.settings import DataSettings, ExperimentSettings
from clickprism.experiments.train import train_ranker
from clickprism.observation.lipschitz import Lipschitz
from clickprism.training.settings import FitSettings
from clickprism.types import Batch, Clicks, Lists
from clickprism.users.base import User
from clickprism.users.coupled import CoupledUser
from clickprism.users.pbm import PositionUser
from clickprism.users.ubm import BrowsingUser

LOGS = torch.log(torch.tensor([0.5, 0.25]))
FLAT = Lipschitz("relative", 0.0, 0.0, (0.0, 0.0), (0.0, 0.0))
COUPLED = CoupledUser(eta=1, columns=(0, 1), weights=(0.3, 0.4), base=PositionUser(curve=(0.5, 0.25)))
TRIED = (Choice(16, 0.0, -1.2, 9), Choice(0, 0.01, -1.25, 8), Choice(0, math.inf, -1.5, 7))


class Dependent(DocumentLearner):
    """Log o_k(x) = (1 + slope . x) log v_k."""

    def __init__(self, clicks: Clicks, slope: tuple[float, float]) -> None:
        super().__init__(nn.Linear(2, 1), clicks)
        self.slope = torch.tensor(slope)

    def log_observation(self, features: torch.Tensor) -> torch.Tensor:
        return (1 + features @ self.slope)[..., None] * LOGS

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {}


def log() -> Clicks:
    """Two lists of two documents, and a fifth that was never shown, where the true exponent is below 0."""
    features = np.array([[0, 0], [0.5, 0], [0, 0.5], [0.5, 0.5], [-9, -9]], np.float32)
    lists = Lists(features, np.array([0, 5]), np.array(["q"]))
    places = np.array([1, 2, 1, 2], np.int32)
    return Clicks(lists, np.array([0, 2, 4]), np.arange(4), places, np.ones(4, np.int64), np.ones(2, np.int64))


def test_slopes_of_a_learner_beside_the_true_ones() -> None:
    # |w| = .5 and log v_2 - log v_1 = -log 2; the learner's slope is twice as long
    found = coupling_of(Dependent(log(), (0.6, 0.8)), log(), COUPLED)
    assert found is not None
    assert found.documents == 4
    assert found.choices == ()
    assert found.fitted.means == pytest.approx((0, math.log(2)), rel=1e-6)
    assert found.truth is not None
    assert found.truth.maxima == pytest.approx((0, math.log(2) / 2))
    assert found.fitted.against(found.truth)["ratio"] == pytest.approx(2, rel=1e-6)


def test_a_method_without_documents_in_its_observation_has_no_coupling() -> None:
    learner = Click().learner(nn.Linear(2, 1), log())
    assert coupling_of(learner, log(), COUPLED) is None
    assert coupling_of(None, log(), None) is None


@pytest.mark.parametrize(
    ("user", "truth"),
    [
        (PositionUser(), FLAT),
        (CoupledUser(eta=0), FLAT),
        (BrowsingUser(), None),
        (CoupledUser(eta=0, base=PositionUser(curve=(0.5, 0.0))), None),
        (None, None),
    ],
)
def test_the_truth_is_given_for_users_whose_observation_is_known(user: User | None, truth: Lipschitz | None) -> None:
    assert true_coupling(user, log().lists.features, positions=2) == truth
    found = coupling_of(Dependent(log(), (1.0, 0.0)), log(), user)
    assert found is not None
    assert found.truth == truth


def test_many_documents_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickprism.experiments.bias.SAMPLE", 3)
    found = coupling_of(Dependent(log(), (1.0, 0.0)), log(), None)
    assert found is not None
    assert found.documents == 2  # every other one


def test_means_over_runs() -> None:
    one = Coupling(10, Lipschitz("relative", 0.5, 1.0, (0.0, 1.0), (0.0, 1.0)), FLAT, TRIED)
    other = Coupling(8, Lipschitz("relative", 1.0, 3.0, (0.0, 1.0, 2.0), (0.0, 2.0, 3.0)), None)
    mean = mean_coupling([one, other])
    assert mean == Coupling(8, Lipschitz("relative", 0.75, 2.0, (0.0, 1.0), (0.0, 1.5)), None)
    assert mean_coupling([one, one]) == Coupling(10, one.fitted, FLAT)


def test_tables_of_slopes_and_choices() -> None:
    steep = Lipschitz("relative", 0.5, 1.0, (0.0, 1.0), (0.0, 1.0))
    known = Coupling(10, steep, Lipschitz("relative", 0.25, 0.5, (0.0, 0.5), (0.0, 0.5)), TRIED)
    alone = Coupling(10, FLAT, FLAT, (Choice(0, math.inf, math.nan, 60),))
    slopes, choices = coupling_tables(
        {"lbd": {3: known}, "short": {0: alone}, "lbd_paper": {3: Coupling(10, steep, None)}}
    )
    assert slopes.rows == [
        ["lbd", "0.5000", "0.2500", "2.00", "1.0000", "0.5000"],
        ["short", "0.0000", "0.0000", "n/a", "0.0000", "0.0000"],
        ["lbd_paper", "0.5000", "n/a", "n/a", "1.0000", "n/a"],
    ]
    assert choices.header == ["method", "linear, penalty 0.01", "network of 16 units, penalty 0", "positions only"]
    assert choices.rows == [["lbd, seed 3", "-1.2500", "-1.2000 *", "-1.5000"], ["short, seed 0", "", "", "n/a *"]]
    assert len(coupling_tables({"lbd_paper": {3: Coupling(10, steep, None)}})) == 1
    assert coupling_tables({}) == []


def test_what_was_chosen_in_a_line() -> None:
    words = "(held-out log-likelihood -1.2000; positions only -1.5000)"
    network = "depends on documents: network of 16 units, penalty 0"
    assert choice_text(TRIED) == f"observation {network} {words}"
    assert choice_text(TRIED[:1]).endswith("(held-out log-likelihood -1.2000)")
    assert choice_text(TRIED[::-1]).endswith("(held-out log-likelihood -1.5000; best with documents -1.2000)")


def test_what_was_chosen_in_each_run() -> None:
    chosen, curve = Coupling(10, FLAT, None, TRIED), Coupling(10, FLAT, None, TRIED[::-1])
    network = "depends on documents: network of 16 units, penalty 0"
    words = f"observation {network} (seed 7); depends on positions only (seeds 0, 3)"
    assert choices_text({7: chosen, 3: curve, 0: curve}) == words
    assert choices_text({0: Coupling(10, FLAT, None)}) == ""


def test_json_has_null_for_numbers_that_are_not_finite() -> None:
    slopes = Lipschitz("relative", math.nan, math.inf, (0.0,), (0.0,))
    kept = json.loads(to_json(Coupling(10, slopes, None, (Choice(0, math.inf, math.nan, 3),))))
    fitted = {"of": "relative", "mean": None, "maximum": None, "means": [0.0], "maxima": [0.0]}
    choices = [{"hidden": 0, "penalty": None, "likelihood": None, "epochs": 3}]
    assert kept == {"documents": 10, "fitted": fitted, "truth": None, "choices": choices, "doubt": ""}


SETTINGS = ExperimentSettings(
    data=DataSettings(
        normalise="quantile",
        synthetic=SyntheticSettings(train_queries=60, validation_queries=10, test_queries=20, features=12),
    ),
    user={"name": "coupled", "eta": 0.5},
    ranker={"name": "linear"},
    methods={"click": {}, "lbd": {"observation": {"epochs": 2, "companion": [4]}}, "vectorization": {}},
    fit=FitSettings(epochs=2, threads=1),
    runs=2,
)


def test_a_comparison_shows_how_observation_depends_on_documents(tmp_path: Path) -> None:
    results = compare_methods(SETTINGS)
    assert set(results.coupling) == {"lbd", "vectorization"}
    runs = {(run.label, run.seed): run.coupling for run in results.runs}
    assert runs["click", 0] is runs["initial", 0] is None
    for label, mean in results.coupling.items():
        first, second = runs[label, 0], runs[label, 1]
        assert first is not None
        assert second is not None
        assert mean.truth is not None
        assert len(mean.fitted.means) == len(mean.truth.means) == 10
        assert mean.fitted.means[0] == mean.truth.means[0] == 0
        assert mean.fitted.mean == pytest.approx((first.fitted.mean + second.fitted.mean) / 2)
        assert first.truth != second.truth  # each run draws its users
        assert len(first.choices) == (5 if label == "lbd" else 0)
    tried = results.couplings["lbd"][0].choices
    assert {(choice.hidden, choice.penalty) for choice in tried} == {
        *((hidden, penalty) for hidden in (0, 16) for penalty in (0, 0.01)),
        (0, math.inf),
    }
    (label, text), *_ = results.tables()[-1].rows
    assert label == "lbd"
    assert text.startswith("observation depends on ")
    page = write_results(results, tmp_path, title="coupling").read_text()
    assert (tmp_path / "slopes.svg").exists()
    assert "Document-dependent observation" in page
    assert f"{results.coupling['lbd'].fitted.mean:.4f}</td>" in page
    assert f"{tried[0].likelihood:.4f} *</td>" in page


def test_training_shows_what_lbd_chose(tmp_path: Path) -> None:
    data = load_data(SETTINGS.data).dataset
    log = simulate_log(SETTINGS, data, seed=0).simulation
    save_clicks(log.clicks, tmp_path / "clicks.npz", truth=log.truth)
    trained = train_ranker(SETTINGS, method="lbd", out=tmp_path / "lbd")
    coupling = trained.coupling
    assert coupling is not None
    assert coupling.truth is not None
    summary, _, slopes = trained.tables()
    assert f"{coupling.choices[0].likelihood:.4f}" in summary.text()
    whole = (coupling.fitted.mean, coupling.truth.mean, coupling.fitted.maximum, coupling.truth.maximum)
    assert slopes.rows[-1] == ["all", *(f"{value:.4f}" for value in whole)]
    trees = replace(SETTINGS, ranker={"name": "lambdamart", "trees": 2})
    grown = train_ranker(trees, method="lbd", source=tmp_path / "clicks.npz", out=tmp_path / "trees").coupling
    assert grown is not None
    assert len(grown.choices) == 5
    assert grown.truth is None  # the file does not say which users clicked
    assert train_ranker(SETTINGS, method="dla", source=tmp_path / "clicks.npz", out=tmp_path / "dla").coupling is None
