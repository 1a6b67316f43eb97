"""`clickprism auto` and `clickprism diagnose` on session files and on simulated logs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickprism.cli.reference import examples
from clickprism.data.clicks import save_clicks
from clickprism.diagnosis.diagnose import FINDINGS
from tests.data.shop import shop_table
from tests.diagnosis.tiny_logs import small_world

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions without features, with days, of two rankers; the second position is observed half as often."""
    rng = np.random.default_rng(5)
    lines = ["query\tdocuments\tclicks\tday\tranker"]
    for session in range(6000):
        query, ranker = rng.integers(30), rng.integers(2)
        order = ["a", "b", "c"] if ranker else ["b", "c", "a"]
        rate = 0.2 + 0.5 * (query % 3 == np.arange(3))
        chance = np.array([1.0, 0.5, 0.25]) * np.array([rate["abc".index(name)] for name in order])
        clicked = [name for name, hit in zip(order, rng.random(3) < chance, strict=True) if hit]
        lines.append(f"q{query}\t{','.join(order)}\t{','.join(clicked)}\t2026-03-{1 + session % 4:02}\tr{ranker}")
    file = tmp_path_factory.mktemp("log") / "sessions.tsv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def mylog(tmp_path_factory: pytest.TempPathFactory, cli: Run) -> Path:
    """A small ingested log with features."""
    folder = tmp_path_factory.mktemp("auto")
    raw = ["--searches", 800, "--days", 3, "--queries", 25, "--length", 5, "--features"]
    cli("log", "simulate", *raw, "--seed", 1, "--out", folder / "raw")
    cli("log", "ingest", folder / "raw" / "events", "--into", folder / "mylog")
    return folder / "mylog"


def test_auto_without_features_reports_and_exits_with_3(sessions: Path, tmp_path: Path, cli: Run) -> None:
    out = tmp_path / "out"
    first = cli("auto", sessions, "--out", out, "--budget", "1m", code=3)
    assert "No ranker can be trained: the documents of the log have no features" in first.stderr
    assert f"See {out / 'report.html'} for what to do instead" in first.stderr
    assert "What to do next" in first.stdout
    assert f"relevance estimate {sessions} --out estimates.parquet" in first.stdout
    cli("relevance", "estimate", sessions, "--out", tmp_path / "estimates.parquet")  # what is advised works
    again = cli("auto", sessions, "--out", out, "--budget", "60s", "--json", "--quiet", code=3)
    assert again.json == json.loads((out / "auto.json").read_text())
    assert again.json["bundle"] is None
    assert again.json["log"]["days"] == 4
    assert again.json["choice"]["refused"] == again.json["verdict"][0]
    assert "sessions.tsv" in (out / "report.html").read_text()


def test_auto_checks_its_options_before_it_writes(sessions: Path, tmp_path: Path, cli: Run) -> None:
    out = tmp_path / "out"
    assert "--budget" in cli("auto", sessions, "--out", out, "--budget", "soon", code=2).stderr
    assert "--budget must be a time above 0" in cli("auto", sessions, "--out", out, "--budget", "0s", code=2).stderr
    told = cli("auto", sessions, "--out", out, "--map", "time=when", code=1).stderr
    assert "has no column 'when' for the time" in told
    missing = cli("auto", tmp_path / "none.tsv", "--out", out, code=1).stderr
    assert "none.tsv: there is no such file or folder. Name a folder that `clickprism log ingest` created" in missing
    assert not out.exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert "notes.txt" in cli("auto", sessions, "--out", tmp_path / "mine", code=1).stderr


