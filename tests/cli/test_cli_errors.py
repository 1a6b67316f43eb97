"""What goes wrong ends with one line on standard error and a stable exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clickprism.cli_old.app import EXIT_CODES, app
from clickprism.cli_old.output import Output
from clickprism.errors import ClickprismError, DataError, EngineError, MissingExtraError, SettingError, TrainingError

SMALL = [
    "--set=data.synthetic.train_queries=60",
    "--set=data.synthetic.validation_queries=20",
    "--set=data.synthetic.test_queries=20",
    "--set=data.synthetic.features=12",
    "--set=fit.threads=1",
    "--ranker=linear",
]
MAIN = "from clickprism.cli_old import main; main()"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["train", "--set", "fit.epoch=3"],
            2,
            "error: fit.epoch must be a known setting (did you mean 'epochs'?), got 3",
        ),
        (
            ["train", "--set", "merge=pattern"],
            2,
            "merge must be a known setting (did you mean 'simulation.merge'?), got",
        ),
        (["train", "--method", "dlaa"], 2, "did you mean 'dla'"),
        (["train", "--config", "nowhere.toml"], 3, "error: nowhere.toml: cannot be read"),
        (["train", "--clicks", "nowhere.npz", *SMALL], 3, "error: nowhere.npz: cannot be read"),
        (["train", *SMALL, "--set=fit.learning_rate=1e6", "--set=fit.clip_norm=0", "--epochs=3"], 4, "learning_rate"),
    ],
)
def test_errors_are_a_line_and_a_code(words: list[str], code: int, message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run")])
    assert result.exit_code == code
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


def test_more_errors() -> None:
    for words, code in (
        (["evaluate", "nowhere"], 3),
        (["compare", "--seeds", "x"], 2),
        (["compare", "--methods", "clik"], 2),
        (["compare", "--methods", "click", "--baseline", "dla"], 2),
        (["compare", "--format", "pdf"], 2),
        (["data", "check", "mq2009", "."], 2),
        (["nothing"], 2),
        (["train"], 2),
    ):
        assert CliRunner().invoke(app, words).exit_code == code, words


def test_codes_are_the_errors_own() -> None:
    errors: tuple[type[ClickprismError], ...] = (
        ClickprismError,
        SettingError,
        DataError,
        TrainingError,
        MissingExtraError,
        EngineError,
    )
    assert [error.exit_code for error in errors] == [1, 2, 3, 4, 5, 6]
    assert {0, 1, 2, 3, 4, 5, 6, 130} == set(EXIT_CODES)


def without(packages: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a Python in which these packages cannot be imported."""
    block = f"import sys; sys.modules.update(dict.fromkeys({packages.split()!r}))"
    command = [sys.executable, "-c", f"{block}; {MAIN}", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["data", "recipes"]])
def test_without_optional_parts(words: list[str]) -> None:
    done = without("torch safetensors lightgbm", *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("packages", "words", "extra"),
    [("torch", [], "neural"), ("safetensors", [], "neural"), ("lightgbm", ["--ranker=lambdamart"], "trees")],
)
def test_what_is_missing_is_named(packages: str, words: list[str], extra: str, tmp_path: Path) -> None:
    done = without(packages, "train", *SMALL, "--method=labels", *words, "--out", str(tmp_path / "run"))
    assert done.returncode == 5
    assert done.stdout == ""
    assert done.stderr.endswith(f"needs an optional part: pip install 'clickprism[{extra}]'\n")
    assert done.stderr.startswith("error: ")


def interrupted(*words: str, sign: Path) -> tuple[int, str]:
    """Start a command, wait for a file to appear, press Ctrl-C; its exit code and standard error.

    A test run in the background of a shell would hand down that interrupts are ignored.
    """
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heard}; {MAIN}", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        limit = time.monotonic() + 90
        while not sign.exists() and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, stderr


def test_ctrl_c_keeps_the_best_so_far(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [*SMALL, "--set=fit.patience=0", "--set=fit.checkpoint_every=1", "--epochs=1000000", "--out", str(out)]
    code, stderr = interrupted("train", *words, sign=out / "checkpoint.safetensors")
    assert code == 130
    assert f"clickprism train --resume --out {out}" in stderr
    assert "Traceback" not in stderr
    assert (out / "model" / "model.json").exists()
    assert CliRunner().invoke(app, ["evaluate", str(out)]).exit_code == 0


def test_ctrl_c_ends_all_processes_of_a_comparison(tmp_path: Path) -> None:
    words = [*SMALL, "--set=fit.patience=0", "--epochs=1000000", "--methods=click,dla", "--jobs=2"]
    code, stderr = interrupted("compare", *words, "--out", str(tmp_path), sign=tmp_path / "dla-0" / "metrics.jsonl")
    assert code == 130
    assert stderr.endswith("interrupted\n")
    assert "Traceback" not in stderr


@pytest.mark.parametrize("command", ["train", "compare", "demo", "simulate", "data generate"])
def test_an_unusable_out_is_refused_at_once(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: object, **__: object) -> None:
        pytest.fail("work was begun")

    for name in ("stages.synthetic", "train.load_data", "compare._in_turn", "compare.side_by_side"):
        monkeypatch.setattr(f"clickprism.experiments.{name}", work)
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" if command != "simulate" else tmp_path / "file" / "clicks.npz"
    for place in (out, out / "below" / "x"):
        result = CliRunner().invoke(app, [*command.split(), "--out", str(place)])
        assert result.exit_code == 3, result.output + str(result.exception)
        assert result.stderr.startswith(f"error: {tmp_path / 'file'}")
        assert "cannot be used (" in result.stderr


def test_a_folder_is_no_data_file(tmp_path: Path) -> None:
    files = [f"--set=data.{name}" for name in ("source=files", "train=.", "validation=.", "test=.")]
    for words in (["data", "info", "."], ["train", *files, "--out", str(tmp_path)]):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 3
        assert result.stderr.startswith("error: .: cannot be read (it is a folder")


def test_json_has_null_for_what_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=True).result("", {"a": [1.5, float("nan")], "b": {"c": float("-inf")}})
    assert json.loads(capsys.readouterr().out) == {"a": [1.5, None], "b": {"c": None}}
