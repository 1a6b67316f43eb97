"""How documents bend the observation: by hand, in JSON, in the report, and from the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from clickprism._util.tables import to_json
from clickprism.cli_old.app import app
from clickprism.debias.click import Click
from clickprism.debias.document import DocumentLearner
from clickprism.debias.steepness import Choice
from clickprism.experiments.bend import Bend, bend_of, bend_tables, choice_text, chosen_text, mean_bend, true_bend
from clickprism.observation.lipschitz import Lipschitz
from clickprism.types import Batch, Clicks, Lists
from clickprism.users.base import User
from clickprism.users.coupled import CoupledUser
from clickprism.users.pbm import PositionUser
from clickprism.users.ubm import BrowsingUser

LOGS = torch.log(torch.tensor([0.5, 0.25]))
FLAT = Lipschitz("relative", 0.0, 0.0, (0.0, 0.0), (0.0, 0.0))
COUPLED = CoupledUser(eta=1, columns=(0, 1), weights=(0.3, 0.4), base=PositionUser(curve=(0.5, 0.25)))
TRIED = (Choice(16, 0.0, -1.2, 9), Choice(0, 0.01, -1.25, 8), Choice(0, math.inf, -1.5, 7))


class Bent(DocumentLearner):
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


def test_the_bend_of_a_learner_beside_the_truth() -> None:
    # |w| = .5 and log v_2 - log v_1 = -log 2; the learner's slope is twice as long
    bend = bend_of(Bent(log(), (0.6, 0.8)), log(), COUPLED)
    assert bend is not None
    assert bend.documents == 4
    assert bend.choices == ()
    assert bend.fitted.means == pytest.approx((0, math.log(2)), rel=1e-6)
    assert bend.truth is not None
    assert bend.truth.maxima == pytest.approx((0, math.log(2) / 2))
    assert bend.plain()["ratio"] == pytest.approx(2, rel=1e-6)


def test_only_documents_can_bend() -> None:
    learner = Click().learner(nn.Linear(2, 1), log())
    assert bend_of(learner, log(), COUPLED) is None
    assert bend_of(None, log(), None) is None


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
def test_the_truth_is_told_where_it_is_known(user: User | None, truth: Lipschitz | None) -> None:
    assert true_bend(user, log().lists.features, positions=2) == truth
    bend = bend_of(Bent(log(), (1.0, 0.0)), log(), user)
    assert bend is not None
    assert bend.plain()["ratio"] is None


def test_many_documents_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickprism.experiments.bend.SAMPLE", 3)
    bend = bend_of(Bent(log(), (1.0, 0.0)), log(), None)
    assert bend is not None
    assert bend.documents == 2  # every other one


def test_means_over_seeds() -> None:
    one = Bend(10, Lipschitz("relative", 0.5, 1.0, (0.0, 1.0), (0.0, 1.0)), FLAT, TRIED)
    other = Bend(8, Lipschitz("relative", 1.0, 3.0, (0.0, 1.0, 2.0), (0.0, 2.0, 3.0)), None)
    mean = mean_bend([one, other])
    assert mean == Bend(8, Lipschitz("relative", 0.75, 2.0, (0.0, 1.0), (0.0, 1.5)), None)
    assert mean_bend([one, one]) == Bend(10, one.fitted, FLAT)


def test_tables_of_slopes_and_choices() -> None:
    steep = Lipschitz("relative", 0.5, 1.0, (0.0, 1.0), (0.0, 1.0))
    known = Bend(10, steep, Lipschitz("relative", 0.25, 0.5, (0.0, 0.5), (0.0, 0.5)), TRIED)
    alone = Bend(10, FLAT, FLAT, (Choice(0, math.inf, math.nan, 60),))
    slopes, choices = bend_tables({"lbd": {3: known}, "short": {0: alone}, "lbd_paper": {3: Bend(10, steep, None)}})
    assert slopes.rows == [
        ["lbd", "0.5000", "0.2500", "2.00", "1.0000", "0.5000"],
        ["short", "0.0000", "0.0000", "n/a", "0.0000", "0.0000"],
        ["lbd_paper", "0.5000", "n/a", "n/a", "1.0000", "n/a"],
    ]
    assert choices.header == ["method", "linear, penalty 0.01", "16 units, penalty 0", "the curve alone"]
    assert choices.rows == [["lbd, seed 3", "-1.2500", "-1.2000 *", "-1.5000"], ["short, seed 0", "", "", "n/a *"]]
    assert len(bend_tables({"lbd_paper": {3: Bend(10, steep, None)}})) == 1
    assert bend_tables({}) == []


def test_what_was_chosen_in_words() -> None:
    words = "(held-out log-likelihood -1.2000; the curve alone -1.5000)"
    assert choice_text(TRIED) == f"observation bends by a network of 16 hidden units, penalty 0 {words}"
    assert choice_text(TRIED[:1]).endswith("(held-out log-likelihood -1.2000)")
    assert choice_text(TRIED[::-1]).endswith("(held-out log-likelihood -1.5000; the best bend -1.2000)")


def test_what_was_chosen_with_each_seed() -> None:
    bent, curve = Bend(10, FLAT, None, TRIED), Bend(10, FLAT, None, TRIED[::-1])
    words = "observation bends by a network of 16 hidden units, penalty 0 (seed 7); is the curve alone (seeds 0, 3)"
    assert chosen_text({7: bent, 3: curve, 0: curve}) == words
    assert chosen_text({0: Bend(10, FLAT, None)}) == ""


def test_json_has_null_for_what_is_no_number() -> None:
    bend = Bend(
        10, Lipschitz("relative", math.nan, math.inf, (0.0,), (0.0,)), None, (Choice(0, math.inf, math.nan, 3),)
    )
    kept = json.loads(to_json({"lipschitz": bend.plain(), "choices": bend.plain_choices()}))
    assert kept["choices"] == [{"hidden": 0, "penalty": None, "likelihood": None, "epochs": 3, "chosen": True}]
    fitted = {"of": "relative", "mean": None, "maximum": None, "means": [0.0], "maxima": [0.0]}
    assert kept["lipschitz"] == {"documents": 10, "fitted": fitted, "truth": None, "ratio": None}
    json.dumps(bend.plain_choices(), allow_nan=False)


# From the command line

TINY = [
    f"--set={key}={value}"
    for key, value in {
        "data.synthetic.train_queries": 60,
        "data.synthetic.validation_queries": 10,
        "data.synthetic.test_queries": 20,
        "data.synthetic.features": 12,
        "data.normalise": "quantile",
        "methods.lbd.observation.epochs": 2,
        "methods.lbd.observation.companion": [4],
        "fit.epochs": 2,
        "fit.threads": 1,
        "user.name": "coupled",
        "user.eta": 0.5,
    }.items()
]


def run(*words: str) -> str:
    result = CliRunner().invoke(app, [*words, *TINY])
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.stdout


def read(*words: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(run(*words, "--json"), parse_constant=refuse)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICKPRISM_CACHE", str(tmp_path / "cache"))


def test_compare_says_how_documents_bend_the_observation(tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = read(
        "compare", "--ranker", "linear", "--methods", "click,lbd,vectorization", "--seeds", "2", f"--out={out}"
    )
    assert set(found["lipschitz"]) == {"lbd", "vectorization"}
    details = {(run["method"], run["seed"]): run for run in found["details"]}
    for label in ("click", "initial"):
        assert (details[label, 0]["lipschitz"], details[label, 0]["choices"]) == (None, [])
    assert details["vectorization", 0]["choices"] == []
    for label, mean in found["lipschitz"].items():
        each = [details[label, seed]["lipschitz"] for seed in (0, 1)]
        assert len(mean["fitted"]["means"]) == len(mean["truth"]["means"]) == 10
        assert mean["fitted"]["means"][0] == mean["truth"]["means"][0] == 0
        for side in ("fitted", "truth"):
            assert mean[side]["mean"] == pytest.approx(np.mean([one[side]["mean"] for one in each]))
        assert mean["ratio"] == pytest.approx(mean["fitted"]["mean"] / mean["truth"]["mean"])
        assert each[0]["truth"] != each[1]["truth"]  # each seed draws its users
    tried = details["lbd", 0]["choices"]
    assert [choice["chosen"] for choice in tried] == [True, *[False] * 4]
    assert {(choice["hidden"], choice["penalty"]) for choice in tried} == {
        *((hidden, penalty) for hidden in (0, 16) for penalty in (0, 0.01)),
        (0, None),
    }
    assert (out / "slopes.svg").exists()
    page = (out / "report.html").read_text()
    assert "How documents bend the observation" in page
    assert f"{found['lipschitz']['lbd']['fitted']['mean']:.4f}</td>" in page
    assert f"{tried[0]['likelihood']:.4f} *</td>" in page


def test_train_says_what_lbd_chose(tmp_path: Path) -> None:
    clicks = f"{tmp_path}/clicks.npz"
    run("simulate", "--out", clicks)
    words = ["train", "--method", "lbd", "--out", f"{tmp_path}/a"]
    shown = run(*words, "--ranker", "linear")
    kept = read(*words, "--ranker", "linear")
    slopes = kept["lipschitz"]
    assert f"{kept['choices'][0]['likelihood']:.4f}" in next(x for x in shown.splitlines() if x.startswith("lbd: obs"))
    whole = [f"{slopes[side][name]:.4f}" for name in ("mean", "maximum") for side in ("fitted", "truth")]
    assert shown.splitlines()[-1].split() == ["all", *whole]
    assert slopes["truth"]["mean"] > 0
    trees = read(*words, "--ranker", "lambdamart", "--set=ranker.trees=2", "--clicks", clicks)
    assert len(trees["choices"]) == 5
    assert trees["lipschitz"]["truth"] is None
    flat = read("train", "--method", "dla", "--ranker", "linear", "--clicks", clicks, "--out", f"{tmp_path}/b")
    assert (flat["lipschitz"], flat["choices"]) == (None, [])


def test_compare_says_what_lbd_chose_under_its_table() -> None:
    shown = run("compare", "--ranker", "linear", "--methods", "click,lbd", "--seeds", "1").rstrip().splitlines()
    assert shown[-1].startswith("lbd: observation ")
    assert shown[-1].endswith("(seed 0)")
    assert shown[-2] == ""