def test_diagnose_reports_every_finding(sessions: Path, cli: Run) -> None:
    facts = cli("diagnose", sessions, "--json", "--quiet").json
    assert [each["name"] for each in facts["findings"]] == list(FINDINGS)
    found = {each["name"]: each for each in facts["findings"]}
    assert found["position"]["verdict"] == "present"
    assert found["position"]["estimate"] == pytest.approx(0.375, abs=0.06)  # the mean of .5 and .25
    assert facts["curve"]["values"] == pytest.approx([1.0, 0.5, 0.25], abs=0.06)
    assert facts["summary"][0] == {"question": "Is there position bias?", "answer": "Yes."}
    assert found["coupling"]["verdict"] == "inconclusive"
    assert found["trust"]["verdict"] != "present"
    assert found["coverage"]["details"]["rankers"] == ["r0", "r1"]
    assert all(each["sentence"] and each["advice"] for each in facts["findings"])


def test_diagnose_writes_a_page_and_json(sessions: Path, tmp_path: Path, cli: Run) -> None:
    shown = cli("diagnose", sessions, "--only", "position", "--only", "coupling", "--out", tmp_path / "made", "-q")
    assert "! present" in shown.stdout
    assert "The documents of the log have no features" in " ".join(shown.stdout.split())
    page = (tmp_path / "made" / "report.html").read_text()
    assert "Position bias" in page
    assert "<svg" in page
    saved = json.loads((tmp_path / "made" / "diagnosis.json").read_text())
    assert [each["name"] for each in saved["findings"]] == ["position", "coupling"]


def test_a_simulated_log_that_does_not_record_its_data_has_no_features(tmp_path: Path, cli: Run) -> None:
    file = tmp_path / "clicks.npz"
    save_clicks(small_world(queries=20, sessions=2000).clicks, file)
    facts = cli("diagnose", file, "--only", "coupling", "--json").json
    assert facts["findings"][0]["verdict"] == "inconclusive"


def test_diagnose_names_the_findings_that_exist(sessions: Path, cli: Run) -> None:
    assert "--only must be among coverage" in cli("diagnose", sessions, "--only", "luck", code=2).stderr


@pytest.mark.parametrize("command", ["auto", "diagnose"])
def test_the_examples_in_the_help_run(
    command: str, mylog: Path, sessions: Path, monkeypatch: pytest.MonkeyPatch, cli: Run
) -> None:
    monkeypatch.chdir(mylog.parent)
    if not Path("sessions.tsv").exists():
        Path("sessions.tsv").symlink_to(sessions)
    shop_table(Path("clicks.csv"), Path("shop.db"))
    for line in examples([command]):
        cli(*shlex.split(line)[1:])
    if command == "auto":  # the card of the bundle has the curve of `bias position`
        card = Path("runs/mylog/bundle/MODEL_CARD.md").read_text(encoding="utf-8")
        for position, value in enumerate(cli("bias", "position", "mylog", "--json").json["curve"]["values"], start=1):
            assert f"| {position} | {value:.4f} |" in card


def test_diagnose_prints_what_the_reader_of_a_session_file_noted(sessions: Path, tmp_path: Path, cli: Run) -> None:
    file = tmp_path / "repeated.tsv"
    file.write_text(sessions.read_text(encoding="utf-8") + "q0\ta,b,a\ta\t2026-03-01\tr0\n", encoding="utf-8")
    assert "a document is shown again: it counts once" in cli("diagnose", file, "--only", "coverage").stderr


def test_diagnose_and_auto_say_that_a_log_has_only_clicks(tmp_path: Path, cli: Run) -> None:
    file = tmp_path / "clicks.csv"
    rows = [f"q{number % 5},d{number % 3},{1 + number % 4},1,s{number}" for number in range(60)]
    file.write_text("query,document,position,clicked,session\n" + "\n".join(rows) + "\n", encoding="utf-8")
    shown = cli("diagnose", file)
    assert shown.stderr.count("Every result of the log was clicked") == 1
    assert "Log every result that users were shown" in " ".join(shown.stdout.split())
    assert "Every result of the log was clicked" in cli("auto", file, "--out", tmp_path / "auto", code=3).stderr
    facts = cli("diagnose", file, "--json", "--quiet").json
    assert facts["curve"] is None
    assert {each["verdict"] for each in facts["findings"]} == {"absent", "inconclusive"}
