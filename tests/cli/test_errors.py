"""An error is one line on standard error and an exit code, and Ctrl-C ends everything that a command started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clickprism.cli.app import EXIT_CODES
from clickprism.cli.output import Output
from clickprism.errors import (
    ClickprismError,
    DataError,
    EngineError,
    MissingExtraError,
    SettingError,
    TrainingError,
    UnsupportedError,
)
from tests.waiting import LIMIT, until

Run = Callable[..., Any]
SMALL = [
    *["--data.synthetic.train-queries", "60", "--data.synthetic.validation-queries", "20"],
    *["--data.synthetic.test-queries", "20", "--data.synthetic.features", "12"],
    *["--sessions", "10", "--ranker", "linear", "--fit.threads", "1"],
]
ENDLESS = [*SMALL, "--fit.patience", "0", "--fit.epochs", "1000000"]
MAIN = "from clickprism.cli.app import main; main()"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("train --fit.epoch 3", 2, "Unknown option: --fit.epoch. Did you mean --fit.epochs?"),
        ("train --merge pattern", 2, "Unknown option: --merge. Did you mean --simulation.merge?"),
        ("train --user pmb", 2, "did you mean 'pbm'"),
        ("train --data.source synthetik", 2, "did you mean 'synthetic'"),
        ("train --data.source mq2008", 2, "say where the files of mq2008 are"),
        ("train --evaluation.measures nDGC", 2, "did you mean 'nDCG'"),
        ("train --fit.epochs many", 2, "--fit.epochs"),
        ("train --method dlaa", 2, "did you mean 'dla'"),
        ("train --config nowhere.toml", 1, "error: nowhere.toml: cannot be read"),
        ("train nowhere.npz", 1, "nowhere.npz: there is no such file or folder"),
        ("train --fit.learning-rate 1e6 --fit.clip-norm 0 --fit.epochs 3", 1, "learning_rate"),
        ("experiment compare --runs x", 2, "--runs"),
        ("experiment compare --runs 0", 2, "--runs must be at least 1, got 0"),
        ("experiment compare --seed -1", 2, "--seed must be at least 0, got -1"),
        ("experiment compare --method clik", 2, "did you mean 'click'"),
        ("experiment compare --method click --baseline dla", 2, "baseline"),
    ],
)
def test_an_error_is_explained_without_a_traceback(words: str, code: int, told: str, tmp_path: Path, cli: Run) -> None:
    small = SMALL if "learning-rate" in words or "--method" in words else []
    done = cli(*words.split(), *small, "--out", tmp_path / "run", code=code)
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert told in done.stderr


@pytest.mark.parametrize("words", ["nothing", "train", "data check mq2009 .", "data check mq2008"])
def test_wrong_use_has_exit_code_2(words: str, cli: Run) -> None:
    assert cli(*words.split(), code=2).stderr.startswith("error: ")


def test_exit_codes_belong_to_the_errors() -> None:
    failures: tuple[type[ClickprismError], ...] = (DataError, TrainingError, MissingExtraError, EngineError)
    assert {error.exit_code for error in failures} == {1}
    assert (SettingError.exit_code, UnsupportedError.exit_code) == (2, 3)
    assert set(EXIT_CODES) == {0, 1, 2, 3, 130}


def without(packages: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a Python in which these packages cannot be imported."""
    block = f"import sys; sys.modules.update(dict.fromkeys({packages.split()!r}))"
    command = [sys.executable, "-c", f"{block}; {MAIN}", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)


@pytest.mark.parametrize("words", ["--help", "train --help", "experiment compare --help", "data check"])
def test_help_and_data_need_no_optional_package(words: str) -> None:
    done = without("torch safetensors lightgbm", *words.split())
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("packages", "words", "extra"),
    [("torch", [], "neural"), ("safetensors", [], "neural"), ("lightgbm", ["--ranker", "lambdamart"], "trees")],
)
def test_a_missing_package_is_named(packages: str, words: list[str], extra: str, tmp_path: Path) -> None:
    small = SMALL if not words else [word for word in SMALL if word not in ("--ranker", "linear")]
    done = without(packages, "train", *small, "--method", "labels", *words, "--out", str(tmp_path / "run"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith(f"pip install 'clickprism[{extra}]'\n")


def interrupted(*words: str, sign: Path) -> tuple[int, str]:
    """Start a command, wait until a file exists, and press Ctrl-C; return the exit code and standard error.

    Standard error is complete only after every process that has it open has ended.
    """
    # A test run in the background of a shell would hand down that interrupts are ignored.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heard}; {MAIN}", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            until(lambda: sign.exists() or process.poll() is not None)
            os.killpg(process.pid, signal.SIGINT)
            _, told = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    return process.returncode, told


def test_ctrl_c_keeps_the_best_model_so_far(tmp_path: Path, cli: Run) -> None:
    out = tmp_path / "run"
    code, told = interrupted("train", *ENDLESS, "--out", str(out), sign=out / "checkpoint.safetensors")
    assert code == 130
    assert f"clickprism train --resume --out {out}" in told
    assert "Traceback" not in told
    assert (out / "model" / "model.json").exists()
    cli("evaluate", "judged", out)


def test_ctrl_c_ends_all_processes_of_a_comparison(tmp_path: Path) -> None:
    words = [*ENDLESS, "--method", "click", "--method", "dla", "--jobs", "2", "--out", str(tmp_path)]
    code, told = interrupted("experiment", "compare", *words, sign=tmp_path / "dla-0" / "metrics.jsonl")
    assert code == 130
    assert told.endswith("interrupted\n")
    assert "Traceback" not in told


@pytest.mark.parametrize("command", ["train", "demo", "experiment compare", "experiment simulate", "data generate"])
def test_an_unusable_out_is_refused_before_any_work(
    command: str, tmp_path: Path, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object, **__: object) -> None:
        pytest.fail("work was begun")

    for name in ("data.synthetic.synthetic", "experiments.train.load_data", "experiments.data.synthetic"):
        monkeypatch.setattr(f"clickprism.{name}", work)
    file = tmp_path / "file"
    file.write_text("")
    out = file / "clicks.npz" if "simulate" in command else file
    for unusable in (out, out / "below" / "x"):
        told = cli(*command.split(), "--out", unusable, code=1).stderr
        assert told.startswith(f"error: {file}")
        assert told.count("\n") == 1


def test_json_has_null_for_numbers_that_json_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=True).show("", {"a": [1.5, float("nan")], "b": {"c": float("-inf")}})
    assert json.loads(capsys.readouterr().out) == {"a": [1.5, None], "b": {"c": None}}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("model verify nowhere", 1, "nowhere: does not exist. Create it with: clickprism model bundle"),
        ("evaluate judged nowhere", 1, "nowhere: does not exist. Name a folder that `clickprism train --out` wrote"),
        ("relevance judgments folder --out list.csv", 1, "folder: is a folder. Create it with: clickprism relevance"),
        ("train sessions.tsv --out runs", 3, "sessions.tsv: the documents of this log have no features to train on"),
        ("serve folder", 1, "folder: is not a bundle: it has no manifest.json. Did you mean folder/bundle?"),
    ],
)
def test_an_error_about_a_file_says_what_it_is_and_what_to_type(
    words: str, code: int, told: str, *, cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder/bundle").mkdir(parents=True)
    Path("folder/bundle/manifest.json").touch()
    Path("events.csv").write_text("search_id,query,document_id,position,click\ns1,hat,d1,1,0\n")
    Path("sessions.tsv").write_text("query\tdocuments\tclicks\nhat\td1,d2\td1\n")
    assert told in cli(*words.split(), code=code).stderr
