"""`clickprism demo`, `train` and `experiment` on data so small that each run takes a moment."""

from __future__ import annotations

import hashlib
import html
import json
import shlex
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clickprism.cli.app import addressed
from clickprism.cli.output import command_line
from clickprism.cli.reference import examples
from clickprism.serve.bundle.examples import read_examples
from clickprism.serve.store.base import open_store

Run = Callable[..., Any]
SMALL = """\
sessions = 20

[data.synthetic]
train_queries = 60
validation_queries = 20
test_queries = 40
features = 12

[fit]
epochs = 2
threads = 1
"""
LINEAR = ["--config", "small.toml", "--ranker", "linear"]
TRAINING = [["train"], *[["experiment", name] for name in ("simulate", "compare", "feedback")]]
FEW_ROUNDS = f"rounds = 2\nwarm = 1\nruns = 1\n{SMALL}[methods.click]\n"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, cli: Run) -> Path:
    """Return a folder with simulated clicks, an ingested log, and a ranker of each of two methods."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "small.toml").write_text(SMALL)
    (folder / "feedback.toml").write_text(FEW_ROUNDS)
    small = ["--config", folder / "small.toml"]
    cli("experiment", "simulate", *small, "--out", folder / "clicks.npz", "--held-out", folder / "held-out.npz")
    for method in ("click", "ipw"):
        out = folder / "runs" / method
        cli("train", folder / "clicks.npz", *small, "--ranker", "linear", "--method", method, "--out", out)
    raw = ["--searches", 300, "--days", 2, "--queries", 20, "--length", 5, "--features", "--seed", 1]
    cli("log", "simulate", *raw, "--out", folder / "raw")
    cli("log", "ingest", folder / "raw" / "events", "--into", folder / "mylog")
    return folder


@pytest.fixture(autouse=True)
def work(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the workspace the working directory."""
    monkeypatch.chdir(workspace)
    return workspace


@pytest.mark.parametrize("line", [line for path in TRAINING for line in examples(path)])
def test_the_examples_in_the_help_run(line: str, tmp_path: Path, cli: Run) -> None:
    words = [word.replace("runs/", f"{tmp_path}/") for word in shlex.split(line)[1:]]
    if addressed(words)[-1] == "simulate":
        words[-1] = str(tmp_path / words[-1])
    assert cli(*words, "--config", "feedback.toml" if "feedback" in words else "small.toml").stdout


def test_simulate_reports_how_users_behaved(tmp_path: Path, cli: Run) -> None:
    out = tmp_path / "deep" / "clicks.npz"
    words = ["experiment", "simulate", "--config", "small.toml", "--sessions", 30, "--user", "pbm", "--out", out]
    log = cli(*words, "--json").json
    assert (log["sessions"], log["lists"]) == (60 * 30, 60)
    assert len(log["observation"]) == 10
    assert log["observation"][0] == pytest.approx(0.68, abs=0.05)
    assert all(clicked <= observed for clicked, observed in zip(log["click_rate"], log["observation"], strict=True))
    assert "position  clicked  observed" in cli(*words).stdout


def test_the_command_that_simulate_suggests_runs(tmp_path: Path, cli: Run) -> None:
    words = ["experiment", "simulate", "--config", "small.toml", "--user", "ubm", "--out", tmp_path / "my clicks.npz"]
    program, *suggested = shlex.split(cli(*words).stderr.partition("Next: ")[2])
    assert program == "clickprism"
    assert suggested[-2:] == ["--out", "runs/dla"]
    assert "my clicks.npz" in cli(*suggested[:-1], tmp_path / "run", *LINEAR).stdout


def test_suggested_commands_can_be_typed_where_clickprism_is_not_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "in" / "clickprism")])
    assert command_line("evaluate", "judged", "a b") == "in/clickprism evaluate judged 'a b'"
    monkeypatch.setattr("sys.argv", ["/else where/clickprism"])
    assert command_line("demo") == "'/else where/clickprism' demo"


@pytest.mark.parametrize("option", [["--user", "ubm"], ["--sessions", "5"], ["--simulation.length", "5"]])
def test_train_on_a_log_simulates_no_users(option: list[str], tmp_path: Path, cli: Run) -> None:
    told = cli("train", "clicks.npz", *option, "--out", tmp_path / "run", code=2).stderr
    assert told.startswith(f"error: {option[0]} must not be given with a log, which has its own clicks")


