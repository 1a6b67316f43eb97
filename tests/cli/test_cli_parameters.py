"""`clickprism parameters` on a session file, on a simulated log and on an ingested one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from clickprism.cli_old.app import app
from clickprism.data.clicks import save_clicks
from clickprism.observation.parameters import ClickParameters
from clickprism.simulation.clicks import SimulationSettings, simulate
from clickprism.types import JudgedLists, Lists
from clickprism.users.trust import TrustUser


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exit_code == code, result.output + str(result.exception)
    return result


def read(*words: object) -> Any:
    return json.loads(run("parameters", *words, "--json", "--quiet").stdout)


@pytest.fixture(scope="module")
def npz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    lists = Lists(np.zeros((360, 0), np.float32), np.arange(0, 361, 6), np.array([f"q{i}" for i in range(60)]))
    judged = JudgedLists(lists, rng.integers(0, 5, 360).astype(np.int32))
    scores = judged.grades + 2 * rng.normal(size=(4, 360))
    settings = SimulationSettings(length=4, gain="linear", noise=0)
    made = simulate(judged, TrustUser("hyperbolic"), sessions=40_000, seed=0, settings=settings, scores=scores)
    file = tmp_path_factory.mktemp("log") / "clicks.npz"
    save_clicks(made.clicks, file, truth=made.truth)
    return file


def test_a_simulated_log_gives_its_parameters(npz: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "parameters.json"
    result = run("parameters", npz, "--out", out)
    assert "P(click at k) = alpha c_1 + beta" in result.stdout
    assert "randomised  not supported: the log does not say" in result.stdout
    assert "clicks do not tell the level" in result.stderr
    found, k = ClickParameters.read(out), np.arange(1, 5)
    true = ClickParameters.of_trust(TrustUser("hyperbolic").observation(k), *TrustUser("hyperbolic").trust(k))
    assert found.source == "harvest"
    assert found.alpha == pytest.approx(true.alpha, rel=0.1)
    assert found.beta == pytest.approx(true.beta, abs=0.08)


def test_json_seed_depth_and_theta(npz: Path) -> None:
    one, other = read(npz, "--by", "harvest"), read(npz, "--by", "harvest", "--seed", 1)
    assert one["parameters"]["harvest"]["alpha"] == other["parameters"]["harvest"]["alpha"]
    assert one["parameters"]["harvest"]["alpha_lower"] != other["parameters"]["harvest"]["alpha_lower"]
    assert one == read(npz, "--by", "harvest")
    short = read(npz, "--by", "em", "--by", "harvest", "--depth", 3, "--theta", "curve", "--bootstrap", 0)
    assert list(short["parameters"]) == ["em", "harvest"]
    made = ClickParameters.from_plain(short["parameters"]["harvest"])
    assert len(made) == 3
    assert made.theta is not None
    assert made.theta[0] == 1
    assert np.isnan(made.alpha_lower).all()
    assert short["best"] == "harvest"


def test_errors_name_the_option(npz: Path, tmp_path: Path) -> None:
    assert "--out must end in .json" in run("parameters", npz, "--out", tmp_path / "x", code=2).stderr
    assert "did you mean 'harvest'" in run("parameters", npz, "--by", "harvets", code=2).stderr
    assert "--depth must be at least 2" in run("parameters", npz, "--depth", 1, code=2).stderr
    assert "--bootstrap must be 0" in run("parameters", npz, "--bootstrap", 1, code=2).stderr
    none = run("parameters", npz, "--by", "randomised", code=3)
    assert "the log supports none of the estimators" in none.stderr
    assert "Put a random result first" in none.stdout


def test_an_ingested_log_knows_what_was_random(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    raw, log = tmp_path / "raw", tmp_path / "log"
    settings = ["queries=60", "randomised=0.3", "robots=0", "max_documents=6", "broken=0", "length=6"]
    words = [word for each in settings for word in ("--set", each)]
    run("simulate", "--as-log", raw, "--searches", 6000, "--days", 2, "--seed", 1, *words)
    run("ingest", raw, "--into", log)
    found = read(log, "--depth", 3)
    assert {"randomised", "harvest"} <= set(found["parameters"])
    for each in found["parameters"].values():
        made = ClickParameters.from_plain(each)
        assert (made.alpha[1:] < 1.5).all()
        assert made.theta is None
