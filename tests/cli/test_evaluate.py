"""`clickprism evaluate`: models on judged lists, and rankers on a click log."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.cli.reference import examples

Run = Callable[..., Any]
SMALL = """\
[data.synthetic]
train_queries = 60
validation_queries = 20
test_queries = 40
features = 12

[ranker]
name = "linear"

[fit]
epochs = 2
threads = 1
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, cli: Run) -> Path:
    """Return a folder with simulated clicks, two rankers trained on them, an ingested log and a bundle.

    In sessions.tsv and mylog both documents of 30 queries are shown in each order equally often. The second document is
    clicked in half of the sessions, the first never. The file scores.csv ranks the second document first, half.csv
    scores the first document only, missing.csv names other documents.
    """
    folder = tmp_path_factory.mktemp("work")
    (folder / "small.toml").write_text(SMALL)
    small = ["--config", folder / "small.toml"]
    simulation = ["--simulation.rankers", 3, "--sessions", 200]
    cli("experiment", "simulate", *small, *simulation, "--out", folder / "clicks.npz")
    for method in ("click", "dla"):
        cli("train", folder / "clicks.npz", *small, "--method", method, "--out", folder / "runs" / method)
    sessions, rows = ["query\tdocuments\tclicks"], []
    for number in range(600):
        query, order = number % 30, (0, 1) if number % 60 < 30 else (1, 0)
        clicked = 1 if number % 120 < 60 else None
        names = [f"d{query}-{document}" for document in order]
        sessions.append(f"q{query}\t{','.join(names)}\t{'' if clicked is None else f'd{query}-{clicked}'}")
        about = {"search_id": f"s{number}", "user_id": f"u{number}", "query_id": f"q{query}"}
        for position, (name, document) in enumerate(zip(names, order, strict=True), start=1):
            shown = {"document_id": name, "position": position, "features": {"quality": document + query / 100}}
            rows.append(about | shown | {"time": "2026-03-01T10:00:00Z", "click": document == clicked})
    (folder / "sessions.tsv").write_text("\n".join(sessions))
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    cli("log", "ingest", folder / "events.jsonl", "--into", folder / "mylog")
    cli("train", folder / "mylog", *small, "--method", "click", "--out", folder / "runs" / "mylog")
    cli("model", "bundle", folder / "runs" / "mylog", "--out", folder / "runs" / "mylog" / "bundle")
    scores = [f"q{query},d{query}-{document},{document}" for query in range(30) for document in range(2)]
    for name, lines in (("scores", scores), ("half", scores[::2]), ("missing", ["q0,other,1"])):
        (folder / f"{name}.csv").write_text("\n".join(["query,document,score", *lines]))
    return folder