@pytest.mark.parametrize("command", [["train"], ["experiment", "simulate"]])
def test_commands_with_one_run_refuse_several(command: list[str], tmp_path: Path, cli: Run) -> None:
    told = cli(*command, "--runs", 2, "--out", tmp_path / "run", code=2).stderr
    assert told.startswith("error: --runs must be 1 here; `clickprism experiment compare` has several runs, got 2\n")


@pytest.mark.parametrize("command", ["compare", "feedback"])
def test_a_negative_number_of_processes_is_refused(command: str, cli: Run) -> None:
    told = cli("experiment", command, "--jobs=-1", code=2).stderr
    assert told.startswith("error: --jobs must be at least 0, got -1\n")


def test_train_writes_the_model_and_a_record_of_the_run(work: Path) -> None:
    folder = work / "runs" / "click"
    names = {file.name for file in folder.iterdir()}
    assert names == {"model", "metrics.jsonl", "run.json", "settings.toml", "checkpoint.safetensors"}
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2


def test_ipw_uses_the_true_observation_of_simulated_users(tmp_path: Path, cli: Run) -> None:
    run = cli("train", "clicks.npz", *LINEAR, "--method", "ipw", "--out", tmp_path / "ipw", "--json").json
    assert run["observation"] == pytest.approx(run["truth"], rel=1e-5)
    assert (run["log"], run["stopped"], run["epochs"]) == ("clicks.npz", "epochs", 2)


def test_affine_uses_the_true_alpha_of_users_with_trust_bias(tmp_path: Path, cli: Run) -> None:
    words = [*LINEAR, "--user", "trust", "--method", "affine", "--out", tmp_path / "affine"]
    run = cli("train", *words, "--json").json
    assert run["observation"] == pytest.approx(run["truth"], rel=1e-5)
    assert run["truth"][1] > 1


def test_a_method_that_needs_click_patterns_gets_them_from_simulated_users(tmp_path: Path, cli: Run) -> None:
    cli("train", *LINEAR, "--method", "click_model", "--out", tmp_path / "model")


def test_the_settings_that_train_saves_give_the_same_model_again(work: Path, tmp_path: Path, cli: Run) -> None:
    config = work / "runs" / "click" / "settings.toml"
    cli("train", "--config", config, "--out", tmp_path / "again")
    comment, saved = config.read_text().split("\n", 1)
    clicks = work / "clicks.npz"
    assert comment == f'# clicks: "{clicks}", sha256 {hashlib.sha256(clicks.read_bytes()).hexdigest()}'
    assert (tmp_path / "again" / "settings.toml").read_text() == saved
    models = [folder / "model" / "model.json" for folder in (config.parent, tmp_path / "again")]
    assert models[0].read_text() == models[1].read_text()


def test_a_resumed_run_gives_the_model_of_an_uninterrupted_one(tmp_path: Path, cli: Run) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    cli("train", *LINEAR, "--fit.epochs", 4, "--out", whole)
    cli("train", *LINEAR, "--out", parts)
    assert cli("train", "--resume", "--out", parts, "--json").json["epochs"] == 2  # by the settings in the folder
    saved = parts / "settings.toml"
    told = cli("train", "--resume", "--fit.epochs", 4, "--out", parts, code=2).stderr
    assert f"--config must be {saved}" in told
    resumed = cli("train", "--resume", "--config", saved, "--fit.epochs", 4, "--out", parts, "--json").json
    assert resumed["epochs"] == 4
    models = [folder / "model" / "model.json" for folder in (whole, parts)]
    assert models[0].read_text() == models[1].read_text()


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path: Path, cli: Run) -> None:
    told = cli("train", "--resume", "--out", tmp_path, code=1).stderr
    assert f"{tmp_path}: there is nothing to resume" in told


def test_validation_by_clicks_needs_held_out_clicks(tmp_path: Path, cli: Run) -> None:
    words = ["train", "clicks.npz", *LINEAR, "--evaluation.validation", "clicks", "--out", tmp_path / "run"]
    assert "no clicks were held out" in cli(*words, code=2).stderr
    assert cli(*words, "--held-out", "held-out.npz", "--json").json["value"] < 0


