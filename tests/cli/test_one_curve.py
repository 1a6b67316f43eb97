"""Every command that prints the position curve of a log prints the same one."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from clickprism._util.tables import to_plain
from clickprism.auto.run import write_auto_bundle
from clickprism.diagnosis.diagnose import diagnose
from clickprism.experiments.scorable_log import open_log
from clickprism.log.ingest import ingest
from clickprism.log_model.results import ClickParameters
from clickprism.model import Model
from clickprism.rankers.linear import Linear
from clickprism.simulation.raw_log import write_raw_log
from clickprism.simulation.raw_settings import RawLogSettings

Run = Callable[..., Any]

LOGS: Final[dict[str, dict[str, Any]]] = {
    "several rankers": {"user": {"name": "pbm"}, "trust": 0.0, "feedback": 0.0, "randomised": 0.0},
    "random first results": {"user": {"name": "pbm"}, "feedback": 0.0, "randomised": 0.3},
    "trust": {"user": {"name": "trust"}, "feedback": 0.0},
    "engine that reacts to clicks": {"feedback": 5.0, "rankers": 1, "randomised": 0.0},
    "one ranker, no features": {"feedback": 0.0, "rankers": 1, "randomised": 0.0, "features": False},
}


@pytest.mark.parametrize("name", LOGS)
def test_commands_print_the_same_curve(name: str, tmp_path: Path, cli: Run) -> None:
    """`relevance estimate` reads sums that the engine adds up, the others ranked lists; the counts are the same."""
    log, scores, out = tmp_path / "log", tmp_path / "scores.csv", tmp_path / "estimates.parquet"
    small = {"searches": 2000, "days": 3, "queries": 50, "max_documents": 8, "length": 6, "features": True, "seed": 3}
    write_raw_log(tmp_path / "raw", RawLogSettings(**(small | LOGS[name])))
    ingest([tmp_path / "raw" / "events"], log)
    position = cli("bias", "position", log, "--resamples", 0, "--json").json["curve"]
    assert len(position["values"]) == 6
    estimated = cli("relevance", "estimate", log, "--min-users", 0, "--out", out, "--json").json
    curves = {
        "diagnose": cli("diagnose", log, "--only", "position", "--json").json["curve"],
        "bias trust": cli("bias", "trust", log, "--out", tmp_path / "trust.json", "--json").json["curve"],
        "relevance estimate": estimated["model"]["curve"],
    }
    parameters = ClickParameters.read(tmp_path / "trust.json")
    assert parameters.alpha.tolist() == estimated["parameters"]["alpha"] == position["values"]
    write_scores(out, scores)
    words = ["evaluate", "counterfactual", log, "--scores", scores, "--depth", 3, "--json"]
    (ranker,) = counterfactual(cli, words)["rankers"].values()
    curves["evaluate counterfactual"] = ranker["curve"]
    for command, curve in curves.items():
        assert curve == position, command
    if LOGS[name].get("features", True):
        assert model_card(log, tmp_path) == [f"{value:.4f}" for value in position["values"]]


def write_scores(estimates: Path, file: Path) -> None:
    """Write estimates as the scores of a ranker."""
    rows = pq.read_table(estimates).to_pylist()
    with file.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened).writerows([["query", "document", "score"], *([*row.values()][:3] for row in rows)])


def counterfactual(cli: Run, words: list[object]) -> Any:
    """Return the result, also if every estimate is refused (exit code 3)."""
    try:
        return cli(*words).json
    except AssertionError:
        return cli(*words, code=3).json


def model_card(log: Path, folder: Path) -> list[str]:
    """Return the observation by position in the MODEL_CARD of a bundle that `auto` writes."""
    logged = open_log(log).logged
    width = logged.clicks.lists.features.shape[1]
    model = Model(Linear(), Linear().build(width), features=width, method={"name": "click"})
    for name in ("model", "naive"):
        model.save(folder / "source" / name)
    diagnosis = diagnose(logged, only=["position"])
    choice = {
        "chosen": "linear",
        "use": "corrected",
        "curve": to_plain(diagnosis.curve),
        "summary": "a linear ranker",
        "scope": {"rerank_depth": None, "reason": ""},
    }
    value, made = {"sentence": ""}, datetime(2026, 1, 1, tzinfo=UTC)
    write_auto_bundle(folder / "bundle", logged, choice, value, diagnosis, source=folder / "source", made=made)
    card = (folder / "bundle" / "MODEL_CARD.md").read_text(encoding="utf-8")
    return re.findall(r"\| \d+ \| (\d\.\d{4}) \|", card.partition("## Observation")[2].partition("\n## ")[0])