@pytest.fixture(autouse=True)
def _work(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the workspace the working directory."""
    monkeypatch.chdir(workspace)


@pytest.mark.parametrize("line", examples(["evaluate", "judged"]) + examples(["evaluate", "counterfactual"]))
def test_the_examples_in_the_help_run(line: str, cli: Run) -> None:
    assert cli(*shlex.split(line)[1:]).stdout


def test_the_data_and_the_normaliser_of_a_run_are_found(cli: Run) -> None:
    one = cli("evaluate", "judged", "runs/dla/model", "--json").json
    assert [row["method"] for row in one["rows"]] == ["dla"]
    assert one["queries"]["nDCG(exp)@10"] + one["dropped"]["nDCG(exp)@10"] == 40
    words = ["evaluate", "judged", "runs/click", "runs/dla", "--measure", "nDCG@5", "--measure", "MRR"]
    both = cli(*words, "--part", "validation", "--json").json
    assert (both["baseline"], both["seeds"]) == ("click", [0])
    assert {row["measure"] for row in both["rows"]} == {"nDCG(exp)@5", "MRR(rel=1)"}
    assert both["queries"]["nDCG(exp)@5"] + both["dropped"]["nDCG(exp)@5"] == 20
    assert "vs click" in cli(*words).stdout


def test_a_model_normalises_raw_features_exactly_once(tmp_path: Path, cli: Run) -> None:
    words = ["--config", "small.toml", "--data.normalise", "standard", "--out", tmp_path / "run"]
    trained = cli("train", *words, "--json").json
    measured = cli("evaluate", "judged", tmp_path / "run", "--part", "validation", "--json").json
    assert measured["rows"][0]["mean"] == pytest.approx(trained["value"], abs=1e-9)


def test_models_trained_on_different_data_are_compared_on_data_that_is_named(tmp_path: Path, cli: Run) -> None:
    cli("train", "--config", "small.toml", "--data.synthetic.seed", 9, "--out", tmp_path / "other")
    words = ["evaluate", "judged", "runs/click", tmp_path / "other"]
    assert "different data" in cli(*words, code=2).stderr
    (tmp_path / "data.toml").write_text(SMALL.partition("[ranker]")[0])
    compared = cli(*words, "--config", tmp_path / "data.toml", "--json").json
    assert {row["method"] for row in compared["rows"]} == {"click", "other"}
    assert compared["queries"]["nDCG(exp)@10"] + compared["dropped"]["nDCG(exp)@10"] == 40


def test_a_folder_without_a_model_is_a_failure(cli: Run) -> None:
    assert "nowhere" in cli("evaluate", "judged", "nowhere", code=1).stderr
    assert "name at least one model" in cli("evaluate", "judged", code=2).stderr


def test_a_ranker_that_shows_the_same_documents_gets_the_same_clicks(cli: Run) -> None:
    """Every estimator without a click model gives half a click per search, as logged."""
    shown = cli("evaluate", "counterfactual", "sessions.tsv", "--scores", "scores.csv", "--json", "-q").json
    (ranker,) = shown["rankers"].values()
    assert ranker["logged"]["value"] == pytest.approx(0.5)
    assert ranker["best"] == "ips"
    for name in ("ips", "snips", "reward-interaction", "item-position", "cascade-dr", "item-position-dr"):
        assert ranker["estimates"][name]["value"]["value"] == pytest.approx(0.5), name
        assert ranker["estimates"][name]["verdict"] == "no difference found"
    assert ranker["estimates"]["ips"]["effective"] == pytest.approx(300)


def test_the_text_has_the_curve_the_measure_and_the_assumption_of_each_estimator(cli: Run) -> None:
    words = ["--scores", "scores.csv", "--estimator", "ips", "--measure", "dcg"]
    shown = cli("evaluate", "counterfactual", "sessions.tsv", *words).stdout
    assert shown.startswith("Observation by position: 1 ")
    assert "DCG of clicks per search at positions 1 to 2, 95% intervals" in shown
    assert "ips        assumes: " in shown
    assert "snips" not in shown


def test_documents_without_a_score_rank_last_and_are_counted(cli: Run) -> None:
    words = ["--scores", "half.csv", "--estimator", "ips"]
    told = cli("evaluate", "counterfactual", "sessions.tsv", *words).stderr
    assert "30 of 60 documents of the log have no score" in told


def test_a_log_that_supports_no_estimate_is_refused_with_the_reason(cli: Run) -> None:
    """The weight of a matching session is 2. With weights clipped at 1, half of the affected clicks are cut off."""
    words = ["--scores", "scores.csv", "--estimator", "ips", "--clip", 1]
    done = cli("evaluate", "counterfactual", "sessions.tsv", *words, code=3)
    assert "refused: 50.0% of the affected clicks" in done.stdout
    assert "the log supports no estimate for any ranker" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("", 2, "name at least one model, or give --scores FILE"),
        ("--scores missing.csv", 1, "has no score of any document of the log"),
        ("--scores scores.csv --estimator ipw", 2, 'for --estimator. Choose from: "ips"'),
        ("--scores scores.csv --clip 0", 2, "--clip must be at least 1"),
        ("--scores scores.csv --measure nDCG@10", 2, 'for --measure. Choose from: "clicks", "dcg"'),
        ("runs/dla", 1, "have no features to score"),
    ],
)
def test_errors_name_the_option(words: str, code: int, told: str, cli: Run) -> None:
    assert told in cli("evaluate", "counterfactual", "sessions.tsv", *words.split(), code=code).stderr


def test_a_model_scores_the_documents_of_a_simulated_log(cli: Run) -> None:
    ranker = cli("evaluate", "counterfactual", "clicks.npz", "runs/click", "--json", "-q").json["rankers"]["runs/click"]
    assert ranker["best"] in ("item-position-dr", "position-based", "cascade-dr")
    assert np.isfinite(ranker["estimates"][ranker["best"]]["value"]["value"])