def test_compare_prints_a_table_and_saves_everything(tmp_path: Path, cli: Run) -> None:
    out = tmp_path / "out"
    methods = [word for method in ("labels", "click", "dla") for word in ("--method", method)]
    words = ["experiment", "compare", *LINEAR, *methods, "--runs", 2, "--evaluation.measures", "nDCG@10"]
    done = cli(*words, "--out", out, "--json")
    results, comparison = done.json, done.json["comparison"]
    assert [row["method"] for row in comparison["rows"]].count("dla") == 1
    assert {row["method"] for row in comparison["rows"]} == {"labels", "click", "dla", "initial"}
    assert (comparison["seeds"], comparison["baseline"]) == ([0, 1], "click")
    for fact in ("users: pbm, 20 sessions of each query", "ranker: linear, best epoch by nDCG(exp)@10 on the judged"):
        assert fact in comparison["data"]
    assert len(results["observation"]["dla"]) == 10
    tables = {"table.txt", "table.md", "table.html", "results.json"}
    figures = {"observation.svg", "training.svg", "methods.svg"}
    names = {file.name for file in out.iterdir() if file.is_file()}
    assert names == tables | figures | {"report.html", "settings.toml"}
    assert json.loads((out / "results.json").read_text()) == results
    assert (out / "dla-1" / "model" / "model.json").exists()
    assert "experiment compare --config" in (out / "report.html").read_text()
    assert f"Report: {out / 'report.html'}" in done.stderr
    assert f"{out}/dla-0, {out}/dla-1" in cli("evaluate", "judged", out, code=1).stderr
    measured = cli("evaluate", "judged", out / "dla-0", out / "dla-1", "--json").json["rows"]
    expected = [run["means"]["nDCG(exp)@10"] for run in results["runs"] if run["label"] == "dla"]
    assert sorted(row["mean"] for row in measured) == pytest.approx(sorted(expected), abs=1e-9)


def test_compare_writes_every_format_and_is_quiet_if_asked(cli: Run, tmp_path: Path) -> None:
    done = cli("experiment", "compare", *LINEAR, "--method", "click", "--out", tmp_path, "--quiet")
    assert done.stderr == ""
    signs = {"txt": "vs click", "md": "| :---", "html": "<table>"}
    assert "vs click" in done.stdout
    assert all(sign in (tmp_path / f"table.{ending}").read_text() for ending, sign in signs.items())


def test_the_demo_writes_a_report_and_a_bundle_with_a_store(tmp_path: Path, cli: Run) -> None:
    _, seeded = (shlex.split(line)[1:] for line in examples(["demo"]))
    out = tmp_path / "demo7"
    seeded[seeded.index("runs/demo7")] = str(out)
    sizes = {"searches": 3000, "queries": 60, "test-queries": 60, "candidates": 15, "days": 4}
    printed = cli(*seeded, *(f"--{name}={size}" for name, size in sizes.items())).stdout
    shown = json.loads((out / "demo.json").read_text())["result"]
    rows = {row["method"]: row for row in shown["rows"]}
    assert {"labels (ceiling)", "auto", "click", "dla", "lbd", "inforank", "logged order"} < rows.keys()
    ranked = [row for row in rows.values() if row["new"] is not None]
    assert all(row["new"][1] <= row["new"][0] <= row["new"][2] for row in ranked)
    assert (rows["labels (ceiling)"]["closed"], rows["logged order"]["closed"]) == ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    assert rows["doubly robust (Eq. 4)"]["new"] is None
    assert all(0 < value <= 1 for row in rows.values() for value in row["traffic"].values())
    for fact in ("Position bias", "Observation by position", "doubly robust (approx.)", "Try next"):
        assert fact in printed
    page = (out / "report.html").read_text()
    assert page.partition("<details>")[0].count("<figure>") == 1
    assert len(shown["verdict"]) == 3
    assert "users who behave differently" in shown["notes"][0]
    for fact in (*shown["commands"], "auto learns from clicks alone", "Popularity bias"):
        assert html.escape(fact) in page
    page_queries = read_examples((out / "bundle" / "examples.json").read_bytes()).queries
    with closing(open_store(out / "store")) as store:
        for query in ("test-1", page_queries[0].id):
            assert store.get(query, [f"{query}-d1", f"{query}-d2"]).whole, query
    for line in shown["commands"]:
        assert addressed(shlex.split(line)[1:]), line
    cli(*shlex.split(shown["commands"][2])[1:])


def test_the_demo_refuses_a_folder_with_other_contents(tmp_path: Path, cli: Run) -> None:
    (tmp_path / "log").mkdir()
    told = cli("demo", "--out", tmp_path, code=1).stderr
    assert "is not empty, and not the folder of a demo" in told
    assert (tmp_path / "log").is_dir()
