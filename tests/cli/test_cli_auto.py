"""`clickprism auto`: a log without features, what is refused, and what a script reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from clickprism.cli_old.app import app


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["auto", *map(str, words)])
    assert result.exit_code == code, result.output + str(result.exception)
    return result


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions of three rankers' lists, without features."""
    rng = np.random.default_rng(2)
    lines = ["query\tdocuments\tclicks\tday"]
    for number in range(1500):
        query, documents = number % 30, rng.permutation(4)[:3]
        seen = rng.random(3) < 0.9 / np.arange(1, 4)
        clicked = documents[seen & (rng.random(3) < (1 + documents) / 5)]
        names = [",".join(f"d{query}-{each}" for each in some) for some in (documents, clicked)]
        lines.append(f"q{query}\t{names[0]}\t{names[1]}\t2026-03-0{1 + number % 3}")
    file = tmp_path_factory.mktemp("log") / "sessions.tsv"
    file.write_text("\n".join(lines))
    return file


def test_a_log_without_features_has_a_report_and_exit_code_3(sessions: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = run(sessions, "--out", out, "--budget", "1m", code=3)
    assert "No ranker can be trained: the documents of the log have no features" in first.stderr
    assert f"What can be done instead stands in {out / 'report.html'}" in first.stderr
    assert "What could not be known" in first.stdout
    assert "clickprism observe" in first.stdout
    again = run(sessions, "--out", out, "--budget", "60s", "--json", "--quiet", code=3)
    told = json.loads(again.stdout)
    assert told == json.loads((out / "auto.json").read_text())
    assert told["bundle"] is None
    assert told["log"]["days"] == 3
    assert [each["decision"] for each in told["decisions"]][-1] == "train no ranker"
    assert "sessions.tsv" in (out / "report.html").read_text()


def test_what_is_wrong_is_said_before_anything_is_done(sessions: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "--budget must be a time above 0" in run(sessions, "--out", out, "--budget", "soon", code=2).stderr
    assert "--day must be a column of the log" in run(sessions, "--out", out, "--day", "when", code=2).stderr
    missing = run(tmp_path / "none.tsv", "--out", out, code=3).stderr
    assert "none.tsv: there is no such file or folder. Name the folder of a log" in missing
    assert not out.exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    refused = run(sessions, "--out", tmp_path / "mine", code=3)
    assert "holds notes.txt, which is not of clickprism auto" in refused.stderr
