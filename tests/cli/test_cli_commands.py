"""Every command on a data set so small that it takes no time, in this process."""

from __future__ import annotations

import hashlib
import json
import shlex
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from clickprism import __version__
from clickprism.cli_old.app import app
from clickprism.cli_old.output import command_line
from clickprism.serve.examples import read_examples
from clickprism.serve.store import open_store

TINY = [
    f"--set={key}={value}"
    for key, value in {
        "data.synthetic.train_queries": 60,
        "data.synthetic.validation_queries": 20,
        "data.synthetic.test_queries": 40,
        "data.synthetic.features": 12,
        "fit.epochs": 2,
        "fit.threads": 1,
    }.items()
]
LINEAR = ["--ranker", "linear", *TINY]


def run(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output + str(result.exception)
    return result


def read(*words: str, code: int = 0) -> Any:
    return json.loads(run(*words, "--json", code=code).stdout)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICKPRISM_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with clicks.npz and the models that two methods made of them."""
    folder = tmp_path_factory.mktemp("work")
    run("simulate", *TINY, "--out", f"{folder}/clicks.npz", "--held-out", f"{folder}/held-out.npz")
    for method in ("click", "ipw"):
        clicks = f"{folder}/clicks.npz"
        run("train", *LINEAR, "--clicks", clicks, "--method", method, "--out", f"{folder}/runs/{method}")
    return folder


def test_version() -> None:
    assert run("--version").stdout == f"clickprism {__version__}\n"


def test_recipes() -> None:
    assert "mq2008" in run("data", "recipes").stdout
    assert read("data", "recipes")["mq2008"]["features"] == 46


def test_check_says_what_is_missing(tmp_path: Path) -> None:
    assert "missing set1.train.txt" in run("data", "check", "yahoo", str(tmp_path), code=3).stdout
    report = read("data", "check", "yahoo", str(tmp_path), code=3)
    assert report["missing"] == ["set1.train.txt", "set1.valid.txt", "set1.test.txt"]
    assert not report["ok"]


def test_generated_files_are_the_embedded_data(tmp_path: Path) -> None:
    made = read("data", "generate", *TINY, "--out", str(tmp_path))["files"]
    assert [file["lists"] for file in made] == [60, 20, 40]
    files = [f"{tmp_path}/{part}.txt" for part in ("train", "validation", "test")]
    found = read("data", "info", *files)["files"]
    assert [{**file, "quarantined": 0} for file in made] == found
    sources = [f"--set=data.{part}={tmp_path}/{part}.txt" for part in ("train", "validation", "test")]
    clicks = str(tmp_path / "clicks.npz")
    assert (
        read("simulate", "--set=data.source=files", *sources, "--out", clicks)["clicks"]
        == (read("simulate", *TINY, "--out", clicks)["clicks"])
    )


def test_info_in_words(tmp_path: Path) -> None:
    file = tmp_path / "small.txt"
    file.write_text("2 qid:1 1:0.5\n0 qid:1 2:1\n0 qid:2 1:nan\n0 qid:2 1:1\n")
    lines = dict(line.rsplit("  ", 1) for line in run("data", "info", str(file)).stdout.splitlines()[1:])
    facts = {name.strip(): value.strip() for name, value in lines.items()}
    assert facts["lists"] == "2"
    assert facts["grade 0"] == "75.0%"
    assert facts["grade 2"] == "25.0%"
    assert facts["lists without a relevant document"] == "1"
    assert facts["missing values"] == "1"


def test_broken_lines_end_it_or_go_to_quarantine(tmp_path: Path) -> None:
    file, broken = tmp_path / "data.txt", tmp_path / "broken.jsonl"
    file.write_text("1 qid:1 1:0.5\nx qid:1 1:2\n0 qid:1 1:1\n")
    assert f"error: {file}:2:1: " in run("data", "info", str(file), code=3).stderr
    found = read("data", "info", str(file), "--on-error", "quarantine", "--quarantine-file", str(broken))
    assert found["files"][0]["documents"] == 2
    assert found["files"][0]["quarantined"] == 1
    line = json.loads(broken.read_text())
    assert (line["line"], line["raw"]) == (2, "x qid:1 1:2")


def test_simulate_tells_how_users_behaved(tmp_path: Path) -> None:
    out = str(tmp_path / "deep" / "clicks.npz")
    log = read("simulate", *TINY, "--sessions", "30", "--user", "pbm", "--out", out)
    assert log["sessions"] == 60 * 30
    assert log["lists"] == 60
    assert len(log["observation"]) == 10
    assert log["observation"][0] == pytest.approx(0.68, abs=0.05)
    assert all(rate <= seen for rate, seen in zip(log["click_rate"], log["observation"], strict=True))
    assert "position  clicked  observed" in run("simulate", *TINY, "--out", out).stdout


def test_the_command_after_simulate_works(tmp_path: Path) -> None:
    told = run("simulate", *TINY, "--user", "ubm", "--out", f"{tmp_path}/my clicks.npz").stderr
    words = shlex.split(told.partition("Next: ")[2])
    assert words[0] == "clickprism"
    assert words[-2:] == ["--out", "runs/dla"]
    assert "my clicks.npz" in run(*words[1:-1], f"{tmp_path}/run", "--ranker=linear").stdout


def test_commands_are_told_as_they_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "in" / "clickprism")])
    assert command_line("evaluate", "a b") == "in/clickprism evaluate 'a b'"
    monkeypatch.setattr("sys.argv", ["/else where/clickprism"])
    assert command_line("demo") == "'/else where/clickprism' demo"


def test_clicks_are_made_already(work: Path, tmp_path: Path) -> None:
    for flag in ("--user=ubm", "--sessions=5"):
        words = ["train", *LINEAR, flag, "--clicks", f"{work}/clicks.npz", "--out", f"{tmp_path}/run"]
        assert "not be given with --clicks, whose clicks are made already" in run(*words, code=2).stderr


def test_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert f"{tmp_path}: there is nothing to resume" in run("train", "--resume", "--out", str(tmp_path), code=3).stderr


def test_train_writes_what_it_did(work: Path) -> None:
    folder = work / "runs" / "click"
    names = {file.name for file in folder.iterdir()}
    assert names == {"model", "metrics.jsonl", "run.json", "settings.toml", "checkpoint.safetensors"}
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2


def test_ipw_is_given_the_truth_beside_the_clicks(work: Path, tmp_path: Path) -> None:
    clicks = str(work / "clicks.npz")
    done = read("train", *LINEAR, "--clicks", clicks, "--method", "ipw", "--out", str(tmp_path / "ipw"))
    assert done["observation"] == pytest.approx(done["truth"], rel=1e-5)
    assert done["clicks"] == clicks
    assert done["stopped"] == "epochs"
    assert done["epochs"] == 2


def test_settings_that_train_wrote_are_taken_back(work: Path, tmp_path: Path) -> None:
    config = work / "runs" / "click" / "settings.toml"
    run("train", "--config", str(config), "--out", str(tmp_path / "again"))
    comment, kept = config.read_text().split("\n", 1)
    digest = hashlib.sha256((work / "clicks.npz").read_bytes()).hexdigest()
    assert comment == f'# clicks: "{work}/clicks.npz", sha256 {digest}'
    assert (tmp_path / "again" / "settings.toml").read_text() == kept
    manifests = [folder / "model" / "model.json" for folder in (config.parent, tmp_path / "again")]
    assert manifests[0].read_text() == manifests[1].read_text()


def test_resume_goes_on_by_the_settings_in_the_folder(tmp_path: Path) -> None:
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    run("train", *LINEAR, "--set=fit.epochs=4", "--out", str(whole))
    run("train", *LINEAR, "--out", str(parted))
    assert read("train", "--resume", "--epochs", "4", "--out", str(parted))["epochs"] == 4
    manifests = [folder / "model" / "model.json" for folder in (whole, parted)]
    assert manifests[0].read_text() == manifests[1].read_text()


def test_validation_by_clicks_needs_them(work: Path, tmp_path: Path) -> None:
    words = ["train", *LINEAR, "--set=evaluation.validation=clicks", "--clicks", f"{work}/clicks.npz"]
    out = ["--out", str(tmp_path / "run")]
    assert "no clicks were held out" in run(*words, *out, code=2).stderr
    assert read(*words, "--held-out", f"{work}/held-out.npz", *out)["value"] < 0


def test_evaluate_finds_data_and_normaliser_by_itself(work: Path) -> None:
    one = read("evaluate", str(work / "runs" / "ipw" / "model"))
    assert list(one["methods"]) == ["ipw"]
    assert one["queries"] + one["dropped"] == 40
    words = ["evaluate", f"{work}/runs/click", f"{work}/runs/ipw", "--measure", "nDCG@5", "--measure", "MRR"]
    both = read(*words, "--part", "validation")
    assert both["baseline"] == "click"
    assert both["seeds"] == [0]
    assert both["measure"] == "nDCG(exp)@5"
    assert both["others"][0]["measure"] == "MRR(rel=1)"
    assert both["queries"] + both["dropped"] == 20
    assert "vs click" in run(*words).stdout


def test_a_model_gets_raw_features_exactly_once(tmp_path: Path) -> None:
    words = [*LINEAR, "--set=data.normalise=standard"]
    out = str(tmp_path / "run")
    trained = read("train", *words, "--out", out)
    measured = read("evaluate", out, "--part", "validation")
    assert measured["methods"]["run"]["mean"] == pytest.approx(trained["value"], abs=1e-9)


def test_models_on_different_data_are_not_compared(work: Path, tmp_path: Path) -> None:
    run("train", *LINEAR, "--set=data.synthetic.seed=9", "--out", str(tmp_path / "other"))
    error = run("evaluate", f"{work}/runs/click", f"{tmp_path}/other", code=2).stderr
    assert "different data" in error
    config = f"{work}/runs/click/settings.toml"
    assert set(read("evaluate", f"{work}/runs/click", f"{tmp_path}/other", "--config", config)["methods"]) == {
        "click",
        "other",
    }


def test_compare_prints_and_saves(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["compare", *LINEAR, "--methods", "labels,click,dla", "--seeds", "2", "--measure", "nDCG@10"]
    table = read(*words, "--out", str(out))
    assert list(table["methods"]) == ["labels", "click", "dla", "initial"]
    assert table["seeds"] == [0, 1]
    assert table["baseline"] == "click"
    for fact in ("users: pbm, 100 sessions of each query", "ranker: linear, best epoch by nDCG(exp)@10 on the judged"):
        assert fact in table["data"]
    assert len(table["observation"]["dla"]) == 10
    names = {file.name for file in out.iterdir() if file.is_file()}
    tables = {"table.txt", "table.md", "table.tex", "table.html", "results.json"}
    bias = {"positions.svg", "frequency.svg", "exposure.svg"}
    figures = {"observation.svg", "training.svg", "methods.svg", *bias}
    assert names == tables | figures | {"report.html", "settings.toml"}
    assert json.loads((out / "results.json").read_text()) == table
    assert (out / "dla-1" / "model" / "model.json").exists()
    assert "compare --config" in (out / "report.html").read_text()
    assert f"{out}/dla-0, {out}/dla-1" in run("evaluate", str(out), code=3).stderr
    evaluated = read("evaluate", str(out / "dla-0"), str(out / "dla-1"))
    alone = [run["nDCG(exp)@10"] for run in table["details"] if run["method"] == "dla"]
    assert [row["mean"] for row in evaluated["methods"].values()] == pytest.approx(alone, abs=1e-9)


@pytest.mark.parametrize(
    ("form", "sign"), [("text", "vs click"), ("markdown", "| :---"), ("latex", r"\toprule"), ("html", "<table>")]
)
def test_compare_in_every_form(form: str, sign: str) -> None:
    result = run("compare", *LINEAR, "--methods", "click", "--format", form)
    assert sign in result.stdout
    assert "click, seed 0: nDCG(exp)@10 " in result.stderr


def test_quiet_is_quiet() -> None:
    assert run("compare", *LINEAR, "--methods", "click", "--quiet").stderr == ""


def test_demo(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    shown = read("demo", *TINY, "--jobs", "1", "--seed", "3", "--out", str(out))
    assert shown["measure"] == "nDCG(exp)@10"
    assert list(shown["methods"]) == ["labels", "ipw", "dla", "click", "initial"]
    assert all(row["low"] <= row["mean"] <= row["high"] for row in shown["methods"].values())
    assert shown["seeds"] == [3, 4]
    page = (out / "report.html").read_text()
    assert page.count("<figure>") == 6
    for fact in ("seeds 3, 4", "are dropped", "data.synthetic.train_queries", "clickprism evaluate"):
        assert fact in page
    assert (out / "model" / "model.json").exists()
    assert list(read("evaluate", str(out))["methods"]) == ["demo"]
    page_queries = read_examples((out / "bundle" / "examples.json").read_bytes()).queries
    with closing(open_store(out / "store")) as store:
        for query in ("test-1", page_queries[0].id):
            assert store.get(query, ["d1", "d2"]).whole, query


def test_a_method_that_needs_patterns_gets_them_from_simulated_users(tmp_path: Path) -> None:
    run("train", *LINEAR, "--method", "pair_debias", "--out", f"{tmp_path}/pairs")


def test_under_trust_the_curve_of_the_affine_correction_stands_beside_the_true_alpha(tmp_path: Path) -> None:
    told = read("train", *LINEAR, "--user", "trust", "--method", "affine", "--out", f"{tmp_path}/affine")
    assert told["observation"] == pytest.approx(told["truth"], rel=1e-5)
    assert told["truth"][1] > 1
